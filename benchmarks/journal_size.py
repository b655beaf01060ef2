"""Cost of a journal by its number of segments: sealing one more, polling for the end, and planning a read for Spark.

    python3 dev.py bench journal_size [--rounds N] [--only TEXT] [--json]

Sealing: a partition with so many segments records small messages, each sealed at once; the figure is the CPU time of
the whole process a segment, of log, Parquet file, manifest and retention. Planning: 100 partitions with so many
segments in all, without the recorders' heads, as on shared storage. "the end" is `latestOffset` of a stream, "a scan"
the slices of a read of everything, pickled as for Spark's tasks. Their segments have an entry but no file, as none of
these opens one. Every answer is checked.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way

SIZES = (100, 1_000, 10_000, 100_000)
LARGEST = f"{max(SIZES):,} segments"


def by_size(name: str, function: str, **task: str) -> tuple[Way, ...]:
    return tuple(
        Way(name, f"_journal_size:{function}", task={"segments": size, **task}, at=(size,), of="segment")
        for size in SIZES
    )


GROUPS = (
    Group(
        "sealing one more segment",
        by_size("sealed", "seal"),
        (Promise("CPU of one at 100,000, us", f"sealed, {LARGEST}", None, 20_000, 5_000, "cpu_us"),),
    ),
    Group(
        "planning, 100 partitions",
        (*by_size("the end", "plan", what="end"), *by_size("a scan", "plan", what="scan")),
        (
            Promise("the end at 100,000", f"the end, {LARGEST}", None, 100, 30, "p50_ms"),
            Promise("a scan at 100,000", f"a scan, {LARGEST}", None, 100, 30, "p50_ms"),
        ),
    ),
)

if __name__ == "__main__":
    bench.run("journal_size", GROUPS, bench.options(__doc__, rounds=3, seconds=3.0).parse_args())
