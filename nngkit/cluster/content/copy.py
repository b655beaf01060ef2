"""ClusterCopy: the copy of one document at one node of a cluster: a LocalCopy, carried by broadcast and unicast. Pure.

Edits are broadcast. The tree delivers them exactly once and in order, or reports a gap, so little is ever missing; what
is, the document's `Replica` notices and requests, as among document peers. In a tree every node cannot compare its
state with every other one, so each copy has a *partner*: its parent, else the host, else the first holder. A copy sends
its partner a heartbeat after changes and at long intervals. Partners form a tree over all holders, so all copies become
equal.

::

    local edit      -> Fragment to all, or FragmentParts if it is large
    Fragment        -> applied at once, or held back until what it depends on is here
    gap, new parent -> a heartbeat to the partner at once; it answers with its own
    differing state -> FullDocumentRequest with the own state, or FragmentRequest -> Document, Fragments

Knows no socket, no clock, and nothing of the content of an edit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from nngkit.cluster.content import messages
from nngkit.cluster.content.transfers import Means
from nngkit.cluster.log_clock import NEVER
from nngkit.documents.sync import wire
from nngkit.documents.sync.local_copy import Content, LocalCopy
from nngkit.documents.sync.messages import BUS_LIMIT, About, Diff, Manifest, Nack, Resent, Updates, Want
from nngkit.documents.sync.messages import Heartbeat as WireHeartbeat
from nngkit.documents.sync.replica import Ask, AskAll, Replica
from nngkit.documents.versions import ORIGIN, Edit, EditStream, Versions
from nngkit.errors import BadMessage, TooLarge

PEERS: Final = 16  # nodes that the replica may ask: the partner, and authors of what is missing
LARGE: Final = BUS_LIMIT - 32 * 1024  # bytes of an edit beyond which LocalCopy does not publish it
ANSWER: Final = 2.0  # seconds for a reply or a heartbeat: many times the delay of a tree, less than a user waits
UNANSWERED: Final = 2  # heartbeats without an answer, after which another partner is asked for
FIRST: Final = 0.3  # seconds from a change to its heartbeat: the replica compares states 0.25 s after the last change
REST: Final = 30.0  # seconds between heartbeats at rest
APART: Final = 0.002  # seconds between the heartbeats of two holders: a partner of all of them receives 500 a second
TELLING: Final = 1.0  # seconds in which all copies of a document tell a new host of themselves, at most
APART_TELLING: Final = 0.02  # seconds between two of them: an answer and two heartbeats follow from each
STUCK: Final = 30.0  # seconds without progress after which edits wait in vain: every partner has been asked by then
ASSEMBLED: Final = 64 << 20  # bytes of large edits that are incomplete; more are requested as a full document


def origin_of(node: str) -> bytes:
    """Return the origin of a node's edit streams: 8 bytes of a hash of its id."""
    return blake2b(node.encode(), digest_size=ORIGIN).digest()


@dataclass(slots=True)
class _Request:
    ask: Ask
    node: str
    due: float  # NEVER while a download runs, which has its own patience
    started: float


@dataclass(slots=True)
class _Parts:
    seq: int
    count: int
    deps: Versions
    data: list[bytes]
    size: int


