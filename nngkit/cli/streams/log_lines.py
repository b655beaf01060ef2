"""Log records of the library, as lines of a command on standard error: text, or JSON.

A line that repeats is said at most once a minute, with the number of times that it was left out.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any, Final

from nngkit.cli.masking import masked
from nngkit.cli.streams import stderr
from nngkit.cli.streams.output import utc
from nngkit.cli.streams.stderr import one_line
from nngkit.log_lines import LogLines

OF_LOGGING: Final = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class _OneLine(logging.Formatter):
    """A record as one line of the command; an exception is its text, as a traceback is no message to a user."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        return f"{self._name}: {one_line(_text(record))}"


class _Json(logging.Formatter):
    """A record as one object, with the fields of its `extra`; docs/schemas/log.json."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def format(self, record: logging.LogRecord) -> str:
        more = {key: value for key, value in vars(record).items() if key not in OF_LOGGING}
        return json_text(self._name, record.levelname.lower(), record.name, _text(record), record.created, more)


class _Once(logging.Filter):
    """Leaves out what was said within a minute. What it is about is the text without port numbers."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = LogLines()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:  # what was asked for by --verbose
            return True
        line = self._lines.add(_text(record), time.monotonic())
        if line is not None:
            record.msg, record.args, record.exc_info = line, (), None
        return line is not None


def _text(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if record.exc_info and (error := record.exc_info[1]) is not None:
        text = f"{text}: {error}"
    return masked(text)


def json_text(command: str, level: str, logger: str, text: str, at: float, more: dict[str, Any]) -> str:
    """Return a line of the log as JSON."""
    fields = {"time": utc(at), "level": level, "command": command, "logger": logger, "message": text}
    return json.dumps({**more, **fields}, default=str)


def log_to_stderr(name: str, room: str, level: int | str = logging.WARNING, *, as_json: bool = False) -> None:
    """Print what the package `room` of the library logs from `level` on as lines of the command `name`.

    The first call of a process decides on the form; with `as_json` the command's own lines have it too.
    """
    if as_json:
        stderr.form = lambda where, text: json_text(where, "info", "nngkit.cli", text, time.time(), {})
    handler = logging.StreamHandler()
    handler.setFormatter(_Json(name) if as_json else _OneLine(name))
    handler.addFilter(_Once())
    logging.basicConfig(handlers=[handler])
    logging.getLogger(room).setLevel(level)
