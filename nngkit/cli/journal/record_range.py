"""Options that select records, shared by `replay` and `journal`, and the content of a record as JSON."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
from typing import TYPE_CHECKING, Any

from nngkit.cli import options
from nngkit.cli.streams.output import FIRST, LAST, as_json
from nngkit.cli.streams.stderr import say

if TYPE_CHECKING:
    from nngkit.fanout import Delivery
    from nngkit.journal.record import Record
    from nngkit.journal.selection import Skipped


def add_journal(parser: argparse.ArgumentParser) -> None:
    """Add JOURNAL and the folder of its logs."""
    parser.add_argument("journal", metavar="JOURNAL", help="its folder, or a URI of shared storage")
    parser.add_argument("--spool", metavar="DIR", help="for shared storage: the folder of the recorder's logs")


def add_range(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--topic", action="append", metavar="NAME", help="only this topic; may be repeated")
    options.add_partition(parser, "only this partition (default: all)")
    most = (1 << 63) - 1
    options.add_whole(parser, "--from-offset", 0, most, "start at this offset (default: the earliest)")
    options.add_whole(parser, "--to-offset", 0, most, "end before this offset (default: the current end)")
    options.add_value(parser, "--from-time", "TIME", "start at this time, as 2026-01-31T12:00:00Z", type=micros)
    options.add_value(parser, "--to-time", "TIME", "end before this time; UTC unless given otherwise", type=micros)
    options.add_flag(parser, "--skip-missing", "skip missing and damaged records")


def range_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the range as arguments of `nngkit.journal.read`."""
    return {
        "topics": arguments.topic,
        "partition": arguments.partition,
        "start": arguments.from_offset,
        "end": arguments.to_offset,
        "start_time": arguments.from_time,
        "end_time": arguments.to_time,
        "missing": "skip" if arguments.skip_missing else "raise",
    }


class Skips:
    """Reports skipped records on stderr, one line for each gap, and counts them in `rows`."""

    def __init__(self, where: str) -> None:
        self.rows = 0
        self._where = where

    def __call__(self, skipped: Skipped) -> None:
        self.rows += skipped.rows
        say(self._where, str(skipped))

    def finish(self) -> None:
        """Report the total."""
        if self.rows:
            say(self._where, f"{self.rows} records were skipped")


def content_fields(record: Record | Delivery) -> dict[str, Any]:
    """Return the key, the headers and the value of a record, bytes in base64."""
    return {
        "key": as_json(record.key),
        "headers": [{"key": name, "value": as_json(value)} for name, value in record.headers],
        "value": as_json(record.value),
    }


def micros(text: str) -> int:
    """Parse a time in ISO 8601 or in seconds since 1970; return microseconds since 1970."""
    with contextlib.suppress(ValueError, OverflowError):
        if not FIRST <= (found := round(float(text) * 1e6)) <= LAST:
            raise argparse.ArgumentTypeError(f"{text!r} seconds since 1970 are not in the years 1 to 9999")
        return found
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time like 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
