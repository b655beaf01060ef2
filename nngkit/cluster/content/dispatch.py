"""DocumentsDispatch: which copy, object or table a received message is for, and whether its sender may send it. Pure.

::

    broadcast    -> copies (Fragment, FragmentPart), open documents (Presence), objects, if the host sent it
    unicast      -> requests are answered or refused with NotOpen; replies go to the copy or object that asked
    to the host  -> the table of holders, and the order of objects

The base of `ClusterDocuments`, which holds the state. Contents of messages are decoded here: BadMessage, TooLarge.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from nngkit.cluster.content.copy import ClusterCopy, origin_of
from nngkit.cluster.content.holders import Holders
from nngkit.cluster.content.messages import (
    Behind,
    Changes,
    Chunk,
    ChunkRequest,
    Closing,
    Document,
    Fragment,
    FragmentPart,
    FragmentRequest,
    Fragments,
    FullDocumentRequest,
    FullObject,
    FullObjectRequest,
    Gather,
    Heartbeat,
    Message,
    MissingFragments,
    NotOpen,
    Offer,
    Opened,
    OrderedFragments,
    Partner,
    Positions,
    Presence,
)
from nngkit.cluster.content.replica import SharedReplica
from nngkit.cluster.content.transfers import Downloads
from nngkit.cluster.content.values import OpenedDocument
from nngkit.documents.sync import wire
from nngkit.documents.sync.messages import Aware, Nack, Updates, Want
from nngkit.documents.sync.messages import Heartbeat as WireHeartbeat
from nngkit.documents.sync.transfers import CHUNK, Transfers
from nngkit.errors import BadMessage, NngkitError

__all__ = ["MOST_OPEN", "DocumentsDispatch"]

MOST_OPEN: Final = 4096  # documents, and as many shared objects, of one node


class DocumentsDispatch(ABC):
    """See the module."""

    id: str
    term: int
    host: str | None
    leading: bool
    count: Counter[str]
    _accept: Callable[[str], bool] | None
    _copies: dict[str, ClusterCopy]
    _opened: dict[str, OpenedDocument]
    _objects: dict[str, SharedReplica]
    _dirty: dict[ClusterCopy | SharedReplica, None]
    _holders: Holders
    _transfers: Transfers
    _downloads: Downloads

    @abstractmethod
    def open(self, name: str, now: float | None = None) -> Any:
        """Open a document."""

    @abstractmethod
    def _send(self, to: str | None, message: Message) -> None: ...

    @abstractmethod
    def _refuse(self, node: str, what: str, why: str) -> None: ...

    def _broadcast_received(self, origin: str, message: Message, now: float) -> None:
        match message:
            case Fragment(name, content):
                if (copy := self._find(name, now)) is not None:
                    updates = wire.decode_bus(content, peer=origin)
                    if not isinstance(updates, Updates):
                        raise BadMessage("fragment", "it has no edits", origin)
                    copy.fragment(origin, updates, now)
            case FragmentPart():
                if (copy := self._find(message.name, now)) is not None:
                    copy.fragment_part(origin, message, now)
            case Presence(name, content):
                if name in self._opened:
                    aware = wire.decode_bus(content, peer=origin)
                    if not isinstance(aware, Aware) or aware.doc != name or aware.sender.origin != origin_of(origin):
                        raise BadMessage("presence", "it is not the state of its sender", origin)
                    self._opened[name].receive_awareness(aware, now)
            case OrderedFragments():
                if (replica := self._object(message.name)) is not None and self._is_host(origin, message.first.term):
                    replica.ordered(message)
            case Gather():
                if (replica := self._object(message.name)) is not None:
                    replica.gather(origin, message, now)
            case Positions(of):
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

    def _unicast_received(self, sender: str, message: Message, now: float) -> None:
        match message:
            case Heartbeat(name, content, answer):
                copy = self._copies.get(name)
                heartbeat = wire.decode_bus(content, peer=sender)
                if not isinstance(heartbeat, WireHeartbeat):
                    raise BadMessage("heartbeat", "it is none", sender)
                if copy is None:
                    self.count["not_open"] += 1
                    if answer and self._find(name, now) is None:
                        self._send(sender, NotOpen(0, name))
                else:
                    copy.heartbeat(sender, heartbeat, answer, now)
                    self._dirty[copy] = None
            case FullDocumentRequest() | FragmentRequest():
                self._answer(sender, message, now)
            case NotOpen(0, name):
                if (copy := self._copies.get(name)) is not None:
                    copy.not_open(sender, now)
                    self._dirty[copy] = None
            case Document() | Fragments() | NotOpen() | FullObject() | MissingFragments():
                self._replied(sender, message, now)
            case ChunkRequest(transfer, index):
                chunks = self._transfers.chunks(transfer, (index,), now)
                data = chunks[0][1] if chunks else b""
                self._send(sender, Chunk(transfer, index, data))
            case Chunk():
                if len(message.data) > CHUNK:
                    raise BadMessage("chunk", f"it has {len(message.data)} bytes", sender)
                self._downloads.receive(sender, message, now)
            case Opened() | Closing() | Changes() | Offer():
                self._host_received(sender, message, now)
            case Partner():
                if (copy := self._copies.get(message.name)) is not None:
                    copy.named_partner(message, now)
                    self._dirty[copy] = None
            case Behind(name):
                if (replica := self._object(name)) is not None:
                    replica.behind(message)
            case FullObjectRequest(number, name):
                if (replica := self._object(name)) is not None:
                    replica.requested(sender, message, now)
                else:
                    self._send(sender, NotOpen(number, name))
            case _:
                raise BadMessage("message", f"a {type(message).__name__} is for all nodes", sender)

    def _host_received(self, sender: str, message: Opened | Closing | Changes | Offer, now: float) -> None:
        if not self.leading:
            self.count["not_host"] += 1
            return
        match message:
            case Opened(name, parent, avoid, filled):
                self._find(name, now)
                found = self._holders.opened(name, sender, now, parent=parent, avoid=avoid, filled=filled)
                if found is not None:
                    self._send(sender, Partner(name, *found))
            case Closing(name):
                self._holders.closed(name, sender)
            case Changes(name):
                if (replica := self._object(name)) is not None:
                    replica.changes(sender, message)
            case Offer(name):
                if (replica := self._object(name)) is not None:
                    replica.offer(sender, message, now)

    def _answer(self, sender: str, message: FullDocumentRequest | FragmentRequest, now: float) -> None:
        copy = self._find(message.name, now)
        request = wire.decode_request(message.content, peer=sender)
        if not isinstance(request, Want | Nack) or request.doc != message.name:
            raise BadMessage("request", "it is about another document", sender)
        if copy is None:
            self.count["not_open"] += 1
            self._send(sender, NotOpen(message.number, message.name))
        elif isinstance(message, FullDocumentRequest) and isinstance(request, Want):
            copy.full_document_request(sender, message, request, now)
        elif isinstance(message, FragmentRequest) and isinstance(request, Nack):
            copy.fragment_request(sender, message, request)
        else:
            raise BadMessage("request", "its kind is not that of its content", sender)

    def _replied(
        self, sender: str, message: Document | Fragments | NotOpen | FullObject | MissingFragments, now: float
    ) -> None:
        # numbers of requests are unique to a node, so a NotOpen is taken by the one that asked
        if isinstance(message, Document | Fragments | NotOpen) and (copy := self._copies.get(message.name)) is not None:
            copy.replied(sender, message, now)
            self._dirty[copy] = None
        if (
            isinstance(message, FullObject | MissingFragments | NotOpen)
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
