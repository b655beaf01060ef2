"""`nngkit journal ls|verify|stats|export|compact|rebuild-manifest`: list, check, count, export and compact a journal.

::

    $ nngkit journal ls ./journal
    $ nngkit journal verify ./journal         # every byte; exit code 1 if records are damaged or missing
    $ nngkit journal export ./journal --topic weather --from-time 2026-01-31T12:00Z
    $ nngkit journal export ./journal --iceberg ./lake/events
    $ nngkit journal compact ./journal
    $ nngkit journal rebuild-manifest ./journal --partition 0
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.journal.lakehouse import add_table_options, run_table, wants_table
from nngkit.cli.journal.record_range import Skips, add_journal, add_range, content_fields, range_of
from nngkit.cli.streams.log_lines import log_to_stderr
from nngkit.cli.streams.output import columns, json_line, out, picked, utc_of, wants_colour
from nngkit.cli.streams.stderr import say
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.journal.reader import Journal
    from nngkit.journal.record import Record
    from nngkit.journal.verify import Finding
    from nngkit.journal.writing.merging import Compacted
    from nngkit.journal.writing.rebuild import Rebuilt

NAME: Final = "nngkit journal"
ACTIONS: Final = {
    "ls": "list the files with their offsets and times",
    "verify": "check every byte; exit code 1 if records are damaged or missing",
    "stats": "count records and bytes by topic and partition",
    "export": "write the records as JSON lines, raw bytes one a line, a Parquet file, or an Iceberg or Delta table",
    "compact": "merge small segments into larger ones, as a recorder does when it is idle",
    "rebuild-manifest": "rebuild a partition's manifest from its segments; the old file is kept",
}
EPILOG: Final = (
    "actions:\n{}\n\nAll but the last two only read, also while a recorder runs. compact and rebuild-manifest need a "
    "partition without a recorder; readers may run, and no record is deleted."
).format("\n".join(f"  {name:16}  {what}" for name, what in ACTIONS.items()))
FORMATS: Final = ("json", "raw", "parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options to `parser`."""
    parser.add_argument("action", metavar="ACTION", choices=list(ACTIONS), help="see below")
    add_journal(parser)
    add_range(parser)
    options.add_flag(parser, "--distinct", "export: only the first record of each message id")
    text = "export: json, raw or parquet"
    parser.add_argument("--format", choices=FORMATS, default="json", metavar="FORMAT", help=text)
    text = "compact: the largest segment (default: 67108864)"
    options.add_whole(parser, "--target", 1, 1 << 60, text, metavar="BYTES")
    parser.add_argument("--output", metavar="FILE", help="export: a new file to write (default: standard output)")
    add_table_options(parser)
    options.add(parser, "json")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit code."""
    from nngkit.journal.reader import open_journal

    table = wants_table(arguments)
    if arguments.action != "export":
        for option, given in (
            ("--distinct", arguments.distinct),
            ("--output", arguments.output is not None),
            ("--format", arguments.format != "json"),
        ):
            if given:
                raise ConfigError(option, "is for export only")
    if arguments.action != "compact" and arguments.target is not None:
        raise ConfigError("--target", "is for compact only")
    journal = open_journal(arguments.journal, spool=arguments.spool)
    if table:
        return run_table(journal, arguments)
    if arguments.action == "rebuild-manifest":
        return _rebuild(journal, arguments)
    if arguments.action == "compact":
        return _compact(journal, arguments)
    act = {"ls": _ls, "verify": _verify, "stats": _stats, "export": _export}[arguments.action]
    return act(journal, arguments)


def _partitions(journal: Journal, arguments: argparse.Namespace) -> list[int]:
    return journal.partitions() if arguments.partition is None else [arguments.partition]


def file_fields(journal: Journal, partition: int) -> list[dict[str, Any]]:
    """Return the files of a partition; docs/schemas/journal-ls.json."""
    from nngkit.journal.files import logs_in

    manifest = journal.manifest(partition)
    end = journal.bounds(partition).end
    rows = [
        {
            "partition": partition,
            "kind": "segment",
            **picked(each, "file first end"),
            "records": each.rows,
            "size": each.bytes,
            "min_time": utc_of(each.min_time),
            "max_time": utc_of(each.max_time),
            "topics": dict(sorted(each.topics.items())),
        }
        for each in manifest.segments
    ]
    folder = journal.logs(partition)
    logs = [] if folder is None else logs_in(folder)
    for number, (first, path) in enumerate(logs):
        behind = min(end, logs[number + 1][0]) if number + 1 < len(logs) else end
        begin = max(first, manifest.end)
        rows.append(
            {
                "partition": partition,
                "kind": "log",
                "file": path.name,
                "first": begin,
                "end": max(begin, behind),
                "records": max(0, behind - begin),
                "size": path.stat().st_size if path.exists() else 0,
                "min_time": None,
                "max_time": None,
                "topics": None,
            }
        )
    return rows


def _ls(journal: Journal, arguments: argparse.Namespace) -> int:
    rows = [row for partition in _partitions(journal, arguments) for row in file_fields(journal, partition)]
    if arguments.json:
        for row in rows:
            out(json_line(row))
    elif rows:
        head = ("PARTITION", "FIRST", "END", "RECORDS", "SIZE", "FROM", "TO", "FILE")
        names = ("partition", "first", "end", "records", "size", "min_time", "max_time", "file")
        cells = [tuple("-" if row[name] is None else str(row[name]) for name in names) for row in rows]
        out(columns(head, cells, wants_colour(sys.stdout)))
    return 0


def finding_fields(found: Finding) -> dict[str, Any]:
    """Return the finding about one file; docs/schemas/journal-verify.json."""
    return picked(found, "partition file kind state first end size offset position why")


def _verify(journal: Journal, arguments: argparse.Namespace) -> int:
    from nngkit.journal.verify import verify

    bad = files = records = 0
    for found in verify(journal, arguments.partition):
        files += 1
        if found.bad:
            bad += 1
        elif found.kind != "manifest":
            records += found.end - found.first
        if arguments.json:
            out(json_line(finding_fields(found)))
        elif found.state != "good":
            place = "" if found.position is None else f" at byte {found.position}"
            offset = "" if found.offset is None else f", offset {found.offset}"
            out(f"{found.state}: {found.file}{place}{offset}: {found.why}")
    if not arguments.json:
        out(f"{files} files, {records} records good" + (f"; {bad} files damaged or missing" if bad else ""))
    if bad:
        say(NAME, "restore the damaged files from a copy, or skip them: --skip-missing, nngkit record --salvage")
    return 1 if bad else 0


def rebuilt_fields(partition: int, done: Rebuilt) -> dict[str, Any]:
    """Return the result of a rebuild; docs/schemas/journal-rebuild.json."""
    manifest = done.manifest
    return {
        "partition": partition,
        **picked(manifest, "start end"),
        "segments": len(manifest.segments),
        "records": sum(each.rows for each in manifest.segments),
        "adopted": list(done.adopted),
        "orphans": [file for file, _ in done.orphans],
        "missing": list(done.missing),
        "lost": sum(each.end - each.first for each in done.lost),
        "replaced": done.replaced,
    }


def _rebuild(journal: Journal, arguments: argparse.Namespace) -> int:
    from nngkit.journal.writing.rebuild import rebuild_manifest

    log_to_stderr(NAME, "nngkit")
    for partition in _partitions(journal, arguments):
        done = rebuild_manifest(arguments.journal, partition, spool=arguments.spool)
        fields = rebuilt_fields(partition, done)
        if arguments.json:
            out(json_line(fields))
            continue
        words = [f"partition {partition}: {fields['segments']} segments, {fields['records']} records"]
        counted = (("adopted", done.adopted), ("renamed to .orphan", done.orphans), ("missing", done.missing))
        words += [f"{len(files)} {what}" for what, files in counted if files]
        words += [f"{fields['lost']} offsets without a record"] if fields["lost"] else []
        words += [f"the old manifest is {done.replaced}"] if done.replaced else []
        out("; ".join(words))
    return 0


def compacted_fields(partition: int, done: Compacted) -> dict[str, Any]:
    """Return the result of a compaction; docs/schemas/journal-compact.json."""
    return {
        "partition": partition,
        **picked(done, "before after rewritten"),
        "damaged": [file for file, _ in done.damaged],
    }


def _compact(journal: Journal, arguments: argparse.Namespace) -> int:
    from nngkit.journal.writing.merging import compact

    damaged = 0
    for partition in _partitions(journal, arguments):
        done = compact(arguments.journal, partition, spool=arguments.spool, target=arguments.target or 64 << 20)
        damaged += len(done.damaged)
        for file, why in done.damaged:
            say(NAME, f"{file}: damaged, left out: {why}")
        text = f"partition {partition}: {done.before} segments, now {done.after}; {done.rewritten} bytes rewritten"
        out(json_line(compacted_fields(partition, done)) if arguments.json else text)
    return 1 if damaged else 0


def topic_fields(journal: Journal, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return record counts by topic, and with --skip-missing of skipped records; docs/schemas/journal-stats.json."""
    import pyarrow as pa
    from pyarrow import compute

    rows: list[dict[str, Any]] = []
    skips = Skips(NAME)
    wanted = range_of(arguments) | {"skipped": skips}
    wanted.pop("partition")
    start, end = wanted.pop("start"), wanted.pop("end")
    for partition in _partitions(journal, arguments):
        before = skips.rows
        found: dict[tuple[str, str], list[int]] = {}
        names = ("topic", "protocol", "value", "timestamp")
        for batch in journal.read_batches(partition, start, end, columns=names, **wanted):
            table = pa.table(
                {
                    "topic": batch.column("topic"),
                    "protocol": batch.column("protocol"),
                    "size": compute.binary_length(batch.column("value")),
                    "time": batch.column("timestamp").cast(pa.int64()),
                }
            )
            sums = table.group_by(["topic", "protocol"]).aggregate(
                [("size", "count"), ("size", "sum"), ("time", "min"), ("time", "max")]
            )
            for row in sums.to_pylist():
                counted = found.setdefault((row["topic"], row["protocol"]), [0, 0, row["time_min"], row["time_max"]])
                counted[0] += row["size_count"]
                counted[1] += row["size_sum"]
                counted[2] = min(counted[2], row["time_min"])
                counted[3] = max(counted[3], row["time_max"])
        rows += [
            {
                "partition": partition,
                "topic": topic,
                "protocol": protocol,
                "records": count,
                "size": size,
                "from": utc_of(low),
                "to": utc_of(high),
            }
            for (topic, protocol), (count, size, low, high) in sorted(found.items())
        ]
        if arguments.skip_missing:
            rows.append({"partition": partition, "skipped": skips.rows - before})
    skips.finish()
    return rows


