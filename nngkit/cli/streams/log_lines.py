"""Log records of the library, as lines of a command on standard error."""

from __future__ import annotations

import logging

from nngkit.cli.streams.stderr import one_line


class _OneLine(logging.Formatter):
    """A record as one line of the command; an exception is its text, as a traceback is no message to a user."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info and (error := record.exc_info[1]) is not None:
            text = f"{text}: {error}"
        return f"{self._name}: {one_line(text)}"


def log_to_stderr(name: str, room: str, level: int | str = logging.WARNING) -> None:
    """Print what the package `room` of the library logs from `level` on as lines of the command `name`."""
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine(name))
    logging.basicConfig(handlers=[handler])
    logging.getLogger(room).setLevel(level)
