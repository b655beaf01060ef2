"""SIGKILL while sealing, merging, compacting and exporting: is each acknowledged record there, once?

    python3 dev.py bench kills [--kills 300] [--seed N] [--only TEXT] [--json]

A third of the kills each: a recorder that seals under load; `nngkit journal compact` while it merges segments, and, a
tenth of these, `nngkit spark run documents` while it writes snapshots; exports to Iceberg and Delta beside a recorder
that seals, half of them each. The moments are random (``--seed``). A kill counts only if the process was at it: the
recorder had sealed a log since its start, the others had begun to write and had not ended. ``midway``: kills after
which the work was really unfinished: files half written or not listed yet, logs to be sealed, a commit or a generation
to come.

``records``: acknowledged requests, or records in the journal. ``repeated``: requests stored twice, as their reply was
lost by a kill; reading with ``distinct`` leaves one. ``lost`` and ``doubled``: of these records, after that; of
documents by Spark, and of offsets in a table. ``wrong``: files that `nngkit journal verify` does not find good,
offsets with gaps, records or documents with another content, snapshots of a table with other offsets. All must be 0;
the exit code is 1 otherwise. What is wrong is printed, and its journal is kept.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import _measuring as bench
from _measuring import Group, Promise, Way

SPARK_OF = 30  # kills in all for one of documents by Spark, which takes ten to twenty seconds


def promises(way: str, kills: int) -> tuple[Promise, ...]:
    zero = (Promise(f"{way}: {figure}", way, None, 0, 0, figure) for figure in ("lost", "doubled", "wrong"))
    return (Promise(f"{way}: kills", way, None, kills, kills, "kills"), *zero)


def group(name: str, ways: dict[str, tuple[str, int, dict[str, Any]]], seed: int) -> Group:
    """Return the group of ways: by name, function, kills, and more of its task. Those without kills are left out."""
    ways = {way: told for way, told in ways.items() if told[1]}
    tasks = {way: {"kills": kills, "seed": seed, "seconds": 120.0 + 30 * kills} for way, (_, kills, _) in ways.items()}
    return Group(
        name,
        tuple(Way(way, function, task=tasks[way] | more) for way, (function, _, more) in ways.items()),
        tuple(promise for way, (_, kills, _) in ways.items() for promise in promises(way, kills)),
        once=True,
    )


def groups(kills: int, seed: int) -> tuple[Group, ...]:
    """Return the groups for so many kills in all."""
    sealing = kills // 3
    exporting = kills // 3
    documents = kills // SPARK_OF if importlib.util.find_spec("pyspark") else 0
    merging = kills - sealing - exporting - documents
    return (
        group("a recorder that seals", {"sealing under load": ("_recorder_kills:sealing", sealing, {})}, seed),
        group(
            "compaction",
            {
                "merging segments": ("_recorder_kills:merging", merging, {}),
                "documents by Spark": ("_document_kills:documents", documents, {}),
            },
            seed,
        ),
        group(
            "exports beside a recorder",
            {
                "Iceberg": ("_export_kills:measured", exporting - exporting // 2, {"format": "iceberg"}),
                "Delta": ("_export_kills:measured", exporting // 2, {"format": "delta"}),
            },
            seed,
        ),
    )


def main() -> int:
    """Run the benchmark; return its exit code: 1 if anything is lost, doubled or wrong, or kills are missing."""
    parser = bench.options(__doc__, rounds=1, seconds=0.0)
    parser.add_argument("--kills", type=int, default=300, help="in all, at least 6 (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments (default %(default)s)")
    given = parser.parse_args()
    if given.kills < 6:
        parser.error("--kills: at least 6, one for each way")
    done = bench.run("kills", groups(given.kills, given.seed), given)
    missed = [one["what"] for each in done["groups"] for one in each["promises"] if one["verdict"] == "MISSED"]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
