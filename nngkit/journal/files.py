"""File names of a journal, and its storage: a local folder, a shared one through pyarrow, or an object store.

::

    JOURNAL/journal.json
    JOURNAL/partition-00000/manifest.json  head  lock  00000000000000000000.log  ...-....parquet  ...-...-....block

A path names a local folder. A URI (`s3://...`, `gs://...` and `az://...`, see objects.py; `hdfs://...`; or
`file:///mnt/...` for a mounted share) names storage shared by several machines. Only sealed segments and manifests are
written there, atomically. Logs need a disk that honours fsync, so each recorder keeps its logs in a local `spool`
folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from nngkit.file_modes import opener

JOURNAL: Final = "journal.json"
MANIFEST: Final = "manifest.json"
LOCK: Final = "lock"
HEAD: Final = "head"
LOG: Final = ".log"
INDEX: Final = ".index"
SEGMENT: Final = ".parquet"
PENDING: Final = ".pending"  # of a merged segment that has not yet taken the place of its parts among `*.parquet`
SWAPPING: Final = f"swapping{SEGMENT}"  # no Parquet: while it is there, a read of `*.parquet` fails
BLOCK: Final = ".block"
SCRATCH: Final = ".tmp"
ABSENT: Final = ""  # version of a file that does not exist
MOST_PARTITIONS: Final = 100_000  # five digits in a folder's name


def folder_of(partition: int) -> str:
    """Return the name of a partition's folder."""
    return f"partition-{partition:05}"


def shown(location: str) -> str:
    """Return a journal's path or URI for messages: without the settings of a URI, which may hold a secret."""
    return location.partition("?")[0] if "://" in location else location


def log_name(first: int) -> str:
    """Return the name of the log that begins with offset `first`."""
    return f"{first:020}{LOG}"


def segment_name(first: int, end: int) -> str:
    """Return the name of the segment with the offsets `first` to `end` - 1."""
    return f"{first:020}-{end:020}{SEGMENT}"


def range_in(name: str) -> tuple[int, int] | None:
    """Return the offsets that a segment's name says: `first` and `end`."""
    first, _, end = name.partition(".")[0].partition("-")
    return (int(first), int(end)) if len(first) == len(end) == 20 and (first + end).isdigit() else None


def logs_in(folder: Path) -> list[tuple[int, Path]]:
    """Return (first offset, path) of the folder's logs, ascending; an empty list if there is no folder."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            stem, dot, ending = entry.name.partition(".")
            if dot + ending == LOG and len(stem) == 20 and stem.isdigit():
                found.append((int(stem), Path(entry.path)))
    return sorted(found)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Sync a folder's entries to disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: str | os.PathLike[str]) -> None:
    """Sync a file's content to disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_in_place(descriptor: int, path: str | os.PathLike[str]) -> None:
    """Raise OSError unless the open file is still the one at `path`: what is written to another is lost with it."""
    if not os.path.samestat(os.fstat(descriptor), os.stat(path)):
        raise FileNotFoundError(errno.ENOENT, "another file has taken its place", os.fspath(path))


class Changed(OSError):
    """Another process has replaced a file meanwhile."""


class Storage(Protocol):
    """Files by name below a root. All methods raise OSError; FileNotFoundError for a missing file."""

    folder: Path | None

    def shown(self, name: str) -> str:
        """Return the full name for error messages."""

    def read(self, name: str) -> tuple[bytes, str | None]:
        """Return the content of a small file, and its version; None: this storage has no versions."""

    def replace(self, name: str, data: bytes, tag: str | None = None) -> str | None:
        """Replace the content atomically: a reader sees the old or the new content. Return the new version.

        `tag`: raise Changed unless the file is of that version, `ABSENT` if there must be none; only if this storage
        has versions.
        """

    def publish(self, source: Path, name: str) -> None:
        """Move the local file `source` to `name`, atomically and synced; `source` is removed."""

    def open(self, name: str) -> Any:
        """Open a file that Parquet can read. The caller closes it."""

    def remove(self, name: str) -> None:
        """Remove the file, if it exists."""

    def rename(self, name: str, new: str) -> None:
        """Rename a file to an unused name."""

    def link(self, name: str, new: str) -> None:
        """Give the file the name `new` as well, atomically and synced: by a hard link, or else as a copy."""

    def size(self, name: str) -> int:
        """Return the file's size in bytes."""

    def exists(self, name: str) -> bool:
        """Return True if there is such a file."""

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; an empty list if it does not exist."""

    def set_aside(self, name: str, ending: str) -> str:
        """Append `ending` to the file's name, with a number if that name is taken. Return the new name."""


class SetAside:
    """Shared implementation of `set_aside`."""

    def set_aside(self: Storage, name: str, ending: str) -> str:
        folder, _, file = name.rpartition("/")
        there = set(self.names(folder))
        aside, number = file + ending, 0
        while aside in there:
            number += 1
            aside = f"{file}.{number}{ending}"
        self.rename(name, f"{folder}/{aside}")
        return aside


