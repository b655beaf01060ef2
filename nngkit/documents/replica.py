"""One document at one peer: which edits are in it, which are missing, and who is asked for them. Pure.

Every outside event changes what is known, and then one function, `evaluate`, says what is to be done; it alone decides.
It knows no clock (`now` is given, in seconds), no socket, and nothing of what an edit means: whoever holds it applies
what `Decisions.deliver` lists, in that order, sends the questions, and tells how they went::

    replica.heard(updates, via, now)       edits came: by BUS, or as an answer (`via`: from which peer, None if unknown)
    replica.beat(sender, doc_beat, now)    what a peer says that it has
    replica.edited(payload, now)           we edited: gives what to tell everybody
    replica.evaluate(now)                  -> deliver, ask, when to look again

BUS loses messages, and says so to nobody. What was lost is seen by a number that is left out, by an edit that depends
on something unknown, by a beat that knows more; what all of those miss, by digests that differ once all is quiet.

What holds whenever `evaluate` returns (tests/documents/test_replica.py checks each after every step):

1. Causal: what was delivered of a stream is all from 1 to `versions[stream]`, each once, in order, after its `deps`.
   (pycrdt 0.14 loses text when updates come in another order: 187 of 400 tries, measured.)
2. Nothing that could be delivered is held.
3. Whatever is known to exist and is not here, and has somebody present who can be asked, is being asked for or has a
   time at which it will be.
4. A peer is asked one thing at a time; for the whole document, one peer at a time.
5. `held` and the log of recent edits are within their caps.
6. While something is missing or was changed within `quiet`, no digest is compared.

Which question: a few missing edits are asked for by number (`AskEdits`) from a random peer that says it has them, so
that one popular author is not asked by everybody; many, or those nobody keeps any more, by `AskAll`, which brings one
update with all that is lacking. An answer that is late is asked for elsewhere, ever later with each failure.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from nngkit.documents import versions as vectors
from nngkit.documents.messages import BUS_LIMIT, EDITS, HEADS, RANGES, DocBeat, Edit, Range, Updates
from nngkit.documents.timing import UNKNOWN, RoundTrips
from nngkit.documents.versions import Stream, Versions

__all__ = ["AskAll", "AskEdits", "Counts", "Decisions", "Deliver", "Offer", "Replica", "Settings"]

NEVER: Final = float("inf")
RECENT: Final = 2.0  # seconds after which a stream is no news any more
FARTHEST: Final = 1 << 20  # edits that a claim may run ahead of what is here before it is believed only as "much"


@dataclass(frozen=True, slots=True)
class Settings:
    """`quiet`: seconds without a change after which digests are compared. `order`: seconds that a missing edit may
    take by another way before it is asked for. `few`: missing edits up to which they are asked for one by one; their
    answer is then at most some messages long. `log_*`: recent edits kept to answer others. `held_*`: edits that wait
    for others.
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

    stream: Stream
    seq: int
    edit: Edit
    via: Stream | None


@dataclass(frozen=True, slots=True)
class AskEdits:
    """Ask `peer` for these; then call `heard` and `answered`, or `failed`."""

    peer: Stream
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class AskAll:
    """Ask `peer` for all that is lacking here; then call `merged`, or `failed`. `whole`: as if there were nothing."""

    peer: Stream
    whole: bool


@dataclass(frozen=True, slots=True)
class Offer:
    """Give `peer` what it lacks, as it cannot ask us; then call `offered`, or `failed`."""

    peer: Stream


Ask = AskEdits | AskAll | Offer


@dataclass(frozen=True, slots=True)
class Decisions:
    """What is to be done. `look`: call `settled` with the content's digest. `wake`: when to evaluate again."""

    deliver: list[Deliver]
    asks: list[Ask]
    look: bool
    wake: float


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


@dataclass(slots=True)
class _Peer:
    """What is known of another peer, as far as this document goes."""

    askable: bool
    claims: Versions = field(default_factory=dict)
    versions: bytes | None = None
    content: bytes | None = None
    asked_at: float | None = None
    failures: int = 0
    not_before: float = 0.0
    fruitless: tuple[bytes, bytes | None] | None = None  # digests, ours and its, with which asking brought nothing
    offered: Versions | None = None

    def claim(self, versions: Mapping[Stream, int]) -> None:
        """It says, or shows, that it has these."""
        for stream, seq in versions.items():
            if seq > self.claims.get(stream, 0) and len(self.claims) < 2 * vectors.STREAMS:
                self.claims[stream] = seq


