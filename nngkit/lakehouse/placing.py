"""Segments as files of a table: hard links in its folder, copies where that is impossible, or left in place.

A link costs no space while the journal has the segment too, and lasts when the journal deletes it. A file is complete
and synced before its name is visible, and the name says which offsets it has, so one left by a killed export is used by
the next.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from nngkit.errors import ConfigError
from nngkit.file_modes import make_folder, mode, opener
from nngkit.journal.files import PENDING, SCRATCH, Storage, folder_of, opened, sync_file, sync_folder
from nngkit.lakehouse.plan import File

DATA: Final = "data"  # the folder of the files, in a table's
LOCK: Final = ".nngkit-lock"
NAME: Final = re.compile(r"partition-(\d{5})/(\d{20})-(\d{20})\.parquet(\.pending)?$")
NO_LINK: Final = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES}


def parse(path: str, size: int) -> File | None:
    """Return a file of a table by its path; None if its name is not that of a segment."""
    found = NAME.search(path)
    return None if found is None else File(int(found[1]), int(found[2]), int(found[3]), size, path)


def place(storage: Storage, segments: Sequence[File], table: Path) -> list[str]:
    """Link or copy segments into a table's folder, synced; return their paths there, relative to that folder.

    Raises FileNotFoundError if the journal has one no more; ConfigError if its name is another file's; OSError.
    """
    names = [_placed(storage, each, table) for each in segments]
    for folder in sorted({table / name.rpartition("/")[0] for name in names}):
        sync_folder(folder)
    return names


def _placed(storage: Storage, segment: File, table: Path) -> str:
    name = f"{DATA}/{folder_of(segment.partition)}/{segment.path.rpartition('/')[2].removesuffix(PENDING)}"
    target = table / name
    if target.exists():  # a killed export has left it, or an older snapshot has it
        if target.stat().st_size != segment.size:
            why = f"{target}: not what the journal has of that name, {segment.size} bytes; export to a new folder"
            raise ConfigError("target", why, str(target))
        return name
    if not target.parent.is_dir():
        make_folder(target.parent)
        for each in (target.parent.parent, table):
            sync_folder(each)
    if storage.folder is None or not _linked(storage.folder / segment.path, target):
        scratch = target.with_name(target.name + SCRATCH)
        with opened(storage, segment.path) as source, open(scratch, "wb", opener=opener) as file:
            shutil.copyfileobj(source, file, 1 << 20)
        sync_file(scratch)
        scratch.replace(target)
    return name


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in NO_LINK:
            return False
        raise
    return True


@contextlib.contextmanager
def locked(table: Path) -> Iterator[None]:
    """Hold the lock of a table's folder, which ends with the process. Raises ConfigError if another export has it."""
    descriptor = os.open(table / LOCK, os.O_RDWR | os.O_CREAT, mode())
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            by = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "unknown"
            raise ConfigError(
                "target", f"{table / LOCK}: another export writes this table ({by}); wait for its end", str(table)
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
