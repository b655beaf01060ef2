"""The terminal: curses draws, the keyboard is read as bytes. Its state is always restored.

::

    with Screen() as screen:
        screen.draw(frame)
        events = decoder.feed(os.read(0, 65536))

`curses.wrapper` has no bracketed paste, and its input loses characters that arrive in parts. Knows no document.
"""

from __future__ import annotations

import curses
import locale
import os
import sys
from contextlib import suppress
from typing import Final, Self

from nngkit.cli.doc.editor.layout import width
from nngkit.cli.doc.editor.view import Frame, Span

__all__ = ["Screen", "can_edit", "sequences"]

PASTE: Final = (b"\x1b[?2004h", b"\x1b[?2004l")  # switch bracketed paste on and off
KEYS: Final = {
    "kcuu1": "up",
    "kcud1": "down",
    "kcub1": "left",
    "kcuf1": "right",
    "khome": "home",
    "kend": "end",
    "kpp": "page up",
    "knp": "page down",
    "kdch1": "delete",
}
FEW: Final = (1, 2, 3, 4, 5, 6, 3, 6)  # for terminals with eight colours
MANY: Final = (203, 114, 221, 75, 176, 80, 215, 147)  # of 256: light enough for black text
BLACK: Final = 16


def can_edit() -> bool:
    """Return True if there is a terminal with a movable cursor."""
    if os.environ.get("TERM", "dumb") == "dumb" or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        curses.setupterm(fd=sys.stdout.fileno())
    except curses.error:  # unknown TERM: initscr would exit
        return False
    return bool(curses.tigetstr("cup") and curses.tigetstr("clear"))


def sequences() -> dict[bytes, str]:
    """Return the terminal's key sequences. Requires `setupterm`."""
    found = {}
    for capability, name in KEYS.items():
        if sequence := curses.tigetstr(capability):
            found[sequence] = name
    return found


class Screen:
    """Context manager that takes over the terminal."""

    def __enter__(self) -> Self:
        with suppress(locale.Error):  # for curses to write in the terminal's encoding
            locale.setlocale(locale.LC_CTYPE, "")
        self._window = curses.initscr()
        try:
            curses.raw()  # Ctrl-S, Ctrl-Q and Ctrl-Z are keys
            curses.noecho()
            self._window.keypad(True)
            self._window.leaveok(False)
            self._colours = self._start_colours()
            os.write(1, PASTE[0])
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _restore(self) -> None:
        with suppress(OSError):  # the terminal may have closed
            os.write(1, PASTE[1])
        with suppress(curses.error):
            self._window.keypad(False)
            curses.noraw()
            curses.echo()
        with suppress(curses.error):
            curses.endwin()

    def _start_colours(self) -> bool:
        if os.environ.get("NO_COLOR") or not curses.has_colors():
            return False
        curses.start_color()
        with suppress(curses.error):
            curses.use_default_colors()
        many = curses.COLORS >= 256
        for number, colour in enumerate(MANY if many else FEW):
            # drawn in reverse, as on terminals without colours
            curses.init_pair(number + 1, colour, BLACK if many else curses.COLOR_BLACK)
        return True

    @property
    def size(self) -> tuple[int, int]:
        """Return columns and rows."""
        rows, columns = self._window.getmaxyx()
        return columns, rows

    def resized(self) -> None:
        """Read the new size."""
        try:
            columns, rows = os.get_terminal_size(1)
        except OSError:
            return
        curses.resizeterm(max(1, rows), max(1, columns))
        self._window.clearok(True)

    def redraw(self) -> None:
        """Redraw everything the next time."""
        self._window.clearok(True)

    def draw(self, frame: Frame) -> None:
        """Draw the frame; only changes are sent to the terminal."""
        self._window.erase()
        for number, row in enumerate(frame.rows):
            with suppress(curses.error):  # the last cell of the last row cannot be written
                self._window.move(number, 0)
                for span in row:
                    self._window.addstr(self._encodable(span.text), self._attributes(span))
        with suppress(curses.error):
            self._window.move(*frame.cursor)
        self._window.refresh()

    def _attributes(self, span: Span) -> int:
        style = span.style
        found = curses.A_REVERSE if style.reverse else curses.A_NORMAL
        if style.dim:
            found |= curses.A_DIM
        if style.colour is not None and self._colours:
            found |= curses.color_pair(style.colour + 1)
        return found

    def _encodable(self, text: str) -> str:
        encoding = self._window.encoding
        if encoding.lower() in ("utf-8", "utf8"):
            return text
        known = (char.encode(encoding, "ignore").decode(encoding) for char in text)
        return "".join(each or "?" * width(char) for each, char in zip(known, text, strict=True))
