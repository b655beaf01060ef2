"""LocalCopy: one document as this peer holds it: the engine's content, its replica, and its disk. Knows no socket.

What the peer (and the tests' simulated network) tells it, and what comes of it::

    copy.edited(update, now)              a local transaction
    copy.heard(message, via, now)         Updates, DocumentHeartbeat
    copy.step(now)                        -> Step(say, ask, wake): for the BUS, for REQ, when to come back
    copy.answer(request, now)             Nack, Want, Give: the reply
    copy.replied(ask, reply, now)         what an asked peer said
    copy.unknown_document(ask, now)                ... that it has no such document
    copy.failed(ask, now)                 ... or that it said nothing

Whatever of a peer's is not an update, or does not fit, leaves the content as it was, and is told to `refused`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from nngkit.documents.sync.messages import (
    BUS_LIMIT,
    EDITS,
    REQUEST_LIMIT,
    BusMessage,
    Diff,
    DocumentHeartbeat,
    Give,
    Given,
    Nack,
    Refused,
    Resent,
    SyncRequest,
    Updates,
    Want,
)
from nngkit.documents.sync.replica import Ask, AskAll, AskEdits, Deliver, Offer, Replica
from nngkit.documents.versions import Edit, EditStream, Versions, covers, merge

__all__ = ["Content", "EditLog", "LocalCopy", "Step"]

GIVEN: Final = REQUEST_LIMIT - 128 * 1024  # bytes of edits in one question; beside them there is a vector of versions
MANY_GIVEN: Final = 256  # edits: merging costs an engine more than proportionally


class Content(Protocol):
    """What it needs of the engine's document."""

    def apply(self, update: bytes, origin: object = None) -> bool:
        """Take a remote update: whether it changed anything. Raises ValueError, and has taken nothing then."""

    def changes_since(self, state: bytes | None = None) -> bytes:
        """An update with all that `state` lacks."""

    def merge(self, updates: Sequence[bytes]) -> bytes:
        """One update that does what these do in turn."""

    def state(self) -> bytes:
        """What is in it, for `changes_since` elsewhere."""

    def digest(self) -> bytes:
        """16 bytes, equal for equal content."""


