"""A terminal for tests: a pty with a program in it, and its screen.

::

    with Terminal("doc", "edit", "minutes", columns=60, rows=12) as terminal:
        terminal.send("hello")
        terminal.shows("hello")
        terminal.screen.text[0], terminal.screen.place, terminal.screen.style(0, 5)
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Any, Self

import pyte
from pyte.screens import Char

from tests.cli.commands import ROOT, WAIT, command, environment
from tests.preloaded import Popen

TERM = "xterm-256color"
ALTERNATE, WRAPPED, PASTED, KEYS = 1049, 7, 2004, 1  # private modes: the alternate screen, lines that wrap, ...


class Screen(pyte.Screen):
    """pyte's screen, with the alternate one. Raises AssertionError for unknown sequences."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows)
        self.feed = pyte.ByteStream(self).feed

    @property
    def text(self) -> list[str]:
        """Return the rows as text, each wide character once."""
        return [row.rstrip() for row in self.display]

    @property
    def place(self) -> tuple[int, int]:
        """Return row and column of the cursor."""
        return self.cursor.y, min(self.cursor.x, self.columns - 1)

    def style(self, row: int, column: int) -> Char:
        """Return how a cell looks, whatever is in it."""
        return self.buffer[row][column]._replace(data="")

    def has(self, mode: int) -> bool:
        """Return True if a private mode is set."""
        return mode << 5 in self.mode

    def clear(self) -> None:
        self.erase_in_display(2)
        self.cursor_position()

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        super().set_mode(*modes, **kwargs)
        if ALTERNATE in modes:
            self._main = deepcopy((self.buffer, self.cursor))
            self.clear()

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        if ALTERNATE in modes and self.has(ALTERNATE):
            self.buffer, self.cursor = self._main
        super().reset_mode(*modes, **kwargs)

    def debug(self, *numbers: Any, **_: Any) -> None:
        assert not numbers, f"an unknown sequence with {numbers}"


class Terminal:
    """`nngkit ...` in a pty; the end of the block kills it."""

    def __init__(
        self, *arguments: str, columns: int = 60, rows: int = 12, argv: list[str] | None = None, **variables: str
    ) -> None:
        self.screen = Screen(columns, rows)
        self._ours, theirs = pty.openpty()
        self._resize(columns, rows)
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.process = Popen(
            argv or command(*arguments),
            cwd=ROOT,
            env=environment(**{"TERM": TERM, "LC_ALL": "C.UTF-8", "COLORTERM": "", **variables}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        self.written = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.hang_up()
        os.close(self.theirs)

    def hang_up(self) -> None:
        """Close the terminal's own end."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def _resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        """Resize the window."""
        self.screen.resize(rows, columns)
        self.screen.clear()
        self._resize(columns, rows)
        self.process.send_signal(signal.SIGWINCH)

    def send(self, keys: str | bytes) -> None:
        """Type keys."""
        data = keys.encode() if isinstance(keys, str) else keys
        while data:
            readable, writable, _ = select.select([self._ours], [self._ours], [], WAIT)
            assert readable or writable, "it does not read"
            if writable:
                data = data[os.write(self._ours, data[:512]) :]
            if readable:
                self._read(0)

    def _read(self, seconds: float) -> bool:
        readable, _, _ = select.select([self._ours], [], [], seconds)
        if not readable:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            return False
        self.written += data
        self.screen.feed(data)
        return bool(data)

    def until(self, true: Callable[[], bool], what: str = "it") -> None:
        """Read until the condition holds."""
        deadline = time.monotonic() + WAIT
        while not true():
            assert time.monotonic() < deadline, f"{what} did not come about:\n" + "\n".join(self.screen.text)
            self._read(0.05)

    def shows(self, *texts: str) -> None:
        """Read until the screen contains all texts."""
        self.until(lambda: all(any(text in line for line in self.screen.text) for text in texts), repr(texts))

    def settle(self, seconds: float = 0.2) -> None:
        """Read until there is no output for a while."""
        while self._read(seconds):
            pass

    def end(self) -> int:
        """Wait for its end and return the exit code."""
        deadline = time.monotonic() + WAIT
        while (code := self.process.poll()) is None:
            assert time.monotonic() < deadline, "it does not end:\n" + "\n".join(self.screen.text)
            self._read(0.05)
        with suppress(OSError):
            while self._read(0.05):
                pass
        return code

    def is_as_before(self) -> bool:
        """Return True if the terminal's settings and screen are as before."""
        now = termios.tcgetattr(self.theirs)
        modes = [self.screen.has(mode) for mode in (WRAPPED, ALTERNATE, PASTED, KEYS)]
        return now[:4] == self.before[:4] and modes == [True, False, False, False]


def until(terminal: int, what: str, timeout: float = WAIT) -> str:
    """Return the terminal's output as soon as it has the text."""
    text, deadline = "", time.monotonic() + timeout
    while what not in text:
        readable, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert readable, text
        text += os.read(terminal, 65536).decode()
    return text
