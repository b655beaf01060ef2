"""Waits for the next write of a head, so for records that a recorder of this machine has stored. Linux's inotify.

Elsewhere, and where the kernel has no room for another watch, nothing is watched: poll the heads then. Poll them now
and then in any case: a host that shares the folder writes unseen.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import trio

from nngkit.journal.files import HEAD

_MODIFIED: Final = 0x2
_READ: Final = 1 << 16  # bytes: thousands of events, which say no more than one


class Heads:
    """Watches heads, which a recorder rewrites in place. To be closed."""

    def __init__(self) -> None:
        self._descriptor = -1  # no inotify
        if sys.platform == "linux":
            self._library = ctypes.CDLL(None)
            self._descriptor = self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def watch(self, folders: Iterable[Path]) -> bool:
        """Watch the heads in `folders`, also those that are watched; return True if all are."""
        return self._descriptor >= 0 and all(
            self._library.inotify_add_watch(self._descriptor, os.fsencode(folder / HEAD), _MODIFIED) >= 0
            for folder in folders
        )

    async def written(self) -> None:
        """Wait until a head was written after the last call, or after it was first watched."""
        await trio.lowlevel.wait_readable(self._descriptor)
        os.read(self._descriptor, _READ)

    def close(self) -> None:
        """Watch no more. Idempotent."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
