"""A voter does in random calls what it did when that was recorded: see tests/driving.py."""

from __future__ import annotations

from random import Random
from typing import Final

import pytest

from nngkit.cluster.election.log import Snapshot
from nngkit.cluster.election.messages import (
    KINDS,
    Append,
    AppendReply,
    Message,
    Recover,
    RecoverReply,
    SnapshotPart,
    SnapshotReply,
    Stand,
    Survey,
    SurveyReply,
    VoteReply,
    VoteRequest,
)
from nngkit.cluster.election.values import ElectionLimits, Restored
from nngkit.cluster.election.voter import Voter
from tests.driving import Drive, below, driven, limits, names, recorded

LIMITS: Final = ElectionLimits(
    heartbeat=0.125, lease=0.5, entry_bytes=8, append_bytes=6, window_bytes=9, log_bytes=40, keep_bytes=6,
    snapshot_bytes=16,
)  # fmt: skip
OTHERS: Final = ("b", "c", "d", "e")
OFTEN: Final = {
    "blank": (RecoverReply,) * 9 + (Append, Append, SnapshotPart),
    "follower": (Append, Append, Append, SnapshotPart, Stand),
    "quiet": (SurveyReply, SurveyReply, SurveyReply, Stand, VoteRequest),
    "candidate": (VoteReply,) * 6,
    "host": (AppendReply,) * 8 + (SnapshotReply,) * 3,
}


def voter(drive: Drive) -> None:
    """Drive one of two to five voters, with or without a disk, with messages of all states."""
    rng = drive.rng
    others = OTHERS[: rng.choice((1, 2, 2, 2, 4, 0) if drive.seed else (2,))]
    durable = rng.random() < 0.5
    entries = ((1, b"a"), (1, b"bb"), (2, b"ccc"))
    restored = Restored(2, rng.choice((None, "b")), (("b", 4), ("x", 9)), Snapshot(2, 1, b"state"), entries)
    made = Voter(
        "a", ["a", *others], epoch=5000, now=drive.now, rng=Random(drive.seed), durable=durable, limits=LIMITS,
        restored=rng.choice((restored, None)) if durable else None, preference=1,
    )  # fmt: skip
    made.load = 0.25
    epochs = dict.fromkeys((*others, "x"), 5)
    tokens = [0]
    drive.texts = {"*": ("a", *OTHERS), "blank": (True,), "load": (0, 250, 251)}
    for voter in others:
        drive.call(made.peer_up, voter, drive.now)
    for _ in range(900):
        drive.now += rng.choice((0.0, 0.0, 0.0, 1 / 64, 1 / 32, 1 / 16, 1 / 8))
        if rng.random() < 0.1 and made.wake_at > drive.now:
            drive.now = made.wake_at
        if rng.random() < 0.005:
            drive.now += rng.choice((-1.0, 1.0, 0.1875))
        now, chance = drive.now, rng.random()
        if now >= made.wake_at and chance < 0.9:
            drive.call(made.tick, now)
        elif chance < 0.75:
            sender = rng.choice((*others, *others, *others, "x"))
            if rng.random() < 0.005:
                epochs[sender] += 1
            state = "quiet" if made.role == "follower" and drive.steps % 200 > 100 else made.role
            term, last, stamp = made.term, made.last, int(now * 1e6)
            drive.texts |= {
                "epoch": (*(epochs[sender],) * 30, epochs[sender] - 1), "preference": (0, 0, 1, 2),
                "term": (*(term,) * 6, term + 1, max(0, term - 1)) if rng.random() < 0.15 else (term,),
                "prev_index": (*range(max(0, last - 2), last + 2), 0), "match": range(max(0, last - 3), last + 3),
                "prev_term": (term, term, 1, 2), "entry_term": (term, term, term, 2),
                "commit": (last, last + 1, max(0, last - 1)), "stamp": (stamp, stamp, stamp - 62500, stamp + 1, 0),
                "number": range(1, 4), "remaining": (0, 0, 0, 250), "nonce": (made.epoch,), "over": (0, 0, term),
                "last_term": (0, 1, 2, term), "last_index": range(max(0, last - 1), last + 2),
                "index": range(max(0, last - 2), last + 3), "index_term": (1, 2, term), "total": (0, 5, 5, 10, 17),
                "offset": (0, 0, 5, 6, 10), "known": (4, 5, 6), "data": (b"", b"fives", b"fives"),
            }  # fmt: skip
            message = drive.message(*(OFTEN[state] if rng.random() < 0.7 else below(Message)))
            fields = dict.fromkeys(message.__struct_fields__)
            for name in ("epoch", "term", "nonce", "stamp"):  # as of now also in one that is repeated
                if name in fields and rng.random() < 0.98:
                    fields[name] = rng.choice(drive.texts[name])
            if "number" in fields and rng.random() < 0.8:
                asked = drive.seen(Recover if "nonce" in fields else Survey)
                fields["number"] = asked[-1].number if asked else 1
            changed = {name: value for name, value in fields.items() if value is not None}
            drive.call(made.receive, sender, drive.changed(message, **changed), now)
        elif chance < 0.83:
            entries_ = [b"x" * rng.choice((1, 2, 5, 8)) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
            drive.call(made.propose, [*entries_, *rng.choice(([], [], [], [], [b""], [b"x" * 9]))], now)
        elif chance < 0.87:
            drive.call(rng.choice((made.peer_up, made.peer_up, made.peer_down)), rng.choice((*others, "x")), now)
        elif chance < 0.9:
            drive.call(made.compact, max(0, made.commit - rng.choice((0, 1, 2, -1))), b"s" * rng.choice((0, 5, 13)))
        elif chance < 0.903:
            drive.call(made.step_down, now)
        elif chance < 0.906:
            drive.call(made.outranked, made.term + rng.choice((0, 1, 2)), now)
        if rng.random() < 0.5:
            drive.call(made.persisted, max(0, tokens[-1] - rng.choice((0, 0, 0, 1))), now)
        if rng.random() < 0.8:
            effects = made.take()
            tokens += [step.token for step in effects.persist]
            for to, message in effects.sends:
                drive.note(to, KINDS.pack(message), message)
            drive.note(effects.persist, effects.committed, effects.restore, effects.events)
        drive.note(made.role, made.host, made.term, made.epoch, made.commit, made.last, made.connected, made.new_bytes)
        drive.note(made.wake_at, [made.holds_lease(now + ahead) for ahead in (-0.01, 0.0, 0.25)])
        if made.new_bytes > 24:
            made.compact(made.commit, b"")
        drive.step()
        if drive.steps % 20 == 0:
            drive.note(made.stats)


def small(drive: Drive) -> None:
    """Drive one; of every other seed few messages may wait for the disk."""
    with limits(cluster__election__voter={"MOST_HELD": 3} if drive.seed % 2 else {}):
        voter(drive)


DRIVES: Final = {"voter": (small, 14)}


@pytest.mark.parametrize("name", names(DRIVES))
def test_a_voter_does_what_was_recorded(name: str) -> None:
    assert driven(DRIVES, name) == recorded(name)
