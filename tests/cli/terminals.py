"""A terminal for tests: a pty with a program in it, and a model of its screen. Enough of xterm for curses.

::

    with Terminal("doc", "edit", "minutes", columns=60, rows=12) as terminal:
        terminal.send("hello")
        terminal.shows("hello")
        terminal.screen.lines[0], terminal.screen.cursor, terminal.screen.looks(0, 5)
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from tests.cli.commands import ROOT, WAIT, command, environment
from tests.preloaded import Popen

TERM = "xterm-256color"
SEQUENCE = re.compile(r"\x1b(?:\[([?>]?)([\d;]*)([ -/]*)([@-~])|[()]([A-Za-z0-9])|([=>78MDEHc]))")


class Screen:
    """The screen. Raises AssertionError for unknown sequences: the model is incomplete, or the program wrong."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.clear()
        self.modes: set[int] = set()
        self._pending = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.look: tuple[int, ...] = ()
        self.cells_drawn = 0

    def clear(self) -> None:
        self.cells = [[" "] * self.columns for _ in range(self.rows)]
        self.styles: list[list[tuple[int, ...]]] = [[()] * self.columns for _ in range(self.rows)]
        self.x = self.y = 0
        self.top, self.bottom = 0, self.rows - 1

    @property
    def lines(self) -> list[str]:
        """Return the rows as text, each wide character once."""
        return ["".join(row).rstrip() for row in self.cells]

    @property
    def cursor(self) -> tuple[int, int]:
        """Return row and column of the cursor."""
        return self.y, min(self.x, self.columns - 1)

    def looks(self, row: int, column: int) -> tuple[int, ...]:
        """Return the SGR attributes at a cell."""
        return self.styles[row][column]

    def feed(self, data: bytes) -> None:
        text = self._pending + self._decoder.decode(data)
        self._pending = ""
        at = 0
        while at < len(text):
            char = text[at]
            if char == "\x1b":
                found = SEQUENCE.match(text, at)
                if found is None:
                    assert len(text) - at < 40, f"what is {text[at : at + 40]!r}?"
                    self._pending = text[at:]
                    return
                self._sequence(found)
                at = found.end()
            else:
                self._put(char)
                at += 1

    def _put(self, char: str) -> None:
        if char == "\r":
            self.x = 0
        elif char == "\n":
            self._down()
        elif char == "\b":
            self.x = max(0, self.x - 1)
        elif char == "\t":
            self.x = min(self.columns - 1, (self.x // 8 + 1) * 8)
        elif char in "\x07\x0e\x0f":
            pass
        else:
            assert char.isprintable() or unicodedata.category(char) in ("Mn", "Me", "Cf"), f"drew {char!r}"
            if unicodedata.category(char) in ("Mn", "Me") or char in "\u200d\ufe0f":
                before = max(0, self.x - 1)
                while before and not self.cells[self.y][before]:
                    before -= 1
                self.cells[self.y][before] += char
                return
            wide = 2 if unicodedata.east_asian_width(char) in "WF" else 1
            if self.x + wide > self.columns:
                self.x = 0
                self._down()
            self.cells[self.y][self.x : self.x + wide] = [char] + [""] * (wide - 1)
            self.styles[self.y][self.x : self.x + wide] = [self.look] * wide
            self.x += wide
            self.cells_drawn += 1

    def _down(self) -> None:
        if self.y == self.bottom:
            self._scroll(self.top, 1)
        else:
            self.y = min(self.y + 1, self.rows - 1)

    def _scroll(self, top: int, count: int) -> None:
        """Scroll the rows from `top` to the end of the region up by `count`, or down if negative."""
        for each, blank in ((self.cells, " "), (self.styles, ())):
            rows: list[Any] = each
            for _ in range(abs(count)):
                rows.insert(self.bottom + 1 if count > 0 else top, [blank] * self.columns)
                del rows[top if count > 0 else self.bottom + 1]

    def _sequence(self, found: re.Match[str]) -> None:
        private, numbers, _, final, charset, single = found.groups()
        if charset is not None:
            return
        if single is not None:
            if single == "M":
                if self.y == self.top:
                    self._scroll(self.top, -1)
                else:
                    self.y = max(0, self.y - 1)
            elif single == "c":
                self.clear()
            return
        given = [int(each) if each else 0 for each in numbers.split(";")]
        one = max(1, given[0])
        row, style = self.cells[self.y], self.styles[self.y]
        if private:
            if final == "h":
                self.modes |= set(given)
                if given[0] == 1049:
                    self._main = (self.cells, self.styles, self.x, self.y)
                    self.clear()
            elif final == "l":
                if given[0] == 1049 and 1049 in self.modes:
                    self.clear()
                    self.cells, self.styles, self.x, self.y = self._main
                self.modes -= set(given)
            return
        match final:
            case "H" | "f":
                self.y = min(one, self.rows) - 1
                self.x = min(max(1, given[1] if len(given) > 1 else 1), self.columns) - 1
            case "A":
                self.y = max(0, self.y - one)
            case "B":
                self.y = min(self.rows - 1, self.y + one)
            case "C":
                self.x = min(self.columns - 1, self.x + one)
            case "D":
                self.x = max(0, min(self.x, self.columns - 1) - one)
            case "G":
                self.x = min(one, self.columns) - 1
            case "d":
                self.y = min(one, self.rows) - 1
            case "J":
                below = range(self.y + 1, self.rows) if given[0] == 0 else range(self.rows)
                for each in below:
                    self.cells[each] = [" "] * self.columns
                    self.styles[each] = [()] * self.columns
                if given[0] == 0:
                    self._erase(self.x, self.columns)
            case "K":
                self._erase(0 if given[0] else self.x, self.x + 1 if given[0] == 1 else self.columns)
            case "X":
                self._erase(self.x, min(self.columns, self.x + one))
            case "P":
                del row[self.x : self.x + one], style[self.x : self.x + one]
                row += [" "] * (self.columns - len(row))
                style += [()] * (self.columns - len(style))
            case "@":
                row[self.x : self.x] = [" "] * one
                style[self.x : self.x] = [()] * one
                del row[self.columns :], style[self.columns :]
            case "b":
                for _ in range(one):
                    self._put(row[self.x - 1])
            case "L" | "M":
                self._scroll(self.y, one if final == "M" else -one)
            case "S" | "T":
                self._scroll(self.top, one if final == "S" else -one)
            case "r":
                self.top = one - 1
                self.bottom = (given[1] if len(given) > 1 and given[1] else self.rows) - 1
                self.x = self.y = 0
            case "m":
                self.look = self._looked(given)
            case "t" | "n" | "l" | "h" | "c":
                pass
            case _:
                raise AssertionError(f"what is {found[0]!r}?")

    def _erase(self, start: int, stop: int) -> None:
        self.cells[self.y][start:stop] = [" "] * (stop - start)
        self.styles[self.y][start:stop] = [()] * (stop - start)

    def _looked(self, given: list[int]) -> tuple[int, ...]:
        look = list(self.look)
        at = 0
        while at < len(given):
            number = given[at]
            if number == 0:
                look = []
            elif number in (38, 48) and given[at + 1 : at + 2] == [5]:
                look += [number * 1000 + given[at + 2]]
                at += 2
            elif number == 27:
                look = [each for each in look if each != 7]
            elif number in (39, 49):
                base = 38 if number == 39 else 48
                look = [each for each in look if each // 1000 != base and each // 10 != (3 if number == 39 else 4)]
            else:
                look.append(number)
            at += 1
        return tuple(look)


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
        self.screen.columns, self.screen.rows = columns, rows
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
            assert time.monotonic() < deadline, f"{what} did not come about:\n" + "\n".join(self.screen.lines)
            self._read(0.05)

    def shows(self, *texts: str) -> None:
        """Read until the screen contains all texts."""
        self.until(lambda: all(any(text in line for line in self.screen.lines) for text in texts), repr(texts))

    def settle(self, seconds: float = 0.2) -> None:
        """Read until there is no output for a while."""
        while self._read(seconds):
            pass

    def end(self) -> int:
        """Wait for its end and return the exit code."""
        deadline = time.monotonic() + WAIT
        while (code := self.process.poll()) is None:
            assert time.monotonic() < deadline, "it does not end:\n" + "\n".join(self.screen.lines)
            self._read(0.05)
        with suppress(OSError):
            while self._read(0.05):
                pass
        return code

    def is_as_before(self) -> bool:
        """Return True if the terminal's settings and screen are as before."""
        now = termios.tcgetattr(self.theirs)
        return now[:4] == self.before[:4] and not self.screen.modes & {1049, 2004, 1}


def until(terminal: int, what: str, timeout: float = WAIT) -> str:
    """Return the terminal's output as soon as it has the text."""
    text, deadline = "", time.monotonic() + timeout
    while what not in text:
        readable, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert readable, text
        text += os.read(terminal, 65536).decode()
    return text
