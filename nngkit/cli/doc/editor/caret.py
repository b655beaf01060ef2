"""The effect of a key on a text and its cursor. Pure.

>>> caret = Caret("hello", 5)
>>> caret.press(Typed("!"), Size(80, 24))
[(5, 0, '!')]
>>> caret.text, caret.at
('hello!', 6)

An edit is (position, deleted, inserted). The caret applies it to its own copy of the text, the caller to the document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from nngkit.cli.doc.editor import layout
from nngkit.cli.doc.editor.keys import Event, Key
from nngkit.documents.engine.codepoints import Splice

__all__ = ["Caret", "Size"]


class Size(NamedTuple):
    """Columns and rows of the text on the screen."""

    columns: int
    rows: int


@dataclass(slots=True)
class Caret:
    """A text, and a cursor before code point `at`. `goal` is the column that up and down keep."""

    text: str
    at: int
    goal: int | None = None

    def press(self, event: Event, size: Size) -> list[Splice]:
        """Apply the key and return its edits; other keys than those of editing do nothing."""
        if not isinstance(event, Key):
            return self._edit(self.at, self.at, event.text)
        match event.name:
            case "backspace":
                return self._edit(layout.before(self.text, self.at), self.at, "")
            case "delete":
                return self._edit(self.at, layout.after(self.text, self.at), "")
            case "cut":
                end = layout.line_end(self.text, self.at)
                return self._edit(self.at, end if end > self.at else min(end + 1, len(self.text)), "")
            case "up" | "down" | "page up" | "page down":
                self._vertically(event.name, size)
            case name:
                self._horizontally(name)
        return []

    def _edit(self, start: int, end: int, text: str) -> list[Splice]:
        self.goal = None
        if start == end and not text:
            return []
        self.text = self.text[:start] + text + self.text[end:]
        self.at = start + len(text)
        return [(start, end - start, text)]

    def _vertically(self, name: str, size: Size) -> None:
        columns = size.columns
        start, _ = layout.row(self.text, self.at, columns)
        if self.goal is None:
            self.goal = layout.column(self.text, start, self.at, columns)
        step = layout.previous_row if name.endswith("up") else layout.next_row
        place: int | None = start
        for _ in range(max(1, size.rows - 1) if name.startswith("page") else 1):
            if (following := step(self.text, start, columns)) is None:
                place = None if place == start and not name.startswith("page") else place
                break
            place = start = following
        if place is None:  # in the first or last row: move to its start or end
            self.at = 0 if name == "up" else len(self.text)
        else:
            self.at = layout.at_column(self.text, place, self.goal, columns)

    def _horizontally(self, name: str) -> None:
        text, at = self.text, self.at
        places: dict[str, Callable[[], int]] = {
            "left": lambda: layout.before(text, at),
            "right": lambda: layout.after(text, at),
            "home": lambda: layout.line_start(text, at),
            "end": lambda: layout.line_end(text, at),
            "top": lambda: 0,
            "bottom": lambda: len(text),
            "word left": lambda: _word(text, at, -1),
            "word right": lambda: _word(text, at, 1),
        }
        if name in places:
            self.at, self.goal = places[name](), None


def _word(text: str, at: int, step: int) -> int:
    """Skip what is between words, then a word."""

    def there() -> bool:
        return at > 0 if step < 0 else at < len(text)

    def is_letter() -> bool:
        return text[at - 1 if step < 0 else at].isalnum()

    while there() and not is_letter():
        at += step
    while there() and is_letter():
        at += step
    return at
