"""LocalCopy: one document at this peer, made of the engine's content, its replica and its log. Knows no socket.

Events from the peer (or the tests' simulated network), and the resulting actions::

    copy.edited(update, now)              a local transaction
    copy.heard(message, via, now)         Updates, DocumentHeartbeat
    copy.step(now)                        -> Step(publish, ask, wake): to the BUS, to REQ, when to step again
    copy.resend, difference, given        replies to Nack, Want, Give
    copy.replied(ask, reply, now)         a peer replied
    copy.unknown_document(ask, now)       a peer does not have the document
    copy.failed(ask, now)                 a peer did not reply

Input from a peer that is invalid, or does not connect, leaves the content unchanged and is reported to `refused`. Such
an edit has not been received: it is neither logged nor relayed, nor is what follows it (`refused.py`). A peer whose
update damages the engine is reported to `cut` too; for `WARY` seconds after it, updates of unknown streams are not
tried, as each may cost a rebuild of the content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final, Protocol

from nngkit.documents.sync import messages
from nngkit.documents.sync.refused import RefusedEdit
from nngkit.documents.sync.replica import Ask, AskAll, AskEdits, Deliver, Offer, Replica
from nngkit.documents.versions import EditLog, EditStream, Harmful, Versions, covers, merge

GIVEN: Final = messages.REQUEST_LIMIT - 128 * 1024  # bytes of edits in one request; leaves room for a version vector
MANY_GIVEN: Final = 256  # edits in one request: an engine's merge is superlinear
WARY: Final = 2.0  # seconds; rebuilding a document of 10,000 edits takes 0.03 s


class Content(Protocol):
    """Interface of the engine's document."""

    def apply(self, update: bytes, origin: object = None) -> bool:
        """Apply a remote update. Returns True if it changed anything.

        Raises ValueError, and applies nothing, if invalid; Harmful if that took a rebuild of the content.
        """

    def changes_since(self, state: bytes | None = None) -> bytes:
        """Return an update with everything missing at `state`."""

    def merge(self, updates: Sequence[bytes]) -> bytes:
        """Merge updates, in order, into one."""

    def state(self) -> bytes:
        """Return the state vector, for `changes_since` elsewhere."""

    def digest(self) -> bytes:
        """Return 16 bytes that are equal for equal content."""


@dataclass(frozen=True, slots=True)
class Step:
    """Actions: messages to publish on the BUS, requests with their questions, and the time of the next step.

    `changed`: the content changed. `edited`: local edits are among the changes. `refused`: edits were refused, which
    the next heartbeat tells their authors.
    """

    publish: list[messages.BusMessage]
    ask: list[tuple[Ask, messages.SyncRequest]]
    wake: float
    changed: bool
    edited: bool
    refused: bool