@dataclass(slots=True)
class _Gap:
    """Edits of one stream that are missing: `at` is how far we were when it was last looked at."""

    due: float
    at: int
    tries: int = 0


class Replica:
    """One document's state; `me` is our stream, `versions` and `log` what a store had of it.

    `askable`: whether the others can ask us. `round_trips` may be shared by all documents of a peer.
    """

    def __init__(
        self,
        doc: str,
        me: Stream,
        *,
        rng: Random,
        settings: Settings | None = None,
        versions: Mapping[Stream, int] | None = None,
        log: Iterable[tuple[Stream, int, Edit]] = (),
        askable: bool = True,
        round_trips: RoundTrips | None = None,
    ) -> None:
        self.doc = doc
        self.me = me
        self.settings = settings or Settings()
        self.versions: Versions = dict(versions or {})
        self.askable = askable
        self.counts = Counts()
        self.met = False  # whether it has agreed with, or caught up with, anybody
        self._rng = rng
        self._round_trips = round_trips or RoundTrips()
        self._heads: Versions = dict(self.versions)
        self._held: dict[Stream, dict[int, tuple[Edit, Stream | None]]] = {}
        self._held_edits = self._held_bytes = 0
        self._gaps: dict[Stream, _Gap] = {}
        self._log: OrderedDict[tuple[Stream, int], Edit] = OrderedDict()
        self._log_bytes = 0
        self._untold: set[Stream] = set(self.versions)
        self._peers: dict[Stream, _Peer] = {}
        self._recent: OrderedDict[Stream, float] = OrderedDict()
        self._turn = 0
        self._changed_at = -NEVER
        self._edited_at = -NEVER
        self._digest: bytes | None = None
        self._content: bytes | None = None
        self._deliver: list[Deliver] = []
        self._wanted_from: Stream | None = None
        self._want_due = 0.0
        self._want_failures = 0
        self._too_old = False
        for stream, seq, edit in log:
            self._keep(stream, seq, edit)

    # ------------------------------------------------------------------ what happens

    def edited(self, payload: bytes, now: float) -> Updates:
        """We edited: what to tell everybody, and to put on disk."""
        seq = self.versions.get(self.me, 0) + 1
        edit = Edit(payload, {stream: self.versions[stream] for stream in self._untold if stream in self.versions})
        self._untold.clear()
        self._advance(self.me, seq, now)
        self._untold.discard(self.me)
        self._edited_at = now
        self._keep(self.me, seq, edit)
        return Updates(self.me, self.doc, seq, (edit,))

    def heard(self, updates: Updates, via: Stream | None, now: float) -> str | None:
        """Edits came. Returns why, if nobody can have made them; nothing of them is then taken."""
        stream = updates.stream
        last = updates.first + len(updates.edits) - 1
        if stream == self.me:
            if last <= self.versions.get(stream, 0):
                self.counts.duplicates += len(updates.edits)
                return None
            self.counts.refused += len(updates.edits)
            return "it speaks for us"
        mine = self.versions.get(self.me, 0)
        if any(edit.deps.get(self.me, 0) > mine for edit in updates.edits):
            self.counts.refused += len(updates.edits)
            return "it depends on what we have not written"
        if vectors.is_old(stream, self.versions):
            self.counts.old += len(updates.edits)
            self._too_old = True
            return None
        for peer in {via, stream}:
            if peer is not None and (known := self._peers.get(peer)) is not None:
                known.claims[stream] = max(known.claims.get(stream, 0), last)
                if peer == stream:  # who wrote it had what it depends on
                    for edit in updates.edits:
                        known.claim(edit.deps)
        self._exists(stream, last)
        for seq, edit in enumerate(updates.edits, updates.first):
            self._take(stream, seq, edit, via, now)
        return None

    def beat(self, sender: Stream, beat: DocBeat, now: float) -> None:
        """A peer says what it has. It has to be known by `joined`."""
        peer = self._peers.get(sender)
        if peer is None:
            return
        peer.versions, peer.content = beat.versions, beat.content
        for stream, seq in beat.heads.items():
            if stream == self.me:
                seq = min(seq, self.versions.get(stream, 0))  # more nobody can have
            if seq > peer.claims.get(stream, 0):
                peer.claim({stream: seq})
                if not vectors.is_old(stream, self.versions):
                    self._exists(stream, seq)
        if beat.versions is not None and beat.versions == self._digest and beat.content == self._content:
            self.met = True

    def joined(self, peer: Stream, askable: bool) -> None:
        """`peer` is there, or can be asked now, or no longer."""
        known = self._peers.get(peer)
        if known is None:
            self._peers[peer] = _Peer(askable)
        else:
            known.askable = askable

    def left(self, peer: Stream) -> None:
        """`peer` has gone; what only it knew of is not waited for."""
        if self._peers.pop(peer, None) is not None:
            if self._wanted_from == peer:
                self._wanted_from = None
            self._recount()

    def answered(self, peer: Stream, now: float, *, rest: bool = False) -> None:
        """`peer` answered an AskEdits, and all it sent was `heard`. `rest`: some it does not keep any more."""
        known = self._peers.get(peer)
        if known is None or known.asked_at is None:
            return
        self._round_trips.measured(peer, now - known.asked_at)
        known.asked_at, known.failures = None, 0
        if rest:
            for gap in self._gaps.values():
                gap.tries += 2  # enough for asking by AskAll

    def failed(self, peer: Stream, now: float) -> None:
        """A question to `peer` was not answered, or not with what was asked for."""
        known = self._peers.get(peer)
        if known is not None:
            known.asked_at = None
            known.failures = min(known.failures + 1, 6)
            known.not_before = now + self._round_trips.patience(peer) * 2**known.failures
        if self._wanted_from == peer:
            self._wanted_from = None
            self._want_failures = min(self._want_failures + 1, 6)
            self._want_due = now + 0.05 * 2**self._want_failures * self._rng.uniform(0.7, 1.3)

    def merged(self, peer: Stream, versions: Mapping[Stream, int], now: float, *, changed: bool) -> None:
        """An update of `peer` is in the document, which has now all of `versions`. `changed`: it brought something."""
        known = self._peers.get(peer)
        grown = False
        for stream, seq in versions.items():
            if stream == self.me or seq <= self.versions.get(stream, 0):
                continue
            if vectors.is_old(stream, self.versions):
                continue
            grown = True
            self._advance(stream, seq, now)
            for late in [number for number in self._held.get(stream, ()) if number <= seq]:
                self._release(stream, late)
        vectors.prune(self.versions)
        if changed:
            self._changed(now)
        self.met = True
        if self._wanted_from == peer:
            self._wanted_from = None
            self._want_failures = 0 if grown or changed else min(self._want_failures + 1, 6)
            self._want_due = now + (0.0 if grown or changed else 0.05 * 2**self._want_failures)
        if known is not None:
            if known.asked_at is not None:
                self._round_trips.measured(peer, now - known.asked_at)
            known.asked_at, known.failures = None, 0
            known.claims = dict(versions)
            if not (grown or changed):
                known.fruitless = self.digest(), known.versions
        self._too_old = False
        self._recount()
        self._settle(now)

    def offered(self, peer: Stream, versions: Mapping[Stream, int], now: float) -> None:
        """`peer` took what we gave, and says what it has now."""
        known = self._peers.get(peer)
        if known is not None:
            known.asked_at, known.failures = None, 0
            known.claims = vectors.merge(known.claims, versions)

    def asked(self, peer: Stream, versions: Mapping[Stream, int]) -> None:
        """`peer` asked for all it lacks, and so told what it has."""
        known = self._peers.get(peer)
        if known is not None:
            known.claims = {stream: seq for stream, seq in versions.items() if stream != self.me}
            known.claims[self.me] = min(versions.get(self.me, 0), self.versions.get(self.me, 0))
            for stream, seq in known.claims.items():
                if not vectors.is_old(stream, self.versions):
                    self._exists(stream, seq)

    def settled(self, content: bytes) -> None:
        """The digest of the content as it is now."""
        self._content = content

    # ------------------------------------------------------------------ what others ask

    def edits(self, ranges: Iterable[Range]) -> tuple[tuple[Updates, ...], bool]:
        """What the log has of `ranges`, up to about one message's worth; whether some of it is not there."""
        found: list[Updates] = []
        size, rest = 0, False
        for one in ranges:
            run: list[Edit] = []
            first = one.first
            end = min(one.last, self.versions.get(one.stream, 0))
            rest = rest or end < one.last
            for seq in range(max(first, end - self.settings.log_edits + 1), end + 1):
                edit = self._log.get((one.stream, seq))
                if edit is None or size > BUS_LIMIT:
                    rest = True
                    if run:
                        found.append(Updates(one.stream, self.doc, first, tuple(run)))
                    run = []
                else:
                    if not run:
                        first = seq
                    run.append(edit)
                    size += len(edit.payload) + 20 * len(edit.deps)
                    if len(run) == EDITS:
                        found.append(Updates(one.stream, self.doc, first, tuple(run)))
                        run = []
            if run:
                found.append(Updates(one.stream, self.doc, first, tuple(run)))
        return tuple(found), rest

    def doc_beat(self, now: float) -> DocBeat:
        """What to say of this document in a beat."""
        if self.is_quiet(now) and self._content is not None:
            return DocBeat(self.doc, self.digest(), self._content, {})
        heads: Versions = {}
        for stream, at in reversed(self._recent.items()):
            if len(heads) == HEADS or now - at > RECENT:
                break
            heads[stream] = self.versions[stream]
        # the others in turn: a partition may have kept anything from anybody, however long ago
        streams = list(self.versions)
        for _ in range(min(HEADS - len(heads), len(streams))):
            self._turn = (self._turn + 1) % len(streams)
            heads[streams[self._turn]] = self.versions[streams[self._turn]]
        return DocBeat(self.doc, None, None, heads)

    def digest(self) -> bytes:
        """Of the versions."""
        if self._digest is None:
            self._digest = vectors.digest(self.versions)
        return self._digest

    def is_quiet(self, now: float) -> bool:
        """Whether nothing changed lately, and nothing is known to be missing."""
        return now - self._changed_at >= self.settings.quiet and not self._gaps

    @property
    def held(self) -> int:
        """Edits that wait for others."""
        return self._held_edits

    @property
    def missing(self) -> int:
        """Edits known to exist, and not here."""
        return sum(self._lacking(stream) for stream in self._heads)

    # ------------------------------------------------------------------ what to do

    def evaluate(self, now: float) -> Decisions:
        """Everything that follows from what is known. The invariants are in this file's first lines."""
        deliver, self._deliver = self._deliver, []
        asks: list[Ask] = []
        wakes = [NEVER]
        wakes += self._mind_gaps(now, asks)
        look = False
        if self.is_quiet(now):
            look = self._content is None
            wakes += self._compare(now, asks)
        elif not self._gaps:
            wakes.append(self._changed_at + self.settings.quiet)
        if not self.askable:
            wakes += self._mind_offers(now, asks)
        return Decisions(deliver, asks, look, min(wakes))

    def _mind_gaps(self, now: float, asks: list[Ask]) -> Iterator[float]:
        lacking = 0
        runs = 0
        due: list[tuple[Stream, list[Range]]] = []
        desperate = self._too_old
        for stream in [stream for stream in self._heads if self._lacking(stream)]:
            missing = self._lacking(stream)
            here = self.versions.get(stream, 0)
            gap = self._gaps.get(stream)
            if gap is None:
                gap = self._gaps[stream] = _Gap(now + self.settings.order, here)
                self.counts.gaps += 1
            elif gap.at != here:
                gap.at, gap.tries = here, 0
            lacking += missing
            ranges = list(self._ranges(stream))
            runs += len(ranges)
            desperate = desperate or gap.tries >= 3
            if gap.due > now:
                yield gap.due
            else:
                due.append((stream, ranges))
        for stream in [stream for stream in self._gaps if not self._lacking(stream)]:
            del self._gaps[stream]
        if self._wanted_from is not None:
            return  # all will come at once
        if lacking > self.settings.few or runs > RANGES or (desperate and (due or self._too_old)):
            yield from self._ask_all(self._who_has(stream for stream, _ in due), now, asks)
        elif due:
            yield from self._ask_edits(due, now, asks)

    def _ask_edits(self, due: list[tuple[Stream, list[Range]]], now: float, asks: list[Ask]) -> Iterator[float]:
        chosen: dict[Stream, list[Range]] = {}
        for stream, ranges in due:
            first, last = ranges[0].first, ranges[-1].last
            knowing = [(name, peer) for name, peer in self._peers.items() if peer.claims.get(stream, 0) >= first]
            able = [(name, peer) for name, peer in knowing if peer.askable]
            free = [name for name, peer in able if peer.asked_at is None and peer.not_before <= now]
            if not free:
                if able:  # an answer, or its failure, brings us back
                    yield from (peer.not_before for _, peer in able if peer.asked_at is None)
                else:  # whoever says so comes first; if nobody does, all are asked some day (`desperate`)
                    yield self._put_off(stream, UNKNOWN, now)
                continue
            best = [name for name in free if self._peers[name].claims[stream] >= last] or free
            name = next((name for name in best if name in chosen), None) or self._rng.choice(best)
            chosen.setdefault(name, []).extend(ranges)
            yield self._put_off(stream, self._round_trips.patience(name), now)
        for name, wanted in chosen.items():
            self._begin(name, now)
            asks.append(AskEdits(name, tuple(wanted[:RANGES])))

    def _put_off(self, stream: Stream, patience: float, now: float) -> float:
        """When to ask for it again, if nothing comes."""
        gap = self._gaps[stream]
        gap.tries += 1
        gap.due = now + patience * min(2.0 ** (gap.tries - 1), 16.0)
        return gap.due

    def _who_has(self, streams: Iterable[Stream]) -> list[Stream]:
        """Peers that have something that we lack; all, if nobody says so."""
        wanted = list(streams) or list(self._gaps)
        found = [
            name
            for name, peer in self._peers.items()
            if any(peer.claims.get(stream, 0) > self.versions.get(stream, 0) for stream in wanted)
        ]
        return found or list(self._peers)

    def _ask_all(self, names: list[Stream], now: float, asks: list[Ask], whole: bool = False) -> Iterator[float]:
        able = [name for name in names if self._peers[name].askable]
        free = [name for name in able if self._peers[name].asked_at is None and self._peers[name].not_before <= now]
        if not free:
            yield from (self._peers[name].not_before for name in able if self._peers[name].asked_at is None)
        elif self._want_due > now:
            yield self._want_due
        else:
            name = self._rng.choice(free)
            self._wanted_from = name
            self._begin(name, now)
            asks.append(AskAll(name, whole))

    def _begin(self, name: Stream, now: float) -> None:
        self._peers[name].asked_at = now

    def _compare(self, now: float, asks: list[Ask]) -> Iterator[float]:
        if self._wanted_from is not None:
            return
        ours = self.digest()
        unlike, differing = [], []
        for name, peer in self._peers.items():
            if peer.versions is None:
                continue
            if peer.versions != ours:
                if peer.fruitless != (ours, peer.versions):
                    unlike.append(name)
            elif peer.content is not None and self._content is not None:
                if peer.content == self._content:
                    self.met = True
                else:
                    differing.append(name)
        if unlike:
            yield from self._ask_all(unlike, now, asks)
        elif differing:
            before = len(asks)
            yield from self._ask_all(differing, now, asks, whole=True)
            self.counts.differed += len(asks) - before

    def _mind_offers(self, now: float, asks: list[Ask]) -> Iterator[float]:
        due = self._edited_at + 2 * self.settings.order
        for name, peer in self._peers.items():
            if not peer.askable or vectors.covers(peer.claims, self.versions):
                continue
            again = max(due + self._round_trips.patience(name), peer.not_before)
            if again > now:
                yield again
            elif peer.asked_at is None and peer.offered != self.versions:
                peer.offered = dict(self.versions)
                self._begin(name, now)
                asks.append(Offer(name))

    # ------------------------------------------------------------------ what is known

    def _exists(self, stream: Stream, seq: int) -> None:
        if seq > self._heads.get(stream, 0):
            if stream not in self._heads and len(self._heads) >= 2 * vectors.STREAMS:
                self._too_old = True  # somebody makes up streams, or has very many: one answer will tell
            else:
                self._heads[stream] = seq

    def _lacking(self, stream: Stream) -> int:
        """Edits of `stream` that exist and are not here."""
        return max(0, self._heads.get(stream, 0) - self.versions.get(stream, 0) - len(self._held.get(stream, ())))

    def _ranges(self, stream: Stream) -> Iterator[Range]:
        """What is missing of `stream`, from the first on."""
        here = self.versions.get(stream, 0)
        for seq in sorted(self._held.get(stream, ())):
            if seq > here + 1:
                yield Range(stream, here + 1, seq - 1)
            here = seq
        if here < self._heads.get(stream, 0):
            yield Range(stream, here + 1, min(self._heads[stream], here + FARTHEST))

    def _recount(self) -> None:
        """What exists, from those who are there now: claims end with who made them."""
        heads = dict(self.versions)
        known = [peer.claims for peer in self._peers.values()]
        held = [edit.deps for edits in self._held.values() for edit, _ in edits.values()]
        held += [{stream: max(edits)} for stream, edits in self._held.items()]
        for stream, seq in itertools.chain.from_iterable(claims.items() for claims in [*known, *held]):
            if seq > heads.get(stream, 0) and stream != self.me and not vectors.is_old(stream, self.versions):
                heads[stream] = seq
        self._heads = heads

    def _take(self, stream: Stream, seq: int, edit: Edit, via: Stream | None, now: float) -> None:
        """An edit came: deliver it, hold it back, or know it already."""
        here = self.versions.get(stream, 0)
        held = self._held.get(stream)
        if seq <= here or (held is not None and seq in held):
            self.counts.duplicates += 1
            return
        if seq == here + 1 and self._satisfied(edit):
            self._hand_over(stream, seq, edit, via, now)
            if self._held:
                self._settle(now)
            return
        size = len(edit.payload)
        if (
            self._held_edits >= self.settings.held_edits
            or self._held_bytes + size > self.settings.held_bytes
            or len(self._held) >= vectors.STREAMS
        ):
            self.counts.overflow += 1  # it is asked for again, by AskAll at the latest
            return
        self._held.setdefault(stream, {})[seq] = edit, via
        self._held_edits += 1
        self._held_bytes += size
        self.counts.held += 1
        for other, needed in edit.deps.items():
            if other != self.me and not vectors.is_old(other, self.versions):
                self._exists(other, needed)

    def _settle(self, now: float) -> None:
        """Deliver all held edits whose time has come."""
        progress = True
        while progress:
            progress = False
            for stream in list(self._held):
                while (held := self._held.get(stream)) and (found := held.get(self.versions.get(stream, 0) + 1)):
                    edit, via = found
                    if not self._satisfied(edit):
                        break
                    seq = self.versions.get(stream, 0) + 1
                    self._release(stream, seq)
                    self._hand_over(stream, seq, edit, via, now)
                    progress = True

    def _satisfied(self, edit: Edit) -> bool:
        return all(
            self.versions.get(stream, 0) >= seq or vectors.is_old(stream, self.versions)
            for stream, seq in edit.deps.items()
        )

    def _hand_over(self, stream: Stream, seq: int, edit: Edit, via: Stream | None, now: float) -> None:
        self._advance(stream, seq, now)
        self._keep(stream, seq, edit)
        self.counts.delivered += 1
        self._deliver.append(Deliver(stream, seq, edit, via))

    def _release(self, stream: Stream, seq: int) -> None:
        edit, _ = self._held[stream].pop(seq)
        if not self._held[stream]:
            del self._held[stream]
        self._held_edits -= 1
        self._held_bytes -= len(edit.payload)

    def _advance(self, stream: Stream, seq: int, now: float) -> None:
        new = stream not in self.versions
        self.versions[stream] = seq
        self._exists(stream, seq)
        self._untold.add(stream)
        self._recent[stream] = now
        self._recent.move_to_end(stream)
        if new:
            vectors.prune(self.versions)
        while len(self._recent) > HEADS or next(iter(self._recent)) not in self.versions:
            self._recent.popitem(last=False)
        self._changed(now)

    def _changed(self, now: float) -> None:
        self._changed_at = now
        self._digest = self._content = None

    def _keep(self, stream: Stream, seq: int, edit: Edit) -> None:
        """In the log, from which others are answered."""
        self._log[stream, seq] = edit
        self._log_bytes += len(edit.payload)
        while len(self._log) > self.settings.log_edits or self._log_bytes > self.settings.log_bytes:
            _, gone = self._log.popitem(last=False)
            self._log_bytes -= len(gone.payload)
