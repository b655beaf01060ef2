"""A text as rows of a screen, and the effect of keys on a cursor in it. Pure; positions are code points of the text.

A line longer than the screen continues in the next row; a full last row is followed by one for the cursor. Characters
that a terminal would interpret (control characters, bidirectional marks) are shown as harmless ones.

>>> rows = Rows("ab漢\\n\\x1b", 3)
>>> rows.starts, rows.column(5)
([0, 2, 4], 2)
>>> rows.drawn(1, [Other(2, "Ada", "reverse")])
[('reverse', '漢'), ('', ' ')]
>>> pressed("hello", 5, "c-left"), pressed("hello", 5, "c-h"), pressed("hello", 5, "", "!")
((0, 0, ''), (4, 1, ''), (5, 0, '!'))
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from prompt_toolkit.utils import get_cwidth
from wcwidth import grapheme_boundary_before, iter_graphemes

from nngkit.documents.engine.codepoints import Splice

TAB: Final = 8
NAME: Final = 16  # columns of a name
JOINERS: Final = "\u200c\u200d"
WORD: Final = re.compile(r"[\W_]*[^\W_]*")

Fragment = tuple[str, str]  # style and text, as prompt_toolkit draws them


class Other(NamedTuple):
    """The cursor of another user, with the name, and the style of both."""

    at: int
    name: str
    style: str


def shown(text: str, column: int = 1) -> str:
    """Return the text that shows `text` from a column of the screen on, without anything that a terminal interprets."""
    return "".join(_shown(char, column) for char in text)


def _shown(char: str, column: int) -> str:
    if char == "\t":
        return " " * (TAB - column % TAB)
    if char < " " or char == "\x7f":
        return f"^{chr(ord(char) ^ 64)}"
    if char.isprintable() or char in JOINERS:
        return char if column or get_cwidth(char) else f" {char}"  # a combining mark without a base
    return " " if unicodedata.category(char) == "Zs" else "·"


class Rows:
    """A text in rows of `columns`, at the positions `starts`. `before`: rows of an earlier text, to reuse its lines."""

    def __init__(self, text: str, columns: int, before: Rows | None = None) -> None:
        self.text = text
        self.columns = columns
        self.starts: list[int] = []
        self._lines: dict[str, list[int]] = {}
        known = before._lines if before is not None and before.columns == columns else {}
        at = 0
        for line in text.split("\n"):
            if line.isascii() and line.isprintable():
                self.starts.extend(range(at, at + len(line) + 1, columns))
            else:
                starts = self._lines[line] = known.get(line) or _starts(line, columns)
                self.starts.extend(at + start for start in starts)
            at += len(line) + 1

    def row(self, at: int) -> int:
        """Return the number of the row with a cursor at `at`."""
        return bisect_right(self.starts, at) - 1

    def column(self, at: int) -> int:
        """Return the column of a cursor at `at`."""
        ends = (end for place, _, end in self._cells(self.row(at)) if place < at)
        return min(max(ends, default=0), self.columns - 1)

    def moved(self, at: int, rows: int, column: int) -> int:
        """Return the position `rows` below or above, at `column` or before it; beyond the last row, the text's end."""
        row = min(max(self.row(at) + rows, 0), len(self.starts) - 1)
        if row == self.row(at):
            return 0 if rows < 0 else len(self.text)
        at, end = self.starts[row], self._end(row)
        last = end - 1 if self._continues(row) else end
        ends = {place + 1: stop for place, _, stop in self._cells(row)}
        while at < last and (following := after(self.text, at)) <= last and ends[following] <= column:
            at = following
        return at

    def drawn(self, row: int, others: Iterable[Other]) -> list[Fragment]:
        """Return a row with the cursors of others, and their names at the right if the text leaves room."""
        here = {other.at: other for other in others if self.row(other.at) == row}
        cells = list(self._cells(row))
        found = [(here[at].style if at in here else "", text) for at, text, _ in cells]
        used = cells[-1][2] if cells else 0
        if (end := self._end(row)) in here and used < self.columns:  # after the last character of a line
            found.append((here[end].style, " "))
            used += 1
        names = [(here[at].style, f" {_cut(shown(here[at].name))} ") for at in sorted(here)]
        while names and used + 1 + sum(get_cwidth(name) for _, name in names) > self.columns:
            names.pop()
        return [*found, ("", " " * (self.columns - used - sum(get_cwidth(name) for _, name in names))), *names]

    def _continues(self, row: int) -> bool:
        """Return True if the line goes on in the next row."""
        return row + 1 < len(self.starts) and self.text[self.starts[row + 1] - 1] != "\n"

    def _end(self, row: int) -> int:
        if row + 1 == len(self.starts):
            return len(self.text)
        return self.starts[row + 1] - (not self._continues(row))

    def _cells(self, row: int) -> Iterator[tuple[int, str, int]]:
        """Yield the position of each character, the text that shows it, and the column behind it."""
        column = 0
        for at in range(self.starts[row], self._end(row)):
            text = _shown(self.text[at], column)
            column = min(column + get_cwidth(text), self.columns)
            yield at, text, column


