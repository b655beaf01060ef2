"""Layout of a text on a screen of a given width. Pure; positions are code points of the text.

A line longer than the screen continues in the next row. Wide characters take two columns, combining ones none; a tab
advances to the next multiple of 8. Characters that a terminal would interpret (control characters, bidirectional marks)
are replaced by harmless ones.

>>> width("a"), width("漢"), width("\\u0301"), shown("\\x1b"), shown("\\u202e")
(1, 2, 0, '^[', '·')
>>> rows("ab漢", 3)
(0, 2)
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from functools import lru_cache
from typing import Final

__all__ = [
    "TAB",
    "after",
    "at_column",
    "before",
    "cell",
    "column",
    "line_end",
    "line_start",
    "next_row",
    "previous_row",
    "row",
    "rows",
    "shown",
    "width",
]

TAB: Final = 8
JOINERS: Final = "\u200c\u200d"
INSTEAD: Final = "·"


@lru_cache(maxsize=1 << 14)
def width(char: str) -> int:
    """Return the columns of a character; those of a tab depend on its column."""
    if " " <= char <= "~":
        return 1
    if len(shown(char)) > 1 or shown(char) == INSTEAD:
        return len(shown(char))
    if _is_mark(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


@lru_cache(maxsize=1 << 14)
def shown(char: str) -> str:
    """Return the text that shows a character."""
    if char < " " or char == "\x7f":
        return f"^{chr(ord(char) ^ 64)}"
    if _is_mark(char) or char == " " or char.isprintable():
        return char
    return " " if unicodedata.category(char) == "Zs" else INSTEAD


def _is_mark(char: str) -> bool:
    """Return True if the character combines with the one before it."""
    code = ord(char)
    return char in JOINERS or 0x1160 <= code <= 0x11FF or unicodedata.category(char) in ("Mn", "Me")


def _joins(text: str, at: int) -> bool:
    """Return True if `at` is inside a character as readers see it: the cursor skips it."""
    char = text[at]
    if char < "\u0300" or text[at - 1] == "\n":
        return False
    if _is_mark(char) or text[at - 1] == "\u200d" or unicodedata.category(char) == "Mc":
        return True
    if "\U0001f3fb" <= char <= "\U0001f3ff":  # skin tones
        return True
    if "\U0001f1e6" <= char <= "\U0001f1ff":  # a flag is two of these
        start = at
        while start > 0 and "\U0001f1e6" <= text[start - 1] <= "\U0001f1ff":
            start -= 1
        return (at - start) % 2 == 1
    return False


def after(text: str, at: int) -> int:
    """Return the position one visible character to the right."""
    at = min(at + 1, len(text))
    while at < len(text) and _joins(text, at):
        at += 1
    return at


def before(text: str, at: int) -> int:
    """Return the position one visible character to the left."""
    at = max(at - 1, 0)
    while at > 0 and _joins(text, at):
        at -= 1
    return at


def line_start(text: str, at: int) -> int:
    """Return the start of the line."""
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Return the end of the line: its \\n, or the end of the text."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end


@lru_cache(maxsize=512)
def rows(line: str, columns: int) -> tuple[int, ...]:
    """Return the starts of a line's rows; a full last row is followed by one for the cursor."""
    if line.isascii() and line.isprintable():
        return tuple(range(0, len(line) + 1, columns))
    starts, at = [0], 0
    for place, char in enumerate(line):
        wide = cell(char, at, columns)[1]
        if at and at + wide > columns:
            starts.append(place)
            at, wide = 0, cell(char, 0, columns)[1]
        at += wide
    if at >= columns:
        starts.append(len(line))
    return tuple(starts)


def cell(char: str, at: int, columns: int) -> tuple[str, int]:
    """Return the text that shows a character at a column, and its width there."""
    if char == "\t":
        size = min(TAB - at % TAB, columns - at) or 1
        return " " * size, size
    wide = width(char)
    if wide == 0 and at == 0:
        return f" {char}", 1  # a combining mark without a base
    return (shown(char), wide) if wide <= columns else (INSTEAD, 1)


def row(text: str, at: int, columns: int) -> tuple[int, int]:
    """Return start and end of the row with a cursor at `at`."""
    start, starts, number, end = _row(text, at, columns)
    return start + starts[number], end if number + 1 == len(starts) else start + starts[number + 1]


def _row(text: str, at: int, columns: int) -> tuple[int, tuple[int, ...], int, int]:
    """Return the line's start, the starts of its rows in it, the number of the row, and the line's end."""
    start, end = line_start(text, at), line_end(text, at)
    starts = rows(text[start:end], columns)
    return start, starts, bisect_right(starts, at - start) - 1, end


def next_row(text: str, at: int, columns: int) -> int | None:
    """Return the start of the row below that of `at`, or None."""
    start, starts, number, end = _row(text, at, columns)
    if number + 1 < len(starts):
        return start + starts[number + 1]
    return end + 1 if end < len(text) else None


def previous_row(text: str, at: int, columns: int) -> int | None:
    """Return the start of the row above, or None."""
    start, _ = row(text, at, columns)
    return None if start == 0 else row(text, start - 1, columns)[0]


def column(text: str, start: int, at: int, columns: int, found: int = 0) -> int:
    """Return the column of `at`, if that of `start` is `found`."""
    for char in text[start:at]:
        found += cell(char, found, columns)[1]
    return found


def at_column(text: str, start: int, want: int, columns: int) -> int:
    """Return the last position in the row from `start` whose column is at most `want`."""
    _, end = row(text, start, columns)
    last = before(text, end) if end < line_end(text, start) else end  # a continued row ends before its last position
    at, found = start, 0
    while at < last:
        following = after(text, at)
        wide = column(text, at, following, columns, found)
        if wide > want:
            break
        at, found = following, wide
    return at
