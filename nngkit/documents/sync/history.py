"""What is here of one document: edits that were delivered, edits that wait for others, and the newest kept to answer.

An edit is delivered when all before it in its stream, and all it depends on, were: `ready` lists them in that order.
What came too early is held back, within a cap; what is beyond is asked for again. Pure::

    history.take(stream, seq, edit, via, now)        delivered, held back, or known already
    history.edited(payload, now)                     our own
    history.ready                                    what is to be applied, until it is taken from there
    history.lacking(stream), history.ranges(stream)  what is known to exist, and is not here
    history.resend(ranges)                           what others lack

pycrdt 0.14 loses text when updates come in another order (187 of 400 tries, measured); hence all this.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from nngkit.documents import versions as vectors
from nngkit.documents.sync.messages import BUS_LIMIT, EDITS, HEADS, Range, Updates
from nngkit.documents.versions import Edit, EditStream, Versions

__all__ = ["Counts", "Deliver", "History", "Settings"]

DEP: Final = 200  # bytes in memory of one stream and number that an edit depends on; 28 on the wire, at most
PER_EDIT: Final = 16  # bytes on the wire around a payload
PER_UPDATES: Final = 256  # ... and around the edits of one run: the document's name
LONGEST: Final = BUS_LIMIT  # bytes of an edit that an answer holds beside others; beyond, it is for chunks
FARTHEST: Final = 1 << 20  # edits asked for in one range: beyond, it is AskAll's business anyhow
RECENT: Final = 2.0  # seconds after which a stream is no news any more
OTHERS: Final = 4  # streams without news in each beat: all 1,024 of them are told within a minute


@dataclass(frozen=True, slots=True)
class Settings:
    """`quiet`: seconds without a change after which digests are compared. `order`: seconds that a missing edit may
    take by another way before it is asked for. `few`: missing edits up to which they are asked for one by one; their
    answer is then at most some messages long. `log_*`: recent edits kept to answer others. `held_*`: edits that wait
    for others. Bytes are of memory: what an edit depends on counts, as a stranger may let it depend on much.
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
    """Apply this edit now; `via`: the peer it came from, None if unknown."""

    stream: EditStream
    seq: int
    edit: Edit
    via: EditStream | None


@dataclass(slots=True)
class Counts:
    """Edits, unless said otherwise. `gaps`: times that one was found missing. `differed`: times that equal versions had
    unequal contents. `refused`: edits that nobody can have made. `old`: of streams too old to be known."""

    delivered: int = 0
    duplicates: int = 0
    held: int = 0
    overflow: int = 0
    gaps: int = 0
    refused: int = 0
    old: int = 0
    differed: int = 0


