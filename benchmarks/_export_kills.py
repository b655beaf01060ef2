"""Exports are killed at random moments while a recorder seals: is each record in the table exactly once?

::

    $ python benchmarks/_export_kills.py --kills 100 --format iceberg --seed 1

A recorder appends and seals in a process of its own. An exporter is forked, exports again and again, and gets SIGKILL
after a random time, at most that in which another one has exported three times; every second one at most half an export
after it has placed a file, as a commit follows within milliseconds. A kill counts if that exporter had written
something. After the last kill, one export completes the table. Then the files of each snapshot must have the offsets
below the one that it states, each once, and the rows of the last one, as the format's own library reads them, must be
the journal's records. kills.py runs it for both formats.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _child import report
from nngkit.journal import open_journal
from nngkit.journal.record import encode_origin
from nngkit.journal.writing.partition import Partition
from nngkit.lakehouse import export, open_table
from nngkit.lakehouse.formats import backend
from nngkit.lakehouse.placing import LOCK, parse
from nngkit.testing import eventually

SEGMENT = 2_000  # bytes of a log: some twenty records, so that segments are sealed all the time
EXPORTS = 3  # that an exporter completes before the latest kill
TRIES = 5  # as many as kills, at most: one may come before the exporter has written anything
COMMIT = re.compile(r"/(metadata/v|_delta_log/0)\d+[^/]*\.json$")
PART = re.compile(r"/(data/.*\.parquet|metadata/.*\.avro)$")  # of a commit: written before it


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
    """Append a few records at a time, until the file `until` exists or the parent has ended."""
    parent = os.getppid()
    partition = Partition.open(journal, segment_bytes=SEGMENT, segment_seconds=0.05)
    origin, number = encode_origin("kills", "pull", None), 0
    while not until.exists() and os.getppid() == parent:
        partition.log.append([(None, b"%d" % (number + each), origin, b"", 1_000 + number) for each in range(3)])
        number += 3
        time.sleep(0.005)
    partition.close()


def export_news(journal: Path, target: Path, kind: str, snapshots: float) -> None:
    """Export until there are so many new snapshots, until killed, or until the parent has ended."""
    parent = os.getppid()
    while snapshots > 0 and os.getppid() == parent:
        snapshots -= export(journal, target, kind).snapshot is not None


def checked(journal: Path, target: Path, kind: str) -> dict[str, Any]:
    """Export the rest; return what is wrong with the table: offsets `lost` and `doubled`, and what else is `wrong`."""
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
    lost, doubled = set(range(end)) - set(offsets), len(offsets) - len(set(offsets))
    if strange := set(offsets) - set(range(end)):
        wrong.append(f"the last snapshot: {len(strange)} offsets that the journal does not have")
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
        "lost": len(lost),
        "doubled": doubled,
        "wrong": wrong,
    }


def written(target: Path) -> dict[str, int]:
    """Return the files of a table, with the times when they were last changed or linked."""
    # the table's own library would start threads, which a fork loses
    return {
        path: os.stat(path).st_ctime_ns
        for folder, _, names in os.walk(target)
        for path in (os.path.join(folder, name) for name in names)
        if not path.endswith(LOCK)
    }


def await_file(target: Path, seconds: float) -> None:
    """Wait until one more file of data is placed, at most so long."""
    before = set(target.glob("data/*/*.parquet"))
    end = time.monotonic() + seconds
    while time.monotonic() < end and set(target.glob("data/*/*.parquet")) <= before:
        time.sleep(0.001)


def newest(files: dict[str, int]) -> str:
    """Return the path of the last commit; "" if there is none."""
    return max((path for path in files if COMMIT.search(path)), key=lambda path: files[path], default="")


def run(folder: Path, kind: str, kills: int, seed: int) -> dict[str, Any]:
    """Kill exporters until `kills` of them had written; return the figures of `checked`, and those of the kills.

    `midway`: kills of exporters that had placed or written files for their next commit. `kills_after_a_commit`: of
    those that had committed.
    """
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
        after = midway = hit = 0
        files = written(target)
        for _ in range(TRIES * kills):
            if hit == kills:
                break
            child = forked(lambda: export_news(journal, target, kind, math.inf))
            if hit % 2:
                await_file(target, most)
                time.sleep(chance.random() * most / EXPORTS / 2)
            else:
                time.sleep(chance.random() * most)
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status):
                raise SystemExit("an exporter failed by itself")
            before, files = files, written(target)
            if files != before:
                commit = newest(files)
                hit, after = hit + 1, after + (commit != newest(before))
                new = (path for path, changed in files.items() if before.get(path) != changed and PART.search(path))
                midway += any(files[path] > files.get(commit, 0) for path in new)
    finally:
        stop.touch()
        os.waitpid(recorder, 0)
    figures = {"kills": hit, "seed": seed, "latest_kill_s": round(most, 2)}
    return figures | {"kills_after_a_commit": after, "midway": midway} | checked(journal, target, kind)


def measured(task: dict[str, Any]) -> None:
    """Report the figures of `run` to the benchmark."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("NNGKIT_BENCH_FOLDER")) as folder:
        done = run(Path(folder), task["format"], task["kills"], task["seed"])
    sys.stderr.writelines(f"{each}\n" for each in done["wrong"])
    told = {name: done[name] for name in ("kills", "midway", "records", "lost", "doubled")}
    report(**told, wrong=len(done["wrong"]))


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
    return 1 if done["lost"] or done["doubled"] or done["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
