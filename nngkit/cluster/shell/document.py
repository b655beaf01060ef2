"""The shell of an open document in a cluster: a nngkit.documents.Document whose host is the cluster's node.

::

    doc = node.document("minutes")
    await doc.joined(timeout=5)                # all that its partner in the tree had at the call is here
    doc.text("body").insert(0, "hello")        # every node that has it open gets it
    async for change in doc.changes(): ...

A cluster keeps documents in memory, at the nodes that have them open. What needs a disk raises ConfigError: `durable`,
`synced`, saved versions; a DocumentPeer with a store has these. Imported at the first opening, as it loads trio and the
engine. `clock` has to be that of the node: trio's, unless a test has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import trio

from nngkit.background import WakeUp
from nngkit.cluster.content.part import ClusterDocuments
from nngkit.documents.document import Document, DocumentContent
from nngkit.documents.engine.interface import load_engine
from nngkit.documents.records import Saved
from nngkit.documents.sync.messages import Aware
from nngkit.documents.versions import EditStream
from nngkit.errors import ConfigError, EditRefused, TimedOut


class ClusterDocument:
    """An open document: the `OpenedDocument` of the node, and the `DocumentHost` of the document."""

    def __init__(
        self, documents: ClusterDocuments, name: str, stream: EditStream, clock: Callable[[], float] | None = None
    ) -> None:
        self._documents = documents
        self._clock = clock or trio.current_time
        self._wakes: WakeUp | None = None
        engine = load_engine()
        self.document = Document(name, engine=engine, host=self)
        self.content = DocumentContent(self.document, engine)

    # ---- documents.OpenedDocument

    def changed(self) -> None:
        """Wake all waiters."""
        if self._wakes is not None:
            self._wakes.wake()

    def receive_awareness(self, message: Aware, now: float) -> None:
        """Take the awareness state of another node."""
        self.document.awareness.receive(
            message.sender, message.clock, message.state, now=now, peer=message.sender.origin.hex()
        )

    def renew_awareness(self, now: float) -> None:
        """Publish the own state again; expire old ones."""
        self.document.awareness.renew()
        self.document.awareness.expire(now)

    def node_removed(self, origin: bytes, now: float) -> None:
        """Remove the awareness states of a node."""
        awareness = self.document.awareness
        for source, clock, _ in awareness.known():
            if isinstance(source, EditStream) and source.origin == origin:
                awareness.receive(source, clock + 1, None, now=now)

    def close(self) -> None:
        """Close the document; waiters get Closed."""
        self.document.close()
        self.changed()

    # ---- document.DocumentHost

    def edited(self, document: Document, update: bytes) -> None:
        """Broadcast a local transaction."""
        self._documents.edited(document.name, update, self._clock())

    def aware(self, document: Document, state: bytes | None) -> None:
        """Broadcast the local awareness state."""
        self._documents.aware(document.name, document.awareness.clock, state)

    async def joined(self, document: Document, timeout: float | None) -> None:
        """Wait until all is here that the partner had at the call. Raises TimedOut, Closed."""
        if self._wakes is None:
            self._wakes = WakeUp()
        since = self._clock()
        self._documents.request_full(document.name, since)
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            while not self._documents.joined_since(document.name, since):
                await self._wakes.wait()
                document.check_writable()  # raises Closed
            return
        raise TimedOut(f"{document.name}: no node of the cluster has sent everything after {timeout} s", timeout)

    async def durable(self, document: Document) -> None:
        """Raise ConfigError."""
        _no_store()

    async def synced(self, document: Document, peers: int, timeout: float | None) -> None:
        """Raise ConfigError."""
        _no_store()

    def refusals_of(self, document: Document) -> tuple[EditRefused, ...]:
        """Return an empty tuple: the nodes of a cluster do not report refusals."""
        return ()

    async def save_version(self, document: Document, name: str) -> Saved:
        """Raise ConfigError."""
        _no_store()

    def saved(self, document: Document) -> tuple[Saved, ...]:
        """Raise ConfigError."""
        _no_store()

    def at(self, document: Document, name: str) -> Document:
        """Raise ConfigError."""
        _no_store()


def open_document(documents: ClusterDocuments, name: str, stream: EditStream) -> ClusterDocument:
    """Open a document. Raises ConfigError without the extra `documents`."""
    return ClusterDocument(documents, name, stream)


def _no_store() -> NoReturn:
    raise ConfigError("store", "a cluster keeps documents in memory: use a DocumentPeer with a store")