class History:
    """See the module. `me`: our own stream; `versions`, `log`: what a store had. `changed_at`: seconds, of `now`."""

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
        self._behind: set[EditStream] = set()  # streams that may lack something; looked through before it is said
        self.held: dict[EditStream, dict[int, tuple[Edit, EditStream | None]]] = {}
        self.held_edits = self.held_bytes = 0
        self.ready: list[Deliver] = []
        self.counts = Counts()
        self.changed_at = float("-inf")
        self.changes = 0  # how often
        self.needs_snapshot = False  # something exists that has no number here: only the whole document can bring it
        self._digest: bytes | None = None
        self._oldest: vectors.Oldest | None = None
        self._blocked: dict[EditStream, tuple[EditStream, int]] = {}  # what the first held edit of a stream waits for
        self._undeclared: set[EditStream] = set(self.versions)
        self._recent: OrderedDict[EditStream, float] = OrderedDict()
        self._turn = 0
        self._log: OrderedDict[tuple[EditStream, int], Edit] = OrderedDict()
        self._log_bytes = 0
        for stream, seq, edit in log:
            self._keep(stream, seq, edit)

    # ------------------------------------------------------------------ edits

    def edited(self, payload: bytes, now: float) -> Updates:
        """Our own: it depends on all that is here, of which earlier edits of ours told a part."""
        seq = self.versions.get(self.me, 0) + 1
        edit = Edit(payload, {stream: self.versions[stream] for stream in self._undeclared if stream in self.versions})
        self._undeclared.clear()
        self.advance(self.me, seq, now)
        self._undeclared.discard(self.me)
        self._keep(self.me, seq, edit)
        return Updates(self.me, self.doc, seq, (edit,))

    def take(self, stream: EditStream, seq: int, edit: Edit, via: EditStream | None, now: float) -> None:
        """An edit came: deliver it, hold it back, or know it already."""
        here = self.versions.get(stream, 0)
        held = self.held.get(stream)
        if seq <= here or (held is not None and seq in held):
            self.counts.duplicates += 1
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
            self.counts.overflow += 1  # it is asked for again, by AskAll at the latest
            return
        self.held.setdefault(stream, {})[seq] = edit, via
        self.held_edits += 1
        self.held_bytes += size
        self.counts.held += 1
        for other, needed in edit.deps.items():
            if other != self.me:
                self.exists(other, needed)

    def settle(self, now: float) -> None:
        """Deliver all held edits whose time has come."""
        progress = True
        while progress:
            progress = False
            for stream in list(self.held):
                if (waits := self._blocked.get(stream)) is not None and not self._is_here(*waits):
                    continue  # thousands may wait, whoever made them
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
        """Something that it depends on and is not here; None: all is."""
        return next((needed for needed in edit.deps.items() if not self._is_here(*needed)), None)

    def _is_here(self, stream: EditStream, seq: int) -> bool:
        return self.versions.get(stream, 0) >= seq or self.is_old(stream)

    def is_old(self, stream: EditStream) -> bool:
        """Whether it is too old to be known: then what it brought is in the content, or comes with the whole."""
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

    def release(self, stream: EditStream, seq: int) -> None:
        """It is not held back any more."""
        edit, _ = self.held[stream].pop(seq)
        self._blocked.pop(stream, None)
        if not self.held[stream]:
            del self.held[stream]
        self.held_edits -= 1
        self.held_bytes -= _weight(edit)

    def advance(self, stream: EditStream, seq: int, now: float) -> None:
        """All of `stream` up to `seq` is here."""
        new = stream not in self.versions
        self._set(stream, seq, now)
        if new:
            self._prune()

    def _set(self, stream: EditStream, seq: int, now: float) -> None:
        self.versions[stream] = seq
        self.exists(stream, seq)
        self._undeclared.add(stream)
        self._recent[stream] = now
        self._recent.move_to_end(stream)
        while len(self._recent) > HEADS:
            self._recent.popitem(last=False)
        self.changed(now)

    def _prune(self) -> None:
        """Let go of streams that are too old to be known, and of all that was to come of them."""
        self._oldest = None
        if len(self.versions) <= vectors.EPOCHS_KEPT:
            return
        vectors.prune(self.versions, self.me)
        for stream in [one for one in {*self.heads, *self.held} if self.is_old(one)]:
            self.heads.pop(stream, None)
            self._recent.pop(stream, None)
            for seq in list(self.held.get(stream, ())):
                self.release(stream, seq)
                self.needs_snapshot = True  # what they brought comes with the whole

    def changed(self, now: float) -> None:
        """The content, or what is known of it, is another from `now` on."""
        self.changed_at = now
        self.changes += 1
        self._digest = None

    def _keep(self, stream: EditStream, seq: int, edit: Edit) -> None:
        """In the log, from which others are answered."""
        self._log[stream, seq] = edit
        self._log_bytes += _weight(edit)
        while len(self._log) > self.settings.log_edits or self._log_bytes > self.settings.log_bytes:
            _, gone = self._log.popitem(last=False)
            self._log_bytes -= _weight(gone)

    # ------------------------------------------------------------------ what exists

    def exists(self, stream: EditStream, seq: int) -> None:
        """Somebody has edit `seq` of `stream`, or shows that it was written."""
        if seq <= self.heads.get(stream, 0) or self.is_old(stream):
            return
        if stream not in self.heads and len(self.heads) >= 2 * vectors.STREAMS:
            self.needs_snapshot = True  # somebody makes up streams, or has very many: one answer will tell
        else:
            self.heads[stream] = seq
            self._behind.add(stream)

    def recount(self, claims: Iterable[Mapping[EditStream, int]]) -> None:
        """What exists, from `claims` and from what is held: claims end with who made them."""
        held = [edit.deps for edits in self.held.values() for edit, _ in edits.values()]
        held += [{stream: max(edits)} for stream, edits in self.held.items()]
        self.heads = dict(self.versions)
        self._behind.clear()
        for stream, seq in itertools.chain.from_iterable(one.items() for one in [*claims, *held]):
            if stream != self.me:
                self.exists(stream, seq)

    def merged(self, versions: Mapping[EditStream, int], now: float) -> bool:
        """An update is in that has all of `versions`: whether that was news."""
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
        """The versions as others have them: without our own stream, where it is too old to be known."""
        versions = dict(self.versions)
        vectors.prune(versions)
        return versions

    def digest(self) -> bytes:
        """Of the versions, as others have them."""
        if self._digest is None:
            self._digest = vectors.digest(self.shared_versions())
        return self._digest

    def recent_heads(self, now: float) -> Versions:
        """What changed lately; and, as far as a beat has room for it, the others in turn.

        A partition may have kept anything from anybody, however long ago.
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
        """The streams of which edits exist that are not here, and how many."""
        found = {stream: self.lacking(stream) for stream in self._behind}
        self._behind = {stream for stream, missing in found.items() if missing}
        return {stream: missing for stream, missing in found.items() if missing}

    def lacking(self, stream: EditStream) -> int:
        """Edits of `stream` that exist and are not here."""
        return max(0, self.heads.get(stream, 0) - self.versions.get(stream, 0) - len(self.held.get(stream, ())))

    def ranges(self, stream: EditStream) -> Iterator[Range]:
        """What is missing of `stream`, from the first on."""
        here = self.versions.get(stream, 0)
        for seq in sorted(self.held.get(stream, ())):
            if seq > here + 1:
                yield Range(stream, here + 1, seq - 1)
            here = seq
        if here < self.heads.get(stream, 0):
            yield Range(stream, here + 1, min(self.heads[stream], here + FARTHEST))

    # ------------------------------------------------------------------ what others lack

    def resend(self, ranges: Iterable[Range]) -> tuple[tuple[Updates, ...], bool]:
        """What the log has of `ranges`, up to about one message's worth; whether some of it is not there."""
        runs: list[tuple[EditStream, int, list[Edit]]] = []
        size, rest = 0, False
        for one in ranges:
            end = min(one.last, self.versions.get(one.stream, 0))
            start = max(one.first, end - self.settings.log_edits + 1)  # before it, nothing is kept
            rest = rest or start > one.first or end < one.last
            following = 0  # the number with which the last run goes on
            for seq in range(start, end + 1):
                if size > BUS_LIMIT:
                    rest = True
                    break
                edit = self._log.get((one.stream, seq))
                if edit is None or len(edit.payload) > LONGEST:
                    rest = True
                    continue
                if seq != following or len(runs[-1][2]) == EDITS:
                    runs.append((one.stream, seq, []))
                    size += PER_UPDATES
                runs[-1][2].append(edit)
                size += len(edit.payload) + 28 * len(edit.deps) + PER_EDIT
                following = seq + 1
        return tuple(Updates(stream, self.doc, first, tuple(edits)) for stream, first, edits in runs), rest

    def edits_missing_at(self, versions: Versions, *, size: int, many: int) -> tuple[list[bytes], Versions, Versions]:
        """Edits in causal order that who has `versions` lacks, up to `size` bytes and so `many`; what they bring, and
        what they need.

        None at all: what it lacks is not in the log, or too large.
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
    """Bytes of memory that it takes, about."""
    return len(edit.payload) + DEP * len(edit.deps)
