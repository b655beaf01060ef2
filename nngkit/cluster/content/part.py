"""ClusterDocuments: the documents and shared objects of one node of a cluster. Pure; `node.py` carries its messages.

Two kinds of content have the same messages: fragments (a change), documents (the full state), and requests for either.

- **Documents** of nngkit.documents: every node edits its copy, and all copies become equal. Needs the extra
  `documents`, from the first `open` on; this module imports no engine.
- **Shared objects** of the program, with ``update(fragment)``, ``full_state()`` and ``load(full)``: all nodes apply all
  changes in the host's order. The host has to share the object too; until then changes wait.

::

    documents = ClusterDocuments(id, epoch, now=now, rng=rng, wake=shell.wake)

    # for programs, in the thread of the loop; `wake` is called if there is something to take
    doc = documents.open("minutes")                  # a nngkit.documents.Document; ConfigError without the extra
    documents.close("minutes")                       # KeyError if it is not open
    documents.share("prices", obj, now)
    n = documents.change("prices", b"...", now)      # Full, TooLarge; in the content once confirmed("prices") >= n
    documents.request_full("minutes", now)           # or of a shared object; KeyError
    documents.behind("prices")                       # True while the full state or changes are missing here

    # events, from the node
    documents.lead(term, now)                        # this node is the host; then, or before, attached(term, id, ...)
    documents.attached(term, host, parent_id, now)   # a new parent, term or host; parent_id "" at the host
    documents.received(origin, epoch, body, now)     # a broadcast
    documents.gap(origin, epoch, now)                # broadcasts of a node are missing
    documents.unicast(sender, body, now)             # as the transport knows the sender; bytes or the array
    documents.member_removed(node_id, now)
    documents.tick(now)                              # at `wake_at`

    # after each of these, and after each `wake`
    effects = documents.take(now)
    effects.broadcasts    [body]                     to all other nodes
    effects.sends         [(node id, array)]         "" is the host; for envelope.encode, at most BODY_LIMIT bytes
    effects.events        [Refused(node, what, why)] for the log
    effects.changed       {names}                    documents and objects with new content, or confirmed changes

Broadcasts are delivered exactly once and in order per (origin, epoch), or reported as a gap; they do not come back.
Unicasts may be lost, repeated and reordered. A node that joins gets only later broadcasts, and the rest as documents.

`copy.py` decides about a document, `replica.py`, `order.py` and `writer.py` about a shared object, `holders.py` where
documents are. `transfers.py` moves large ones; `nngkit.cluster.shell.document` is the shell of an open document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from nngkit.chance import Chance
from nngkit.cluster.content import messages
from nngkit.cluster.content.copy import TELLING, ClusterCopy, origin_of
from nngkit.cluster.content.holders import Holders
from nngkit.cluster.content.order import SharedObject
from nngkit.cluster.content.replica import SharedReplica
from nngkit.cluster.content.transfers import Downloads, Means
from nngkit.cluster.content.values import DocumentEffects, OpenedDocument, Refused
from nngkit.cluster.log_clock import NEVER
from nngkit.documents.names import check_name
from nngkit.documents.sync import wire
from nngkit.documents.sync.messages import Aware, Nack, Updates, Want
from nngkit.documents.sync.messages import Heartbeat as WireHeartbeat
from nngkit.documents.sync.transfers import CHUNK, Transfers
from nngkit.documents.versions import EPOCHS, EditStream
from nngkit.errors import BadMessage, ConfigError, Full, NngkitError, TooLarge

MOST_DOCUMENT: Final = 256 << 20  # bytes that another node may send as one document
MOST_OPEN: Final = 4096  # documents, and as many shared objects, of one node
AWARENESS: Final = 10.0  # seconds between renewals of awareness states, as in nngkit.documents
POSITIONS: Final = 5.0  # seconds between broadcasts of the host's positions
CHECK: Final = 3  # positions broadcast after the last change of an object, in case it was lost on all ways
SPREAD: Final = 0.2  # seconds over which the nodes of a cluster ask a new host for the positions of their objects
COMPLETE: Final = TELLING + 0.5  # seconds until a new host knows the holders of each document, delays included
_SHELL: Final = "nngkit.cluster.shell.document"  # imports an engine, so not before the first document is opened


class ClusterDocuments:
    """See the module. `id` and `epoch` are the node's; `epoch` is new at each start, in microseconds since 1970.

    Args:
        id: Id of this node.
        epoch: Time of its start.
        now: Seconds, monotonic.
        rng: Source of chance.
        wake: Called when a local edit has made something to take.
        accept: Called with the name of a document that is open elsewhere and not here; True opens it. So a host or a
            voter keeps documents that would otherwise end with the last node that has them open.
        open_document: Called as ``open_document(documents, name, stream)``; the default makes a
            nngkit.documents.Document.
    """

    def __init__(
        self,
        id: str,
        epoch: int,
        *,
        now: float,
        rng: Chance,
        wake: Callable[[], object] = lambda: None,
        accept: Callable[[str], bool] | None = None,
        open_document: Callable[[ClusterDocuments, str, EditStream], OpenedDocument] | None = None,
    ) -> None:
        self.id = id
        self.epoch = epoch
        self.term = 0
        self.host: str | None = None
        self.leading = False
        self.wake_at = NEVER
        self.count: Counter[str] = Counter()
        """Counters: broadcasts, sends, received, unicasts, bytes sent, refused, unknown (kinds), not_open, lost."""
        self._wake = wake
        self._accept = accept
        self._open_document = open_document
        self._now = now
        self._parent = ""
        self._attached = False
        self._openings = 0
        self._copies: dict[str, ClusterCopy] = {}
        self._opened: dict[str, OpenedDocument] = {}
        self._objects: dict[str, SharedReplica] = {}
        self._dirty: dict[ClusterCopy | SharedReplica, None] = {}  # in order, so that runs are reproducible
        self._holders = Holders(id)
        self._transfers = Transfers()
        self._downloads = Downloads(self._send, limit=MOST_DOCUMENT)
        self._means = Means(rng, self._send, self._transfers, self._downloads)
        self._awareness_at = NEVER
        self._positions_at = NEVER
        self._quiet: dict[str, int] = {}  # broadcasts of a position since it changed
        self._effects = DocumentEffects()
        self._own: list[messages.Message] = []  # to this node itself, as the host
        self._taking = False

    # ------------------------------------------------------------------ for programs

    def open(self, name: str, now: float | None = None) -> Any:
        """Return the document `name`, the same object each time. Its content follows: ``await doc.joined()``.

        Raises ConfigError for an invalid name, and without the extra `documents`; Full with 4,096 open documents.
        """
        check_name(name)
        now = self._now if now is None else now
        if (known := self._opened.get(name)) is not None:
            return known.document
        if len(self._copies) >= MOST_OPEN:
            raise Full(f"{len(self._copies)} documents are open, the limit is {MOST_OPEN}")
        # each opening begins a stream: a document that is opened again does not know its earlier edits
        me = EditStream(origin_of(self.id), min(self.epoch + self._openings, EPOCHS))
        make = self._open_document or import_module(_SHELL).open_document
        opened: OpenedDocument = make(self, name, me)
        self._openings += 1
        copy = ClusterCopy(
            name,
            self.id,
            me,
            opened.content,
            self._means,
            refused=lambda node, why: self._refuse(node, f"document {name}", why),
            now=now,
        )
        self._opened[name], self._copies[name] = opened, copy
        if self._attached:
            copy.attached(self._parent, now)
        copy.request_full(now)
        if self._awareness_at == NEVER:
            self._awareness_at = now + AWARENESS
        self._touch(copy)
        return opened.document

    def close(self, name: str) -> None:
        """Close a document here; other nodes keep it. Edits so far are sent. Raises KeyError."""
        copy = self._copies[name]
        self._step(copy, name, self._now)
        del self._copies[name]
        self._dirty.pop(copy, None)
        self._send("", messages.Closing(name))
        copy.close()
        self._opened.pop(name).close()
        self._wake()

    def share(self, name: str, obj: SharedObject, now: float) -> None:
        """Share an object under a name. Raises ConfigError for an invalid or used name, Full with 4,096 of them."""
        check_name(name)
        if name in self._objects:
            raise ConfigError("shared object", f"{name!r} is shared already", name)
        if len(self._objects) >= MOST_OPEN:
            raise Full(f"{len(self._objects)} objects are shared, the limit is {MOST_OPEN}")
        # a name that is shared again begins a new sequence of changes
        self._openings += 1
        replica = self._objects[name] = SharedReplica(
            name,
            self.id,
            self.epoch + self._openings,
            obj,
            self._means,
            report=lambda node, why: self._refuse(node, f"object {name}", why),
            now=now,
            limit=MOST_DOCUMENT,
        )
        if self.leading:
            replica.lead(self.term, now)
        elif self._attached:
            replica.attached(self.term, self._parent, now, spread=0.0)
        self._touch(replica)

    def change(self, name: str, fragment: bytes, now: float) -> int:
        """Send a change of a shared object to the host; return its number. Raises KeyError, Full, TooLarge."""
        replica = self._objects[name]
        number = replica.change(fragment, now)
        self._touch(replica)
        return number

    def confirmed(self, name: str) -> int:
        """Return the number of own changes that are in the content here. Raises KeyError."""
        return self._objects[name].confirmed

    def behind(self, name: str) -> bool:
        """Return True while something is missing in a shared object, as far as known here. Raises KeyError."""
        return self._objects[name].behind_host

    def request_full(self, name: str, now: float) -> None:
        """Request the full document or the full state of the shared object `name` again. Raises KeyError."""
        if (copy := self._copies.get(name)) is not None:
            copy.request_full(now)
            self._touch(copy)
        elif (replica := self._objects.get(name)) is not None:
            replica.request_full(now)
            self._touch(replica)
        else:
            raise KeyError(name)

    def joined_since(self, name: str, since: float) -> bool:
        """Return True if all that the partner had at `since` is in the document. Raises KeyError."""
        return self._copies[name].caught_up_at >= since

    @property
    def documents(self) -> dict[str, Any]:
        """The open documents, by name."""
        return {name: one.document for name, one in self._opened.items()}

    @property
    def objects(self) -> dict[str, SharedReplica]:
        """The shared objects, by name, with their orders' positions and counters; to be read only."""
        return dict(self._objects)

    def holders(self, name: str) -> tuple[str, ...]:
        """Return the nodes that have a document open, as this host knows."""
        return self._holders.of(name)

    def copy(self, name: str) -> ClusterCopy:
        """Return the copy of an open document, to be read only. Raises KeyError."""
        return self._copies[name]

    # ------------------------------------------------------------------ for open documents

    def edited(self, name: str, update: bytes, now: float) -> None:
        """Record a local transaction of an open document."""
        copy = self._copies[name]
        copy.edited(update, now)
        self._touch(copy)

    def aware(self, name: str, clock: int, state: bytes | None) -> None:
        """Publish the local awareness state of an open document."""
        if (copy := self._copies.get(name)) is not None:
            self._send(None, messages.Presence(name, wire.encode(Aware(copy.me, name, clock, state))))
            self._wake()

    # ------------------------------------------------------------------ events

    def lead(self, term: int, now: float) -> None:
        """Become the host of a term."""
        if self.leading and term == self.term:
            return
        self._now = now
        before, self.host = self.host, self.id
        self.leading, self.term = True, term
        # no earlier host is known: nothing to report, so nothing to wait for
        self._holders = Holders(self.id, -NEVER if before is None else now + COMPLETE, self._copies)
        self._attached, self._parent = True, ""
        self._positions_at = now + POSITIONS
        for copy in self._copies.values():
            copy.attached("", now)
        for replica in self._objects.values():
            replica.lead(term, now)
        self._step_all()

    def attached(self, term: int, host: str | None, parent_id: str, now: float) -> None:
        """Take a new parent, term or host."""
        self._now = now
        if host == self.id:
            self.lead(term, now)
            return
        if term < self.term:
            self.count["old_terms"] += 1
            return
        if self.leading:
            self.leading = False
            self._holders = Holders(self.id)
            self._positions_at = NEVER
        new = (term, host) != (self.term, self.host)
        self.term, self.host, self._parent, self._attached = term, host, parent_id, True
        for copy in self._copies.values():
            copy.attached(parent_id, now, new_host=new)
        for replica in self._objects.values():
            # a new host begins its reign after half a second: nothing is to be asked before
            replica.attached(term, parent_id, now, spread=SPREAD if new else 0.0, after=1.0 if new else 0.0)
        self._step_all()

    def member_removed(self, node_id: str, now: float) -> None:
        """Take the news that a node has left."""
        self._now = now
        self._holders.node_removed(node_id)
        self._downloads.node_removed(node_id, now)
        for copy in self._copies.values():
            copy.node_removed(node_id, now)
        for replica in self._objects.values():
            replica.node_removed(node_id, now)
        origin = origin_of(node_id)
        for opened in self._opened.values():
            opened.node_removed(origin, now)
        self._step_all()

    def gap(self, origin: str, epoch: int, now: float) -> None:
        """Take the news that broadcasts of a node are missing."""
        self._now = now
        self.count["gaps"] += 1
        for copy in self._copies.values():
            copy.gap(origin, now)
            self._dirty[copy] = None
        if origin == self.host:
            for replica in self._objects.values():
                replica.gap(now)
                self._dirty[replica] = None
        self._tune(now)

    def received(self, origin: str, epoch: int, body: bytes, now: float) -> None:
        """Take a broadcast."""
        self.count["received"] += 1
        self._receive(origin, body, "broadcast", self._broadcast_received, now)

    def unicast(self, sender: str, body: bytes | list[Any], now: float) -> None:
        """Take a message to this node."""
        self.count["unicasts"] += 1
        self._receive(sender, body, "message", self._unicast_received, now)

    def tick(self, now: float) -> None:
        """Do what is due; sets `wake_at`."""
        self._now = now
        if now >= self._downloads.wake_at:
            self._downloads.tick(now)
        self._transfers.expire(now)
        if now >= self._awareness_at:
            self._awareness_at = now + AWARENESS if self._opened else NEVER
            for opened in list(self._opened.values()):
                opened.renew_awareness(now)
        if now >= self._positions_at:
            self._send_positions(now)
        if now >= self._holders.wake_at:
            for name, node, partner, count in self._holders.decide(now):
                self._send(node, messages.Partner(name, partner, count))
        self._dirty.update((one, None) for one in self._copies.values() if now >= one.wake_at)
        self._dirty.update((one, None) for one in self._objects.values() if now >= one.wake_at)
        self._work(now)

    def take(self, now: float) -> DocumentEffects:
        """Return the work for the node."""
        self._now = now
        self._work(now)
        effects, self._effects = self._effects, DocumentEffects()
        return effects

    # ------------------------------------------------------------------ what a message is for

    # broadcast    -> copies (Fragment, FragmentPart), open documents (Presence), objects, if the host sent it
    # unicast      -> requests are answered or refused with NotOpen; replies go to the copy or object that asked
    # to the host  -> the table of holders, and the order of objects

    def _receive(
        self,
        sender: str,
        body: bytes | list[Any],
        what: str,
        take: Callable[[str, messages.Message, float], None],
        now: float,
    ) -> None:
        self._now = now
        try:
            message = messages.decode(body, sender) if isinstance(body, bytes) else messages.parse(body, sender)
            if message is None:
                self.count["unknown"] += 1
            else:
                take(sender, message, now)
        except (BadMessage, TooLarge) as error:
            self._refuse(sender, what, str(error))
        self._tune(now)

    def _broadcast_received(self, origin: str, message: messages.Message, now: float) -> None:
        match message:
            case messages.Fragment(name, content):
                if (copy := self._find(name, now)) is not None:
                    updates = wire.decode_bus(content, peer=origin)
                    if not isinstance(updates, Updates):
                        raise BadMessage("fragment", "it has no edits", origin)
                    copy.fragment(origin, updates, now)
            case messages.FragmentPart():
                if (copy := self._find(message.name, now)) is not None:
                    copy.fragment_part(origin, message, now)
            case messages.Presence(name, content):
                if name in self._opened:
                    aware = wire.decode_bus(content, peer=origin)
                    if not isinstance(aware, Aware) or aware.doc != name or aware.sender.origin != origin_of(origin):
                        raise BadMessage("presence", "it is not the state of its sender", origin)
                    self._opened[name].receive_awareness(aware, now)
            case messages.OrderedFragments():
                if (replica := self._object(message.name)) is not None and self._is_host(origin, message.first.term):
                    replica.ordered(message)
            case messages.Gather():
                if (replica := self._object(message.name)) is not None:
                    replica.gather(origin, message, now)
            case messages.Positions(of):
                for each in of:
                    if self._is_host(origin, each.position.term) and (replica := self._object(each.name)) is not None:
                        replica.heard_position(each.position, now)
            case _:
                raise BadMessage("broadcast", f"a {type(message).__name__} is not for all nodes", origin)

    def _is_host(self, origin: str, term: int) -> bool:
        """Return True unless a node that is known not to be the host of `term` acts as such."""
        if term == self.term and self.host is not None and origin != self.host:
            self._refuse(origin, "order", f"{self.host} is the host of term {term}")
            return False
        return True

    def _unicast_received(self, sender: str, message: messages.Message, now: float) -> None:
        match message:
            case messages.Heartbeat(name, content, answer):
                copy = self._copies.get(name)
                heartbeat = wire.decode_bus(content, peer=sender)
                if not isinstance(heartbeat, WireHeartbeat):
                    raise BadMessage("heartbeat", "it is none", sender)
                if copy is None:
                    self.count["not_open"] += 1
                    if answer and self._find(name, now) is None:
                        self._send(sender, messages.NotOpen(0, name))
                else:
                    copy.heartbeat(sender, heartbeat, answer, now)
                    self._dirty[copy] = None
            case messages.FullDocumentRequest() | messages.FragmentRequest():
                self._answer(sender, message, now)
            case messages.NotOpen(0, name):
                if (copy := self._copies.get(name)) is not None:
                    copy.not_open(sender, now)
                    self._dirty[copy] = None
            case (
                messages.Document()
                | messages.Fragments()
                | messages.NotOpen()
                | messages.FullObject()
                | messages.MissingFragments()
            ):
                self._replied(sender, message, now)
            case messages.ChunkRequest(transfer, index):
                chunks = self._transfers.chunks(transfer, (index,), now)
                data = chunks[0].data if chunks else b""
                self._send(sender, messages.Chunk(transfer, index, data))
            case messages.Chunk():
                if len(message.data) > CHUNK:
                    raise BadMessage("chunk", f"it has {len(message.data)} bytes", sender)
                self._downloads.receive(sender, message, now)
            case messages.Opened() | messages.Closing() | messages.Changes() | messages.Offer():
                self._host_received(sender, message, now)
            case messages.Partner():
                if (copy := self._copies.get(message.name)) is not None:
                    copy.named_partner(message, now)
                    self._dirty[copy] = None
            case messages.Behind(name):
                if (replica := self._object(name)) is not None:
                    replica.behind(message)
            case messages.FullObjectRequest(number, name):
                if (replica := self._object(name)) is not None:
                    replica.requested(sender, message, now)
                else:
                    self._send(sender, messages.NotOpen(number, name))
            case _:
                raise BadMessage("message", f"a {type(message).__name__} is for all nodes", sender)

    def _host_received(
        self, sender: str, message: messages.Opened | messages.Closing | messages.Changes | messages.Offer, now: float
    ) -> None:
        if not self.leading:
            self.count["not_host"] += 1
            return
        match message:
            case messages.Opened(name, parent, avoid, filled):
                self._find(name, now)
                found = self._holders.opened(name, sender, now, parent=parent, avoid=avoid, filled=filled)
                if found is not None:
                    self._send(sender, messages.Partner(name, *found))
            case messages.Closing(name):
                self._holders.closed(name, sender)
            case messages.Changes(name):
                if (replica := self._object(name)) is not None:
                    replica.changes(sender, message)
            case messages.Offer(name):
                if (replica := self._object(name)) is not None:
                    replica.offer(sender, message, now)

    def _answer(
        self, sender: str, message: messages.FullDocumentRequest | messages.FragmentRequest, now: float
    ) -> None:
        copy = self._find(message.name, now)
        request = wire.decode_request(message.content, peer=sender)
        if not isinstance(request, Want | Nack) or request.doc != message.name:
            raise BadMessage("request", "it is about another document", sender)
        if copy is None:
            self.count["not_open"] += 1
            self._send(sender, messages.NotOpen(message.number, message.name))
        elif isinstance(message, messages.FullDocumentRequest) and isinstance(request, Want):
            copy.full_document_request(sender, message, request, now)
        elif isinstance(message, messages.FragmentRequest) and isinstance(request, Nack):
            copy.fragment_request(sender, message, request)
        else:
            raise BadMessage("request", "its kind is not that of its content", sender)

    def _replied(self, sender: str, message: messages.Reply, now: float) -> None:
        # numbers of requests are unique to a node, so a NotOpen is taken by the one that asked
        if (
            isinstance(message, messages.Document | messages.Fragments | messages.NotOpen)
            and (copy := self._copies.get(message.name)) is not None
        ):
            copy.replied(sender, message, now)
            self._dirty[copy] = None
        if (
            isinstance(message, messages.FullObject | messages.MissingFragments | messages.NotOpen)
            and (replica := self._object(message.name)) is not None
        ):
            replica.replied(sender, message, now)

    def _find(self, name: str, now: float) -> ClusterCopy | None:
        """Return the copy of a document, opened if `accept` agrees; it is stepped afterwards."""
        copy = self._copies.get(name)
        if copy is None:
            if self._accept is None or len(self._copies) >= MOST_OPEN or not self._accept(name):
                return None
            try:
                self.open(name, now)
            except NngkitError as error:
                self._refuse(self.id, f"document {name}", f"not opened: {error}")
                return None
            copy = self._copies[name]
        self._dirty[copy] = None
        return copy

    def _object(self, name: str) -> SharedReplica | None:
        replica = self._objects.get(name)
        if replica is None:
            self.count["not_open"] += 1
        else:
            self._dirty[replica] = None
        return replica

    # ------------------------------------------------------------------ work

    def _send(self, to: str | None, message: messages.Message) -> None:
        if to == self.id or (to == "" and self.leading):
            self._own.append(message)
        elif to is None:
            body = messages.encode(message)
            self.count["broadcasts"] += 1
            self.count["bytes"] += len(body)
            self._effects.broadcasts.append(body)
        elif to or self._attached:
            self.count["sends"] += 1
            self._effects.sends.append((to, messages.pack(message)))
        else:
            self.count["lost"] += 1  # there is no host to send it to; what matters is sent again

    def _step_all(self) -> None:
        self._dirty |= dict.fromkeys((*self._copies.values(), *self._objects.values()))
        self._tune(self._now)

    def _touch(self, one: ClusterCopy | SharedReplica) -> None:
        self._dirty[one] = None
        self._wake()

    def _work(self, now: float) -> None:
        while self._dirty or self._own:
            own, self._own = self._own, []
            for message in own:
                self._unicast_received(self.id, message, now)
            dirty, self._dirty = self._dirty, {}
            for one in dirty:
                self._step(one, one.name, now)
        self._tune(now)

    def _step(self, one: ClusterCopy | SharedReplica, name: str, now: float) -> None:
        before = one.caught_up_at if isinstance(one, ClusterCopy) else one.confirmed
        changed = one.step(now)
        after = one.caught_up_at if isinstance(one, ClusterCopy) else one.confirmed
        if changed or before != after:
            self._effects.changed.add(name)
        if changed and self.leading and isinstance(one, SharedReplica):
            self._quiet[name] = 0
        if isinstance(one, ClusterCopy) and (opened := self._opened.get(name)) is not None:
            opened.changed()

    def _tune(self, now: float) -> None:
        if self._dirty or self._own:
            self.wake_at = now
            return
        self.wake_at = min(
            self._awareness_at,
            self._positions_at,
            self._downloads.wake_at,
            self._holders.wake_at,
            min((one.wake_at for one in self._copies.values()), default=NEVER),
            min((one.wake_at for one in self._objects.values()), default=NEVER),
        )

    def _send_positions(self, now: float) -> None:
        """Broadcast the positions of objects that changed lately."""
        self._positions_at = now + POSITIONS
        found: list[messages.ObjectPosition] = []
        for name, replica in self._objects.items():
            times = self._quiet.get(name, 0)
            if times < CHECK and not replica.behind_host and len(found) < messages.MOST_POSITIONS:
                self._quiet[name] = times + 1
                found.append(messages.ObjectPosition(name, replica.order.position))
        if found:
            self._send(None, messages.Positions(tuple(found)))

    def _refuse(self, node: str, what: str, why: str) -> None:
        self.count["refused"] += 1
        if len(self._effects.events) < 100:  # of one turn; all are counted
            self._effects.events.append(Refused(node, what, why))
