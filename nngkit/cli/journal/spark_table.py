"""Tables of rows for a terminal: numbers to the right, no wider than the terminal. Pure.

::

    table(["topic", "messages"], [["orders", 12], ["weather", None]], width=40)

Text of a journal may come from anybody, so control characters are shown as escapes: none reaches the terminal.
"""

from __future__ import annotations

import datetime as dt
import json
import unicodedata
from collections.abc import Sequence
from typing import Any, Final

from nngkit.cli.streams.stderr import escaped

LEAST: Final = 8  # columns of the terminal that a cell keeps before further columns are left out
GAP: Final = "  "
CUT: Final = "\N{HORIZONTAL ELLIPSIS}"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], width: int | None = None, bold: bool = False) -> str:
    """Return the table, with lines of at most `width` columns of the terminal; None: as wide as it takes.

    If it is too wide, the widest texts are cut; numbers and times are not. If that is not enough, the last columns are
    left out, and the last line says which.
    """
    names = [escaped(name) for name in head]
    columns = [[row[place] for row in rows] for place in range(len(names))]
    right = [_are(column, int, float) for column in columns]
    texts = [_cells(column) for column in columns]
    cells = list(zip(*texts, strict=True))
    widths = [max(map(_width, [name, *column])) for name, column in zip(names, texts, strict=True)]
    rigid = [is_n or _are(column, dt.datetime) for is_n, column in zip(right, columns, strict=True)]
    least = [each if is_rigid else min(each, LEAST) for each, is_rigid in zip(widths, rigid, strict=True)]
    fitted = widths if width is None else fit(widths, least, width)
    lines = [_line(names, fitted, right)]
    if bold:
        lines[0] = f"\033[1m{lines[0]}\033[0m"
    lines += [_line(row, fitted, right) for row in cells]
    if hidden := names[len(fitted) :]:
        said = f"columns left out: {', '.join(hidden)}"
        lines.append(said if width is None else _cut(said, width))
    return "\n".join(lines)


def fit(widths: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Return widths that fit: the widest are reduced, none below its `least`.

    If that is not enough, they are those of the first columns only; of one at least, which takes the width at most.
    """
    shown = list(widths)
    while len(shown) > 1 and sum(least[: len(shown)]) + len(GAP) * (len(shown) - 1) > width:
        shown.pop()
    room = max(1, width - len(GAP) * (len(shown) - 1))
    if len(shown) == 1:
        return [min(shown[0], room)]
    while sum(shown) > room:
        widest = max(each for each, low in zip(shown, least, strict=False) if each > low)
        place = next(
            place for place, (each, low) in enumerate(zip(shown, least, strict=False)) if each == widest and each > low
        )
        shown[place] -= 1
    return shown


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for text, width, is_right in zip(cells, widths, right, strict=False):  # the last columns may be left out
        short = _cut(text, width)
        space = " " * (width - _width(short))
        parts.append(space + short if is_right else short + space)
    return GAP.join(parts).rstrip()


def _are(values: Sequence[Any], *kinds: type) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, kinds) and not isinstance(value, bool) for value in known)


def _cells(values: Sequence[Any]) -> list[str]:
    """Format a column; times as exactly as the most exact one of them is, to a millisecond at most."""
    times = [value for value in values if isinstance(value, dt.datetime)]
    exact = (
        "milliseconds"
        if any(at.microsecond for at in times)
        else "seconds"
        if any(at.second for at in times)
        else "minutes"
    )
    return [value.isoformat(" ", exact) if isinstance(value, dt.datetime) else cell(value) for value in values]


def cell(value: Any) -> str:
    """Format a value for a table."""
    match value:
        case None:
            return "-"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.6g}"
        case dt.datetime():
            return value.isoformat(" ", timespec="milliseconds")
        case bytes() | bytearray():
            return bytes(value).hex() if len(value) <= 40 else f"{bytes(value[:20]).hex()}... ({len(value)} bytes)"
        case list() | tuple() | dict():
            return escaped(json.dumps(plain(value), ensure_ascii=False))
    return escaped(str(value))


def plain(value: Any) -> Any:
    """Return a value of a row as JSON has it: times in ISO 8601, bytes in hex, structs as objects."""
    match value:
        case dt.datetime():
            return value.isoformat(timespec="microseconds") + ("" if value.tzinfo else "Z")
        case bytes() | bytearray():
            return bytes(value).hex()
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case tuple() if hasattr(value, "asDict"):
            return {key: plain(each) for key, each in value.asDict().items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
    return str(value)


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    kept, used = [], 1
    for char in text:
        used += _columns(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept) + CUT