class EditLog(Protocol):
    """What it needs of a store."""

    def append(self, stream: EditStream, seq: int, edit: Edit) -> None:
        """Keep an edit."""

    def append_merge(self, update: bytes, versions: Versions) -> None:
        """Keep an update that brought the document to `versions`."""


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done: `say` on the BUS, `ask` over REQ (each with the question it stands for), and when to step
    again at the latest. `changed`: the content is another. `edited`: some of that is our own."""

    publish: list[BusMessage]
    ask: list[tuple[Ask, SyncRequest]]
    wake: float
    changed: bool
    edited: bool


class LocalCopy:
    """One document. `token` goes into what it asks; `relay`: what came from one peer is said to the others.

    `refused` is called with (peer, why) for what was not taken.
    """

    def __init__(
        self,
        replica: Replica,
        content: Content,
        *,
        log: EditLog | None = None,
        token: str | None = None,
        relay: bool = False,
        refused: Callable[[EditStream | None, str], None],
    ) -> None:
        self.replica = replica
        self.content = content
        self._log = log
        self._token = token
        self._relay = relay
        self._refused = refused
        self._pending: list[BusMessage] = []
        self._pending_bytes = 0  # bytes, about, of the last of them
        self._changed = False
        self._edited = False

    @property
    def name(self) -> str:
        """The document's."""
        return self.replica.doc

    # ------------------------------------------------------------------ what happens

    def edited(self, update: bytes, now: float) -> None:
        """A local transaction changed the content: number it, keep it, tell it."""
        updates = self.replica.edited(update, now)
        if self._log is not None:
            self._log.append(updates.stream, updates.first, updates.edits[0])
        self._changed = self._edited = True
        self._publish(updates)

    def heard(self, message: Updates | DocumentHeartbeat, via: EditStream | None, now: float) -> None:
        """A message of the BUS that is about this document."""
        if isinstance(message, DocumentHeartbeat):
            if via is not None:
                self.replica.receive_heartbeat(via, message, now)
        elif (why := self.replica.heard(message, via, now)) is not None:
            self._refused(via, why)
        else:
            self._catch_up()

    def step(self, now: float) -> Step:
        """Do what can be done here, and say what is to be done elsewhere."""
        self._catch_up()
        decisions = self.replica.evaluate(now)
        asks = decisions.asks
        if decisions.needs_digest:
            self.replica.settled(self.content.digest())
            decisions = self.replica.evaluate(now)
            asks = asks + decisions.asks
        pending, self._pending = self._pending, []
        changed, edited = self._changed, self._edited
        self._changed = self._edited = False
        return Step(pending, [(ask, self._request(ask)) for ask in asks], decisions.wake, changed, edited)

    def _catch_up(self) -> None:
        """Apply what is ready, at once: what is said to be here is here, and on its way to the disk, whoever asks."""
        for one in self.replica.ready():
            self._deliver(one)

    def _deliver(self, one: Deliver) -> None:
        edit = one.edit
        self._changed = True
        try:
            if edit.payload:
                self.content.apply(edit.payload, one.via)
        except ValueError as error:
            # Its number stays taken, by nothing. Who could apply it after all has another content than we have, and
            # that is found when all is quiet.
            self._refused(one.stream, f"edit {one.seq}: {error}")
            edit = Edit(b"", edit.deps)
        if self._log is not None:
            self._log.append(one.stream, one.seq, edit)
        if self._relay:
            self._publish(Updates(one.stream, self.name, one.seq, (one.edit,)))

    def _publish(self, updates: Updates) -> None:
        """On the BUS, together with what goes on from there; what is too large for it is told of by the next heartbeat."""
        edit = updates.edits[0]
        if len(edit.payload) > BUS_LIMIT - 32 * 1024:  # room for the numbers it depends on
            return
        if self._pending and isinstance(last := self._pending[-1], Updates):
            follows = last.stream == updates.stream and last.first + len(last.edits) == updates.first
            if follows and len(last.edits) < EDITS and self._pending_bytes + len(edit.payload) < BUS_LIMIT // 4:
                self._pending[-1] = Updates(last.stream, last.doc, last.first, (*last.edits, edit))
                self._pending_bytes += len(edit.payload) + 32 * len(edit.deps)
                return
        self._pending.append(updates)
        self._pending_bytes = len(edit.payload) + 32 * len(edit.deps)

    # ------------------------------------------------------------------ asking

    def _request(self, ask: Ask) -> SyncRequest:
        me = self.replica.me
        match ask:
            case AskEdits(_, ranges):
                return Nack(me, self._token, self.name, ranges)
            case AskAll(_, whole):
                versions: Versions = {} if whole else self.replica.history.shared_versions()
                return Want(me, self._token, self.name, None if whole else self.content.state(), versions)
            case Offer(peer, whole):
                edits, brought, needed = (
                    ([], {}, {}) if whole else self.replica.missing_at_peer(peer, GIVEN, MANY_GIVEN)
                )
                if found := [edit for edit in edits if edit]:  # one that was refused is kept as nothing
                    return Give(me, self._token, self.name, self.content.merge(found), brought, needed)
                return Give(
                    me, self._token, self.name, self.content.changes_since(None), self.replica.history.shared_versions()
                )

    def replied(self, ask: Ask, reply: object, now: float, *, body: bytes | None = None) -> None:
        """What an asked peer said; `body`: the update of a Diff, fetched if it came in chunks."""
        match ask, reply:
            case AskEdits(peer, _), Resent(_, doc, updates, rest) if doc == self.name:
                for one in updates:
                    if one.doc != self.name:
                        self._refused(peer, "it answered for another document")
                        self.replica.failed(peer, now)
                        return
                    if (why := self.replica.heard(one, peer, now)) is not None:
                        self._refused(peer, why)
                        self.replica.failed(peer, now)
                        return
                    self._catch_up()
                self.replica.answered(peer, now, rest=rest)
            case AskAll(peer, _), Diff(_, doc, _, versions) if doc == self.name and body is not None:
                if self._merge(peer, body, versions, now):
                    self.replica.caught_up(peer)
            case Offer(peer, _), Given(_, doc, versions) if doc == self.name:
                self.replica.offered(peer, versions, now)
            case _:
                self._refused(ask.peer, "the answer is not one to the question")
                self.replica.failed(ask.peer, now)

    def failed(self, ask: Ask, now: float) -> None:
        """An asked peer did not answer."""
        self.replica.failed(ask.peer, now)

    def unknown_document(self, ask: Ask, now: float) -> None:
        """An asked peer has no such document."""
        if isinstance(ask, AskAll):
            self.replica.unknown_document(ask.peer, now)
        else:
            self.replica.failed(ask.peer, now)

    def _merge(self, peer: EditStream, update: bytes, versions: Versions, now: float) -> bool:
        if versions.get(self.replica.me, 0) > self.replica.versions.get(self.replica.me, 0):
            self._refused(peer, "it has more of us than we have written")
            self.replica.failed(peer, now)
            return False
        try:
            changed = self.content.apply(update, peer)
        except ValueError as error:
            self._refused(peer, f"update: {error}")
            self.replica.failed(peer, now)
            return False
        if self._log is not None and (changed or not covers(self.replica.versions, versions)):
            self._log.append_merge(update, merge(self.replica.versions, versions))
        self._changed = self._changed or changed
        self.replica.merged(peer, versions, now, changed=changed)
        self._catch_up()
        return True

    # ------------------------------------------------------------------ answering

    def resend(self, nack: Nack) -> Resent:
        """The edits asked for, as far as they are kept."""
        updates, rest = self.replica.resend(nack.ranges)
        return Resent(self.replica.me, self.name, updates, rest)

    def difference(self, want: Want) -> tuple[bytes, Versions]:
        """An update with all that the asker lacks. Raises ValueError for a state vector that is none."""
        self.replica.asked(want.sender, want.versions)
        return self.content.changes_since(want.state), self.replica.history.shared_versions()

    def given(self, give: Give, now: float) -> Given | Refused:
        """Take what was given, or say why not."""
        if not self.replica.has(give.deps):  # it was meant for who was here before us, or for what we said too early
            return Refused(self.replica.me, "behind", "what was given builds on what is not here")
        if not self._merge(give.sender, give.update, give.versions, now):
            return Refused(self.replica.me, "bad", "what was given is not an update")
        return Given(self.replica.me, self.name, self.replica.history.shared_versions())
