"""State of one document at one peer: what is known of the document and of other peers. Pure.

Events change it: edits, heartbeats, replies, peers that come and go. It decides nothing; `replica.py` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from nngkit.documents.sync.decisions import NEVER, Gap, PeerState
from nngkit.documents.sync.history import Counts, Deliver, History, Settings
from nngkit.documents.sync.messages import DocumentHeartbeat, Range, Updates
from nngkit.documents.sync.timing import RoundTrips
from nngkit.documents.versions import Edit, EditStream, Versions

__all__ = ["Chance", "ReplicaState"]

LATE: Final = 2.0  # seconds after which a peer that does not answer is judged by its heartbeats
T = TypeVar("T")


class Chance(Protocol):
    """What it needs of a random.Random, which is not imported here: chance comes from outside, as time does."""

    def choice(self, seq: Sequence[T]) -> T:
        """One of them."""

    def uniform(self, a: float, b: float) -> float:
        """A number from `a` to `b`."""


class ReplicaState:
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
        self._snapshot_source: EditStream | None = None  # who said what is too old to have a number
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
            self.history.needs_snapshot = True
            self._snapshot_source = via if via is not None else stream
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

    def receive_heartbeat(self, sender: EditStream, heartbeat: DocumentHeartbeat, now: float) -> None:
        """A peer says what it has. It has to be known by `joined`."""
        peer = self._peers.get(sender)
        if peer is None:
            return
        peer.reported = True
        peer.versions, peer.content, peer.reported_at = heartbeat.versions, heartbeat.content, now
        if peer.absent:
            peer.absent, peer.failures, peer.not_before = False, 0, now
        for stream, seq in heartbeat.heads.items():
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
        grown = self.history.merged(versions, now)
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
            known.caught_up_at = known.all_asked_at

    def unknown_document(self, peer: EditStream, now: float) -> None:
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
            self._claim(known, versions)
            if known.claims != before:
                known.offered = None  # what is left can be next

    def asked(self, peer: EditStream, versions: Mapping[EditStream, int]) -> None:
        """`peer` asked for all it lacks, and so told what it has."""
        known = self._peers.get(peer)
        if known is not None:
            known.reported = True
            self._claim(known, versions)

    def _claim(self, peer: PeerState, versions: Mapping[EditStream, int]) -> None:
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

    def catch_up_status(self, since: float, now: float) -> list[bool | None]:
        """For each peer that is there: True if all that it had at `since` is here, False if it has no such document,
        None if it has yet to say.
        """
        return [self._peer_status(peer, since, now) for peer in self._peers.values()]

    def _peer_status(self, peer: PeerState, since: float, now: float) -> bool | None:
        if peer.absent:
            return False
        if peer.caught_up_at >= since:
            return True
        if peer.askable and not peer.failures and (peer.asked_at is None or now < peer.asked_at + LATE):
            return None
        # it cannot be asked, or does not answer: what it says on the BUS has to do
        if not peer.reported:
            return None if peer.asked_at is not None else False
        agrees = peer.versions is None or peer.versions == self.history.digest()
        return True if peer.reported_at > since and agrees and self.has(peer.claims) else None

    # ------------------------------------------------------------------ what others ask

    def make_heartbeat(self, now: float) -> DocumentHeartbeat:
        """What to say of this document in a heartbeat."""
        if self.is_quiet(now) and (content := self._our_content()) is not None:
            return DocumentHeartbeat(self.doc, self.history.digest(), content, {})
        return DocumentHeartbeat(self.doc, None, None, self.history.recent_heads(now))

    def resend(self, ranges: Iterable[Range]) -> tuple[tuple[Updates, ...], bool]:
        """What of `ranges` is kept; whether some is not."""
        return self.history.resend(ranges)

    def missing_at_peer(self, peer: EditStream, size: int, many: int) -> tuple[list[bytes], Versions, Versions]:
        """Edits that `peer` lacks as far as it said, in causal order, what they bring, what they need: see History."""
        known = self._peers.get(peer)
        return self.history.edits_missing_at({} if known is None else known.claims, size=size, many=many)

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
