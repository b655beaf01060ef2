"""Tables of the report, and how figures are written in them. Pure."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

ROWS: Final = 20  # of a table


class Table(NamedTuple):
    """Rows for the page; `more`: further rows were left out."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    more: bool = False


def as_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Return the first `ROWS` rows, and whether there are more."""
    return Table(head, rows[:ROWS], len(rows) > ROWS)


def seconds_since(moment: dt.datetime) -> float:
    """Return seconds since 1970 of a time of Spark, which has no zone and is in this process's zone."""
    return moment.timestamp()


def utc(moment: dt.datetime) -> str:
    """Return a time of Spark in UTC, to the second."""
    return dt.datetime.fromtimestamp(seconds_since(moment), dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def share_text(share: float | None) -> str:
    """Return the share in percent, rounded down: only a provider that was never down has 100 %."""
    return "-" if share is None else f"{math.floor(share * 1000 + 1e-6) / 10:.1f} %"


def ms(seconds: float) -> float:
    """Return milliseconds, to two digits."""
    return round(seconds * 1000, 2)


def rounded(value: float) -> float:
    """Round to three digits, or to an integer from 100 on."""
    return float(f"{value:.3g}") if abs(value) < 100 else round(value)
