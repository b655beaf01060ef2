"""The parts of jobs do in random calls what they did when that was recorded: see tests/driving.py."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import accumulate
from random import Random
from typing import Any, Final

import pytest
from msgspec.structs import replace

from nngkit.cluster.jobs import messages
from nngkit.cluster.jobs.crew import Crew
from nngkit.cluster.jobs.messages import (
    Accepted,
    Block,
    Cancel,
    Demand,
    Ended,
    Failed,
    Finished,
    Grant,
    Holding,
    JobParts,
    JobProgress,
    Lost,
    Missing,
    Parts,
    Progress,
    Received,
    Ref,
    Refused,
    Results,
    Returned,
    Spec,
    Start,
    Starting,
    Stop,
    Submit,
    SubmitGroup,
    Taken,
    Waiting,
    Wanted,
)
from nngkit.cluster.jobs.queue import WorkHost
from nngkit.cluster.jobs.submitter import SubmitLimits, Submitter
from nngkit.cluster.jobs.table import JobTable
from nngkit.cluster.jobs.values import CrewJob, CrewLimits, WorkLimits
from nngkit.envelope import decode, encode
from tests.driving import Drive, driven, limits, names, recorded

KINDS: Final = ("a", "b", "c")
FROM_CHILD: Final = (Demand, Results, Results, Holding, Lost, Returned, Parts, Progress, Starting)


def prepare(drive: Drive) -> Callable[[Iterable[Any], int], None]:
    """Have messages drawn whose columns fit, mostly about the last grants; return what notes grants."""
    rng = drive.rng
    grants: deque[Ref] = deque(maxlen=8)

    def note(granted: Iterable[Any], base: int) -> None:
        for message in granted:
            if isinstance(message, Grant):
                for each in message.blocks:
                    columns = zip(each.serials, each.fences, each.attempts, strict=True)
                    grants.extend(Ref(serial, message.term, fence, attempt) for serial, fence, attempt in columns)
        if grants:
            drive.texts["serial"] = [*(ref.serial for ref in grants), 0, 3]
            drive.texts["term"] = [grants[-1].term] * 4 + [grants[-1].term + 1, grants[0].term]
        drive.texts["floor"] = range(max(0, base - 3), base + 2)
        drive.texts["numbers"] = range(base, base + 6)

    def ref() -> Ref:
        if grants and rng.random() < 0.8:
            return replace(rng.choice(grants), attempt=rng.choice((0, 1, 1, 2)))
        return Ref(*(rng.choice(drive.texts[name]) for name in ("serial", "term", "fence", "attempt")))

    def some(count: int, *values: Any) -> list[Any]:
        return [rng.choice(values)] * count if rng.random() < 0.5 else [rng.choice(values) for _ in range(count)]

    def numbers(count: int) -> list[int]:
        first = rng.choice(drive.texts["numbers"])
        return list(accumulate((rng.choice((1, 1, 2)) for _ in range(count)), initial=first))[:count]

    def block() -> Block:
        count = rng.choice((1, 1, 2, 3, 4))
        kind, visibility = rng.choice(KINDS), rng.choice((1.5, 3.0))
        serials = rng.sample(range(1, 10), count)
        columns = serials, some(count, 1, 2), some(count, 0, *(1,) * 8, 2), some(count, b"p", b"pp")
        return Block(
            rng.choice(drive.texts["group"]),
            kind,
            visibility,
            rng.random() < 0.5,
            *columns,
            rng.choice((None, None, 0.5)),
        )

    def wanted() -> Wanted:
        group = rng.choice((0, 0, 1))
        kinds = (
            None if rng.random() < 0.3 else rng.choice((["a", "b"], ["a", "b"], ["c"])) if group else ["a", "b", "c"]
        )
        return Wanted(group, kinds, rng.randint(-1, 3), rng.randint(0, 3), rng.randint(-1, 2))

    def results() -> Results:
        count = rng.choice((0, 1, 2))
        refs = [ref() for _ in range(count)]
        columns = [each.serial for each in refs], [each.fence for each in refs]
        values = some(count, b"r", b"rr", b"r" * 16, b"r" * 17), some(count, 0, 250, 1500)
        failures = [drive.message(Failed) for _ in range(rng.choice((0, 1, 1)))]
        term = refs[0].term if refs else rng.choice(drive.texts["term"])
        return Results(rng.choice(("w", "v")), term, *columns, *values, failures)

    def spec() -> Spec:
        tries, visibility = rng.choice((1, 2, 3)), rng.choice((0.5, 1.0))
        deadline, delay = rng.choice((None, None, 2.0)), rng.choice((0.0, 0.0, 0.25))
        timeout = rng.choice((None, 0.5))
        return Spec(
            rng.choice(KINDS), rng.choice((0, 1)), tries, visibility, deadline, delay, rng.random() < 0.3, timeout
        )

    def group() -> SubmitGroup:
        count = rng.choice((1, 2, 3))
        keys = some(count, None, b"k", b"kk") if rng.random() < 0.4 else None
        payloads = some(count, b"", b"p" * 3, b"p" * 16, b"p" * 17 if rng.random() < 0.1 else b"pp")
        return SubmitGroup(drive.message(Spec), numbers(count), payloads, keys)

    def accepted() -> Accepted:
        count = rng.choice((0, 1, 2, 3))
        serials = list(range(7, 7 + count)) if rng.random() < 0.5 else some(count, 0, 4, 9)
        window = rng.randint(1, 4), rng.choice((8, 16, 64))
        return Accepted(rng.choice((1, 2)), rng.choice((1, 2)), numbers(count), serials, *window)

    def finished() -> Finished:
        count = rng.choice((0, 1, 2))
        others = [drive.message(Ended) for _ in range(rng.choice((0, 1)))]
        return Finished(rng.choice((1, 1, 2)), numbers(count), some(count, b"", b"r"), others)

    drive.texts = {"*": ("w", "v", "é"), "kind": KINDS, "kinds": KINDS, "term": (1, 2, 2, 2, 3), "fence": (1, 1, 2)}
    drive.texts["serial"] = range(1, 10)
    note([], 1)
    drive.texts |= {"attempt": (0, 1, 1, 2), "epoch": (1, 1, 2), "fraction": (0.0, 0.5, 1.0), "group": (0, 0, 1, 2)}
    drive.drawers = {Ref: ref, Block: block, Results: results, Spec: spec, SubmitGroup: group, Wanted: wanted}
    drive.drawers |= {Accepted: accepted, Finished: finished}
    return note


SMALL: Final[dict[str, dict[str, int]]] = {
    "cluster__jobs__crew": {"HELD_BACK": 2, "MOST_BATCH_BYTES": 9, "MOST_GROUPS": 2},
    "cluster__jobs__results": {"MOST_BATCH_BYTES": 20},
    "cluster__jobs__credit": {"MOST_GROUPS": 2},
    "cluster__jobs__grants": {"MOST_BATCH_BYTES": 3, "MOST_ROWS": 2, "MOST_GROUPS": 2, "RUN": 1},
    "cluster__jobs__queue": {"MOST_ROWS": 1},
    "cluster__jobs__intake": {"MOST_BATCH_BYTES": 20, "MOST_ROWS": 2, "ENTRY_BYTES": 20},
    "cluster__jobs__operations": {"ENTRY_BYTES": 40, "MOST_FORGOTTEN": 2},
    "cluster__jobs__submitter": {"MOST_BATCH_BYTES": 20, "FIRST_WINDOW": (2, 20)},  # type: ignore[dict-item]
}


def small(play: Callable[[Drive], None]) -> Callable[[Drive], None]:
    """Return a drive of which every other seed has small limits of messages, too."""

    def played(drive: Drive) -> None:
        with limits(**SMALL if drive.seed % 2 else {}):
            play(drive)

    return played


def sent(message: Any) -> Any:
    """Return a message after its way over the wire."""
    return messages.parse(decode(encode(messages.pack(message)), what="message", limit=1 << 20), "peer")


def crew(drive: Drive) -> None:
    """Drive a crew with few slots, two children and small limits."""
    note = prepare(drive)
    rng = drive.rng
    bounds = CrewLimits(
        ahead=0.25, most_ahead=rng.choice((1, 3)), resend=0.5, retained=6, retained_bytes=64, part_bytes=20, passed=6
    )
    works: tuple[Any, ...] = (["a", "b"], {"a": 1, "b": 2}, ["a", "c"], ["a", "b"], {"a": 4, "b": 1, "c": 1}, [])
    made, ends = Crew("w", limits=bounds), 0
    running: list[CrewJob] = []
    for step in range(800):
        if step == ends:  # after `drain` or `leave` another begins
            made, ends, running = Crew("w", kinds=rng.choice(works), slots=rng.randint(1, 3), limits=bounds), -1, []
            drive.note(made.wake_at)
            for link in (4, 5):
                made.child_up(link)
        now = drive.go_on(made.wake_at)
        chance = rng.random()
        job = rng.choice(running) if running else None
        if now >= made.wake_at:
            drive.call(made.tick, now)
        elif chance < 0.35:
            message = sent(drive.message(Grant, Grant, Grant, Start, Stop))
            note([message], 1)
            drive.texts["term"] = (*(made.term or 2,) * 8, 1, 2, 3)
            drive.call(made.from_parent, message, now)
        elif chance < 0.5:
            drive.call(made.from_child, rng.choice((4, 5, 6)), sent(drive.message(*FROM_CHILD, *(Demand,) * 6)), now)
        elif chance < 0.6:
            drive.call(made.from_host, sent(drive.message(Taken)))
        elif chance < 0.85 and job is not None:
            running.remove(job)
            how = rng.random()
            if how < 0.5:
                drive.call(made.done, job, b"r" * rng.choice((0, 1, 8, 16)), now)
            elif how < 0.7:
                drive.call(made.failed, job, "é" * rng.choice((1, 33)), "text", now, retry=rng.random() < 0.5)
            elif how < 0.8:
                drive.call(made.released, job, now)
            else:
                running.append(job)
                if how < 0.88:
                    drive.call(made.part, job, b"p" * rng.choice((1, 10)), now)
                elif how < 0.92:
                    drive.call(made.progress, job, rng.choice((-1.0, 0.5, 2.0)), now)
                else:
                    drive.call(made.limit, job, rng.choice((0.25, 0.75)), now)
        elif chance < 0.89:
            drive.call(made.attached, rng.choice((9, 10, -1)), rng.choice((1, 1, 2)), now)
        elif chance < 0.91:
            drive.call(made.detached, now)
        elif chance < 0.93:
            drive.call(made.child_down, rng.choice((4, 5, 6)), now)
        elif chance < 0.95:
            drive.call(made.child_up, rng.choice((4, 5)))
        elif chance < 0.97:
            drive.call(made.set_work, rng.choice(works), rng.randint(0, 3), now)
        elif chance > 0.993 and ends < step:
            drive.call(rng.choice((made.drain, made.leave)), now)
            ends = step + 20
        if rng.random() < 0.2:
            starts = made.take_starts()
            running += starts
            drive.note(starts)
        if rng.random() < 0.6:
            effects = made.take()
            drive.note(effects.start, effects.stop, effects.up, effects.down)
            asked = [row.group for each in effects.up if isinstance(each, Demand) for row in each.rows]
            drive.texts["group"] = asked * 2 + [0, 1, 2] if asked else drive.texts["group"]
            running += effects.start
        drive.note(made.stats, made.wake_at, made.busy, made.working, made.owed, made.passed, made.kinds, made.slots)
        drive.step()


def host(drive: Drive) -> None:
    """Drive the queues of some terms, with a log that commits late."""
    note = prepare(drive)
    rng = drive.rng
    bounds = WorkLimits(
        jobs=12, bytes=160, window=4, window_bytes=64, payload_bytes=16, sources=3, grace=0.25, backoff=0.5,
        longest_backoff=1.0, keep_results=2.0, keep_keys=4.0, keys=3, forget_sources=3.0, settle_sources=0.5,
    )  # fmt: skip
    table, follower = JobTable(), JobTable()
    pending: list[bytes] = []
    made = WorkHost("h", term=1, table=table, now=drive.now, wall=1000.25, rng=Random(1), limits=bounds, ahead=7.0)
    for step in range(900):
        now = drive.go_on(made.wake_at)
        chance = rng.random()
        made.granting = rng.random() < 0.9
        if now >= made.wake_at:
            drive.call(made.tick, now)
        elif chance < 0.35:
            message = sent(drive.message(Submit, Submit, Submit, Received, Cancel, Waiting))
            drive.call(made.unicast, rng.choice(("x", "x", "y", "z")), message, now)
        elif chance < 0.5:
            drive.call(made.receive, rng.choice((-1, 3)), sent(drive.message(Demand)), now)
        elif chance < 0.85:
            drive.call(made.receive, rng.choice((-1, 3)), sent(drive.message(*FROM_CHILD)), now)
        elif chance < 0.87:
            drive.call(made.link_down, rng.choice((-1, 3)), now)
        elif chance < 0.88:
            drive.call(made.tell_time, now)
        elif chance > 0.99 and step > 200:
            for entry in pending[: rng.randint(0, len(pending))]:
                table.apply(entry)
                follower.apply(entry)
            pending.clear()
            if rng.random() < 0.5:
                snapshot = table.snapshot()
                if rng.random() < 0.5:
                    table = JobTable()
                table.restore(snapshot)  # also into one that has jobs
                assert table.snapshot() == snapshot
            term = made.term + 1
            made = WorkHost("h", term=term, table=table, now=now, wall=1000.25 + now, rng=Random(term), limits=bounds)
        if pending and rng.random() < 0.6:
            count = rng.randint(1, len(pending))
            drive.call(made.committed, pending[:count], now)
            for entry in pending[:count]:
                follower.apply(entry)
            del pending[:count]
            assert table.snapshot() == follower.snapshot()
        if rng.random() < 0.7:
            effects = made.take(now)
            pending += effects.entries
            drive.note(effects.entries, effects.down, effects.unicasts, effects.ended)
            note([message for _, message in effects.down], 1 + step // 40)
        drive.note(made.stats, made.wake_at, made.depths(), table.bytes, table.unfinished)
        drive.step()
    drive.note(table.snapshot())


def submitter(drive: Drive) -> None:
    """Drive a submitter with a small window, small limits, and answers to what it has sent and has not."""
    prepare(drive)
    rng = drive.rng
    made = Submitter("x", 1, SubmitLimits(jobs=9, bytes=64, payload_bytes=16, resend=0.5, batch=2))
    made.attached(1, drive.now)
    for _ in range(700):
        now = drive.go_on(made.wake_at)
        chance = rng.random()
        if now >= made.wake_at:
            drive.call(made.tick, now)
        elif chance < 0.4:
            spec = drive.message(Spec)
            key = rng.choice((None, None, b"k", b"kk", b"")) if rng.random() < 0.5 else None
            payload = b"p" * rng.choice((0, 1, 8, 16, 17))
            drive.call(
                made.submit, spec.kind, payload, now, key=key, priority=rng.choice((0, 15, 16)), tries=spec.tries,
                visibility=spec.visibility, deadline=spec.deadline, delay=spec.delay, timeout=spec.timeout,
            )  # fmt: skip
        elif chance < 0.45:
            drive.call(rng.choice((made.cancel, made.abandon)), made.floor + rng.randint(0, 5))
        elif chance < 0.5:
            drive.call(made.detached)
        elif chance < 0.58:
            drive.call(made.attached, rng.choice((1, 2)), now)
        else:
            message = sent(drive.message(Accepted, Accepted, Finished, Missing, Refused, JobParts, JobProgress, Taken))
            if hasattr(message, "numbers") and rng.random() < 0.8:  # of jobs that are unfinished
                count = len(message.numbers)
                numbers = [made.floor + offset for offset in sorted(rng.sample(range(8), count))]
                message = replace(message, numbers=numbers)
            drive.call(made.receive, message, now)
        effects = made.take(now) if rng.random() < 0.7 else None
        drive.note(effects, made.wake_at, made.floor, made.unfinished)
        if effects is not None:
            drive.note(effects.sends)
        drive.step()


DRIVES: Final = {"crew": (small(crew), 6), "host": (small(host), 6), "submitter": (small(submitter), 4)}


@pytest.mark.parametrize("name", names(DRIVES))
def test_a_part_of_jobs_does_what_was_recorded(name: str) -> None:
    assert driven(DRIVES, name) == recorded(name)
