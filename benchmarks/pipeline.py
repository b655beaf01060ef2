"""The journal: records of 100 B written to disk, acknowledged and not, read, and replayed.

    python3 dev.py bench pipeline [--rounds N] [--seconds S] [--only TEXT] [--json]

All counted records are on disk: written, synced, and sealed to Parquet meanwhile. The journal is in build/bench, or in
NNGKIT_BENCH_FOLDER, for another disk. Acknowledged: a request gets its reply after the sync, with 2,000 pending; a REP
that replies at once is measured beside it, as NNG and the client are most of the cost. Replay: ``p50`` and ``p99`` are
the lateness of sent records, with a SUB in another process.
"""

from __future__ import annotations

import os
import tempfile

import _measuring as bench
from _measuring import Group, Promise, Way

FLIGHT = 2000


def ingest(name: str, other: str, many: int, flight: int = FLIGHT) -> Way:
    return Way(
        name, "_journal:ingest", other, "other", {"size": 100, "transport": "ipc", "many": many, "flight": flight}
    )


GROUPS = (
    Group(
        "into the journal, 100 B, not acknowledged",
        (
            Way("appended in turns of 256", "_journal:append", task={"size": 100}),
            Way("PULL", "_journal:record_pull", "_journal:push", "measured", {"size": 100}),
            Way("PULL in batches", "_journal:record_pull", "_journal:push", "measured", {"size": 100, "batch": True}),
        ),
        (
            Promise("appended, records a second", "appended in turns of 256", None, 100_000, 200_000),
            Promise("PULL in batches, records a second", "PULL in batches", None, 100_000, 200_000),
        ),
    ),
    Group(
        "acknowledged over REQ/REP, ipc, 100 B",
        (
            ingest("one record a request", "_journal:record_rep", 1),
            Way(
                "no journal, a REP that answers at once",
                "_nngkit:aask_many_trio",
                "_nngkit:areply_trio",
                "other",
                {"size": 130, "transport": "ipc", "flight": FLIGHT},
            ),
            ingest("512 records a request", "_journal:record_rep", 512, 32),
        ),
        (
            Promise("one record a request, records a second", "one record a request", None, 15_000, 30_000),
            Promise("512 records a request, records a second", "512 records a request", None, 100_000, 200_000),
            Promise(
                "one record a request vs no journal",
                "one record a request",
                "no journal, a REP that answers at once",
                0.5,
                0.8,
            ),
        ),
    ),
    Group(
        "out of the journal, 100 B",
        (
            Way("Arrow batches of segments", "_journal:read_back", task={"size": 100, "records": 500_000}),
            Way(
                "replay at 2,000/s",
                "_journal:replay_in_time",
                "_journal:listen",
                "measured",
                task={"size": 100, "rate": 2000},
            ),
            Way(
                "replay at 10,000/s",
                "_journal:replay_in_time",
                "_journal:listen",
                "measured",
                task={"size": 100, "rate": 10_000},
            ),
        ),
        (
            Promise("replay at 2,000/s, p99 late", "replay at 2,000/s", None, 5_000, 2_000, "p99_us"),
            Promise("replay at 10,000/s, p99 late", "replay at 10,000/s", None, 5_000, 2_000, "p99_us"),
        ),
    ),
)

if __name__ == "__main__":
    given = bench.options(__doc__, rounds=3, seconds=3.0).parse_args()
    bench.RESULTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.environ.get("NNGKIT_BENCH_FOLDER", bench.RESULTS)) as folder:
        os.environ["NNGKIT_BENCH_JOURNALS"] = folder
        bench.run("pipeline", GROUPS, given)