def _stats(journal: Journal, arguments: argparse.Namespace) -> int:
    rows = topic_fields(journal, arguments)
    if arguments.json:
        for row in rows:
            out(json_line(row))
    elif rows := [row for row in rows if "topic" in row]:
        head = ("PARTITION", "TOPIC", "PROTOCOL", "RECORDS", "SIZE", "FROM", "TO")
        out(columns(head, [tuple(map(str, row.values())) for row in rows], wants_colour(sys.stdout)))
    return 0


def record_fields(record: Record) -> dict[str, Any]:
    """Return a record, bytes in base64; docs/schemas/journal-export.json."""
    return {
        **picked(record, "partition offset timestamp"),
        "time": utc_of(record.timestamp),
        **picked(record, "topic protocol peer"),
        **content_fields(record),
    }


def _export(journal: Journal, arguments: argparse.Namespace) -> int:
    from nngkit.journal.reader import read

    if arguments.format == "parquet":
        return _export_parquet(journal, arguments)
    target = sys.stdout.buffer if arguments.output is None else _new_file(arguments.output)
    skips = Skips(NAME)
    try:
        for record in read(journal, distinct=arguments.distinct, skipped=skips, **range_of(arguments)):
            if arguments.format == "raw":
                target.write(record.value + b"\n")
            else:
                target.write(json_line(record_fields(record)).encode() + b"\n")
        if arguments.json and arguments.skip_missing and arguments.format == "json":
            target.write(json_line({"skipped": skips.rows}).encode() + b"\n")
        target.flush()
    finally:
        if arguments.output is not None:
            target.close()
    skips.finish()
    return 0


