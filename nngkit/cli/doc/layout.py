"""Where the characters of a text stand on a screen of so many columns. Pure; positions are code points of the text.

A line that is longer than the screen goes on in the next row. Wide characters take two columns, combining ones none; a
tab goes to the next column that 8 divides. What a terminal would act on instead of showing it (control characters,
marks that turn the writing round) is shown as something harmless.

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
    """Columns that a character takes; a tab's depend on where it is."""
    if " " <= char <= "~":
        return 1
    if len(shown(char)) > 1 or shown(char) == INSTEAD:
        return len(shown(char))
    if _is_mark(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


@lru_cache(maxsize=1 << 14)
def shown(char: str) -> str:
    """What stands for it."""
    if char < " " or char == "\x7f":
        return f"^{chr(ord(char) ^ 64)}"
    if _is_mark(char) or char == " " or char.isprintable():
        return char
    return " " if unicodedata.category(char) == "Zs" else INSTEAD


def _is_mark(char: str) -> bool:
    """Whether it belongs to the character before it, in whose place it is shown."""
    code = ord(char)
    return char in JOINERS or 0x1160 <= code <= 0x11FF or unicodedata.category(char) in ("Mn", "Me")


def _joins(text: str, at: int) -> bool:
    """Whether what is at `at` is no character of its own for who reads: no cursor stands before it."""
    char = text[at]
    if char < "\u0300" or text[at - 1] == "\n":
        return False
    if _is_mark(char) or text[at - 1] == "\u200d" or unicodedata.category(char) == "Mc":
        return True
    if "\U0001f3fb" <= char <= "\U0001f3ff":  # the colours of skin
        return True
    if "\U0001f1e6" <= char <= "\U0001f1ff":  # flags are two of these
        start = at
        while start > 0 and "\U0001f1e6" <= text[start - 1] <= "\U0001f1ff":
            start -= 1
        return (at - start) % 2 == 1
    return False


def after(text: str, at: int) -> int:
    """One character to the right, as people see characters."""
    at = min(at + 1, len(text))
    while at < len(text) and _joins(text, at):
        at += 1
    return at


def before(text: str, at: int) -> int:
    """One to the left."""
    at = max(at - 1, 0)
    while at > 0 and _joins(text, at):
        at -= 1
    return at


def line_start(text: str, at: int) -> int:
    """Where the line begins."""
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Where it ends: at its \\n, or at the end of the text."""
    end = text.find("\n", at)
    return len(text) if end < 0 else end


@lru_cache(maxsize=512)
def rows(line: str, columns: int) -> tuple[int, ...]:
    """Where the rows of a line begin; behind a full last row there is one more, for the cursor."""
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
    """What stands for a character at a column of a row, and how many columns it takes there."""
    if char == "\t":
        size = min(TAB - at % TAB, columns - at) or 1
        return " " * size, size
    wide = width(char)
    if wide == 0 and at == 0:
        return f" {char}", 1  # a mark that has nothing to stand on
    return (shown(char), wide) if wide <= columns else (INSTEAD, 1)


def row(text: str, at: int, columns: int) -> tuple[int, int]:
    """The row in which a cursor at `at` stands: from where to where."""
    start, starts, number, end = _row(text, at, columns)
    return start + starts[number], end if number + 1 == len(starts) else start + starts[number + 1]


def _row(text: str, at: int, columns: int) -> tuple[int, tuple[int, ...], int, int]:
    """The line's beginning, those of its rows in it, which row it is, and the line's end."""
    start, end = line_start(text, at), line_end(text, at)
    starts = rows(text[start:end], columns)
    return start, starts, bisect_right(starts, at - start) - 1, end


def next_row(text: str, at: int, columns: int) -> int | None:
    """Where the row below that of `at` begins."""
    start, starts, number, end = _row(text, at, columns)
    if number + 1 < len(starts):
        return start + starts[number + 1]
    return end + 1 if end < len(text) else None


def previous_row(text: str, at: int, columns: int) -> int | None:
    """Where the one above begins."""
    start, _ = row(text, at, columns)
    return None if start == 0 else row(text, start - 1, columns)[0]


def column(text: str, start: int, at: int, columns: int, found: int = 0) -> int:
    """The column of `at` in a row, if that of `start` is `found`; a row begins at 0."""
    for char in text[start:at]:
        found += cell(char, found, columns)[1]
    return found


def at_column(text: str, start: int, want: int, columns: int) -> int:
    """The place in the row that begins at `start` which is nearest to a column, from the left."""
    _, end = row(text, start, columns)
    last = before(text, end) if end < line_end(text, start) else end  # a row that goes on ends before its last
    at, found = start, 0
    while at < last:
        following = after(text, at)
        wide = column(text, at, following, columns, found)
        if wide > want:
            break
        at, found = following, wide
    return at
