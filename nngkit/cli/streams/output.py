"""Data on standard output: JSON lines, tables for people, colour, times."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

from nngkit.cli.streams.stderr import escaped

if TYPE_CHECKING:  # --help loads no discovery
    from nngkit.discovery.provider import Provider

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FIRST: Final = -62_135_596_800_000_000  # microseconds since 1970: the year 1, and the end of 9999
LAST: Final = 253_402_300_799_999_999
_COLOUR: Final = re.compile(r"(\033\[[0-9;]*m)")
_COLOURS: Final = {  # of the states of discovery
    "up": "32",  # green
    "joining": "36",
    "suspect": "33",  # yellow
    "draining": "33",
    "down": "31",  # red
}


def wants_colour(stream: TextIO | None) -> bool:
    """Return True if `stream` is a terminal, unless NO_COLOR or TERM=dumb asks for plain text."""
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def coloured(text: str, code: str, colour: bool) -> str:
    """Return `text`, in the terminal's colour `code` if `colour`."""
    return f"\033[{code}m{text}\033[0m" if colour and code else text


def state_text(state: str, colour: bool) -> str:
    """Return the name of a provider's state, in its colour."""
    return coloured(str(state), _COLOURS[state], colour) if state in _COLOURS else str(state)


def utc(timestamp: float) -> str:
    """Format seconds since 1970 as 2026-01-31T12:00:00.123Z; a time outside the years 1 to 9999 as the nearest one."""
    return utc_of(round(min(max(FIRST / 1e6, timestamp), LAST / 1e6) * 1e6))


def utc_of(microseconds: int) -> str:
    """Format microseconds since 1970, exactly, as `utc` does."""
    moment = _EPOCH + dt.timedelta(microseconds=min(max(FIRST, microseconds), LAST))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cut(line: str, width: int) -> str:
    """Return at most `width` characters of `line`, with all of its colour codes."""
    kept = []
    for part in _COLOUR.split(line):
        if part.startswith("\033"):
            kept.append(part)
        else:
            kept.append(part[:width])
            width -= len(kept[-1])
    return "".join(kept)


def span(seconds: float) -> str:
    """Format a length of time for people: 5s, 3m20s, 2h05m, 4d06h."""
    whole = max(0, int(seconds))
    for size, unit, rest in ((86400, "d", 3600), (3600, "h", 60), (60, "m", 1)):
        if whole >= size:
            smaller = {"d": "h", "h": "m", "m": "s"}[unit]
            return f"{whole // size}{unit}{whole % size // rest:02}{smaller}"
    return f"{whole}s"


def provider_fields(provider: Provider) -> dict[str, Any]:
    """Return all fields of a provider, under their names in docs/schemas/."""
    return {
        **picked(provider, "name address id epoch version zone priority weight"),
        "tags": sorted(provider.tags),
        **picked(provider, "load draining"),
    }


def picked(thing: object, names: str) -> dict[str, Any]:
    """Return the attributes of `thing` that `names` lists, separated by spaces, in that order."""
    return {name: getattr(thing, name) for name in names.split()}


def as_text(body: bytes) -> tuple[str, str]:
    """Return the bytes as text and its encoding: utf-8, or base64 if they are not UTF-8."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return _base64(body), "base64"


def as_json(value: Any) -> Any:
    """Return a value of CBOR as JSON can have it: bytes as base64."""
    if isinstance(value, dict):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [as_json(each) for each in value]
    return _base64(value) if isinstance(value, bytes) else value


def json_line(fields: dict[str, Any]) -> str:
    """Return the object as one line of JSON."""
    text = json.dumps(fields, ensure_ascii=False, separators=(", ", ": "))
    if text.isprintable():
        return text
    # JSON lets C1 controls and bidirectional overrides stand, which a terminal obeys.
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _base64(data: bytes) -> str:
    import base64  # a millisecond, which most commands do not spend

    return base64.b64encode(data).decode()


def columns(head: Sequence[str], rows: Iterable[Sequence[str]], colour: bool = False) -> str:
    """Format a table, left-aligned, two spaces between columns. Colour codes in cells count as zero width.

    What else is not printable in a cell is escaped.
    """
    table = [[coloured(cell, "1", colour) for cell in head], *([_shown(cell) for cell in row] for row in rows)]
    widths = [max(_width(row[column]) for row in table) for column in range(len(head))]
    lines = []
    for row in table:
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _shown(cell: str) -> str:
    if cell.isprintable():
        return cell
    return "".join(part if number % 2 else escaped(part) for number, part in enumerate(_COLOUR.split(cell)))


def _width(cell: str) -> int:
    if "\033[" not in cell:
        return len(cell)
    return len(cell) - sum(len(part.partition("m")[0]) + 3 for part in cell.split("\033[")[1:])


def out(text: str) -> None:
    """Print data, one line or several, to standard output."""
    print(text, file=sys.stdout)
