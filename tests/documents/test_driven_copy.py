"""One copy of a document, given messages and replies that fit no state of it: see tests/driving.py."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pytest

from nngkit.documents.sync.local_copy import LocalCopy
from nngkit.documents.sync.messages import (
    Diff,
    DocumentHeartbeat,
    Give,
    Given,
    Nack,
    Range,
    Resent,
    Updates,
    Want,
)
from nngkit.documents.sync.refused import RefusedEdit
from nngkit.documents.sync.replica import AskAll, AskEdits, Offer, Replica, Settings
from nngkit.documents.sync.timing import RoundTrips
from nngkit.documents.versions import Edit, EditStream, Harmful, Versions
from tests.documents.plain import Disk
from tests.driving import Drive, driven, limits, names, recorded

STREAMS: Final = [EditStream(origin * 8, epoch) for origin in (b"a", b"b", b"c") for epoch in (1, 2)]
ME: Final = STREAMS[0]
SMALL: Final = {
    "documents__sync__messages": {"BUS_LIMIT": 32 * 1024 + 200, "EDITS": 3},
    "documents__sync__local_copy": {"GIVEN": 90, "MANY_GIVEN": 2, "WARY": 1},
    "documents__sync__history": {"OTHERS": 1, "FARTHEST": 3, "LONGEST": 30, "HEADS": 2},
    "documents__sync__replica": {"RANGES": 2},
    "documents__versions": {"STREAMS": 5, "EPOCHS_KEPT": 1},
}


class Content:
    """A content that says of what it takes no more than the number of bytes."""

    def __init__(self, drive: Drive) -> None:
        self.drive = drive
        self.size = 0

    def apply(self, update: bytes, origin: object = None) -> bool:
        chance = self.drive.rng.random()
        if chance < 0.06 or update == b"refused":
            raise (Harmful if chance < 0.02 else ValueError)("refused")
        self.size += len(update)
        return chance < 0.7

    def state(self) -> bytes:
        return b"state %d" % self.size

    def changes_since(self, state: bytes | None = None) -> bytes:
        return b"since %s" % state if state is not None else b"all"

    def merge(self, updates: Sequence[bytes]) -> bytes:
        return b"+".join(updates)

    def digest(self) -> bytes:
        return b"%16d" % (self.size % 3)


def copy(drive: Drive) -> None:
    """Drive a copy."""
    drive.remembers = False
    rng, seed = drive.rng, drive.seed
    settings = Settings(quiet=0.25, order=0.0625, few=3, log_edits=6, log_bytes=700, held_edits=4, held_bytes=900)
    trips, disk = RoundTrips(), Disk()
    replica = Replica("d", ME, rng=Random(seed), settings=settings, askable=seed % 3 > 0, round_trips=trips)
    made = LocalCopy(
        replica, Content(drive), log=disk if seed % 2 else None, relay=seed % 4 == 1,
        refused=lambda *why: drive.note("refused", why), cut=lambda peer: drive.note("cut", peer),
    )  # fmt: skip
    asked: list[Any] = []
    wake = drive.now

    def some() -> Versions:
        return {
            one: max(1, replica.versions.get(one, 0) + rng.choice((-1, 0, 1, 2)))
            for one in rng.sample(STREAMS, rng.choice((0, 1, 2)))
        }

    def updates() -> Updates:
        stream = rng.choice(STREAMS[1:] if rng.random() < 0.95 else STREAMS)
        first = max(1, replica.versions.get(stream, 0) + rng.choice((-1, 0, 1, 1, 1, 1, 2, 3)))
        edits = [Edit(b"x" * rng.choice((0, 1, 30, 120)), some() if rng.random() < 0.2 else {}) for _ in range(3)]
        return Updates(stream, "d", first, tuple(edits[: rng.choice((1, 1, 2, 3))]))

    def heartbeat() -> DocumentHeartbeat:
        versions = rng.choice((None, replica.history.digest(), replica.history.digest(), bytes(8)))
        return DocumentHeartbeat("d", versions, rng.choice((None, b"%16d" % rng.randint(0, 3))), some())

    for _ in range(800):
        now, chance, peer = drive.go_on(wake), rng.random(), rng.choice(STREAMS[1:])
        if chance < 0.25:
            drive.call(made.heard, updates(), rng.choice((None, peer, peer, peer)), now)
        elif chance < 0.37:
            drive.call(made.heard, heartbeat(), rng.choice((None, peer, peer)), now)
        elif chance < 0.45:
            for _ in range(rng.choice((1, 1, 5))):
                drive.call(made.edited, b"y" * rng.choice((1, 30, 100, 200, 201)), now)
        elif chance < 0.62 and asked:
            ask = asked.pop(rng.randrange(len(asked)))
            kind, doc = rng.random(), "d" if rng.random() < 0.95 else "e"
            if kind < 0.1:
                drive.call(made.failed, ask, now)
            elif kind < 0.2:
                drive.call(made.unknown_document, ask, now)
            elif isinstance(ask, AskEdits):
                parts = tuple(updates() for _ in range(rng.choice((0, 1, 2))))
                drive.call(made.replied, ask, Resent(ask.peer, doc, parts, rng.random() < 0.3), now)
            elif isinstance(ask, AskAll):
                body = rng.choice((b"", b"update", b"update", None))
                drive.call(made.replied, ask, Diff(ask.peer, doc, b"", replica.versions | some()), now, body=body)
            else:
                assert isinstance(ask, Offer)
                drive.call(made.replied, ask, Given(ask.peer, doc, replica.versions | some()), now)
        elif chance < 0.68:
            versions = replica.versions | some() if rng.random() < 0.5 else some()
            if rng.random() < 0.3:
                versions = {peer: replica.versions.get(peer, 0) + rng.choice((1, 1, 2))}
            update = rng.choice((b"update", b"refused"))
            drive.call(made.given, Give(peer, None, "d", update, versions, rng.choice(({}, some()))), now)
        elif chance < 0.72:
            drive.call(made.difference, Want(peer, None, "d", rng.choice((None, b"state")), some()))
        elif chance < 0.76:
            low, high = sorted((rng.randint(1, 6), rng.randint(1, 9)))
            drive.call(made.resend, Nack(peer, None, "d", (Range(*rng.choice(STREAMS), low, high),)))
        elif chance < 0.84:
            drive.call(replica.joined, peer, rng.random() < 0.8)
        elif chance < 0.86:
            drive.call(replica.left, peer)
        elif chance < 0.88:
            drive.call(replica.refused_by, peer, rng.choice((None, RefusedEdit(ME, rng.randint(1, 3), "why"))))
        elif chance < 0.89:
            drive.call(replica.catch_up, now)
        elif chance < 0.9 and replica._catching:
            drive.call(replica.catch_up_ended, rng.choice(replica._catching))
        if rng.random() < 0.6:
            step = made.step(now)
            drive.note(step.publish, step.ask, step.wake - now, step.changed, step.edited, step.refused)
            asked += [ask for ask, _ in step.ask]
            wake = step.wake
        drive.note(replica.counts, replica.held, replica.missing, list(replica.versions.items()), replica.is_quiet(now))
        drive.note([(one, vars_of(known)) for one, known in replica._peers.items()], replica._gaps, replica.refusals)
        drive.note(
            replica._wanted_from, replica._want_due, replica._want_failures, made.refusal(some()), trips.slowest()
        )
        drive.note([replica.catch_up_status(at, now) for at in (now - 0.5, now)], replica.make_heartbeat(now))
        drive.note(replica.history.needs_snapshot, len(disk.entries), made.content.digest())
        drive.step()


def vars_of(known: Any) -> list[Any]:
    """Return the fields of a slotted object, but those that a trust decides: there is none here."""
    assert known.gives
    assert known.carries
    assert known.source == known.askable
    return [getattr(known, name) for name in type(known).__slots__ if name not in ("source", "gives", "carries")]


def small(drive: Drive) -> None:
    """Drive it with small limits."""
    with limits(**SMALL):
        copy(drive)


DRIVES: Final = {"copy": (small, 5)}


@pytest.mark.parametrize("name", names(DRIVES))
def test_a_copy_does_what_was_recorded(name: str) -> None:
    assert driven(DRIVES, name) == recorded(name)
