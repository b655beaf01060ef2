"""History of one document: delivered edits, edits held back for others, and recent edits kept to answer peers.

An edit is delivered once all earlier edits of its stream and all its dependencies are: `ready` lists them in that
order. An early edit is held back, within a cap; beyond the cap it is requested again. Pure::

    history.take(stream, seq, edit, via, now)        deliver, hold back, or ignore a duplicate
    history.edited(payload, now)                     a local edit
    history.ready                                    edits to apply, until they are taken from the list
    history.refuse(stream, seq, why)                 one of these cannot be applied: it was not received
    history.lacking(stream), history.ranges(stream)  edits known to exist that are not here
    history.resend(ranges)                           edits for another peer

The order matters: pycrdt 0.14 loses text when updates arrive in another one (187 of 400 tries, measured).
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from nngkit.documents import versions as vectors
from nngkit.documents.sync.messages import BUS_LIMIT, EDITS, HEADS, Range, Updates
from nngkit.documents.sync.refused import RefusedEdits
from nngkit.documents.versions import EPOCHS, Edit, EditStream, Versions

DEP: Final = 200  # bytes in memory of one dependency; on the wire at most 28
PER_EDIT: Final = 16  # bytes on the wire around a payload
PER_UPDATES: Final = 256  # bytes on the wire around a run of edits, including the document's name
LONGEST: Final = BUS_LIMIT  # bytes of an edit in a resent message; larger ones are transferred in chunks
FARTHEST: Final = 1 << 20  # edits requested in one range; beyond, AskAll is used anyway
RECENT: Final = 2.0  # seconds for which a changed stream counts as recent
OTHERS: Final = 4  # further streams in each heartbeat: all 1,024 are sent within a minute


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of a replica.

    `quiet`: seconds without a change before digests are compared. `order`: seconds to wait for a missing edit before it
    is requested. `few`: up to this number, missing edits are requested by number, so the reply is a few messages long.
    `log_*`: recent edits kept to answer peers. `held_*`: edits held back. Bytes are memory including dependencies, as a
    hostile peer may send many of those.
    """

    quiet: float = 0.25
    order: float = 0.01
    few: int = 64
    log_edits: int = 4096
    log_bytes: int = 4 << 20
    held_edits: int = 8192
    held_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Deliver:
    """An edit to apply now. `via`: the peer that sent it, None if unknown."""

    stream: EditStream
    seq: int
    edit: Edit
    via: EditStream | None


@dataclass(slots=True)
class Counts:
    """Counters, of edits unless noted. `gaps`: times that one was missing.

    `differed`: times that equal versions had different contents. `refused`: impossible edits, and those that
    the content could not take. `old`: of streams too old
    for the vector.
    """

    delivered: int = 0
    duplicates: int = 0
    held: int = 0
    overflow: int = 0
    gaps: int = 0
    refused: int = 0
    old: int = 0
    differed: int = 0


