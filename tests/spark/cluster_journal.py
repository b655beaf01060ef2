"""A generated cluster's records: jobs of several terms, their hosts, and records that cannot be read."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from nngkit.cluster.jobs.values import JobEnd
from nngkit.cluster.records import ClusterRecord, ClusterRecords, HostChange
from nngkit.envelope import encode
from tests.spark.rows import START, at

BEGIN = START.timestamp()
OUTCOMES = ("result", "failed", "dead", "cancelled")
ERRORS = {
    "result": ("", ""),
    "failed": ("ValueError", "no such <scene>"),
    "dead": ("lost", "3 tries"),
    "cancelled": ("cancelled", ""),
}


@dataclass
class ClusterJournal:
    """Jobs, reigns and rows of a journal. A reign is (term, host, start, end, gap, jobs); end: None if it goes on."""

    ends: list[JobEnd] = field(default_factory=list)
    reigns: list[tuple[int, str, float, float | None, float | None, int]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    bad: int = 0


def row_of(record: ClusterRecord, seconds: float) -> dict[str, Any]:
    return record._asdict() | {"headers": dict(record.headers), "timestamp": at(seconds)}


def job(number: int, finished: float, term: int, rng: random.Random) -> JobEnd:
    """Return a job that ended `finished` seconds after the beginning."""
    kind, worker = rng.choice(("render", "encode", "mail")), f"worker-{rng.randrange(5)}"
    (outcome,) = rng.choices(OUTCOMES, (90, 3, 3, 4))
    tries = 3 if outcome == "dead" else rng.choice((1, 1, 1, 1, 2))
    ran, waited = rng.expovariate(2.0), rng.expovariate(1.0)
    if rng.random() < 0.01:
        ran = -ran  # the host's clock was set back
    started = BEGIN + finished - ran
    queued = started - waited
    if outcome == "cancelled" and rng.random() < 0.5:
        started, worker, tries = 0.0, "", 0
    key = b"key-%d" % number if number % 3 == 0 else None
    times = (queued, started, BEGIN + finished)
    return JobEnd(
        number, kind, key, "s", worker, outcome, ERRORS[outcome], tries, term, *times, bytes(number % 7), b"r"
    )


def cluster_journal(jobs: int, seed: int = 1) -> ClusterJournal:
    """Return a journal of 3 hours: 4 terms of 3 hosts, which end in all ways that a term can end."""
    rng = random.Random(seed)
    made = ClusterJournal()
    # (host, start, reported losses, end, gap): the first loss of term 2 is of a voter that comes back; nothing reports
    # the end of term 3; term 4 goes on.
    terms = [
        ("a", 0.0, (3000.0, 3000.2), 3000.0, 0.6),
        ("b", 3000.6, (4000.0, 6000.0), 6000.0, 1.5),
        ("a", 6001.5, (), 9000.0, None),
        ("c", 9000.0, (), None, None),
    ]
    number = 0
    voters = [ClusterRecords("farm", voter, 1_795_000_000_000_000) for voter in "abc"]
    for term, (host, start, losses, until, gap) in enumerate(terms, 1):
        end = 10_800.0 if until is None else until
        records = ClusterRecords("farm", host, 1_795_000_000_000_000 + term)
        for late, voter in enumerate(voters):
            change = HostChange("farm", term, host, BEGIN + start + late * 0.01, "elected")
            made.rows.append(row_of(voter.host_change(change), start))
        for loss in losses:
            change = HostChange("farm", term, None, BEGIN + loss, f"no heartbeat at {loss:g}")
            made.rows.append(row_of(voters[0].host_change(change), loss))
        share = int(jobs * (end - start) / 10_800)
        finished = sorted(rng.uniform(start + 1, end - 1) for _ in range(share))
        made.reigns.append((term, host, start, until, gap, share))
        while finished:
            many = rng.randint(1, 600)
            batch, finished = finished[:many], finished[many:]
            ends = [job(number + place, seconds, term, rng) for place, seconds in enumerate(batch)]
            number += len(ends)
            made.ends += ends
            for record in records.ends(ends, BEGIN + batch[-1]):
                made.rows.append(row_of(record, batch[-1]))
            if rng.random() < 0.2:
                made.rows.append(row_of(records.message("chat", host, 1, number, b"hello"), batch[-1]))
                made.rows.append(_bad(rng, made.rows[-2], batch[-1]))
                made.bad += 1
    made.rows.append(_bad(rng, row_of(voters[0].host_change(HostChange("farm", 9, "z", BEGIN, "")), 5.0), 5.0))
    made.bad += 1
    # Not of a cluster's topics: neither read nor counted.
    made.rows.append({"value": b"\xff", "topic": "cluster.jobs", "protocol": "sub", "timestamp": at(7)})
    return made


def _bad(rng: random.Random, good: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return the record with a value that no reader accepts."""
    cut = good["value"][: rng.randrange(len(good["value"]))]
    value = rng.choice((cut, b"", bytes(100), encode({"v": 99}), encode({"v": 1, "cluster": "farm", "host": 7})))
    return good | {"value": value, "headers": {}, "timestamp": at(seconds)}
