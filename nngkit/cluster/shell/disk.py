"""Disk of a voter: its store, and the steps that wait to be written. Under trio; files are read and written in threads.

::

    disk = VoterDisk(path, "render", "a")
    restored = await disk.open()                # what an earlier run has stored
    start(disk.write, persisted)                # calls persisted(token) for all that is stored
    disk.put(steps)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from nngkit.background import WakeUp
from nngkit.cluster.election.values import Persist, Restored
from nngkit.errors import ConfigError, NotStored

if TYPE_CHECKING:
    from nngkit.cluster.shell.store import VoterStore


class VoterDisk:
    """Disk of one voter."""

    def __init__(self, path: str | os.PathLike[str], cluster: str, id: str) -> None:
        self._path = path
        self._name = cluster, id
        self._store: VoterStore | None = None
        self._steps: list[Persist] = []
        self._wake: WakeUp

    async def open(self) -> Restored | None:
        """Return what the store has; None for a new voter.

        Raises ConfigError, also without the extra that it needs, and Damaged.
        """
        try:
            from nngkit.cluster.shell.store import VoterStore
        except ImportError as error:
            raise ConfigError("store", f"it needs the extra nngkit[journal] ({error})", self._path) from error
        self._wake = WakeUp()
        self._store = VoterStore(self._path, self._name)
        return await trio.to_thread.run_sync(_open, self._store)

    def put(self, steps: Sequence[Persist]) -> None:
        """Write these steps soon."""
        self._steps += steps
        self._wake.wake()

    async def write(self, persisted: Callable[[int], object]) -> None:
        """Write the steps as they come, and call `persisted` with the last token. Raises NotStored."""
        store = self._store
        assert store is not None
        try:
            while True:
                while not self._steps:
                    await self._wake.wait()
                steps, self._steps = self._steps, []
                await trio.to_thread.run_sync(_write, store, steps)
                persisted(steps[-1].token)
        finally:
            self.close()  # here, as a thread may write until this task ends

    def close(self) -> None:
        """Close the store. Idempotent."""
        store, self._store = self._store, None
        if store is not None:
            store.close()


def _open(store: VoterStore) -> Restored | None:
    try:
        return store.open()
    except OSError as error:
        raise ConfigError("store", f"{store.path}: {error.strerror or error}", str(store.path)) from error


def _write(store: VoterStore, steps: Sequence[Persist]) -> None:
    try:
        store.write(steps)
    except OSError as error:
        why = f"{error.strerror or error}; this voter ends, as it may acknowledge only what it has stored"
        raise NotStored(f"{store.path}: {why}") from error
