"""One document at one peer: which edits are in it, which are missing, and who is asked for them. Pure.

Every outside event changes what is known, and then one function, `evaluate`, says what is to be done; it alone decides.
It knows no clock (`now` is given, in seconds), no socket, and nothing of what an edit means: whoever holds it applies
what is delivered, in that order, sends the questions, and tells how they went::

    replica.heard(updates, via, now)       edits came: by BUS, or as an answer (`via`: from which peer, None if unknown)
    replica.beat(sender, doc_beat, now)    what a peer says that it has
    replica.edited(payload, now)           we edited: gives what to tell everybody
    replica.ready()                        -> edits to apply now, after each of these
    replica.catch_up(now)                  somebody waits for all that others have now: `standing` says how far it is
    replica.evaluate(now)                  -> whom to ask what, when to look again

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
6. While something is missing or was changed within `quiet` (or two of the slowest answers), no digest is compared.

Which question: a few missing edits are asked for by number (`AskEdits`) from a random peer that says it has them, so
that one popular author is not asked by everybody; many, or those nobody keeps any more, by `AskAll`, which brings one
update with all that is lacking. An answer that is late is asked for elsewhere, ever later with each failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from nngkit.documents import versions as vectors
from nngkit.documents.sync.decisions import NEVER, Ask, AskAll, AskEdits, Decisions, Gap, Offer, PeerState
from nngkit.documents.sync.history import Counts, Deliver, History, Settings
from nngkit.documents.sync.messages import RANGES, DocumentHeartbeat, Range, Updates
from nngkit.documents.sync.timing import UNKNOWN, RoundTrips
from nngkit.documents.versions import Edit, EditStream, Versions

__all__ = ["Ask", "AskAll", "AskEdits", "Counts", "Decisions", "Deliver", "Offer", "Replica", "Settings"]

LATE: Final = 2.0  # seconds after which a peer that does not answer counts by what it says on the BUS
T = TypeVar("T")


class Chance(Protocol):
    """What it needs of a random.Random, which is not imported here: chance comes from outside, as time does."""

    def choice(self, seq: Sequence[T]) -> T:
        """One of them."""

    def uniform(self, a: float, b: float) -> float:
        """A number from `a` to `b`."""


class Replica:
    """One document's state; `me` is our stream, `versions` and `log` what a store had of it.

    `askable`: whether the others can ask us. `round_trips` may be shared by all documents of a peer.
    """

    def __init__(
        self,
        doc: str,
        me: EditStream,
        *,
        rng: Chance,
        settings: Settings | None = None,
        versions: Mapping[EditStream, int] | None = None,
        log: Iterable[tuple[EditStream, int, Edit]] = (),
        askable: bool = True,
        round_trips: RoundTrips | None = None,
    ) -> None:
        self.doc = doc
        self.me = me
        self.settings = settings or Settings()
        self.history = History(doc, me, self.settings, versions or {}, log)
        self.askable = askable
        self._rng = rng
        self._round_trips = round_trips or RoundTrips()
        self._peers: dict[EditStream, PeerState] = {}
        self._gaps: dict[EditStream, Gap] = {}
        self._edited_at = -NEVER
        self._content: tuple[int, bytes] | None = None  # the content's digest after so many changes
        self._wanted_from: EditStream | None = None
        self._want_due = 0.0
        self._want_failures = 0
        self._beyond_at: EditStream | None = None  # who said what is too old to have a number
        self._catching: list[float] = []  # when each of those who wait in `joined` began

    @property
    def versions(self) -> Versions:
        """What is here."""
        return self.history.versions

    @property
    def counts(self) -> Counts:
        """The counters."""
        return self.history.counts

    # ------------------------------------------------------------------ what happens

    def edited(self, payload: bytes, now: float) -> Updates:
        """We edited: what to tell everybody, and to put on disk."""
        self._edited_at = now
        return self.history.edited(payload, now)

    def heard(self, updates: Updates, via: EditStream | None, now: float) -> str | None:
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
        if self.history.is_old(stream):
            self.counts.old += len(updates.edits)
            self.history.beyond = True
            self._beyond_at = via if via is not None else stream
            return None
        for peer in {via, stream}:
            if peer is not None and (known := self._peers.get(peer)) is not None:
                known.claim({stream: last})
                if peer == stream:  # who wrote it had what it depends on
                    for edit in updates.edits:
                        known.claim(edit.deps)
        self.history.exists(stream, last)
        for seq, edit in enumerate(updates.edits, updates.first):
            self.history.take(stream, seq, edit, via, now)
        return None

    def beat(self, sender: EditStream, beat: DocumentHeartbeat, now: float) -> None:
        """A peer says what it has. It has to be known by `joined`."""
        peer = self._peers.get(sender)
        if peer is None:
            return
        peer.spoke = True
        peer.versions, peer.content, peer.told_at = beat.versions, beat.content, now
        if peer.absent:
            peer.absent, peer.failures, peer.not_before = False, 0, now
        for stream, seq in beat.heads.items():
            if seq <= peer.claims.get(stream, 0):
                continue  # as it is of nearly all of them: beats are many, and repeat what was said
            seq = self._possible(stream, seq)
            if seq > peer.claims.get(stream, 0):
                peer.claim({stream: seq})
                self.history.exists(stream, seq)

    def _possible(self, stream: EditStream, seq: int) -> int:
        """Of our own stream nobody can have more than we have written."""
        return min(seq, self.versions.get(stream, 0)) if stream == self.me else seq

    def joined(self, peer: EditStream, askable: bool) -> None:
        """`peer` is there, or can be asked now, or no longer."""
        known = self._peers.get(peer)
        if known is None:
            self._peers[peer] = PeerState(askable)
        else:
            known.askable = askable

    def left(self, peer: EditStream) -> None:
        """`peer` has gone; what only it knew of is not waited for."""
        if self._peers.pop(peer, None) is not None:
            if self._wanted_from == peer:
                self._wanted_from = None
            self.history.recount([known.claims for known in self._peers.values()])

    def answered(self, peer: EditStream, now: float, *, rest: bool = False) -> None:
        """`peer` answered an AskEdits, and all it sent was `heard`. `rest`: some it does not keep any more."""
        known = self._peers.get(peer)
        if known is None or known.asked_at is None:
            return
        self._round_trips.measured(peer, now - known.asked_at)
        known.asked_at, known.failures = None, 0
        if rest:
            for gap in self._gaps.values():  # unless what came went some way
                gap.lost = True
                gap.due = min(gap.due, now)

    def failed(self, peer: EditStream, now: float) -> None:
        """A question to `peer` was not answered, or not with what was asked for."""
        known = self._peers.get(peer)
        if known is not None:
            known.asked_at = None
            known.offered = None  # it may not have come
            known.failures = min(known.failures + 1, 6)
            known.not_before = now + self._round_trips.patience(peer) * 2**known.failures
        if self._wanted_from == peer:
            self._wanted_from = None
            self._want_failures = min(self._want_failures + 1, 6)
            self._want_due = now + 0.05 * 2**self._want_failures * self._rng.uniform(0.7, 1.3)

    def merged(self, peer: EditStream, versions: Mapping[EditStream, int], now: float, *, changed: bool) -> None:
        """An update of `peer` is in the document, which has now all of `versions`. `changed`: it brought something."""
        known = self._peers.get(peer)
        grown = self.history.covers(versions, now)
        if changed:
            self.history.changed(now)
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
                known.fruitless = self.history.digest(), known.versions
        self.history.recount([other.claims for other in self._peers.values()])
        self.history.settle(now)

    def caught_up(self, peer: EditStream) -> None:
        """The answer of `peer` to an AskAll is merged: all that it had when it was asked is here."""
        known = self._peers.get(peer)
        if known is not None:
            known.caught = known.all_asked_at

    def lacking(self, peer: EditStream, now: float) -> None:
        """`peer` answered an AskAll: it has no such document. Until it speaks of it, it counts as having nothing."""
        known = self._peers.get(peer)
        if known is not None:
            known.absent, known.asked_at = True, None
            known.failures = min(known.failures + 1, 6)
            known.not_before = now + self._round_trips.patience(peer) * 2**known.failures
        if self._wanted_from == peer:
            self._wanted_from = None

    def offered(self, peer: EditStream, versions: Mapping[EditStream, int], now: float) -> None:
        """`peer` took what we gave, and says what it has now."""
        known = self._peers.get(peer)
        if known is not None:
            known.asked_at, known.failures = None, 0
            before = dict(known.claims)
            self._told(known, versions)
            if known.claims != before:
                known.offered = None  # what is left can be next

    def asked(self, peer: EditStream, versions: Mapping[EditStream, int]) -> None:
        """`peer` asked for all it lacks, and so told what it has."""
        known = self._peers.get(peer)
        if known is not None:
            known.spoke = True
            self._told(known, versions)

    def _told(self, peer: PeerState, versions: Mapping[EditStream, int]) -> None:
        """It says in so many words what it has."""
        peer.claim({stream: self._possible(stream, seq) for stream, seq in versions.items()})
        for stream, seq in peer.claims.items():
            self.history.exists(stream, seq)

    def settled(self, content: bytes) -> None:
        """The digest of the content as it is now."""
        self._content = self.history.changes, content

    # ------------------------------------------------------------------ catching up

    def catch_up(self, now: float) -> float:
        """Begin to bring in all that any peer has at `now`; the number for `standing` and `catch_up_ended`."""
        self._catching.append(now)
        return now

    def catch_up_ended(self, since: float) -> None:
        """Nobody waits for that any more."""
        self._catching.remove(since)

    def standing(self, since: float, now: float) -> list[bool | None]:
        """For each peer that is there: True if all that it had at `since` is here, False if it has no such document,
        None if it has yet to say.
        """
        return [self._standing(peer, since, now) for peer in self._peers.values()]

    def _standing(self, peer: PeerState, since: float, now: float) -> bool | None:
        if peer.absent:
            return False
        if peer.caught >= since:
            return True
        if peer.askable and not peer.failures and (peer.asked_at is None or now < peer.asked_at + LATE):
            return None
        # it cannot be asked, or does not answer: what it says on the BUS has to do
        if not peer.spoke:
            return None if peer.asked_at is not None else False
        agrees = peer.versions is None or peer.versions == self.history.digest()
        return True if peer.told_at > since and agrees and self.has(peer.claims) else None

    def _mind_catching_up(self, now: float, asks: list[Ask]) -> Iterator[float]:
        """Beats say little while somebody edits, so each is asked, one after the other: the first brings the most."""
        since = max(self._catching)
        for name, peer in self._peers.items():
            if not peer.askable or self._standing(peer, since, now) is not None:
                continue
            if peer.asked_at is not None:
                if peer.asked_at + LATE > now:
                    yield peer.asked_at + LATE
            elif peer.not_before > now:
                yield peer.not_before
            elif self._wanted_from is None:
                asks.append(self._all_from(name, now))

    # ------------------------------------------------------------------ what others ask

    def doc_beat(self, now: float) -> DocumentHeartbeat:
        """What to say of this document in a beat."""
        if self.is_quiet(now) and (content := self._our_content()) is not None:
            return DocumentHeartbeat(self.doc, self.history.digest(), content, {})
        return DocumentHeartbeat(self.doc, None, None, self.history.news(now))

    def resend(self, ranges: Iterable[Range]) -> tuple[tuple[Updates, ...], bool]:
        """What of `ranges` is kept; whether some is not."""
        return self.history.resend(ranges)

    def lacks(self, peer: EditStream, size: int, many: int) -> tuple[list[bytes], Versions, Versions]:
        """Edits that `peer` lacks as far as it said, in causal order, what they bring, what they need: see History."""
        known = self._peers.get(peer)
        return self.history.beyond_of({} if known is None else known.claims, size=size, many=many)

    def has(self, versions: Mapping[EditStream, int]) -> bool:
        """Whether all of `versions` is here, as far as it is not too old to be known."""
        return all(
            self.versions.get(stream, 0) >= seq or self.history.is_old(stream) for stream, seq in versions.items()
        )

    def _our_content(self) -> bytes | None:
        """The digest of the content, if it is known."""
        if self._content is None or self._content[0] != self.history.changes:
            return None
        return self._content[1]

    def is_quiet(self, now: float) -> bool:
        """Whether nothing changed lately, and nothing is known to be missing."""
        # as `evaluate` says when to come back; a difference would round otherwise, and be due for ever
        return now >= self.history.changed_at + self._quiet() and not self._gaps

    def _quiet(self) -> float:
        """Seconds within which all that was said has been heard: longer where the network, or a machine, is slow."""
        return max(self.settings.quiet, 2 * self._round_trips.slowest())

    @property
    def held(self) -> int:
        """Edits that wait for others."""
        return self.history.held_edits

    @property
    def missing(self) -> int:
        """Edits known to exist, and not here."""
        return sum(self.history.incomplete().values())

    # ------------------------------------------------------------------ what to do

    def ready(self) -> list[Deliver]:
        """What is to be applied now, in this order. It counts as here: apply it before anybody is told so."""
        ready, self.history.ready = self.history.ready, []
        return ready

    def evaluate(self, now: float) -> Decisions:
        """Everything that follows from what is known. The invariants are in this file's first lines."""
        asks: list[Ask] = []
        wakes = [NEVER]
        wakes += self._mind_gaps(now, asks)
        look = False
        if self.is_quiet(now):
            look = self._our_content() is None
            wakes += self._compare(now, asks)
        elif not self._gaps:
            wakes.append(self.history.changed_at + self._quiet())
        if self._catching:
            wakes += self._mind_catching_up(now, asks)
        if not self.askable:
            wakes += self._mind_offers(now, asks)
        return Decisions(asks, look, min(wakes))

    def _mind_gaps(self, now: float, asks: list[Ask]) -> Iterator[float]:
        lacking = 0
        runs = 0
        due: list[tuple[EditStream, list[Range]]] = []
        desperate = self.history.beyond
        incomplete = self.history.incomplete()
        for stream, missing in incomplete.items():
            here = self.versions.get(stream, 0)
            gap = self._gaps.get(stream)
            if gap is None:
                # by another way it may still come; on a busy machine everything does later
                order = max(self.settings.order, self._round_trips.slowest() / 4)
                gap = self._gaps[stream] = Gap(now + order, here)
                self.counts.gaps += 1
            elif gap.at != here:
                gap.at, gap.tries, gap.lost = here, 0, False
                if gap.peer not in self._peers or self._peers[gap.peer].asked_at is None:
                    gap.due = min(gap.due, now + self.settings.order)  # that was answered; this is another gap
            desperate = desperate or gap.lost
            if gap.due > now:
                yield gap.due
                continue
            due.append((stream, list(self.history.ranges(stream))))
            runs += len(due[-1][1])
            lacking += missing
        for stream in self._gaps.keys() - incomplete.keys():
            del self._gaps[stream]
        if self._wanted_from is not None:
            return  # all will come at once
        if lacking > self.settings.few or runs > RANGES or (desperate and (due or self.history.beyond)):
            yield from self._ask_all(self._who_has(stream for stream, _ in due), now, asks)
            if self._wanted_from is None:  # it has to wait: what is small does not, whoever claims what is large
                due = [(stream, ranges) for stream, ranges in due if self.history.lacking(stream) <= self.settings.few]
                yield from self._ask_edits(due, now, asks)
        elif due:
            yield from self._ask_edits(due, now, asks)

    def _ask_edits(self, due: list[tuple[EditStream, list[Range]]], now: float, asks: list[Ask]) -> Iterator[float]:
        chosen: dict[EditStream, list[Range]] = {}
        for stream, ranges in due:
            first, last = ranges[0].first, ranges[-1].last
            knowing = [(name, peer) for name, peer in self._peers.items() if peer.claims.get(stream, 0) >= first]
            able = [(name, peer) for name, peer in knowing if peer.askable]
            free = [name for name, peer in able if peer.asked_at is None and peer.not_before <= now]
            if not free:
                if able:  # an answer, or its failure, brings us back
                    yield from (peer.not_before for _, peer in able if peer.asked_at is None)
                else:  # a beat may tell soon who has them
                    yield self._put_off(stream, UNKNOWN, now)
                    self._gaps[stream].lost = self._gaps[stream].tries >= 3
                continue
            best = [name for name in free if self._peers[name].claims[stream] >= last] or free
            name = next((name for name in best if name in chosen), None) or self._rng.choice(best)
            has = self._peers[name].claims[stream]
            wanted = [Range(stream, one.first, min(one.last, has)) for one in ranges if one.first <= has]
            chosen.setdefault(name, []).extend(wanted)
            self._gaps[stream].peer = name
            yield self._put_off(stream, self._round_trips.patience(name), now)
        for name, all_wanted in chosen.items():
            self._begin(name, now)
            asks.append(AskEdits(name, tuple(all_wanted[:RANGES])))

    def _put_off(self, stream: EditStream, patience: float, now: float) -> float:
        """When to ask for it again, if nothing comes."""
        gap = self._gaps[stream]
        gap.tries += 1
        gap.due = now + patience * min(2.0 ** (gap.tries - 1), 16.0)
        return gap.due

    def _who_has(self, streams: Iterable[EditStream]) -> list[EditStream]:
        """Peers that can be asked and have something that we lack; all, if nobody says so."""
        wanted = list(streams) or list(self._gaps)
        able = [name for name, peer in self._peers.items() if peer.askable]
        found = [
            name
            for name in able
            if any(self._peers[name].claims.get(stream, 0) > self.versions.get(stream, 0) for stream in wanted)
        ]
        if not found and self.history.beyond and self._beyond_at in able:
            found = [self._beyond_at]
        return found or able

    def _ask_all(self, names: list[EditStream], now: float, asks: list[Ask], whole: bool = False) -> Iterator[float]:
        able = [name for name in names if self._peers[name].askable]
        free = [name for name in able if self._peers[name].asked_at is None and self._peers[name].not_before <= now]
        if not free:
            yield from (self._peers[name].not_before for name in able if self._peers[name].asked_at is None)
        elif self._want_due > now:
            yield self._want_due
        else:
            asks.append(self._all_from(self._rng.choice(free), now, whole))

    def _all_from(self, name: EditStream, now: float, whole: bool = False) -> AskAll:
        self._wanted_from = name
        self._peers[name].all_asked_at = now
        self._begin(name, now)
        return AskAll(name, whole)

    def _begin(self, name: EditStream, now: float) -> None:
        self._peers[name].asked_at = now

    def _compare(self, now: float, asks: list[Ask]) -> Iterator[float]:
        if self._wanted_from is not None:
            return
        ours, content = self.history.digest(), self._our_content()
        unlike, differing = [], []
        for name, peer in self._peers.items():
            if peer.versions is None or peer.told_at <= self.history.changed_at:
                continue  # it is being edited there, or what it said is older than what we have
            if peer.versions != ours:
                if peer.fruitless != (ours, peer.versions):
                    unlike.append(name)
            elif peer.content is not None and content is not None and peer.content != content:
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
            if not peer.askable or not peer.spoke or peer.versions == self.history.digest():
                continue
            if vectors.covers(peer.claims, self.history.told()):
                continue
            again = max(due + self._round_trips.patience(name), peer.not_before)
            if again > now:
                yield again
            elif peer.asked_at is None and peer.offered != self.versions:
                peer.offered = dict(self.versions)
                self._begin(name, now)
                asks.append(Offer(name, whole=peer.failures % 2 == 1))
