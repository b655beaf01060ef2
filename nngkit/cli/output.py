"""What commands print: a provider as JSON, columns for people, colour for a terminal that wants it, times as text."""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:  # a help is not to bring in what discovery needs
    from nngkit.discovery.provider import Provider, State

__all__ = ["coloured", "columns", "json_line", "out", "provider_fields", "state_text", "utc", "wants_colour"]

_COLOURS: Final = {  # of the states of discovery
    "up": "32",  # green
    "joining": "36",
    "suspect": "33",  # yellow
    "draining": "33",
    "down": "31",  # red
}


def wants_colour(stream: TextIO | None) -> bool:
    """Whether `stream` is a terminal, and nobody asked for plain text (NO_COLOR, TERM=dumb)."""
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def coloured(text: str, code: str, colour: bool) -> str:
    """`text`, in the terminal's colour `code` if `colour`."""
    return f"\033[{code}m{text}\033[0m" if colour and code else text


def state_text(state: State, colour: bool) -> str:
    """The state's name, in its colour."""
    return coloured(state.value, _COLOURS[state.value], colour)


def utc(timestamp: float) -> str:
    """Seconds since 1970 as 2026-01-31T12:00:00.123Z."""
    moment = dt.datetime.fromtimestamp(timestamp, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def provider_fields(provider: Provider) -> dict[str, Any]:
    """A provider in JSON: every field, under the names of docs/schemas/."""
    return {
        "name": provider.name,
        "address": provider.address,
        "id": provider.id,
        "epoch": provider.epoch,
        "version": provider.version,
        "zone": provider.zone,
        "priority": provider.priority,
        "weight": provider.weight,
        "tags": sorted(provider.tags),
        "load": provider.load,
        "draining": provider.draining,
    }


def json_line(fields: dict[str, Any]) -> str:
    """One object, one line."""
    return json.dumps(fields, ensure_ascii=False, separators=(", ", ": "))


def columns(head: Sequence[str], rows: Iterable[Sequence[str]], colour: bool = False) -> str:
    """A table for people: left-aligned, two spaces between. Cells may carry colour, which takes no room."""
    table = [[coloured(cell, "1", colour) for cell in head], *rows]
    widths = [max(_width(row[column]) for row in table) for column in range(len(head))]
    lines = []
    for row in table:
        cells = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _width(cell: str) -> int:
    if "\033[" not in cell:
        return len(cell)
    return len(cell) - sum(len(part.partition("m")[0]) + 3 for part in cell.split("\033[")[1:])


def out(text: str) -> None:
    """Data: a line, or several, on stdout."""
    print(text, file=sys.stdout)
