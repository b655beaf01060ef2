"""State of one document at one peer: what is known of the document and of other peers. Pure.

Events change it: edits, heartbeats, replies, peers that join and leave. It decides nothing; `replica.py` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from nngkit.chance import Chance
from nngkit.documents.sync.decisions import NEVER, Gap, PeerState
from nngkit.documents.sync.history import Counts, Deliver, History, Settings
from nngkit.documents.sync.messages import DocumentHeartbeat, Range, Updates
from nngkit.documents.sync.refused import RefusedEdit
from nngkit.documents.sync.timing import RoundTrips
from nngkit.documents.versions import Edit, EditStream, Versions

LATE: Final = 2.0  # seconds after which a peer that does not answer is judged by its heartbeats


class ReplicaState:
    """State of one document. `me`: our stream; `versions` and `log`: from the store.

    `askable`: we have a REP socket. `round_trips` may be shared by all documents of a peer.
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
        self._content: tuple[int, bytes] | None = None  # number of changes, and the content digest after them
        self._wanted_from: EditStream | None = None
        self._want_due = 0.0
        self._want_failures = 0
        self._snapshot_source: EditStream | None = None  # the peer that sent an edit too old for the vector
        self._catching: list[float] = []  # start of each pending `joined`
        self.refusals: dict[EditStream, RefusedEdit] = {}  # the first of our edits that each peer refuses

    @property
    def versions(self) -> Versions:
        """Versions of the delivered edits."""
        return self.history.versions

    @property
    def counts(self) -> Counts:
        """The counters."""
        return self.history.counts

    # ------------------------------------------------------------------ events

    def edited(self, payload: bytes, now: float) -> Updates:
        """Record a local edit; return the message to publish and to log."""
        self._edited_at = now
        return self.history.edited(payload, now)

    def heard(self, updates: Updates, via: EditStream | None, now: float) -> str | None:
        """Take received edits. Returns the reason if they are impossible; then none is taken."""
        stream = updates.stream
        last = updates.first + len(updates.edits) - 1
        if stream == self.me:
            if last <= self.versions.get(stream, 0):
                self.counts.duplicates += len(updates.edits)
                return None
            self.counts.refused += len(updates.edits)
            return "it claims to be this peer"
        mine = self.versions.get(self.me, 0)
        if any(edit.deps.get(self.me, 0) > mine for edit in updates.edits):
            self.counts.refused += len(updates.edits)
            return "it depends on edits of this peer that do not exist"
        if self.history.is_old(stream):
            self.counts.old += len(updates.edits)
            self.history.needs_snapshot = True
            self._snapshot_source = via if via is not None else stream
            return None
        for peer in {via, stream}:
            if peer is not None and (known := self._peers.get(peer)) is not None:
                known.claim({stream: last})
                if peer == stream:  # the author had the dependencies
                    for edit in updates.edits:
                        known.claim(edit.deps)
        self.history.exists(stream, last)
        for seq, edit in enumerate(updates.edits, updates.first):
            self.history.take(stream, seq, edit, via, now)
        return None

    def receive_heartbeat(self, sender: EditStream, heartbeat: DocumentHeartbeat, now: float) -> None:
        """Take the reported state of a peer that is known by `joined`."""
        peer = self._peers.get(sender)
        if peer is None:
            return
        peer.reported = True
        peer.versions, peer.content, peer.reported_at = heartbeat.versions, heartbeat.content, now
        if peer.absent:
            peer.absent, peer.failures, peer.not_before = False, 0, now
        for stream, seq in heartbeat.heads.items():
            if seq <= peer.claims.get(stream, 0):
                continue  # nearly always: heartbeats are frequent and repetitive
            seq = self._possible(stream, seq)
            if seq > peer.claims.get(stream, 0):
                peer.claim({stream: seq})
                if peer.gives:
                    self.history.exists(stream, seq)

    def _possible(self, stream: EditStream, seq: int) -> int:
        """Limit a claim about our own stream to what we have written."""
        return min(seq, self.versions.get(stream, 0)) if stream == self.me else seq

    def joined(self, peer: EditStream, askable: bool, *, gives: bool = True, carries: bool = True) -> None:
        """Record that `peer` is present, whether it can be asked, and what it may: see PeerState."""
        known = self._peers.get(peer)
        if known is None:
            known = self._peers[peer] = PeerState(askable, askable)
        known.askable = askable
        known.source = askable and gives
        known.carries = carries
        if gives is not known.gives:
            known.gives = gives
            self._recount()

    def left(self, peer: EditStream) -> None:
        """Record that `peer` has left; edits that only it had are not expected any more."""
        self.refusals.pop(peer, None)
        if self._peers.pop(peer, None) is not None:
            if self._wanted_from == peer:
                self._wanted_from = None
            self._recount()

    def answered(self, peer: EditStream, now: float, *, rest: bool = False) -> None:
        """Record the reply to an AskEdits, after all its edits were `heard`.

        `rest`: the peer does not keep some any more.
        """
        known = self._peers.get(peer)
        if known is None or known.asked_at is None:
            return
        self._round_trips.measured(peer, now - known.asked_at)
        known.asked_at, known.failures = None, 0
        if rest:
            for gap in self._gaps.values():  # until the stream advances
                gap.lost = True
                gap.due = min(gap.due, now)

    def failed(self, peer: EditStream, now: float) -> None:
        """Record that a request to `peer` failed, or its reply was useless."""
        known = self._peers.get(peer)
        if known is not None:
            known.asked_at = None
            known.offered = None  # it may not have arrived
            known.failures = min(known.failures + 1, 6)
            known.not_before = now + self._round_trips.patience(peer) * 2**known.failures
        if self._wanted_from == peer:
            self._wanted_from = None
            self._want_failures = min(self._want_failures + 1, 6)
            self._want_due = now + 0.05 * 2**self._want_failures * self._rng.uniform(0.7, 1.3)

    def content_refused(self, peer: EditStream, now: float) -> None:
        """Record that the content could not take an update of `peer`, which is asked again once either has changed."""
        self.failed(peer, now)
        if (known := self._peers.get(peer)) is not None:
            known.fruitless = self.history.digest(), known.versions

    def refuse(self, stream: EditStream, seq: int, why: str) -> bool:
        """Record that the content could not take an edit. Returns False if that was known."""
        return self.history.refuse(stream, seq, why)

    def refused_by(self, peer: EditStream, refused: RefusedEdit | None) -> bool:
        """Record the first of our edits that `peer` refuses, None: it refuses none. Returns True for a new refusal."""
        if refused is None:
            self.refusals.pop(peer, None)
            return False
        known = self.refusals.get(peer)
        self.refusals[peer] = refused
        return known is None or (known.stream, known.seq) != (refused.stream, refused.seq)

    def merged(self, peer: EditStream, versions: Mapping[EditStream, int], now: float, *, changed: bool) -> None:
        """Record that an update of `peer` with all of `versions` was applied. `changed`: it changed the content."""
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
        self._recount()
        self.history.settle(now)

    def caught_up(self, peer: EditStream) -> None:
        """Record that the reply of `peer` to an AskAll is applied: all edits that it had when asked were received."""
        known = self._peers.get(peer)
        if known is not None:
            known.caught_up_at = known.all_asked_at

    def unknown_document(self, peer: EditStream, now: float) -> None:
        """Record that `peer` does not have the document, as of its reply to an AskAll."""
        known = self._peers.get(peer)
        if known is not None:
            known.absent, known.asked_at = True, None
            known.failures = min(known.failures + 1, 6)
            known.not_before = now + self._round_trips.patience(peer) * 2**known.failures
        if self._wanted_from == peer:
            self._wanted_from = None

    def offered(self, peer: EditStream, versions: Mapping[EditStream, int], now: float) -> None:
        """Record that `peer` accepted an offer and has `versions` now."""
        known = self._peers.get(peer)
        if known is not None:
            known.asked_at, known.failures = None, 0
            before = dict(known.claims)
            self._claim(known, versions)
            if known.claims != before:
                known.offered = None  # the remainder can be next

    def asked(self, peer: EditStream, versions: Mapping[EditStream, int]) -> None:
        """Record the versions in a request of `peer` for everything missing."""
        known = self._peers.get(peer)
        if known is not None:
            known.reported = True
            self._claim(known, versions)

    def _claim(self, peer: PeerState, versions: Mapping[EditStream, int]) -> None:
        """Record versions that a peer has stated."""
        peer.claim({stream: self._possible(stream, seq) for stream, seq in versions.items()})
        if peer.gives:
            for stream, seq in peer.claims.items():
                self.history.exists(stream, seq)

    def _recount(self) -> None:
        self.history.recount([known.claims for known in self._peers.values() if known.gives])

    def believed(self, peer: EditStream, versions: Versions) -> Versions:
        """Return the versions that an update of `peer` in whole has, as far as it may say so.

        A peer that may not carry says no more of the streams of another one than that one itself, if it is present: it
        could keep later edits from being taken.
        """
        known = self._peers.get(peer)
        if known is None or known.carries:
            return versions
        believed = {}
        for stream, seq in versions.items():
            if stream.origin not in (peer.origin, self.me.origin):
                own = [one.claims.get(stream, 0) for other, one in self._peers.items() if other.origin == stream.origin]
                if own:
                    seq = min(seq, max(*own, self.versions.get(stream, 0)))
            if seq:
                believed[stream] = seq
        return believed

    def forgive(self, code: str) -> None:
        """Forget the refusals for reasons that begin with `code`: those edits are wanted again."""
        if self.history.refused.forget(code):
            self._recount()

    def settled(self, content: bytes) -> None:
        """Set the digest of the current content."""
        self._content = self.history.changes, content

    # ------------------------------------------------------------------ catching up

    def catch_up(self, now: float) -> float:
        """Begin to fetch everything that any peer has at `now`. Returns the argument for `catch_up_status`."""
        self._catching.append(now)
        return now

    @property
    def catches_up(self) -> bool:
        """True between `catch_up` and its end."""
        return bool(self._catching)

    def catch_up_ended(self, since: float) -> None:
        """End a `catch_up`."""
        self._catching.remove(since)

    def catch_up_status(self, since: float, now: float) -> list[bool | None]:
        """Return a status per present peer: True if all edits that it had at `since` were received.

        None if that is open, False if it does not have the document.
        """
        return [self._peer_status(peer, since, now) for peer in self._peers.values()]

    def _peer_status(self, peer: PeerState, since: float, now: float) -> bool | None:
        if peer.absent or not peer.gives:
            return False
        if peer.caught_up_at >= since:
            return True
        if peer.source and not peer.failures and (peer.asked_at is None or now < peer.asked_at + LATE):
            return None
        # without REP, or not replying: its heartbeats have to do
        if not peer.reported:
            return None if peer.asked_at is not None else False
        agrees = peer.versions is None or peer.versions == self.history.digest()
        return True if peer.reported_at > since and agrees and self.has(peer.claims) else None

    # ------------------------------------------------------------------ requests of other peers

    def make_heartbeat(self, now: float) -> DocumentHeartbeat:
        """Return this document's row of a heartbeat."""
        if self.is_quiet(now) and (content := self._our_content()) is not None:
            return DocumentHeartbeat(self.doc, self.history.digest(), content, {})
        return DocumentHeartbeat(self.doc, None, None, self.history.recent_heads(now))

    def resend(self, ranges: Iterable[Range]) -> tuple[tuple[Updates, ...], bool]:
        """Return the edits of `ranges` that are kept, and whether some are not."""
        return self.history.resend(ranges)

    def missing_at_peer(self, peer: EditStream, size: int, many: int) -> tuple[list[bytes], Versions, Versions]:
        """Return edits missing at `peer` as far as known: see History.edits_missing_at."""
        known = self._peers.get(peer)
        return self.history.edits_missing_at({} if known is None else known.claims, size=size, many=many)

    def has(self, versions: Mapping[EditStream, int]) -> bool:
        """Return True if the document has all of `versions`, disregarding streams too old for the vector."""
        return all(
            self.versions.get(stream, 0) >= seq or self.history.is_old(stream) for stream, seq in versions.items()
        )

    def _our_content(self) -> bytes | None:
        """Return the content digest if it is current."""
        if self._content is None or self._content[0] != self.history.changes:
            return None
        return self._content[1]

    def is_quiet(self, now: float) -> bool:
        """Return True if nothing changed recently, and nothing is known to be missing."""
        # the same sum as in `evaluate`: a difference would be rounded otherwise, and be due forever
        return now >= self.history.changed_at + self._quiet() and not self._gaps

    def _quiet(self) -> float:
        """Return the seconds after which everything sent has arrived: longer on a slow network or machine."""
        return max(self.settings.quiet, 2 * self._round_trips.slowest())

    @property
    def held(self) -> int:
        """Number of edits held back."""
        return self.history.held_edits

    @property
    def missing(self) -> int:
        """Number of edits known to exist and missing."""
        return sum(self.history.incomplete().values())

    # ------------------------------------------------------------------ delivery

    def ready(self) -> list[Deliver]:
        """Take the edits to apply now, in order. They count as delivered: apply them before reporting versions."""
        ready, self.history.ready = self.history.ready, []
        return ready
