"""Disk that loses at a power failure what was not synced; a process can be killed before any of its calls.

POSIX promises no more than this: a file has the content of its last sync, a folder has the names of its last sync, and
each of the two may be newer. A process that is killed leaves all that it has written, synced or not.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pytest

CALLS: Final = ("mkdir", "rename", "unlink", "write", "ftruncate", "fsync", "fdatasync")

Names: TypeAlias = Literal["synced", "present"]
Content: TypeAlias = Literal["synced", "present", "torn", "zeros"]  # half of what was written, or only its length
Files: TypeAlias = "dict[str, bytes | Files]"

VARIANTS: Final[tuple[tuple[Names, Content], ...]] = (
    ("synced", "synced"),
    ("synced", "present"),
    ("present", "synced"),
    ("present", "present"),
    ("present", "torn"),
    ("present", "zeros"),
)


class Killed(BaseException):
    """The process ends here."""


class PowerFailures:
    """Simulated disk below `root`, which is there at the beginning.

    `before_each` is called before each call that changes the disk. `calls` counts them.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        root.mkdir()
        self.root = root
        self.calls = 0
        self.before_each: Callable[[], object] = lambda: None
        self._copies = itertools.count()
        self._synced: dict[int, bytes] = {}  # by inode
        self._names: dict[Path, dict[str, int]] = {}  # names and inodes of synced folders
        self._held: dict[int, int] = {}  # descriptors by inode: a free inode would become that of the next file
        self._aside = False
        for name in CALLS:
            patch.setattr(os, name, self._watched(getattr(os, name)))

    def close(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def kill_after(self, calls: int) -> None:
        """Raise Killed instead of the call after so many further ones."""
        end = self.calls + calls

        def kill() -> None:
            if self.calls == end:
                raise Killed

        self.before_each = kill

    def after_power_failure(self, names: Names = "synced", content: Content = "synced") -> Path:
        """Return a copy of `root` with what is left: only what was synced, or more than that."""
        return self._copy(self._left(self.root, names, content))

    def all_that_may_be_left(self) -> Iterator[Path]:
        """Yield a copy of `root` for each different outcome of a power failure."""
        found: list[Files] = []
        for names, content in VARIANTS:
            if (left := self._left(self.root, names, content)) not in found:
                found.append(left)
        yield from map(self._copy, found)

    # ---- calls

    @contextlib.contextmanager
    def _unwatched(self) -> Iterator[None]:
        """Have no calls watched: those of a check, and of making a copy."""
        before, self._aside = self._aside, True
        try:
            yield
        finally:
            self._aside = before

    def _watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        sync = real.__name__ in ("fsync", "fdatasync")

        def call(*args: Any, **options: Any) -> Any:
            if self._aside:
                return None if sync else real(*args, **options)
            with self._unwatched():
                self.before_each()
            self.calls += 1
            return self._sync(args[0]) if sync else real(*args, **options)

        return call

    def _sync(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if not path.is_relative_to(self.root):
            return
        if not path.is_dir():
            self._synced[self._hold(descriptor)] = self._read(descriptor)
            return
        self._names[path] = {}
        for entry in os.scandir(path):
            file = os.open(entry.path, os.O_RDONLY)
            self._names[path][entry.name] = self._hold(file)
            os.close(file)

    def _hold(self, descriptor: int) -> int:
        inode = os.fstat(descriptor).st_ino
        if inode not in self._held:
            self._held[inode] = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
        return inode

    # ---- copies

    def _left(self, folder: Path, names: Names, content: Content) -> Files:
        if names == "synced":
            found = self._names.get(folder, {})
        else:
            found = {entry.name: entry.inode() for entry in os.scandir(folder)}
        files: Files = {}
        for name, inode in found.items():
            path = folder / name
            files[name] = self._left(path, names, content) if path.is_dir() else self._bytes(path, inode, content)
        return files

    def _bytes(self, path: Path, inode: int, content: Content) -> bytes:
        synced = self._synced.get(inode, b"")
        if content == "synced":
            return synced
        present = self._read(self._held[inode]) if inode in self._held else path.read_bytes()
        if content == "present" or not present.startswith(synced):
            return present
        more = len(present) - len(synced)
        return present[: len(synced) + more // 2] if content == "torn" else synced + bytes(more)

    def _copy(self, files: Files) -> Path:
        copy = self.root.with_name(f"{self.root.name}-{next(self._copies)}")
        with self._unwatched():
            _make(copy, files)
        return copy

    @staticmethod
    def _read(descriptor: int) -> bytes:
        return Path(f"/proc/self/fd/{descriptor}").read_bytes()


def _make(folder: Path, files: Files) -> None:
    folder.mkdir()
    for name, content in files.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            _make(folder / name, content)
