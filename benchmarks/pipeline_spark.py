"""Spark over the journal: reading, a stream's delay, kills, compaction, availability; each against growing input.

    python3 dev.py bench pipeline_spark [--only TEXT] [--times N] [--kills N] [--json]

Each part runs at its own sizes times 1, times 3 and so on up to --times (default 3); `--times 100` is for an idle
machine and an hour. One measurement is one process; what it measures is said in _spark_*.py. Figures and plots go to
build/bench/pipeline_spark.json and .svg.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
RESULTS = HERE.parent / "build" / "bench"
BOUND = 7200.0  # seconds of one measurement, at the largest sizes on a slow machine
MASTERS = ("local[1]", "local[2]", "cluster")


class Measured(NamedTuple):
    """One line of a plot: its function, what it is told, and what grows."""

    part: str
    line: str
    function: str
    task: dict[str, Any]
    grows: str = ""  # the name of what grows
    size: int = 0  # and where it begins
    shows: str = "seconds"


def lines(kills: int) -> list[Measured]:
    """Everything, in the order in which it has to run: what compares comes behind what it is compared with."""
    found = [
        Measured("read", way, "_spark_read:read", {"way": way}, "rows", 300_000, "rows_per_second")
        for way in ("nng", "with headers", "two columns", "parquet")
    ]
    found += [
        Measured("availability", "spark", "_spark_survey:spark_side", {}, "rows", 500_000, "with_start"),
        Measured("availability", "duckdb", "_spark_survey:duck_side", {}, "rows", 500_000, "with_start"),
    ]
    for master in MASTERS:
        task = {"updates": 100, "master": master}
        found.append(Measured("documents", master, "_spark_documents:compaction", task, "documents", 1000))
    sequential = Measured(
        "documents", "one process", "_spark_documents:sequential", {"updates": 100}, "documents", 1000
    )
    found.append(sequential)
    found.append(Measured("stream", "10,000/s", "_spark_stream:latency", {"rate": 10_000, "seconds": 30}))
    found.append(Measured("killed", "acknowledged", "_spark_stream:killed", {"rate": 1000, "kills": kills}))
    return found


def sizes(first: int, times: int) -> Iterator[int]:
    """`first` times 1, 3, 10, 30 and so on."""
    factor = 1
    while factor <= times:
        yield first * factor
        factor = factor * 3 if str(factor).startswith("1") else factor // 3 * 10


def measure(function: str, task: dict[str, Any]) -> dict[str, float]:
    """Run it in a process of its own. Raises RuntimeError with its last words."""
    command = [sys.executable, str(HERE / "_spark.py"), function, json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND, check=False)
    if done.returncode:
        raise RuntimeError(f"{function} {task}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def plot(rows: list[dict[str, Any]], target: Path) -> None:
    """A picture for each part that grows, all in one file."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    parts = list(dict.fromkeys(row["part"] for row in rows if row["grows"]))
    if not parts:
        return
    figure, axes = plt.subplots(1, len(parts), figsize=(5 * len(parts), 4), squeeze=False)
    for axis, part in zip(axes[0], parts, strict=True):
        mine = [row for row in rows if row["part"] == part]
        for line in dict.fromkeys(row["line"] for row in mine):
            points = [(row["size"], row["figures"][row["shows"]]) for row in mine if row["line"] == line]
            axis.plot(*zip(*points, strict=True), marker="o", label=line)
        axis.set(
            title=part, xlabel=mine[0]["grows"], ylabel=mine[0]["shows"].replace("_", " "), xscale="log", yscale="log"
        )
        axis.legend()
    figure.tight_layout()
    figure.savefig(target)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", action="append", metavar="TEXT", help="only parts and lines with TEXT in their name")
    parser.add_argument("--times", type=int, default=3, help="how often the smallest size goes into the largest (3)")
    parser.add_argument("--kills", type=int, default=20, help="kills under flow (20)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="spark-", dir=os.environ.get("NNGKIT_BENCH_FOLDER")))
    rows, bad = [], 0
    try:
        for each in lines(given.kills):
            name = f"{each.part}: {each.line}"
            if given.only and not any(text in name for text in given.only):
                continue
            for size in sizes(each.size, given.times) if each.grows else (0,):
                task = each.task | {"folder": str(folder)} | ({each.grows: size} if each.grows else {})
                figures = measure(each.function, task)
                rows.append(each._asdict() | {"size": size, "figures": figures})
                bad += any(figures.get(word) for word in ("different", "lost", "doubled"))
                if not given.json:
                    told = ", ".join(f"{word} {value:,.6g}" for word, value in figures.items())
                    print(f"{name:28}{f'{size:,} {each.grows}' if each.grows else '':>20}  {told}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "pipeline_spark.json").write_text(json.dumps(rows, indent=1))
    plot(rows, RESULTS / "pipeline_spark.svg")
    if given.json:
        print(json.dumps({"rows": rows}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
