"""`nngkit journal export --iceberg|--delta TARGET`: publish sealed segments as a table of other engines.

::

    $ nngkit journal export ./journal --iceberg ./lake/events
    $ nngkit journal export ./journal --delta ./lake/events --watch 60
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.streams.output import json_line, out, picked
from nngkit.cli.streams.stderr import say
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.journal.reader import Journal
    from nngkit.lakehouse import Exported

NAME: Final = "nngkit journal export"
OPTIONS: Final = ("iceberg", "delta", "in_place", "follow_retention", "keep_snapshots", "watch")
RANGE: Final = ("topic", "partition", "from_offset", "to_offset", "from_time", "to_time")


def add_table_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--iceberg", metavar="TARGET", help="export: sealed segments as an Iceberg table in this folder")
    kind.add_argument("--delta", metavar="TARGET", help="export: sealed segments as a Delta Lake table in this folder")
    options.add_flag(parser, "--in-place", "export --iceberg: refer to the journal's files instead of linking them")
    options.add_flag(parser, "--follow-retention", "export: remove from the table what the journal has removed")
    text = "export --iceberg: remove older snapshots, and files that only they have (default: keep all)"
    options.add_whole(parser, "--keep-snapshots", 1, 1_000_000, text)
    text = "export: repeat after each pause, until SIGTERM"
    parser.add_argument("--watch", type=options.more_than_no_seconds, metavar="SECONDS", help=text)


def wants_table(arguments: argparse.Namespace) -> bool:
    """Return True if one of these options is given. Raises ConfigError if it is unusable with the others."""
    given = [name for name in OPTIONS if getattr(arguments, name)]
    if not given:
        return False
    if arguments.action != "export":
        raise ConfigError(_option(given[0]), "is for export only")
    if arguments.iceberg is None and arguments.delta is None:
        raise ConfigError(_option(given[0]), "is for a table: add --iceberg TARGET or --delta TARGET")
    others = {name: getattr(arguments, name) is not None for name in RANGE}
    others |= {name: getattr(arguments, name) for name in ("skip_missing", "distinct")}
    others |= {"output": arguments.output is not None, "format": arguments.format != "json"}
    for name, there in others.items():
        if there:
            raise ConfigError(_option(name), "is not for a table, which has all sealed segments as they are")
    return True


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def exported_fields(done: Exported) -> dict[str, Any]:
    """Return the result of an export; docs/schemas/journal-table.json."""
    return {
        **picked(done, "snapshot added removed kept"),
        "offsets": {str(partition): end for partition, end in done.offsets.items()},
    }


def run_table(journal: Journal, arguments: argparse.Namespace) -> int:
    """Export once, or until a signal; an export that has begun is completed first. Returns the exit code."""
    stop = threading.Event()
    received: list[int] = []

    def on_signal(number: int, _frame: object) -> None:
        received.append(number)
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        kept = 0
        while not stop.is_set():
            kept = _export(journal, arguments, kept)
            if arguments.watch is None:
                break
            stop.wait(arguments.watch)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 + received[0] if received else 0


def _export(journal: Journal, arguments: argparse.Namespace, reported: int) -> int:
    from nngkit.lakehouse import export

    kind = "delta" if arguments.iceberg is None else "iceberg"
    done = export(
        journal,
        arguments.iceberg or arguments.delta,
        kind,
        in_place=arguments.in_place,
        follow_retention=arguments.follow_retention,
        keep_snapshots=arguments.keep_snapshots,
    )
    if done.snapshot is not None or arguments.watch is None:
        if arguments.json:
            out(json_line(exported_fields(done)))
        else:
            what = "nothing new" if done.snapshot is None else f"snapshot {done.snapshot}"
            ends = ", ".join(f"partition {partition} up to offset {end}" for partition, end in done.offsets.items())
            out(f"{what}: {done.added} files added, {done.removed} removed" + (f"; {ends}" if ends else ""))
        sys.stdout.flush()  # a reader of --watch waits for it
    if done.kept and done.kept != reported:
        say(
            NAME,
            f"the table keeps {done.kept} files with offsets that the journal has removed; "
            "--follow-retention removes them",
        )
    return done.kept
