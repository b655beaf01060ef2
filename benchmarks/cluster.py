"""Clusters: jobs beside Celery and Dask, trees of processes under kills, partitions, members that join by discovery.

    python3 dev.py bench cluster [--rounds N] [--seconds S] [--only TEXT] [--json] [--quick] [--seeds N]

All nodes are processes of their own. "Empty jobs": a submitter with 1,000 jobs in flight, one host (Celery: one Redis
server, Debian's redis-server; Dask: one scheduler) and two workers; ``per_second`` are jobs whose results have come
back to the submitter, "us CPU both" is the CPU of all processes a job. The fault groups run once each: 50 processes in
a tree of three levels, 25 seeds of each kind of kill, 20 of partitions; ``--seeds`` sets other numbers, and ``--quick``
runs 12 processes and 2 seeds, to see that it works. A kill's figure is the time from SIGKILL until a message of a
surviving leaf, sent after it, has reached all survivors and a job submitted after it is done. ``failed``, ``lost``
(accepted jobs), ``doubled`` (results under one key), ``unsent`` (messages missing, twice or out of order),
``unbalanced`` (trees more than a level deeper than they must be), ``unequal`` (documents), ``minority`` (jobs done
without a majority) and ``hosts`` (two at once, or none) are counts, and must be 0. Partitions need root, for network
namespaces.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from dataclasses import replace

from _redis import server as redis_server

import _measuring as bench
from _measuring import Group, Promise, Way

RATE = 10  # messages a second of all leaves
MESSAGES, EDITS = 6.0, 1.0  # a second, of all nodes, under kills
HOUR = 3600.0  # seconds until a fault group is given up


def missing(way: Way) -> str | None:
    """Return why a way cannot be measured here; None if it can."""
    if way.measured.startswith("_celery_jobs"):
        if redis_server() is None:
            return "no redis-server (Debian: redis-server): Celery is left out"
        if importlib.util.find_spec("celery") is None or importlib.util.find_spec("redis") is None:
            return "no Python package celery[redis], which is in the bench group: Celery is left out"
    if way.measured.startswith("_dask_jobs") and importlib.util.find_spec("distributed") is None:
        return "no Python package distributed, which is in the bench group: Dask is left out"
    return None


def zero(what: str, way: str, *figures: str) -> tuple[Promise, ...]:
    return tuple(Promise(f"{what}: {figure}", way, None, 0, 0, figure) for figure in figures)


def groups(given: argparse.Namespace) -> tuple[Group, ...]:
    quick = given.quick
    nodes, fanout = (12, 2) if quick else (50, 4)
    seeds = given.seeds or (2 if quick else 25)
    empty = {"workers": 2, "run_in": 1.0}
    jobs = Group(
        "empty jobs, 2 workers, 1,000 in flight",
        (
            Way("nngkit", "_cluster_jobs:empty", task=empty | {"concurrency": 16, "in_flight": 1000}),
            Way("Celery, Redis", "_celery_jobs:submit", task=empty | {"results": True}),
            Way("Celery, Redis, late ack", "_celery_jobs:submit", task=empty | {"results": True, "late": True}),
            Way("Celery, Redis, prefork", "_celery_jobs:submit", task=empty | {"results": True, "pool": "prefork"}),
            Way("Celery, Redis, no results", "_celery_jobs:submit", task=empty | {"results": False}),
            Way("Dask distributed", "_dask_jobs:submit", task=empty),
        ),
        (
            Promise("jobs/s", "nngkit", None, 20_000, 20_000),
            Promise("vs Celery", "nngkit", "Celery, Redis", 1, 10),
            Promise("vs Dask", "nngkit", "Dask distributed", 1, 10),
        ),
    )
    timed = Group(
        "jobs that take time",
        (
            Way("20 ms, 16 workers", "_cluster_jobs:sleeps", task={"workers": 4, "slots": 4, "jobs": 1600}),
            Way(
                "50, 100 and 200 ms, 3 workers",
                "_cluster_jobs:uneven",
                task={"slots": 4, "jobs": 1400, "in_flight": 200},
            ),
        ),
        (
            Promise("time over the ideal", "20 ms, 16 workers", None, 1.1, 1.05, "over"),
            Promise("shares off the speeds", "50, 100 and 200 ms, 3 workers", None, 0.1, 0.05, "off"),
        ),
    )
    visibility = {"visibility": 1.0, "rounds": 2 if quick else 10, "seconds": HOUR}
    faults = Group(
        "jobs that go wrong",
        (
            Way(
                "a job kills every worker",
                "_cluster_job_faults:kills",
                task={"rounds": 2 if quick else 10, "seconds": HOUR},
            ),
            Way("a worker is stopped", "_cluster_job_faults:hung", task=visibility | {"how": "stopped"}),
            Way("a job hangs", "_cluster_job_faults:hung", task=visibility | {"how": "hangs"}),
        ),
        (
            *zero("a job kills every worker", "a job kills every worker", "failed"),
            *zero("a worker is stopped", "a worker is stopped", "failed"),
            Promise("beyond its timeout, a worker is stopped", "a worker is stopped", None, 500, 200, "max_ms"),
            *zero("a job hangs", "a job hangs", "failed"),
            Promise("beyond its timeout, a job hangs", "a job hangs", None, 500, 200, "max_ms"),
        ),
        once=True,
    )
    tree = {"nodes": nodes, "rate": RATE, "messages": 5 if quick else 20, "seconds": HOUR}
    spread = Group(
        f"messages of all leaves, {nodes} processes, {RATE} messages/s",
        (
            Way(
                "tree", "_cluster_tree:spread", task=tree | {"fanout": fanout, "levels": 3}, at=(0, 1, 2, 3), of="level"
            ),
            Way("flat", "_cluster_tree:spread", task=tree | {"fanout": 64, "levels": 1}, at=(0, 1), of="level"),
        ),
        (
            Promise("p50, 3 levels down vs flat", "tree, 3 levels", "flat, 1 level", 5, 3, "p50_ms"),
            Promise("p99, 3 levels down vs flat", "tree, 3 levels", "flat, 1 level", 5, 3, "p99_ms"),
            *(p for way in ("tree, 3 levels", "flat, 1 level") for p in zero(way, way, "failed")),
        ),
        once=True,
    )
    # each message and each edit goes to all nodes: more of them would measure two processors, not the cluster
    traffic = {"message_rate": MESSAGES / nodes, "edit_rate": EDITS / nodes, "job_rate": 5.0}
    names = ("root", "inner", "leaf", "root and successor")
    kills = Group(
        f"SIGKILL among {nodes} processes under messages, jobs and edits",
        tuple(
            Way(
                what,
                "_cluster_tree:kills",
                task=traffic | {"what": what, "nodes": nodes, "fanout": fanout, "seeds": seeds, "seconds": HOUR},
            )
            for what in names
        ),
        tuple(
            promise
            for what in names
            for promise in (
                Promise(f"serving again, p99, {what}", what, None, 1000, 500, "p99_ms"),
                *zero(what, what, "lost", "doubled", "unsent", "unbalanced", "unequal", "failed"),
            )
        ),
        once=True,
    )
    cuts = {"seeds": given.seeds or (2 if quick else 20), "seconds": HOUR}
    partitions = Group(
        "partitions of 9 hosts, 5 of them voters",
        (Way("cut and healed", "_cluster_partitions:partitions", task=cuts),),
        zero("cut and healed", "cut and healed", "minority", "hosts", "lost", "unsent", "failed"),
        once=True,
    )
    members = 20 if quick else 100
    joining = Group(
        "joining 4 hosts by discovery, all at once",
        (Way(f"{members} members", "_cluster_joining:join", task={"members": members}),),
        (
            Promise("even within one after", f"{members} members", None, 5, 3, "seconds"),
            Promise("members of hosts apart", f"{members} members", None, 1, 1, "spread"),
        ),
    )
    return jobs, timed, faults, spread, kills, partitions, joining


def able(every: tuple[Group, ...], wanted: list[str]) -> list[Group]:
    """Return the groups with the ways that can be measured here; say why others cannot."""
    found, reasons = [], dict[str, None]()
    for group in bench.chosen(every, wanted):
        why = {way.name: missing(way) for way in group.ways}
        reasons |= dict.fromkeys(filter(None, why.values()))
        found.append(replace(group, ways=tuple(way for way in group.ways if why[way.name] is None)))
    sys.stderr.writelines(f"{reason}\n" for reason in reasons)
    return [group for group in found if group.ways]


if __name__ == "__main__":
    parser = bench.options(__doc__, rounds=5, seconds=3.0)
    parser.add_argument("--quick", action="store_true", help="12 processes and 2 seeds")
    parser.add_argument("--seeds", type=int, default=0, help="of each kind of kill, and of partitions (25 and 20)")
    given = parser.parse_args()
    bench.run("cluster", able(groups(given), given.only), given)
