"""The history of a document alone, given impossible, late and refused edits: see tests/driving.py."""

from __future__ import annotations

from typing import Any

import pytest

from nngkit.documents import versions as vectors
from nngkit.documents.sync.history import History, Settings
from nngkit.documents.sync.messages import Range
from nngkit.documents.sync.refused import RefusedEdits
from nngkit.documents.versions import Edit, EditStream, Oldest, Versions
from tests.driving import Drive, driven, limits, names, recorded

SMALL = {
    "documents__versions": {"STREAMS": 5, "EPOCHS_KEPT": 2},
    "documents__sync__history": {
        "HEADS": 2, "OTHERS": 1, "FARTHEST": 3, "LONGEST": 30, "BUS_LIMIT": 100, "EDITS": 2, "PER_UPDATES": 60,
    },
    "documents__sync__refused": {"STREAMS": 3, "LONGEST": 8},
}  # fmt: skip
STREAMS = [EditStream(origin * 8, epoch) for origin in (b"a", b"b", b"c") for epoch in (1, 2, 3)]


def some(drive: Drive) -> Versions:
    """Return versions of few streams."""
    return {one: drive.rng.randint(1, 6) for one in drive.rng.sample(STREAMS, drive.rng.choice((0, 0, 1, 2)))}


def history(drive: Drive) -> None:
    """Drive a history; every other seed has small limits."""
    drive.remembers = False
    rng = drive.rng
    log_edits, log_bytes = ((3, 4000), (30, 240), (30, 4000), (30, 4000))[drive.seed]
    settings = Settings(log_edits=log_edits, log_bytes=log_bytes, held_edits=4, held_bytes=900)
    with limits(**SMALL if drive.seed % 2 else {}):
        log = [(STREAMS[0], seq, Edit(b"stored", {})) for seq in (1, 2)]
        kept = History("d", STREAMS[1], settings, {STREAMS[0]: 2, STREAMS[3]: 1}, log)
        for _ in range(700):
            drive.now += rng.choice((0.0, 0.0, 0.5, 2.0))
            now, stream = drive.now, rng.choice(STREAMS)
            seq = max(1, kept.versions.get(stream, 0) + rng.choice((-1, 0, 1, 1, 1, 1, 2, 3)))
            chance = rng.random()
            if chance < 0.5:
                edit = Edit(b"x" * rng.choice((1, 30, 31, 300)), some(drive) if rng.random() < 0.4 else {})
                drive.call(kept.take, stream, seq, edit, rng.choice((None, *STREAMS)), now)
            elif chance < 0.58:
                drive.call(kept.edited, b"y" * rng.choice((0, 30, 31)), now)
            elif chance < 0.68:
                drive.call(
                    kept.refuse, stream, max(1, seq - rng.choice((0, 1, 2))), rng.choice(("why", "a long reason"))
                )
            elif chance < 0.74:
                drive.call(kept.exists, stream, seq + rng.choice((0, 1, 5)))
            elif chance < 0.78:
                drive.call(kept.recount, [some(drive), some(drive)])
            elif chance < 0.84:
                drive.call(kept.merged, some(drive), now)
            elif chance < 0.88:
                drive.call(kept.settle, now)
            elif chance < 0.9:
                drive.call(kept.changed, now)
            elif chance < 0.91 and kept.held:
                held = rng.choice(list(kept.held))
                drive.call(kept.release, held, rng.choice(list(kept.held[held])))
            asked = [Range(*one, *sorted((rng.randint(1, 6), rng.randint(1, 9)))) for one in rng.sample(STREAMS, 3)]
            drive.call(kept.resend, asked)
            drive.call(kept.edits_missing_at, some(drive), size=rng.choice((0, 60, 2000)), many=rng.choice((1, 2, 9)))
            drive.note(kept.ready, kept.counts, kept.held, kept.held_edits, kept.held_bytes, dict(kept.refused._first))
            drive.note(kept.incomplete(), [list(kept.ranges(one)) for one in STREAMS], kept.needs_snapshot)
            drive.note(kept.digest(), kept.changes, kept.changed_at, kept.heads, kept.versions, kept.recent_heads(now))
            drive.note([kept.is_old(one) for one in STREAMS], kept.shared_versions(), kept._log_bytes, list(kept._log))
            if rng.random() < 0.3:
                kept.ready.clear()
            drive.step()


def refusals(drive: Drive) -> None:
    """Drive the table of refused edits."""
    rng, table = drive.rng, RefusedEdits()
    with limits(**SMALL):
        for _ in range(400):
            stream, seq, versions = rng.choice(STREAMS), rng.randint(1, 5), some(drive)
            why = drive.call(table.reason, stream, seq, versions)
            if rng.random() < 0.6:
                drive.call(table.add, stream, seq, why or rng.choice(("why", "a long reason")))
            if rng.random() < 0.2:
                drive.call(table.received, stream, seq)
            drive.note(list(table), table.get(stream), table.limit(stream, seq), table.among(versions))
            drive.note([one.follows for one in table])
            drive.step()


def vector(drive: Drive) -> None:
    """Prune, merge and read vectors of more streams than they may keep."""
    rng = drive.rng
    with limits(**SMALL):
        for _ in range(400):
            one, other = ({s: rng.randint(1, 4) for s in rng.sample(STREAMS, rng.randint(0, 8))} for _ in range(2))
            drive.note(vectors.covers(one, other), vectors.merge(one, other), vectors.digest(one))
            oldest = Oldest(one)
            drive.note([(oldest.excludes(s), vectors.is_old(s, one)) for s in STREAMS])
            wire: list[Any] = vectors.to_wire(one)
            if wire and rng.random() < 0.6:
                row = rng.choice(wire)
                place = rng.randrange(3)
                row[place] = rng.choice((-1, 0, 1, 2**53 - 1, 2**53, True, None, b"", b"z" * 7, b"z" * 9))
                if rng.random() < 0.1:
                    row.append(1)
            drive.call(vectors.from_wire, wire, what="versions", peer="p")
            drive.call(vectors.prune, one, rng.choice((None, *STREAMS)))
            drive.note(one)
            drive.step()


DRIVES = {"history": (history, 4), "refusals": (refusals, 1), "vector": (vector, 1)}


@pytest.mark.parametrize("name", names(DRIVES))
def test_a_history_does_what_was_recorded(name: str) -> None:
    assert driven(DRIVES, name) == recorded(name)
