"""The content of the screen: visible text, others' cursors and names, status line, hint. Pure.

::

    frame = framed("hello", at=5, top=0, columns=80, rows=24, others=[Other(2, "Ada", 1)], status="...", hint="...")
    frame.rows[0]      # [Span("he", PLAIN), Span("l", Style(colour=1, reverse=True)), Span("lo", PLAIN), ...]
    frame.cursor       # (0, 5): row and column
    frame.top          # position of the first row, to pass in the next time

The frame has no control characters, whatever the text has, and no row is wider than the screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from nngkit.cli.doc.editor import layout

__all__ = ["PLAIN", "Frame", "Other", "Span", "Style", "cut", "framed"]

LONGEST: Final = 16  # columns of a name


class Style(NamedTuple):
    """A text style. `colour`: one of eight, by number, or None for the terminal's."""

    colour: int | None = None
    reverse: bool = False
    dim: bool = False


class Span(NamedTuple):
    """Text of a row in one style."""

    text: str
    style: Style


class Other(NamedTuple):
    """The cursor of another user, with name and colour."""

    at: int
    name: str
    colour: int


PLAIN: Final = Style()
STATUS: Final = Style(reverse=True)
HINT: Final = Style(dim=True)


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows of the screen, the cursor as (row, column), and the position of the first row in the text."""

    rows: list[list[Span]]
    cursor: tuple[int, int]
    top: int


def framed(
    text: str,
    at: int,
    top: int,
    columns: int,
    rows: int,
    others: Sequence[Other] = (),
    status: Iterable[Span] = (),
    hint: str = "",
) -> Frame:
    """Return the frame. `top` moves as little as needed to show the cursor."""
    below = min(2, max(0, rows - 1))  # status and hint, if there is room
    height = max(1, rows - below)
    columns = max(1, columns)
    top, starts = _seen(text, at, top, columns, height)
    lines = [_line(text, start, columns, others) for start in starts]
    lines += [[Span("~", HINT)]] * (height - len(lines)) if columns > 1 else [[]] * (height - len(lines))
    row, _ = layout.row(text, at, columns)
    cursor = (starts.index(row), min(layout.column(text, row, at, columns), columns - 1))
    bottom = [_filled(status, columns, STATUS), _filled([Span(hint, HINT)], columns, HINT)]
    return Frame(lines + bottom[:below], cursor, top)


def _seen(text: str, at: int, top: int, columns: int, height: int) -> tuple[int, list[int]]:
    """Return the start of the first visible row, and of all visible rows."""
    cursor, _ = layout.row(text, at, columns)
    top, _ = layout.row(text, min(max(top, 0), len(text)), columns)
    if cursor < top:
        top = cursor
    starts = _from(text, top, columns, height)
    if cursor > starts[-1]:  # the cursor moves to the last row
        top = cursor
        for _ in range(height - 1):
            if (above := layout.previous_row(text, top, columns)) is None:
                break
            top = above
        starts = _from(text, top, columns, height)
    return top, starts


def _from(text: str, top: int, columns: int, height: int) -> list[int]:
    starts = [top]
    while len(starts) < height and (below := layout.next_row(text, starts[-1], columns)) is not None:
        starts.append(below)
    return starts


def _line(text: str, start: int, columns: int, others: Sequence[Other]) -> list[Span]:
    """Return a row: its text, others' cursors, and their names at the right."""
    _, end = layout.row(text, start, columns)
    here = {other.at: other for other in others if layout.row(text, other.at, columns)[0] == start}
    spans: list[Span] = []
    at = start
    used = 0
    while at < end:
        following = min(layout.after(text, at), end)
        shown, used = _cell(text[at:following], used, columns)
        other = next((here[place] for place in range(at, following) if place in here), None)
        _add(spans, shown, PLAIN if other is None else Style(other.colour, reverse=True))
        at = following
    if end in here and used < columns:  # after the last character of a line
        _add(spans, " ", Style(here[end].colour, reverse=True))
        used += 1
    return _named(spans, used, columns, [here[place] for place in sorted(here)])


def _cell(chars: str, used: int, columns: int) -> tuple[str, int]:
    text = ""
    for char in chars:
        shown, wide = layout.cell(char, used, columns)
        text, used = text + shown, used + wide
    return text, used


def _named(spans: list[Span], used: int, columns: int, here: Sequence[Other]) -> list[Span]:
    names = [Span(f" {cut(other.name, LONGEST)} ", Style(other.colour, reverse=True)) for other in here]
    size = sum(map(_width_of, names))
    while names and used + 1 + size > columns:  # the text takes precedence
        size -= _width_of(names.pop())
    if names:
        _add(spans, " " * (columns - used - size), PLAIN)
    return spans + names


def _width_of(span: Span) -> int:
    return sum(map(layout.width, span.text))


def _add(spans: list[Span], text: str, style: Style) -> None:
    if spans and spans[-1].style == style:
        spans[-1] = Span(spans[-1].text + text, style)
    else:
        spans.append(Span(text, style))


def cut(text: str, columns: int) -> str:
    """Cut a line to `columns`, with control characters replaced."""
    shown, used = "", 0
    for char in text:
        wide = layout.width(char)
        if used + wide > columns:
            break
        shown, used = shown + layout.shown(char), used + wide
    return shown


def _filled(spans: Iterable[Span], columns: int, style: Style) -> list[Span]:
    """Return a row of spans, cut or filled to the width but one column: some terminals scroll at the last."""
    found: list[Span] = []
    left = columns - 1
    for span in spans:
        text = cut(span.text, left)
        left -= sum(map(layout.width, text))
        found.append(Span(text, span.style))
    return [*found, Span(" " * left, style)]
