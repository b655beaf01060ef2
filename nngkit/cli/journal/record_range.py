"""Which records: the options that `replay` and `journal` share, and what they come to."""

from __future__ import annotations

import argparse
import datetime as dt
from typing import TYPE_CHECKING, Any

from nngkit.cli import options
from nngkit.cli.stderr import say

if TYPE_CHECKING:
    from nngkit.journal.wanted import Skipped

__all__ = ["Skips", "add_journal", "add_range", "micros", "range_of"]


def add_journal(parser: argparse.ArgumentParser) -> None:
    """JOURNAL, and where its logs are."""
    parser.add_argument("journal", metavar="JOURNAL", help="its folder, or a URI of shared storage")
    parser.add_argument("--spool", metavar="DIR", help="of shared storage: the folder of the recorder's logs")


def add_range(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--topic", action="append", metavar="NAME", help="only this stream's; may be repeated")
    parser.add_argument("--partition", type=options.partition, metavar="N", help="only this recorder's (default: all)")
    offset: dict[str, Any] = {"type": lambda text: options.whole(text, 0, (1 << 63) - 1), "metavar": "N"}
    parser.add_argument("--from-offset", **offset, help="begin with this record (default: the earliest kept)")
    parser.add_argument("--to-offset", **offset, help="end before this one (default: the end as it is now)")
    parser.add_argument(
        "--from-time", type=micros, metavar="TIME", help="begin with this time, as 2026-01-31T12:00:00Z"
    )
    parser.add_argument(
        "--to-time", type=micros, metavar="TIME", help="end before this one; UTC unless it says otherwise"
    )
    parser.add_argument("--skip-missing", action="store_true", help="leave out what is gone or damaged")


def range_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What they say, as `nngkit.journal.read` takes it."""
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
    """Say on stderr what `--skip-missing` leaves out, one line for each damage, and count the `rows`."""

    def __init__(self, where: str) -> None:
        self.rows = 0
        self._where = where

    def __call__(self, skipped: Skipped) -> None:
        self.rows += skipped.rows
        say(self._where, str(skipped))

    def finish(self) -> None:
        """Say the total."""
        if self.rows:
            say(self._where, f"{self.rows} records were skipped")


def micros(text: str) -> int:
    """A time in ISO 8601, or in seconds since 1970, as microseconds."""
    try:
        return round(float(text) * 1e6)
    except (ValueError, OverflowError):
        pass
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time like 2026-01-31T12:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
