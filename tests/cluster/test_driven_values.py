"""Values, frames, tickets and records of a cluster are what was recorded: see tests/driving.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from nngkit.cluster import containing, frames, records
from nngkit.cluster.admission import Applicant, TokenAuthenticator, check_secret, issue_ticket, read_ticket
from nngkit.cluster.jobs.values import JobEnd
from nngkit.cluster.log_clock import LogClock
from nngkit.cluster.status import ClusterMember, ClusterStatus, ClusterTree, JobCounts, VoterState
from nngkit.errors import ConfigError
from tests.driving import Drive, driven, limits, names, recorded

TEXTS: Final = ("", "a", "b", "é" * 32, "k" * 64, "k" * 65, "é" * 33, "a b", "a\n", 5)


def changed(drive: Drive, data: bytes) -> bytes:
    """Return bytes that are cut, longer, or have another byte at their begin, as it is most often."""
    rng = drive.rng
    chance, at = rng.random(), rng.randrange(min(len(data), 16) + 1)
    if chance < 0.3:
        return data
    if chance < 0.5:
        return data[:at] if rng.random() < 0.5 else data[: len(data) - at]
    return data[:at] + bytes((rng.choice((0, 1, 2, 64, 65, 0xD2, 0xFF)),)) + data[at + 1 :]


def clock(drive: Drive) -> None:
    """Hear hosts whose times come late, and lead."""
    rng, log, term, last = drive.rng, LogClock(), 1, 0.0
    for _ in range(600):
        now, chance = drive.go_on(float("inf")), rng.random()
        term += chance < 0.1
        if chance < 0.85:
            last = now + rng.choice((100.0, 100.0, 99.5, 101.0, 100.0 - 1 / 8192))
            log.heard(term, last, now)
        elif chance < 0.97:
            drive.note(log.lead(last, now, now + rng.choice((50.0, 150.0))))
        else:
            log, term = LogClock(), 1
        drive.note(log.lead(last, now, now) if chance > 0.4 else None)
        drive.step()


def framed(drive: Drive) -> None:
    """Write frames, and read them changed."""
    rng = drive.rng
    some = [each for each in TEXTS if isinstance(each, str)]
    for _ in range(600):
        drive.call(frames.check_kind, rng.choice(TEXTS), "kind")
        to, sender, row = rng.choice(some), rng.choice(some), rng.choice(([], [1, "x"]))
        epoch = rng.choice((0, 7, (1 << 53) - 1, 1 << 53))
        drive.call(
            frames.parse_routed, changed(drive, frames.routed_frame(frames.Channel.WORK, to, sender, epoch, row))
        )
        body = frames.pack_body(rng.choice(some), rng.choice((b"", b"x")))
        drive.call(frames.parse_body, changed(drive, body))
        local = changed(drive, frames.local_frame(frames.Channel.PLACE, row))
        drive.call(frames.parse_local, local, limit=rng.choice((1, len(local) - 1, len(local))), peer="b")
        answers: list[Any] = [frames.Refusal("x" * rng.choice((1, 499, 500, 501)))]
        answers += [
            frames.Greeting("c", "b", epoch % (1 << 53), rng.random() < 0.5, *rng.choice(((), ("t",), (None, "t"))))
        ]
        greeting = frames.greeting_frame(rng.choice(answers))
        drive.note(greeting)
        row = frames.parse_local(greeting, limit=1000)
        if rng.random() < 0.6:
            row[rng.randrange(len(row))] = rng.choice((0, 1, 2, 14, 15, 16, "b", None, True))
        drive.call(frames.parse_greeting, row[: rng.choice((1, 2, 9, 9))], "b")
        drive.step()


def tickets(drive: Drive) -> None:
    """Issue tickets, and show them, tokens, or neither at nodes with and without a token."""
    rng = drive.rng
    secrets = ("", "a", "b", "x" * 1024, "x" * 1025, "é" * 512, "é" * 513, "\ud800", None, 5)
    for _ in range(500):
        drive.call(check_secret, "token", rng.choice(secrets))
        until = rng.choice((63.0, 64.0, 65, 66.0, float("inf"), float("nan"), "65"))
        name, own = rng.choice(("farm", "farm", "barn", "", "k" * 65)), rng.choice(("", "a", "b", "k" * 64, "k" * 65))
        ticket: Any = drive.call(issue_ticket, rng.choice(("s", "s", "t", "")), name, until=until, id=own)
        if ticket is not None and rng.random() < 0.3:
            ticket = changed(drive, ticket.encode()).decode(errors="replace")
        if ticket is not None:
            drive.call(read_ticket, "s", ticket)
        decide = TokenAuthenticator("farm", rng.choice(("s", "s", "s", "t", None)), lambda: 65.0)
        try:
            drive.note(decide(Applicant("a", "tcp://a:1", rng.choice((None, None, "s", "t")), ticket)))
        except Exception as error:
            drive.note(error)
        drive.step()


def written(drive: Drive) -> None:
    """Write and read records of ended jobs, of hosts and of messages, and read them changed."""
    rng = drive.rng
    notes = records.ClusterRecords("farm", "a", 7, prefix=rng.choice(("cluster", "farm")))
    errors = (("", ""), ("", ""), ("e" * 64, "t" * 480), ("e" * 65, "t" * 481), ("", "t"), ("é" * 64, "x"))
    outcomes = ("result", "failed", "dead", "cancelled")

    def ended() -> JobEnd:
        row = rng.randint(0, 9), rng.choice(("k", "")), rng.choice((None, b"", b"key")), "s", rng.choice(("", "w"))
        times = rng.choice((0.0, 1.5)), rng.choice((0.0, 2.5)), 3.5
        return JobEnd(*row, rng.choice(outcomes), rng.choice(errors), 1, 3, *times, b"12"[: rng.randint(0, 2)], b"345")

    for _ in range(80):
        ends = [ended() for _ in range(rng.choice((0, 1, 1, 2, 3, 256, 257) if rng.random() < 0.1 else (1, 2, 3)))]
        some = drive.call(notes.ends, ends, rng.choice((0.0, 1.5, -1.0)))
        change = records.HostChange(
            "farm", rng.randint(0, 3), rng.choice((None, "a")), 1.5, "w" * rng.choice((1, 480, 481))
        )
        some += [drive.call(notes.host_change, change)]
        named: dict[str, Any] = rng.choice(({}, {"to": "b"}, {"to": "", "peer": "tcp://a:1"}))
        some += [drive.call(notes.message, "chat", "b", 7, rng.randint(0, 9), b"hello", **named)]
        parse: Callable[[bytes], Any]
        for parse in (records.parse_ends, records.parse_host_change, records.parse_message):
            for each in some[-3:]:
                found = drive.call(parse, changed(drive, each.value))
                drive.note(found.jobs if isinstance(found, records.Ends) else None)
        drive.step()


def statuses(drive: Drive) -> None:
    """Write and read the state of a cluster, and print its tree."""
    rng = drive.rng
    with limits(cluster__status={"MOST_MEMBERS": 3}):
        for _ in range(150):
            ids = rng.sample("abcdefgh", rng.randint(1, 8))
            rows = [ClusterMember(ids[0], "", "tcp://a:1", 0)]
            for number, each in enumerate(ids[1:], 1):
                kinds = rng.choice(((), ("render",), ("a", "b")))
                address = rng.choice((None, "", f"tcp://{each}:1"))
                rows.append(
                    ClusterMember(each, rng.choice(ids[:number]), address, 1, len(kinds), kinds, rng.random() < 0.3)
                )
            tree = ClusterTree("farm", rng.randint(0, 3), tuple(rows))
            drive.note(list(tree.lines()), tree.as_dict())
            drive.call(ClusterTree.parse, tree.fields(), "b")
            voters = tuple(VoterState(each, "tcp://a:1", rng.random() < 0.5) for each in ids[:2])
            jobs = tuple(JobCounts("render", rng.randint(0, 2)) for _ in range(rng.randint(0, 2)))
            status = ClusterStatus(
                "farm", 1, rng.choice(("a", "h" * 64, "h" * 65)), len(ids), 1, True, voters, jobs, {"n": 1}
            )
            drive.note(status.as_dict(), status.fields())
            drive.call(ClusterStatus.parse, status.fields(), "b")
            drive.step()


DRIVES: Final = {
    "clock": (clock, 1),
    "framed": (framed, 1),
    "tickets": (tickets, 1),
    "written": (written, 1),
    "statuses": (statuses, 1),
}


@pytest.mark.parametrize("name", names(DRIVES))
def test_values_are_what_was_recorded(name: str) -> None:
    assert driven(DRIVES, name) == recorded(name)


class Asked:
    """Object that is called like a function."""

    def __call__(self) -> None:
        """Return nothing."""


class Awaited:
    """Object that is called like an async function."""

    async def __call__(self) -> None:
        """Return nothing."""


def test_async_functions_and_objects_are_no_plain_functions() -> None:
    async def function() -> None:
        pass

    asked = Asked()
    assert containing.plain(asked) is asked
    assert containing.plain(len) is len
    for each in (function, Awaited()):
        assert containing.is_async(each)
        with pytest.raises(ConfigError, match="is async"):
            containing.plain(each)


def test_orders_to_end_are_raised_again_and_failures_contained() -> None:
    for failure in (ValueError("x"), SystemExit(1), BaseExceptionGroup("x", [ValueError()])):
        assert containing.contained(failure) is failure
    order = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        containing.contained(order)
    with pytest.raises(BaseExceptionGroup) as raised:
        containing.contained(BaseExceptionGroup("x", [ValueError(), order]))
    assert raised.value.exceptions == (order,)
    assert containing.describe(ValueError("why")) == "ValueError: why"


def test_other_bytes_are_copied_and_a_number_is_no_length() -> None:
    data = b"data"
    assert frames.as_bytes("payload", data) is data
    for other in (bytearray(data), memoryview(data)):
        copy = frames.as_bytes("payload", other)
        assert (type(copy), copy) == (bytes, data)
    for wrong in (5, "text", None):
        with pytest.raises(TypeError, match=f"payload must be bytes, not {type(wrong).__name__}"):
            frames.as_bytes("payload", wrong)