def _starts(line: str, columns: int) -> list[int]:
    """Return the starts of the rows of a line."""
    starts, column = [0], 0
    for at, char in enumerate(line):
        size = get_cwidth(_shown(char, column))
        if column and column + (1 if char == "\t" else size) > columns:  # a tab ends with the row
            starts.append(at)
            column, size = 0, get_cwidth(_shown(char, 0))
        column = min(column + size, columns)
    if column == columns:
        starts.append(len(line))
    return starts


def _cut(name: str) -> str:
    while get_cwidth(name) > NAME:
        name = name[:-1]
    return name


# ---------------------------------------------------------------------- keys


def after(text: str, at: int) -> int:
    """Return the position behind the grapheme at `at`."""
    return at + len(next(iter_graphemes(text, at), ""))


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _word(text: str, at: int = 0) -> int:
    """Return the position behind the next word."""
    found = WORD.match(text, at)
    return at if found is None else found.end()


MOVES: Final[dict[str, Callable[[str, int], int]]] = {
    "left": grapheme_boundary_before,
    "right": after,
    "home": lambda text, at: text.rfind("\n", 0, at) + 1,
    "end": _line_end,
    "c-left": lambda text, at: at - _word(text[:at][::-1]),
    "c-right": _word,
    "c-home": lambda text, at: 0,
    "c-end": lambda text, at: len(text),
}
MOVES["c-a"], MOVES["c-e"] = MOVES["home"], MOVES["end"]
DELETIONS: Final[dict[str, Callable[[str, int], int]]] = {  # of all up to the position
    "c-h": grapheme_boundary_before,
    "delete": after,
    "c-d": after,
    "c-k": lambda text, at: max(
        _line_end(text, at), min(at + 1, len(text))
    ),  # to the end of the line, or the end itself
}
TEXTS: Final = {"c-m": "\n", "c-j": "\n", "c-i": "\t"}


def pressed(text: str, at: int, key: str, typed: str = "") -> Splice:
    """Return the edit (position, deleted, inserted) that a key makes, or the text it types, with the cursor at `at`.

    The cursor is behind it then. A key that moves the cursor makes an empty edit at its new place, an unknown key none.
    """
    if key in MOVES:
        return MOVES[key](text, at), 0, ""
    if key in DELETIONS:
        to = DELETIONS[key](text, at)
        return min(at, to), abs(at - to), ""
    lines = TEXTS.get(key, typed).replace("\r\n", "\n").replace("\r", "\n")
    clean = lines.encode("utf-8", "surrogateescape").decode(
        "utf-8", "replace"
    )  # bytes that are not UTF-8 came as surrogates
    return at, 0, "".join(char for char in clean if char >= " " or char in "\n\t")