class ClusterCopy:
    """One document. `me`: the stream of this opening. `refused(node, why)` is called for rejected input.

    After each event call `step(now)`, and at `wake_at`.
    """

    def __init__(
        self,
        name: str,
        node: str,
        me: EditStream,
        content: Content,
        means: Means,
        *,
        refused: Callable[[str, str], None],
        now: float,
    ) -> None:
        self.name = name
        self.node = node
        self.me = me
        self.parent = ""
        self.partner: str | None = None  # None: not known yet; "": this copy is the one that others compare with
        self.holders = 1
        self.wake_at = now
        self.replica = Replica(name, me, rng=means.rng)
        self.copy = LocalCopy(self.replica, content, log=self, refused=self._refuse)
        self.caught_up_at = -NEVER  # everything that the partner had then is here
        self._rng, self._send, self._transfers, self._downloads = means
        self._refused = refused
        self._streams: OrderedDict[EditStream, str] = OrderedDict()  # the peers of the replica
        self._requests: dict[int, _Request] = {}
        self._number = int.from_bytes(self._rng.randbytes(6))  # late replies to an earlier opening are not for this one
        self._parts: dict[EditStream, _Parts] = {}
        self._connected = False
        self._interval = FIRST
        self._heartbeat_at = NEVER
        self._opened_at = NEVER  # when to ask the host for a partner
        self._opened_pause = ANSWER
        self._unanswered = 0
        self._asked_at = -NEVER  # when the last heartbeat was sent that wants an answer
        self._catching: float | None = None
        self._held = (0, 0)  # edits that wait for others or are missing, and changes then
        self._held_at = now

    # ------------------------------------------------------------------ events

    def edited(self, update: bytes, now: float) -> None:
        """Record a local transaction."""
        self.copy.edited(update, now)
        self._changed(now)

    def append(self, stream: EditStream, seq: int, edit: Edit) -> None:
        """Record a delivered edit: a large one of this node is sent in parts. Interface of EditLog."""
        if stream != self.me or len(edit.payload) <= LARGE:
            return
        pieces = [edit.payload[at : at + BUS_LIMIT] for at in range(0, len(edit.payload), BUS_LIMIT)]
        if len(pieces) > messages.MOST_PARTS:
            return  # other nodes get it as a full document
        for index, data in enumerate(pieces):
            deps = {} if index else edit.deps
            self._send(None, messages.FragmentPart(self.name, stream, seq, index, len(pieces), deps, data))

    def append_merge(self, update: bytes, versions: Versions) -> None:
        """Record an applied full document. Interface of EditLog; a cluster keeps no log of its own."""

    def attached(self, parent: str, now: float, *, new_host: bool = False) -> None:
        """Tell the host of this copy: it or the parent is new.

        A new host has more urgent things to do, and all copies have to tell it: they take their time.
        """
        self.parent = parent
        self._connected = True
        self._opened_pause = ANSWER
        spread = min(TELLING, APART_TELLING * self.holders) if new_host else 0.0
        self._opened_at = now + self._rng.uniform(0.0, spread)
        self.wake_at = min(self.wake_at, self._opened_at)

    def fragment(self, node: str, updates: Updates, now: float) -> None:
        """Take edits that `node` broadcast."""
        if updates.stream.origin != origin_of(node) or updates.doc != self.name:
            self._refused(node, "edits in the name of another node")
            return
        versions = self.replica.versions
        if updates.first > versions.get(updates.stream, 0) + 1 or any(
            not self.replica.has(edit.deps) for edit in updates.edits
        ):
            self._know(updates.stream, node)  # something is missing: its author can be asked
        self.copy.heard(updates, updates.stream, now)
        self._changed(now)

    def fragment_part(self, node: str, part: messages.FragmentPart, now: float) -> None:
        """Take a part of a large edit. Parts come in order, or there is a gap and the edit is requested."""
        stream = part.stream
        if stream.origin != origin_of(node):
            self._refused(node, "an edit in the name of another node")
            return
        parts = self._parts.get(stream)
        if part.part == 0:
            parts = self._parts[stream] = _Parts(part.seq, part.parts, part.deps, [], 0)
        elif parts is None or (parts.seq, parts.count, len(parts.data)) != (part.seq, part.parts, part.part):
            self._parts.pop(stream, None)
            return
        parts.data.append(part.data)
        parts.size += len(part.data)
        if len(parts.data) == parts.count:
            del self._parts[stream]
            edit = Edit(b"".join(parts.data), parts.deps)
            self.fragment(node, Updates(stream, self.name, part.seq, (edit,)), now)
        elif sum(one.size for one in self._parts.values()) > ASSEMBLED:
            del self._parts[stream]  # its number is missing then, and requested

    def gap(self, node: str, now: float) -> None:
        """Compare soon: broadcasts of a node are missing."""
        for stream in [one for one in self._parts if one.origin == origin_of(node)]:
            del self._parts[stream]
        self._hurry(now)

    def heartbeat(self, node: str, message: WireHeartbeat, answer: bool, now: float) -> None:
        """Take the state of another copy; answer it."""
        if message.sender.origin != origin_of(node) or len(message.docs) != 1 or message.docs[0].doc != self.name:
            self._refused(node, "a heartbeat in the name of another node, or about another document")
            return
        theirs, ours = message.docs[0], self.replica.make_heartbeat(now)
        asked_at = -NEVER
        if node == self.partner:
            if not answer and self._unanswered == 1:
                asked_at = self._asked_at
            self._unanswered = 0
        differs = (
            (theirs.versions is not None and theirs.versions != self.replica.history.digest())
            or any(seq > self.replica.versions.get(stream, 0) for stream, seq in theirs.heads.items())
            or (theirs.content is not None and ours.content is not None and theirs.content != ours.content)
        )
        if node == self.partner or message.sender in self._streams or differs:
            self._know(message.sender, node)
            self.copy.heard(theirs, message.sender, now)
        if not differs and theirs.versions is not None:
            self._caught_up(asked_at)
        if answer:
            self._send_heartbeat(node, False, now)
            if differs:
                self._hurry(now + FIRST)  # once the difference is here, ours has changed

    def named_partner(self, message: messages.Partner, now: float) -> None:
        """Take the host's word for the node to compare with."""
        self._opened_at = now + REST * self._rng.uniform(1.0, 1.5)  # the host may have lost its table
        self._opened_pause = ANSWER
        self.holders = max(1, message.holders)
        if message.node == self.node:
            message = messages.Partner(message.name, "", message.holders)
        same = message.node == self.partner and not self._unanswered and self._catching is None
        if message.node != self.partner:
            self._unanswered = 0
        self.partner = message.node
        if not self.partner:
            self._caught_up(now)
        elif same:
            self._changed(now)  # it has answered, so there is no hurry; what a dead host had broadcast may be missing
        else:
            self._hurry(now)

    def node_removed(self, node: str, now: float) -> None:
        """Forget a node that has left the cluster."""
        for stream in [stream for stream, known in self._streams.items() if known == node]:
            self._forget(stream)
        if node == self.partner:
            self._lost_partner(now)

    def not_open(self, node: str, now: float) -> None:
        """Take the answer to a heartbeat that a node does not have the document."""
        if node == self.partner:
            self._lost_partner(now)

    def request_full(self, now: float) -> None:
        """Request all that the partner has, whatever the own state is."""
        if self._catching is None:
            self._catching = self.replica.catch_up(now)
        self._opened_at = min(self._opened_at, now)  # the host may name another partner by now
        self._hurry(now)

    def close(self) -> None:
        """Forget the running requests."""
        self._requests.clear()

    # ------------------------------------------------------------------ requests of other nodes

    def full_document_request(self, node: str, message: messages.FullDocumentRequest, want: Want, now: float) -> None:
        """Answer with all that is missing there."""
        try:
            update, versions = self.copy.difference(want)
        except ValueError as error:
            self._refused(node, f"state vector: {error}")
            return
        body = self._transfers.offer(update, name=self._rng.randbytes(16), now=now)
        content = wire.encode(Diff(self.me, self.name, body, versions))
        self._send(node, messages.Document(message.number, self.name, content))

    def fragment_request(self, node: str, message: messages.FragmentRequest, nack: Nack) -> None:
        """Answer with the edits that are kept."""
        self._send(node, messages.Fragments(message.number, self.name, wire.encode(self.copy.resend(nack))))

    # ------------------------------------------------------------------ replies

    def replied(
        self, node: str, message: messages.Document | messages.Fragments | messages.NotOpen, now: float
    ) -> None:
        """Take a reply."""
        request = self._requests.get(message.number)
        if request is None or request.node != node or request.due == NEVER:
            return  # late
        if isinstance(message, messages.NotOpen):
            del self._requests[message.number]
            self.copy.unknown_document(request.ask, now)
            if node == self.partner:
                self._lost_partner(now)
            return
        try:
            reply = wire.decode_reply(message.content, peer=node)
            if isinstance(reply, Diff) and isinstance(reply.body, Manifest):
                self._download(message.number, request, reply, reply.body, now)
                return
        except (BadMessage, TooLarge) as error:
            self._refused(node, str(error))
            self._fail(message.number, now)
            return
        body = reply.body if isinstance(reply, Diff) and isinstance(reply.body, bytes) else None
        self._finish(message.number, reply, body, now)

    def _download(self, number: int, request: _Request, diff: Diff, manifest: Manifest, now: float) -> None:
        def done(body: bytes | None, then: float) -> None:
            if number not in self._requests:
                return
            if body is None:
                self._fail(number, then)
            else:
                self._finish(number, diff, body, then)
            self.wake_at = min(self.wake_at, then)

        self._downloads.start(request.node, manifest, done, now)
        request.due = NEVER

    def _finish(self, number: int, reply: object, body: bytes | None, now: float) -> None:
        request = self._requests.pop(number)
        if isinstance(reply, Diff | Resent) and reply.sender != request.ask.peer:
            self.copy.failed(request.ask, now)  # the node has closed the document and opened it again
            self._forget(request.ask.peer)
            return
        before = self.replica.counts.delivered, dict(self.replica.versions)
        self.copy.replied(request.ask, reply, now, body=body)
        if isinstance(request.ask, AskAll) and request.node == self.partner and body is not None:
            self._caught_up(request.started)
        if before != (self.replica.counts.delivered, self.replica.versions):
            self._changed(now)

    def _fail(self, number: int, now: float) -> None:
        request = self._requests.pop(number)
        self.copy.failed(request.ask, now)

    # ------------------------------------------------------------------ work

    def step(self, now: float) -> bool:
        """Do what follows from the events, and what is due; sets `wake_at`. Returns True if the content changed."""
        for number in [number for number, one in self._requests.items() if now >= one.due]:
            self._fail(number, now)
        if self._connected and now >= self._opened_at:
            self._send("", messages.Opened(self.name, self.parent, self._avoid(), self.caught_up_at > -NEVER))
            self._opened_at = now + self._opened_pause * self._rng.uniform(1.0, 1.5)
            self._opened_pause = min(2 * self._opened_pause, REST)
        if now >= self._heartbeat_at:
            self._heartbeat_due(now)
        self._drop_stuck(now)
        step = self.copy.step(now)
        for message in step.publish:
            if isinstance(message, Updates):
                self._send(None, messages.Fragment(self.name, wire.encode(message)))
        for ask, request in step.ask:
            self._number += 1
            node = self._streams.get(ask.peer)
            if node is None:
                self.copy.failed(ask, now)
                continue
            self._requests[self._number] = _Request(ask, node, now + ANSWER, now)
            content = wire.encode(request)
            if isinstance(request, Want):
                self._send(node, messages.FullDocumentRequest(self._number, self.name, content))
            else:
                self._send(node, messages.FragmentRequest(self._number, self.name, content))
        due = min((one.due for one in self._requests.values()), default=NEVER)
        opened = self._opened_at if self._connected else NEVER
        stuck = self._held_at + STUCK if self.replica.held or self.replica.missing else NEVER
        self.wake_at = max(min(step.wake, due, opened, self._heartbeat_at, stuck), now)
        return step.changed

    def _drop_stuck(self, now: float) -> None:
        """Give up edits that no node has, and drop those that wait for them: their authors left before all was sent.

        Without one that waits, an edit may be missing as well: a node claimed it in a heartbeat, and has since given it
        up itself. Edits that a node has after all are known again from its next heartbeat, and requested.
        """
        history = self.replica.history
        held = self.replica.held + self.replica.missing, history.changes
        if held != self._held or not held[0]:
            self._held, self._held_at = held, now
        elif now >= self._held_at + STUCK:
            for stream in list(history.held):
                for seq in list(history.held.get(stream, ())):
                    history.release(stream, seq)
            for stream in list(self._streams):
                self._forget(stream)  # with what it claimed
            history.recount(())
            self._held_at = now
            self._hurry(now)

    def _avoid(self) -> str:
        return (self.partner or "") if self._unanswered >= UNANSWERED else ""

    def _heartbeat_due(self, now: float) -> None:
        self._heartbeat_at = NEVER
        if not self.partner:
            return
        if self._unanswered >= UNANSWERED:
            self._lost_partner(now, keep=True)
        self._unanswered += 1
        self._asked_at = now
        self._send_heartbeat(self.partner, True, now)
        pause = ANSWER if self._unanswered > 1 or self._catching is not None else self._interval
        self._heartbeat_at = now + pause * self._rng.uniform(1.0, 1.5)
        self._interval = min(REST, 3 * self._interval)

    def _send_heartbeat(self, node: str, answer: bool, now: float) -> None:
        if (mine := self.copy).replica.is_quiet(now):
            mine.replica.settled(mine.content.digest())
        content = wire.encode(WireHeartbeat(self.me, About(), (self.replica.make_heartbeat(now),)))
        self._send(node, messages.Heartbeat(self.name, content, answer))

    def _changed(self, now: float) -> None:
        """Compare a while after a change, and then at growing intervals."""
        self._interval = FIRST + APART * self.holders
        if self.partner:
            due = now + self._interval * self._rng.uniform(1.0, 1.5)
            # while changes go on, heartbeats do too: each of them is only postponed if a later one is due
            if self._heartbeat_at > due:
                self._heartbeat_at = due
        self.wake_at = min(self.wake_at, now)

    def _hurry(self, now: float) -> None:
        self._interval = FIRST + APART * self.holders
        self._heartbeat_at = min(self._heartbeat_at, now)
        self.wake_at = min(self.wake_at, self._heartbeat_at)

    def _lost_partner(self, now: float, *, keep: bool = False) -> None:
        """Ask the host for another partner; `keep`: it may only be slow."""
        if not keep:
            self._unanswered = UNANSWERED  # so that it is avoided
        self._opened_at = min(self._opened_at, now + self._rng.uniform(0.0, FIRST))
        self._opened_pause = ANSWER
        self.wake_at = min(self.wake_at, self._opened_at)

    def _know(self, stream: EditStream, node: str) -> None:
        """Let the replica ask a node; forget the one that was needed least recently."""
        if stream in self._streams:
            self._streams.move_to_end(stream)
            return
        for other in [one for one, there in self._streams.items() if there == node]:
            if other.epoch > stream.epoch:
                return  # a late message of an earlier opening
            self._forget(other)
        if len(self._streams) >= PEERS:
            asked = {request.ask.peer for request in self._requests.values()}
            unused = next(
                (one for one, there in self._streams.items() if there != self.partner and one not in asked), None
            )
            if unused is None:
                return  # all are being asked; the heartbeats of the partner show what is missing
            self._forget(unused)
        self._streams[stream] = node
        self.replica.joined(stream, True)
        if self._catching is not None and node == self.partner:
            self.wake_at = -NEVER

    def _forget(self, stream: EditStream) -> None:
        """Ask a stream's node no more; it may have begun another stream."""
        if self._streams.pop(stream, None) is not None:
            for number in [number for number, one in self._requests.items() if one.ask.peer == stream]:
                del self._requests[number]
            self.replica.left(stream)

    def _caught_up(self, since: float) -> None:
        self.caught_up_at = max(self.caught_up_at, since)
        if self._catching is not None and since >= self._catching:
            self.replica.catch_up_ended(self._catching)
            self._catching = None

    def _refuse(self, peer: EditStream | None, why: str) -> None:
        node = None if peer is None else self._streams.get(peer)
        self._refused(node or str(peer), why)
