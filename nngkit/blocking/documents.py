"""Documents without an event loop."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

from nngkit.blocking._base import Blocking, blocking_call
from nngkit.documents import PeerInfo, PeerStats, Refusal
from nngkit.documents import document as _document
from nngkit.documents import peer as _peer
from nngkit.documents.threads import Document, as_in
from nngkit.documents.versions import EditStream
from nngkit.errors import StoreDamaged
from nngkit.hosted import HostedProperty, hosted_property, loop_call, signature_of
from nngkit.portal import BlockingIterator

__all__ = ["DocumentPeer", "HostedLoop"]

R = TypeVar("R")
P = ParamSpec("P")


class DocumentPeer(Blocking[_peer.DocumentPeer]):
    """A peer that edits documents concurrently with others: see nngkit.documents.DocumentPeer.

    `open` returns documents whose calls run in the loop's thread (nngkit/documents/threads.py): any thread may edit.
    """

    _of = _peer.DocumentPeer

    @signature_of(_peer.DocumentPeer)
    def __init__(self) -> None: ...

    def _construct(self, *arguments: Any, **options: Any) -> None:
        super()._construct(*arguments, **options)
        self._documents: dict[str, tuple[_document.Document, Document]] = {}
        self._opening = threading.Lock()

    @as_in(_peer.DocumentPeer.open)
    def open(self, name: str) -> Document:
        portal, peer = self._open_object()
        return self._wrapped(portal.do(peer.open, name))

    def _wrapped(self, inner: _document.Document) -> Document:
        with self._opening:
            known, document = self._documents.get(inner.name, (None, None))
            if document is None or known is not inner:
                document = Document(inner, HostedLoop(self))
                self._documents[inner.name] = inner, document
            return document

    @property
    def documents(self) -> dict[str, Document]:
        portal, peer = self._open_object()
        return {name: self._wrapped(inner) for name, inner in portal.do(lambda: peer.documents).items()}

    documents.__doc__ = _peer.DocumentPeer.documents.__doc__

    close_document = loop_call(_peer.DocumentPeer.close_document)
    versions = loop_call(_peer.DocumentPeer.versions)
    name_of = loop_call(_peer.DocumentPeer.name_of)
    me: HostedProperty[EditStream] = hosted_property(_peer.DocumentPeer.me)
    wait_for_peers = blocking_call(_peer.DocumentPeer.wait_for_peers)
    dial = loop_call(_peer.DocumentPeer.dial)
    address: HostedProperty[str] = hosted_property(_peer.DocumentPeer.address)
    addresses: HostedProperty[tuple[str, ...]] = hosted_property(_peer.DocumentPeer.addresses)
    repair_addresses: HostedProperty[tuple[str, ...]] = hosted_property(_peer.DocumentPeer.repair_addresses)
    peers: HostedProperty[tuple[PeerInfo, ...]] = hosted_property(_peer.DocumentPeer.peers)
    stats: HostedProperty[PeerStats] = hosted_property(_peer.DocumentPeer.stats)
    damaged: HostedProperty[dict[str, StoreDamaged]] = hosted_property(_peer.DocumentPeer.damaged)
    refusals: HostedProperty[tuple[Refusal, ...]] = hosted_property(_peer.DocumentPeer.refusals)


class HostedLoop:
    """Access to the loop of an object with documents, while it is open: a documents.threads.Loop."""

    def __init__(self, owner: Blocking[Any]) -> None:
        self._owner = owner

    def do(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        portal, _ = self._owner._open_object()
        return portal.do(function, *arguments, **options)

    def wait(self, function: Callable[P, Awaitable[R]], *arguments: P.args, **options: P.kwargs) -> R:
        portal, _ = self._owner._open_object()
        return portal.call(function, *arguments, **options)

    def iterate(self, source: AsyncGenerator[R, None]) -> BlockingIterator[R]:
        portal, _ = self._owner._open_object()
        return BlockingIterator(portal, source)

    def hold(self) -> AbstractContextManager[None]:
        portal, _ = self._owner._open_object()
        return portal.hold()