@dataclass(eq=False, repr=False)
class LocalCopy:
    """One document. `relay`: received edits are published again, for other peers.

    `refused` is called with (peer, reason) for rejected input, `cut` with a peer whose update damaged the engine.
    """

    replica: Replica
    content: Content
    _: KW_ONLY
    log: EditLog | None = None
    token: str | None = None
    relay: bool = False
    refused: Callable[[EditStream | None, str], None]
    cut: Callable[[EditStream], None] = lambda _: None

    def __post_init__(self) -> None:
        self._wary_until = float("-inf")
        self._pending: list[messages.BusMessage] = []
        self._pending_bytes = 0  # approximate bytes of the last pending message
        self._changed = False
        self._edited = False
        self._news = False  # an edit was refused

    @property
    def name(self) -> str:
        """The name of the document."""
        return self.replica.doc

    # ------------------------------------------------------------------ events

    def edited(self, update: bytes, now: float) -> None:
        """Number, log and publish a local transaction."""
        updates = self.replica.edited(update, now)
        if self.log is not None:
            self.log.append(updates.stream, updates.first, updates.edits[0])
        self._changed = self._edited = True
        self._publish(updates)

    def heard(self, message: messages.Updates | messages.DocumentHeartbeat, via: EditStream | None, now: float) -> None:
        """Handle a BUS message about this document."""
        if isinstance(message, messages.DocumentHeartbeat):
            if via is not None:
                self.replica.receive_heartbeat(via, message, now)
        elif self._is_wary_of(message.stream, now):
            self.replica.counts.overflow += 1  # heartbeats show that it exists, and it is requested
        elif (why := self.replica.heard(message, via, now)) is not None:
            self.refused(via, why)
        else:
            self._catch_up(now)

    def step(self, now: float) -> Step:
        """Apply what is deliverable; return what is to be sent."""
        self._catch_up(now)
        decisions = self.replica.evaluate(now)
        asks = decisions.asks
        if decisions.needs_digest:
            self.replica.settled(self.content.digest())
            decisions = self.replica.evaluate(now)
            asks = asks + decisions.asks
        pending, self._pending = self._pending, []
        changed, edited, refused = self._changed, self._edited, self._news
        self._changed = self._edited = self._news = False
        return Step(pending, [(ask, self._request(ask)) for ask in asks], decisions.wake, changed, edited, refused)

    def _catch_up(self, now: float) -> None:
        """Apply and log what is deliverable, at once: versions that are reported must be in the content."""
        for one in self.replica.ready():
            why = self.replica.history.refused.reason(one.stream, one.seq, one.edit.deps)
            if why is None:
                why = self._apply(one.edit.payload, one.via or one.stream, now)
            if why is not None:
                self._refuse(one, why)
                continue
            self._changed = True
            if self.log is not None:
                self.log.append(one.stream, one.seq, one.edit)
            if self.relay:
                self._publish(messages.Updates(one.stream, self.name, one.seq, (one.edit,)))

    def _apply(self, payload: bytes, via: EditStream, now: float) -> str | None:
        """Apply an edit; return the reason if the content cannot take it."""
        try:
            if payload:  # a peer of an earlier version stored and sends an edit that it refused as empty
                self.content.apply(payload, via)
        except ValueError as error:
            self._suspect(via, error, now)
            return str(error)
        return None

    def _refuse(self, one: Deliver, why: str) -> None:
        if self.replica.refuse(one.stream, one.seq, why):
            self._news = True
            self.refused(one.stream, f"edit {one.seq}: {why}")

    def deny(self, updates: messages.Updates, why: str) -> None:
        """Refuse edits that are not here yet, unseen: their author may not edit, as the next heartbeat tells it."""
        seq = max(updates.first, self.replica.versions.get(updates.stream, 0) + 1)
        if seq < updates.first + len(updates.edits):
            self._news = self.replica.refuse(updates.stream, seq, why) or self._news

    def _suspect(self, peer: EditStream, error: ValueError, now: float) -> None:
        """Cut off a peer whose update damaged the engine."""
        if isinstance(error, Harmful):
            self._wary_until = now + WARY
            self.cut(peer)

    def _is_wary_of(self, stream: EditStream, now: float) -> bool:
        return now < self._wary_until and stream != self.replica.me and stream not in self.replica.versions

    def refusal(self, versions: Mapping[EditStream, int]) -> RefusedEdit | None:
        """Return an edit within `versions` that is refused here."""
        return self.replica.history.refused.among(versions)

    def _publish(self, updates: messages.Updates) -> None:
        """Queue for the BUS, joined with the preceding run; the next heartbeat announces edits too large for it."""
        edit = updates.edits[0]
        if len(edit.payload) > messages.BUS_LIMIT - 32 * 1024:  # room for dependencies
            return
        if self._pending and isinstance(last := self._pending[-1], messages.Updates):
            follows = last.stream == updates.stream and last.first + len(last.edits) == updates.first
            if (
                follows
                and len(last.edits) < messages.EDITS
                and self._pending_bytes + len(edit.payload) < messages.BUS_LIMIT // 4
            ):
                self._pending[-1] = messages.Updates(last.stream, last.doc, last.first, (*last.edits, edit))
                self._pending_bytes += len(edit.payload) + 32 * len(edit.deps)
                return
        self._pending.append(updates)
        self._pending_bytes = len(edit.payload) + 32 * len(edit.deps)

    # ------------------------------------------------------------------ requests

    def _request(self, ask: Ask) -> messages.SyncRequest:
        me = self.replica.me
        match ask:
            case AskEdits(_, ranges):
                return messages.Nack(me, None, self.name, ranges)
            case AskAll(_, whole):
                versions: Versions = {} if whole else self.replica.history.shared_versions()
                return messages.Want(me, None, self.name, None if whole else self.content.state(), versions)
            case Offer(peer, whole):
                edits, brought, needed = (
                    ([], {}, {}) if whole else self.replica.missing_at_peer(peer, GIVEN, MANY_GIVEN)
                )
                if found := [edit for edit in edits if edit]:  # rejected edits are stored as empty
                    return messages.Give(me, None, self.name, self.content.merge(found), brought, needed)
                return messages.Give(
                    me, None, self.name, self.content.changes_since(None), self.replica.history.shared_versions()
                )

    def replied(self, ask: Ask, reply: object, now: float, *, body: bytes | None = None) -> None:
        """Handle a reply. `body`: the update of a Diff, assembled if it came in chunks."""
        match ask, reply:
            case AskEdits(peer, _), messages.Resent(_, doc, updates, rest) if doc == self.name:
                for one in updates:
                    if one.doc != self.name:
                        self.refused(peer, "the reply is about another document")
                        self.replica.failed(peer, now)
                        return
                    if self._is_wary_of(one.stream, now):
                        self.replica.failed(peer, now)
                        return
                    if (why := self.replica.heard(one, peer, now)) is not None:
                        self.refused(peer, why)
                        self.replica.failed(peer, now)
                        return
                    self._catch_up(now)
                self.replica.answered(peer, now, rest=rest)
            case AskAll(peer, _), messages.Diff(_, doc, _, versions) if doc == self.name and body is not None:
                if self._merge(peer, body, versions, now) is None:
                    self.replica.caught_up(peer)
            case Offer(peer, _), messages.Given(_, doc, versions) if doc == self.name:
                self.replica.offered(peer, versions, now)
            case _:
                self.refused(ask.peer, "the reply does not match the request")
                self.replica.failed(ask.peer, now)

    def failed(self, ask: Ask, now: float) -> None:
        """Handle a request without a reply."""
        self.replica.failed(ask.peer, now)

    def unknown_document(self, ask: Ask, now: float) -> None:
        """Handle the reply that a peer does not have the document."""
        if isinstance(ask, AskAll):
            self.replica.unknown_document(ask.peer, now)
        else:
            self.replica.failed(ask.peer, now)

    def _merge(self, peer: EditStream, update: bytes, versions: Versions, now: float) -> tuple[str, str] | None:
        """Apply an update; return the code and the reason of a refusal, as in Refused."""
        if versions.get(self.replica.me, 0) > self.replica.versions.get(self.replica.me, 0):
            self.refused(peer, "it claims more edits of this peer than exist")
            self.replica.failed(peer, now)
            return "bad", "it claims more edits of this peer than exist"
        if self._is_wary_of(peer, now):
            self.replica.failed(peer, now)
            return "busy", "updates of new peers have to wait"
        versions = self.replica.believed(peer, versions)
        try:
            changed = self.content.apply(update, peer)
        except ValueError as error:
            self._suspect(peer, error, now)
            self.refused(peer, f"update: {error}")
            self.replica.content_refused(peer, now)
            return "refused", str(error)
        if self.log is not None and (changed or not covers(self.replica.versions, versions)):
            self.log.append_merge(update, merge(self.replica.versions, versions))
        self._changed = self._changed or changed
        self.replica.merged(peer, versions, now, changed=changed)
        self._catch_up(now)
        return None

    # ------------------------------------------------------------------ replies

    def resend(self, nack: messages.Nack) -> messages.Resent:
        """Return the requested edits that are kept."""
        updates, rest = self.replica.resend(nack.ranges)
        return messages.Resent(self.replica.me, self.name, updates, rest)

    def difference(self, want: messages.Want) -> tuple[bytes, Versions]:
        """Return an update with everything the asking peer misses. Raises ValueError for an invalid state vector."""
        self.replica.asked(want.sender, want.versions)
        return self.content.changes_since(want.state), self.replica.history.shared_versions()

    def given(self, give: messages.Give, now: float) -> messages.Given | messages.Refused:
        """Apply a pushed update, or return the reason for refusing it."""
        if not self.replica.has(give.deps):  # meant for an earlier state of ours
            return messages.Refused(self.replica.me, "behind", "the update depends on edits that are not here")
        if (refusal := self._merge(give.sender, give.update, give.versions, now)) is not None:
            if refusal[0] == "refused":
                self._refuse_given(give, refusal[1])
            return messages.Refused(self.replica.me, *refusal)
        return messages.Given(self.replica.me, self.name, self.replica.history.shared_versions())

    def _refuse_given(self, give: messages.Give, why: str) -> None:
        """Record the refusal of a single edit of the sender's own; of several, any may be to blame."""
        new = [one for one in give.versions.items() if one[1] > self.replica.versions.get(one[0], 0)]
        if len(new) == 1:
            ((stream, seq),) = new
            if stream.origin == give.sender.origin and seq == self.replica.versions.get(stream, 0) + 1:
                self._news = self.replica.refuse(stream, seq, why) or self._news
