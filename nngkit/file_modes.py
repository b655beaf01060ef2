"""Permissions of what rooms write: files 0600 and folders 0700, for their owner only.

NNGKIT_SHARED_FILES=1, or ``--shared-files`` of a command, leaves them to the umask, so that
another user may read a journal. Files and folders that are there keep theirs. And the check of a path that a program
or a user gives. Depends on the standard library and nngkit.errors only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from nngkit.errors import ConfigError

VARIABLE: Final = "NNGKIT_SHARED_FILES"
_FILE: Final = 0o600
_FOLDER: Final = 0o700


def checked_path(what: str, path: str | os.PathLike[str]) -> Path:
    """Return a path that was given as `what`. Raises ConfigError for one with a NUL, which no file system has."""
    text = os.fspath(path)
    if "\0" in text:
        raise ConfigError(what, f"{text!r}: a path has no NUL", path)
    return Path(text)


def share() -> None:
    """Leave permissions to the umask from now on, in this process and its children."""
    os.environ[VARIABLE] = "1"


def mode() -> int:
    """Return the permissions of a new file, from which the umask is taken."""
    return 0o666 if os.environ.get(VARIABLE) else _FILE


def opener(path: str, flags: int) -> int:
    """Open a file with the permissions of `mode`: for ``opener=`` of `open`."""
    return os.open(path, flags, mode())


def make_file(path: str | os.PathLike[str]) -> None:
    """Make an empty file, or empty one that is there, which a library then writes."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode()))


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder, and those above it, unless it is there."""
    path = Path(path)
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    path.mkdir(0o777 if os.environ.get(VARIABLE) else _FOLDER, exist_ok=True)


def take_from_others(path: str | os.PathLike[str]) -> None:
    """Set the permissions of a file that a library has made."""
    if not os.environ.get(VARIABLE):
        os.chmod(path, _FILE)
