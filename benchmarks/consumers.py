"""Durable consumers and catching up: a million records behind, over ipc, the server in another process.

    python3 dev.py bench consumers [--rounds N] [--seconds S] [--only TEXT] [--records N] [--json]

A consumer begins at the first record, reads to the end and acknowledges every batch; the figures include the last
confirmed acknowledgement. Each value is compared with its number. Following reads the journal of a running recorder and
joins the live messages of its publisher; the figures are those until it is live. The journal's reader alone is measured
beside it. The journal is in build/bench, or in NNGKIT_BENCH_FOLDER, for another disk.
"""

from __future__ import annotations

import os
import tempfile

import _measuring as bench
from _measuring import Group, Promise, Way

SEALED, UNSEALED, SINGLE = "batches, from segments", "batches, from logs", "single records, from segments"
JOINED = "Following, from logs, then live at 5,000/s"


def ways(records: int) -> tuple[Way, ...]:
    def way(name: str, sealed: bool, single: bool = False) -> Way:
        task = {"records": records, "sealed": sealed, "single": single}
        return Way(name, "_consumers:consume", "_consumers:serve", "other", task)

    return (
        way(SEALED, True),
        way(UNSEALED, False),
        way(SINGLE, True, True),
        Way(JOINED, "_consumers:follow", "_consumers:publish", "other", {"records": records, "rate": 5000}),
        Way("the reader alone, from segments", "_consumers:read_alone", task={"records": records, "sealed": True}),
    )


def groups(records: int) -> tuple[Group, ...]:
    return (
        Group(
            "catching up, 16 B",
            ways(records),
            (
                Promise("batches from segments, records a second", SEALED, None, 300_000, 600_000),
                Promise("Following until live, messages a second", JOINED, None, 300_000, 400_000),
                Promise("batches from logs, records a second", UNSEALED, None, 300_000, 400_000),
            ),
        ),
    )


if __name__ == "__main__":
    options = bench.options(__doc__, rounds=3, seconds=1.0)
    options.add_argument("--records", type=int, default=1_000_000, metavar="N", help="records behind")
    given = options.parse_args()
    bench.RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.environ.get("NNGKIT_BENCH_FOLDER", bench.RESULTS)) as folder:
        os.environ["NNGKIT_BENCH_JOURNALS"] = folder
        bench.run("consumers", groups(given.records), given)