class LocalStorage(SetAside):
    """Local folder."""

    def __init__(self, root: Path) -> None:
        self.folder: Path | None = root
        self._root = root

    def shown(self, name: str) -> str:
        return str(self._root / name)

    def read(self, name: str) -> tuple[bytes, str | None]:
        return (self._root / name).read_bytes(), None

    def replace(self, name: str, data: bytes, tag: str | None = None) -> str | None:
        target = self._root / name
        scratch = target.with_name(target.name + SCRATCH)
        with open(scratch, "wb", opener=opener) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(target)
        sync_folder(target.parent)
        return None

    def publish(self, source: Path, name: str) -> None:
        target = self._root / name
        sync_file(source)
        source.replace(target)
        sync_folder(target.parent)

    def open(self, name: str) -> Any:
        # Arrow's threads release a file some time after a read has returned. Releasing a Python file takes the GIL: at
        # interpreter exit that aborts or hangs the process (apache/arrow issues 33975, 34314, 50482).
        from pyarrow import OSFile

        return OSFile(os.fspath(self._root / name))

    def remove(self, name: str) -> None:
        (self._root / name).unlink(missing_ok=True)

    def rename(self, name: str, new: str) -> None:
        target = self._root / new
        if target.exists():
            raise FileExistsError(17, "there is a file of that name", str(target))
        (self._root / name).rename(target)
        sync_folder(target.parent)

    def link(self, name: str, new: str) -> None:
        source, target = self._root / name, self._root / new
        scratch = target.with_name(target.name + SCRATCH)
        scratch.unlink(missing_ok=True)
        try:
            os.link(source, scratch)
        except OSError:  # a file system without links
            shutil.copyfile(source, scratch)
            sync_file(scratch)
        scratch.replace(target)
        scratch.unlink(missing_ok=True)  # between two links of one file, a rename does nothing
        sync_folder(target.parent)

    def size(self, name: str) -> int:
        return (self._root / name).stat().st_size

    def exists(self, name: str) -> bool:
        return (self._root / name).exists()

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / folder))
        except FileNotFoundError:
            return []


class SharedStorage(SetAside):
    """Storage behind a pyarrow filesystem. A file becomes visible by its rename, or when it is closed."""

    def __init__(self, filesystem: Any, root: str, uri: str) -> None:
        self.folder: Path | None = None
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._uri = uri.rstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def shown(self, name: str) -> str:
        return f"{self._uri}/{name}"

    def read(self, name: str) -> tuple[bytes, str | None]:
        with self._filesystem.open_input_stream(self._path(name)) as stream:
            return stream.read(), None

    def replace(self, name: str, data: bytes, tag: str | None = None) -> str | None:
        self._filesystem.create_dir(self._path(name).rpartition("/")[0], recursive=True)
        scratch = self._path(name) + SCRATCH
        with self._filesystem.open_output_stream(scratch) as stream:
            stream.write(data)
        self._filesystem.move(scratch, self._path(name))
        return None

    def publish(self, source: Path, name: str) -> None:
        self._filesystem.create_dir(self._path(name).rpartition("/")[0], recursive=True)
        scratch = self._path(name) + SCRATCH
        with source.open("rb") as file, self._filesystem.open_output_stream(scratch) as stream:
            shutil.copyfileobj(file, stream, 1 << 20)
        size = self._filesystem.get_file_info(scratch).size
        if size != source.stat().st_size:
            raise OSError(f"{self.shown(name)}: {size} bytes arrived, and {source.stat().st_size} were sent")
        self._filesystem.move(scratch, self._path(name))
        source.unlink()

    def open(self, name: str) -> Any:
        return self._filesystem.open_input_file(self._path(name))

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._filesystem.delete_file(self._path(name))

    def rename(self, name: str, new: str) -> None:
        self._filesystem.move(self._path(name), self._path(new))

    def link(self, name: str, new: str) -> None:
        self._filesystem.copy_file(self._path(name), self._path(new) + SCRATCH)
        self._filesystem.move(self._path(new) + SCRATCH, self._path(new))

    def size(self, name: str) -> int:
        return int(self._filesystem.get_file_info(self._path(name)).size)

    def exists(self, name: str) -> bool:
        from pyarrow.fs import FileType

        return bool(self._filesystem.get_file_info(self._path(name)).type != FileType.NotFound)

    def names(self, folder: str) -> list[str]:
        from pyarrow.fs import FileSelector

        found = self._filesystem.get_file_info(FileSelector(self._path(folder), allow_not_found=True))
        return sorted(info.base_name for info in found)


@contextlib.contextmanager
def opened(storage: Storage, name: str) -> Iterator[Any]:
    """Open a file with `storage.open`; close it on exit."""
    file = storage.open(name)
    try:
        yield file
    finally:
        file.close()