def _new_file(path: str) -> Any:
    try:
        return open(path, "xb")
    except OSError as error:
        raise ConfigError("--output", f"{path}: {error.strerror}; name a new file", path) from error


def _export_parquet(journal: Journal, arguments: argparse.Namespace) -> int:
    from pyarrow import parquet

    from nngkit.journal.schema import SCHEMA

    if arguments.output is None:
        raise ConfigError("--format", "parquet needs a file: --output FILE")
    if arguments.distinct:
        raise ConfigError("--distinct", "is for json and raw")
    skips = Skips(NAME)
    wanted = range_of(arguments) | {"skipped": skips}
    wanted.pop("partition")
    start, end = wanted.pop("start"), wanted.pop("end")
    _new_file(arguments.output).close()
    scratch = f"{arguments.output}.tmp"
    try:
        with parquet.ParquetWriter(scratch, SCHEMA, compression="zstd") as writer:
            for partition in _partitions(journal, arguments):
                for batch in journal.read_batches(partition, start, end, **wanted):
                    writer.write_batch(batch)
            if arguments.skip_missing:
                writer.add_key_value_metadata({"nngkit.skipped": str(skips.rows)})
        os.replace(scratch, arguments.output)
    except BaseException:
        for path in (scratch, arguments.output):
            if os.path.exists(path):
                os.unlink(path)
        raise
    skips.finish()
    return 0
