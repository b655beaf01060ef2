"""Results of a cell of `faults.py`, by room: evaluation of the notes, and of a journal's files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from _fault_ends import FAILED, KEPT, RAN, SETTLED
from _outage_records import READ, REPORTED, SENT, Ledger, Record

Id = tuple[int, int]  # run and number


@dataclass(frozen=True)
class Audit:
    """`acknowledged` messages, those `lost`; `doubled` against the promise, `repeated` within it; what is `wrong`."""

    acknowledged: int
    lost: int
    doubled: int
    repeated: int = 0
    wrong: tuple[str, ...] = ()


def ids(records: Iterable[Record], kind: bytes, *channels: int) -> list[Id]:
    """Return the messages noted so, on these channels or on any."""
    return [(each.run, each.number) for each in records if each.kind == kind and each.pair in (channels or {each.pair})]


def repetitions(found: Sequence[object]) -> int:
    return len(found) - len(set(found))


def discovery(records: Sequence[Record], folder: Path) -> Audit:
    newest = max(ids(records, SENT))
    old = [f"daemon {at} does not know the newest state" for at in (0, 1) if newest not in ids(records, READ, at)]
    return Audit(len(ids(records, KEPT, 2)), len(ids(records, FAILED)), 0, 0, tuple(old))


def calls(records: Sequence[Record], folder: Path) -> Audit:
    once = set(ids(records, SENT, 1))
    ran = ids(records, RAN)
    lost = len(ids(records, FAILED, 0))
    doubled = repetitions([each for each in ran if each in once])
    return Audit(len(ids(records, READ, 0, 1)), lost, doubled, repetitions(ran) - doubled)


def reported(records: Sequence[Record], folder: Path) -> Audit:
    """Each run's messages come to each reader without a hole, once, or in a gap that it is told of.

    Those for which the sender got an error were not sent, and leave a hole in its numbers.
    """
    ledgers: dict[int, Ledger] = defaultdict(lambda: Ledger(resumes=False))
    read = [each for each in records if each.kind == READ]
    for each in records:
        if each.kind in (READ, REPORTED):
            ledgers[each.pair].add(each)
    losses, unsent = [ledger.losses() for ledger in ledgers.values()], len(ids(records, FAILED))
    lost = sum(max(0, each.lost - each.reported - unsent) for each in losses)
    doubled = repetitions([(each.reader, each.pair, each.run, each.number) for each in read])
    return Audit(len(read) + sum(each.reported for each in losses), lost, doubled, 0)


def settled(records: Sequence[Record], folder: Path) -> Audit:
    kept, read = set(ids(records, KEPT)), ids(records, READ)
    since: dict[Id, float] = {}
    for each in records:
        if each.kind == SETTLED:
            since.setdefault((each.run, each.number), each.time)
    late = sum(each.kind == READ and each.time > since.get((each.run, each.number), float("inf")) for each in records)
    return Audit(len(kept), len(kept - set(read)), late, repetitions(read) - late)


def once(records: Sequence[Record], folder: Path) -> Audit:
    kept, read = set(ids(records, KEPT)), ids(records, READ)
    return Audit(len(kept), len(kept - set(read)), repetitions(read))


def documents(records: Sequence[Record], folder: Path) -> Audit:
    """Both stores, opened again, have each acknowledged edit, and the same ones."""
    kept = set(ids(records, KEPT))
    stores = [set(ids(records, READ, channel)) for channel in (4, 5)]
    read = stores if any(stores) else [set(ids(records, READ, at)) | set(ids(records, KEPT, 2 + at)) for at in (0, 1)]
    differ = len(stores[0] ^ stores[1])
    wrong = (f"{differ} edits are in one store only",) if differ else ()
    return Audit(len(kept), len(kept - read[0]) + len(kept - read[1]), 0, 0, wrong)


def cluster(records: Sequence[Record], folder: Path) -> Audit:
    kept, read, ran = set(ids(records, KEPT)), ids(records, READ), ids(records, RAN)
    return Audit(len(kept), len(kept - set(read)), repetitions(read), repetitions(ran))


def journal(records: Sequence[Record], folder: Path) -> Audit:
    """The journal's files, as they are when it is read."""
    from nngkit.journal import open_journal, read
    from nngkit.journal.verify import verify

    kept, place = set(ids(records, KEPT)), folder / "data" / "recorder"
    wrong = [f"{each.file}: {each.state}, {each.why}" for each in verify(open_journal(place)) if each.state != "good"]
    offsets = [record.offset for record in read(place)]
    if offsets != list(range(len(offsets))):
        wrong.append("offsets have gaps or duplicates")
    found = [record.value for record in read(place, topics="orders", distinct=True)]
    stored = [(int.from_bytes(value[:8], "big"), int.from_bytes(value[8:16], "big")) for value in found]
    return Audit(len(kept), len(kept - set(stored)), repetitions(stored), len(offsets) - len(stored), tuple(wrong))


AUDITS: Final[dict[str, Callable[[Sequence[Record], Path], Audit]]] = {
    "discovery": discovery,
    "calls": calls,
    "numbered fan-out": reported,
    "consumers": settled,
    "outbox": once,
    "mesh": reported,
    "documents": documents,
    "cluster": cluster,
    "journal": journal,
}
