"""Places of the devices that run on this machine, so that a ring of processes is refused before it storms.

Each `nngkit device` of a user keeps a file with its addresses, locked while it runs, in a directory of that user's.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from nngkit.devices.rings import Place, find_ring
from nngkit.errors import ConfigError


@contextmanager
def registered(place: Place) -> Iterator[None]:
    """Let other devices know `place` while the block runs. Raises ConfigError if it closes a ring with them.

    Without a usable directory nothing is checked: a device must run on a read-only system too.
    """
    directory = _directory()
    if directory is None:
        yield
        return
    path = directory / f"{os.getpid()}.json"
    with path.with_suffix(".new").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # before others see the file: they remove unlocked ones
        file.write(msgspec.json.encode(place))
        file.flush()
        try:
            path.with_suffix(".new").rename(path)
            others = _others(directory, path)
            ring = find_ring([place, *(other for _, other in others)])
            if ring is not None:
                way = " -> ".join("this device" if not index else f"process {others[index - 1][0]}" for index in ring)
                raise ConfigError("device", f"a ring, in which messages go round for ever: {way} -> and so on")
            yield
        finally:
            path.unlink(missing_ok=True)


def _directory() -> Path | None:
    parent = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    directory = parent / f"nngkit-devices-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError:
        return None
    # another user may have made it in a shared directory
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return directory if ours and os.access(directory, os.W_OK) else None


def _others(directory: Path, mine: Path) -> list[tuple[str, Place]]:
    """Return the process ids and places of the other running devices; remove the files of those that were killed."""
    found = []
    for path in directory.glob("*.json"):
        if path == mine:
            continue
        try:
            with path.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    path.unlink(missing_ok=True)
                except BlockingIOError:
                    found.append((path.stem, msgspec.json.decode(file.read(), type=Place)))
        except (OSError, ValueError):
            continue  # it ended meanwhile, or has not written yet: it checks for itself
    return found