class History:
    """See the module. `me`: our stream. `versions`, `log`: from the store. `changed_at`: time of the last change."""

    def __init__(
        self,
        doc: str,
        me: EditStream,
        settings: Settings,
        versions: Mapping[EditStream, int],
        log: Iterable[tuple[EditStream, int, Edit]],
    ) -> None:
        self.doc = doc
        self.me = me
        self.settings = settings
        self.versions: Versions = dict(versions)
        vectors.prune(self.versions, me)
        self.heads: Versions = dict(self.versions)
        # In order, not sets: what is sent, and how chance decides, must not depend on Python's hash seed.
        self._behind: dict[EditStream, None] = {}  # streams that may be incomplete; verified before use
        self.held: dict[EditStream, dict[int, tuple[Edit, EditStream | None]]] = {}
        self.held_edits = self.held_bytes = 0
        self.ready: list[Deliver] = []
        self.refused = RefusedEdits()
        self.counts = Counts()
        self.changed_at = float("-inf")
        self.changes = 0  # number of changes
        self.needs_snapshot = False  # something is missing that has no number here: only AskAll can bring it
        self._digest: bytes | None = None
        self._oldest: vectors.Oldest | None = None
        self._blocked: dict[
            EditStream, tuple[EditStream, int]
        ] = {}  # missing dependency of the first held edit of a stream
        self._undeclared: dict[EditStream, None] = dict.fromkeys(self.versions)  # no others: a peer may never edit
        self._recent: OrderedDict[EditStream, float] = OrderedDict()
        self._turn = 0
        self._log: OrderedDict[tuple[EditStream, int], Edit] = OrderedDict()
        self._log_bytes = 0
        for stream, seq, edit in log:
            self._keep(stream, seq, edit)

    # ------------------------------------------------------------------ edits

    def edited(self, payload: bytes, now: float) -> Updates:
        """Record a local edit. Its deps are the streams that changed since the last local edit."""
        seq = self.versions.get(self.me, 0) + 1
        edit = Edit(payload, {stream: self.versions[stream] for stream in self._undeclared})
        self._undeclared.clear()
        self.advance(self.me, seq, now)
        self._undeclared.pop(self.me, None)
        self._keep(self.me, seq, edit)
        return Updates(self.me, self.doc, seq, (edit,))

    def take(self, stream: EditStream, seq: int, edit: Edit, via: EditStream | None, now: float) -> None:
        """Take a received edit: deliver it, hold it back, or ignore a duplicate."""
        here = self.versions.get(stream, 0)
        held = self.held.get(stream)
        if seq <= here or (held is not None and seq in held):
            self.counts.duplicates += 1
            return
        if (why := self.refused.reason(stream, seq, edit.deps)) is not None:
            self.refuse(stream, seq, why)
            return
        if seq == here + 1 and self.waits_for(edit) is None:
            self._hand_over(stream, seq, edit, via, now)
            if self.held:
                self.settle(now)
            return
        size = _weight(edit)
        if (
            self.held_edits >= self.settings.held_edits
            or self.held_bytes + size > self.settings.held_bytes
            or len(self.held) >= vectors.STREAMS
        ):
            self.counts.overflow += 1  # it is requested again, by AskAll at the latest
            return
        self.held.setdefault(stream, {})[seq] = edit, via
        self.held_edits += 1
        self.held_bytes += size
        self.counts.held += 1
        for other, needed in edit.deps.items():
            if other != self.me:
                self.exists(other, needed)

    def settle(self, now: float) -> None:
        """Deliver all held edits that have become deliverable."""
        progress = True
        while progress:
            progress = False
            for stream in list(self.held):
                if (waits := self._blocked.get(stream)) is not None and not self._is_here(*waits):
                    continue  # thousands may be held, from a hostile peer too
                while (held := self.held.get(stream)) and (found := held.get(self.versions.get(stream, 0) + 1)):
                    edit, via = found
                    if (waits := self.waits_for(edit)) is not None:
                        self._blocked[stream] = waits
                        break
                    seq = self.versions.get(stream, 0) + 1
                    self.release(stream, seq)
                    self._hand_over(stream, seq, edit, via, now)
                    progress = True

    def waits_for(self, edit: Edit) -> tuple[EditStream, int] | None:
        """Return a missing dependency of `edit`; None if it is deliverable."""
        return next((needed for needed in edit.deps.items() if not self._is_here(*needed)), None)

    def _is_here(self, stream: EditStream, seq: int) -> bool:
        return self.versions.get(stream, 0) >= seq or self.is_old(stream)

    def is_old(self, stream: EditStream) -> bool:
        """Return True if `stream` is too old for the vector: its edits are in the content, or come with AskAll."""
        if stream in self.versions:
            return False
        if self._oldest is None:
            self._oldest = vectors.Oldest(self.versions)
        return self._oldest.excludes(stream)

    def _hand_over(self, stream: EditStream, seq: int, edit: Edit, via: EditStream | None, now: float) -> None:
        self.advance(stream, seq, now)
        self._keep(stream, seq, edit)
        self.counts.delivered += 1
        self.ready.append(Deliver(stream, seq, edit, via))

    def refuse(self, stream: EditStream, seq: int, why: str) -> bool:
        """Record that edit `seq` cannot be applied, nor what follows it; versions end before it.

        Returns False if it was known.
        """
        self.counts.refused += 1
        if not self.refused.add(stream, seq, why):
            return False
        pending = [stream]
        while pending:
            self._withdraw(pending.pop())
            for other, edits in list(self.held.items()):
                for number in sorted(edits):
                    because = self.refused.reason(other, number, edits[number][0].deps)
                    if because is not None and self.refused.add(other, number, because):
                        pending.append(other)
                        break
        return True

    def _withdraw(self, stream: EditStream) -> None:
        """Undo the delivery of the refused edits of `stream`, and drop those held."""
        last = self.refused.limit(stream, EPOCHS)
        if (here := self.versions.get(stream, 0)) > last:
            self._digest = self._oldest = None
            self.changes += 1
            self.counts.delivered -= here - last
            for seq in range(last + 1, here + 1):
                if (gone := self._log.pop((stream, seq), None)) is not None:
                    self._log_bytes -= _weight(gone)
            if last:
                self.versions[stream] = last
            else:
                del self.versions[stream]
                self._recent.pop(stream, None)
                self._undeclared.pop(stream, None)
        if self.heads.get(stream, 0) > last:
            self.heads[stream] = last
        for seq in [seq for seq in self.held.get(stream, ()) if seq > last]:
            self.release(stream, seq)

    def release(self, stream: EditStream, seq: int) -> None:
        """Remove a held edit."""
        edit, _ = self.held[stream].pop(seq)
        self._blocked.pop(stream, None)
        if not self.held[stream]:
            del self.held[stream]
        self.held_edits -= 1
        self.held_bytes -= _weight(edit)

    def advance(self, stream: EditStream, seq: int, now: float) -> None:
        """Record that all edits of `stream` up to `seq` were received."""
        new = stream not in self.versions
        self._set(stream, seq, now)
        if new:
            self._prune()

    def _set(self, stream: EditStream, seq: int, now: float) -> None:
        self.versions[stream] = seq
        self.refused.received(stream, seq)
        self.exists(stream, seq)
        self._undeclared[stream] = None
        self._recent[stream] = now
        self._recent.move_to_end(stream)
        while len(self._recent) > HEADS:
            self._recent.popitem(last=False)
        self.changed(now)

    def _prune(self) -> None:
        """Drop streams that are too old, with everything held of them."""
        self._oldest = None
        if len(self.versions) <= vectors.EPOCHS_KEPT:
            return
        vectors.prune(self.versions, self.me)
        self._undeclared = {stream: None for stream in self._undeclared if stream in self.versions}
        for stream in [one for one in {*self.heads, *self.held} if self.is_old(one)]:
            self.heads.pop(stream, None)
            self._recent.pop(stream, None)
            for seq in list(self.held.get(stream, ())):
                self.release(stream, seq)
                self.needs_snapshot = True  # AskAll brings what they held

    def changed(self, now: float) -> None:
        """Record a change of the content or of the versions."""
        self.changed_at = now
        self.changes += 1
        self._digest = None

    def _keep(self, stream: EditStream, seq: int, edit: Edit) -> None:
        """Keep an edit in the log for other peers."""
        self._log[stream, seq] = edit
        self._log_bytes += _weight(edit)
        while len(self._log) > self.settings.log_edits or self._log_bytes > self.settings.log_bytes:
            _, gone = self._log.popitem(last=False)
            self._log_bytes -= _weight(gone)

    # ------------------------------------------------------------------ known edits

    def exists(self, stream: EditStream, seq: int) -> None:
        """Record that edit `seq` of `stream` exists somewhere; refused edits are not wanted."""
        seq = self.refused.limit(stream, seq)
        if seq <= self.heads.get(stream, 0) or self.is_old(stream):
            return
        if stream not in self.heads and len(self.heads) >= 2 * vectors.STREAMS:
            self.needs_snapshot = True  # invented streams, or very many: one AskAll will tell
        else:
            self.heads[stream] = seq
            self._behind[stream] = None

    def recount(self, claims: Iterable[Mapping[EditStream, int]]) -> None:
        """Recompute what exists from `claims` and the held edits; the claims of a peer end when it leaves."""
        held = [edit.deps for edits in self.held.values() for edit, _ in edits.values()]
        held += [{stream: max(edits)} for stream, edits in self.held.items()]
        self.heads = dict(self.versions)
        self._behind.clear()
        for stream, seq in itertools.chain.from_iterable(one.items() for one in [*claims, *held]):
            if stream != self.me:
                self.exists(stream, seq)

    def merged(self, versions: Mapping[EditStream, int], now: float) -> bool:
        """Record a merged update with all of `versions`. Returns True if any was new."""
        news = False
        for stream, seq in versions.items():
            if stream == self.me or seq <= self.versions.get(stream, 0) or self.is_old(stream):
                continue
            news = True
            self._set(stream, seq, now)
            for late in [number for number in self.held.get(stream, ()) if number <= seq]:
                self.release(stream, late)
        if news:
            self._prune()
        self.needs_snapshot = False
        return news

    def shared_versions(self) -> Versions:
        """Return the versions as other peers see them: without our own stream if it is too old."""
        versions = dict(self.versions)
        vectors.prune(versions)
        return versions

    def digest(self) -> bytes:
        """Return the digest of `shared_versions`."""
        if self._digest is None:
            self._digest = vectors.digest(self.shared_versions())
        return self._digest

    def recent_heads(self, now: float) -> Versions:
        """Return recently changed streams and, as far as a heartbeat has room, others in turn.

        The others matter: a partition may have hidden any change from any peer, however long ago.
        """
        heads: Versions = {}
        for stream, at in reversed(self._recent.items()):
            if len(heads) == HEADS or now - at > RECENT:
                break
            heads[stream] = self.versions[stream]
        streams = list(self.versions)
        for _ in range(min(HEADS - len(heads), OTHERS, len(streams))):
            self._turn = (self._turn + 1) % len(streams)
            heads[streams[self._turn]] = self.versions[streams[self._turn]]
        return heads

    def incomplete(self) -> dict[EditStream, int]:
        """Return the incomplete streams, and the number of missing edits of each."""
        found = {stream: missing for stream in self._behind if (missing := self.lacking(stream))}
        self._behind = dict.fromkeys(found)
        return found

    def lacking(self, stream: EditStream) -> int:
        """Return the number of missing edits of `stream`."""
        return max(0, self.heads.get(stream, 0) - self.versions.get(stream, 0) - len(self.held.get(stream, ())))

    def ranges(self, stream: EditStream) -> Iterator[Range]:
        """Yield the missing ranges of `stream`, in order."""
        here = self.versions.get(stream, 0)
        for seq in sorted(self.held.get(stream, ())):
            if seq > here + 1:
                yield Range(*stream, here + 1, seq - 1)
            here = seq
        if here < self.heads.get(stream, 0):
            yield Range(*stream, here + 1, min(self.heads[stream], here + FARTHEST))

    # ------------------------------------------------------------------ edits for other peers

    def resend(self, ranges: Iterable[Range]) -> tuple[tuple[Updates, ...], bool]:
        """Return the edits of `ranges` in the log, up to about one message; and whether some are left out."""
        runs: list[tuple[EditStream, int, list[Edit]]] = []
        size, rest = 0, False
        for one in ranges:
            stream = one.stream
            end = min(one.last, self.versions.get(stream, 0))
            start = max(one.first, end - self.settings.log_edits + 1)  # the log keeps none before it
            rest = rest or start > one.first or end < one.last
            following = 0  # the number that would continue the last run
            for seq in range(start, end + 1):
                if size > BUS_LIMIT:
                    rest = True
                    break
                edit = self._log.get((stream, seq))
                if edit is None or len(edit.payload) > LONGEST:
                    rest = True
                    continue
                if seq != following or len(runs[-1][2]) == EDITS:
                    runs.append((stream, seq, []))
                    size += PER_UPDATES
                runs[-1][2].append(edit)
                size += len(edit.payload) + 28 * len(edit.deps) + PER_EDIT
                following = seq + 1
        return tuple(Updates(stream, self.doc, first, tuple(edits)) for stream, first, edits in runs), rest

    def edits_missing_at(self, versions: Versions, *, size: int, many: int) -> tuple[list[bytes], Versions, Versions]:
        """Return edits missing at `versions` in causal order, the versions they bring, and their dependencies.

        Up to `size` bytes and `many` edits. Empty if the next missing edit is not in the log, or too large.
        """
        ours, have = self.shared_versions(), dict(versions)
        found: list[bytes] = []
        brought: Versions = {}
        needed: Versions = {}
        behind = [stream for stream, seq in ours.items() if seq > have.get(stream, 0)]
        progress = True
        while progress:
            progress = False
            for stream in behind:
                while (seq := have.get(stream, 0) + 1) <= ours[stream]:
                    edit = self._log.get((stream, seq))
                    if edit is None or any(
                        have.get(other, 0) < last and not self.is_old(other) for other, last in edit.deps.items()
                    ):
                        break
                    size -= len(edit.payload)
                    if size < 0 or len(found) == many:
                        return found, brought, needed
                    if stream not in brought and seq > 1:
                        needed = vectors.merge(needed, {stream: seq - 1})
                    before = {other: last for other, last in edit.deps.items() if last > brought.get(other, 0)}
                    needed = vectors.merge(needed, before)
                    have[stream] = brought[stream] = seq
                    found.append(edit.payload)
                    progress = True
        return found, brought, needed


def _weight(edit: Edit) -> int:
    """Return the approximate bytes of memory of an edit."""
    return len(edit.payload) + DEP * len(edit.deps)
