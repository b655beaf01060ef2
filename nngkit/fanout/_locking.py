"""Lock of a folder or name, held by one process: an open file."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from nngkit.errors import ConfigError
from nngkit.file_modes import make_folder, mode


def hold(path: Path, what: str, advice: str) -> int:
    """Lock `path`, in a folder that is made if need be; return the descriptor that holds the lock.

    Raises ConfigError, with `advice` if another process has the lock.
    """
    try:
        make_folder(path.parent)
        return _hold(path, what, advice)
    except OSError as error:
        raise ConfigError(what, f"{path.parent}: {error.strerror or error}", str(path)) from error


def _hold(path: Path, what: str, advice: str) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, mode())
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            by = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            why = f"{path}: another process has it ({by or 'unknown'}); {advice}"
            raise ConfigError(what, why, str(path)) from error
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                break
        os.close(descriptor)  # its holder has removed it meanwhile
    with contextlib.suppress(OSError):  # the text is for people only
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()}\n".encode(), 0)
    return descriptor
