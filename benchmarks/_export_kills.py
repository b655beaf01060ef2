"""Exports are killed at random moments while a recorder seals: is each record in the table exactly once?

::

    $ python benchmarks/_export_kills.py --kills 100 --format iceberg --seed 1

A recorder appends and seals in a process of its own. An exporter is forked, exports again and again, and gets SIGKILL
after a random time, at most that in which another one has exported three times. After the last kill, one export
completes the table. Then the files of each snapshot must have the offsets below the one that it states, each once, and
the rows of the last one, as the format's own library reads them, must be the journal's records.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nngkit.journal import open_journal
from nngkit.journal.partition import Partition
from nngkit.journal.record import encode_origin
from nngkit.lakehouse import export, open_table
from nngkit.lakehouse.placing import parse
from nngkit.lakehouse.table import backend
from nngkit.testing import eventually

SEGMENT = 2_000  # bytes of a log: some twenty records, so that segments are sealed all the time
EXPORTS = 3  # that an exporter completes before the latest kill


def forked(work: Callable[[], None]) -> int:
    """Run `work` in a child; return its process id."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        work()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def record(journal: Path, until: Path) -> None:
    """Append a few records at a time, until the file `until` exists."""
    partition = Partition.open(journal, segment_bytes=SEGMENT, segment_seconds=0.05)
    origin, number = encode_origin("kills", "pull", None), 0
    while not until.exists():
        partition.log.append([(None, b"%d" % (number + each), origin, b"", 1_000 + number) for each in range(3)])
        number += 3
        time.sleep(0.005)
    partition.close()


def export_news(journal: Path, target: Path, kind: str, snapshots: float) -> None:
    """Export until there are so many new snapshots, or until killed."""
    while snapshots > 0:
        snapshots -= export(journal, target, kind).snapshot is not None


def checked(journal: Path, target: Path, kind: str) -> dict[str, Any]:
    """Export the rest, and return what is wrong with the table; `wrong` is empty if nothing is."""
    export(journal, target, kind)
    end = open_journal(journal).bounds(0).end
    table = open_table(target)
    wrong = []
    snapshots = table.snapshots()
    for each in snapshots:
        files = sorted(
            (found.first, found.end) for path, size in table.entries(each.id) if (found := parse(path, size))
        )
        ends = [0, *(end for _, end in files)]
        if [first for first, _ in files] != ends[:-1] or ends[-1] != each.offsets[0]:
            wrong.append(f"snapshot {each.id} has not the offsets up to {each.offsets[0]}, each once: {files}")
    if kind == "iceberg":
        from pyiceberg.table import StaticTable

        rows = StaticTable.from_metadata(str(target)).scan(selected_fields=("offset", "value")).to_arrow()
    else:
        from deltalake import DeltaTable

        rows = DeltaTable(str(target)).to_pyarrow_dataset().to_table(columns=["offset", "value"])
    offsets = rows["offset"].to_pylist()
    if sorted(offsets) != list(range(end)):
        wrong.append(
            f"the last snapshot: {len(offsets)} records, {len(set(offsets))} offsets, and the journal has {end}"
        )
    if any(int(value) != offset for value, offset in zip(rows["value"].to_pylist(), offsets, strict=True)):
        wrong.append("a record is not what was recorded")
    names = {os.path.basename(path) for each in snapshots for path in table.paths(each.id)}
    linked = {path.name for path in target.glob("data/*/*.parquet")}
    lists = len(list(target.glob("metadata/snap-*.avro")))
    return {
        "records": end,
        "snapshots": len(snapshots),
        "files": len(table.paths()),
        "lists_of_no_snapshot": max(0, lists - len(snapshots)),
        "files_of_no_snapshot": len(linked - names),
        "wrong": wrong,
    }


def run(folder: Path, kind: str, kills: int, seed: int) -> dict[str, Any]:
    """Kill `kills` exporters; return the figures of `checked`, and how often a kill left a new snapshot behind."""
    journal, target, stop = folder / "journal", folder / "table", folder / "stop"
    chance = random.Random(seed)
    import pyarrow.parquet  # noqa: F401 - here, once: none of these starts a thread, which a fork would lose

    backend(target, kind)
    recorder = forked(lambda: record(journal, stop))
    try:
        eventually(lambda: list(journal.glob("*/*.parquet")), 30)
        begin = time.monotonic()
        os.waitpid(forked(lambda: export_news(journal, folder / "timed", kind, EXPORTS)), 0)
        most = time.monotonic() - begin
        seen = after = 0
        for _ in range(kills):
            child = forked(lambda: export_news(journal, target, kind, math.inf))
            time.sleep(chance.random() * most)
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status):
                raise SystemExit("an exporter failed by itself")
            log = target / ("metadata" if kind == "iceberg" else "_delta_log")
            commit = max((int(path.name.lstrip("v").partition(".")[0]) for path in log.glob("[v0]*.json")), default=0)
            after, seen = after + (commit != seen), commit
    finally:
        stop.touch()
        os.waitpid(recorder, 0)
    figures = {"kills": kills, "seed": seed, "latest_kill_s": round(most, 2), "kills_after_a_commit": after}
    return figures | checked(journal, target, kind)


def main() -> int:
    """Run the command; return its exit code: 1 if records are lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100, metavar="N")
    parser.add_argument("--format", choices=("iceberg", "delta"), default="iceberg")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("NNGKIT_BENCH_FOLDER")) as folder:
        done = run(Path(folder), arguments.format, arguments.kills, arguments.seed)
    print(json.dumps({"format": arguments.format} | done))
    return 1 if done["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
