"""A document: texts, maps and arrays by name, which several edit at once and which all hold the same of.

::

    doc = peer.open("minutes")                       # or Document("minutes"), on its own
    doc.text("body").insert(0, "hello")
    with doc.transaction(origin="import"):           # one update for all of it
        doc.map("meta")["title"] = "Minutes"
        doc.array("rows").append([1, "x"])
    async for change in doc.changes(): ...

It knows no socket and no file: its `DocumentHost`, the peer that holds it, is told of each local edit, and hands in what others
did with `merge`. Not for several threads at once; nothing here waits but what says `await`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from nngkit.documents.awareness import Awareness
from nngkit.documents.changes import Broadcast, Change, ChangeReader
from nngkit.documents.engine.interface import Engine, EngineDocument, Kind, Part, load_engine
from nngkit.documents.names import check_name
from nngkit.documents.records import Saved
from nngkit.documents.shared import Array, Map, Shared, Text, check_root, wrapped
from nngkit.documents.undo import WINDOW, Undo
from nngkit.errors import Closed, ConfigError

__all__ = ["Document", "DocumentHost"]


class DocumentHost(Protocol):
    """What a document needs of the peer that holds it."""

    def edited(self, document: Document, update: bytes) -> None:
        """A local transaction made `update`."""

    def aware(self, document: Document, state: bytes | None) -> None:
        """Local awareness is this now, as number `document.awareness.clock`; None: gone."""

    async def durable(self, document: Document) -> None: ...
    async def synced(self, document: Document, peers: int, timeout: float | None) -> None: ...
    async def joined(self, document: Document, timeout: float | None) -> None: ...
    async def save_version(self, document: Document, name: str) -> Saved: ...
    def saved(self, document: Document) -> tuple[Saved, ...]: ...
    def at(self, document: Document, name: str) -> Document: ...


@dataclass(frozen=True, slots=True)
class _Remote:
    """The origin of what a peer sent."""

    peer: str | None


class Document:
    """See this module's first lines. `client_id`: the engine's number of who edits here, random if None.

    `read_only`: edits raise ConfigError, `merge` does not: an old version is filled in that way.
    """

    def __init__(
        self,
        name: str,
        *,
        engine: str | Engine = "yjs",
        host: DocumentHost | None = None,
        client_id: int | None = None,
        read_only: bool = False,
    ) -> None:
        self.name = check_name(name)
        made = load_engine(engine) if isinstance(engine, str) else engine
        self.engine: EngineDocument = made.new(client_id)
        self.host = host
        self.read_only = read_only
        self.awareness = Awareness(self.client_id, publish=self._publish_awareness, text=self.text, opened=self.opened)
        self._roots: dict[str, Shared] = {}
        self._broadcast: Broadcast[Change] = Broadcast(self._follow)
        self._unfollow: Callable[[], None] | None = None
        self._waiting: list[tuple[bytes, str | None]] = []
        self._closed = False
        self.engine.observe(self._changed)

    def __repr__(self) -> str:
        return f"<Document {self.name!r}>"

    @property
    def client_id(self) -> int:
        return self.engine.client_id

    # Parts

    def text(self, name: str) -> Text:
        """The root text of that name, empty until somebody writes. Opening it is no edit. TypeError: it is another."""
        root: Text = self._root(name, "text")
        return root

    def map(self, name: str) -> Map:
        """The root map of that name; as `text`."""
        root: Map = self._root(name, "map")
        return root

    def array(self, name: str) -> Array:
        """The root array of that name; as `text`."""
        root: Array = self._root(name, "array")
        return root

    def _root(self, name: str, kind: Kind) -> Any:
        node = self.engine.root(check_root(name), kind)
        if name not in self._roots:
            self._roots[name] = wrapped(node, self)
        return self._roots[name]

    def opened(self, name: str) -> Any:
        """The engine's part of a root that is open here, else None."""
        root = self._roots.get(name)
        return None if root is None else root.node

    def plain(self) -> dict[str, Any]:
        """Every root that has content, opened here or not, as plain values."""
        return self.engine.content()

    def digest(self) -> bytes:
        """16 bytes: equal content, equal digest, here and in the browser. Kept until the next change."""
        return self.engine.digest()

    # Edits

    @contextmanager
    def transaction(self, origin: object = None) -> Iterator[None]:
        """Edits inside make one update, sent when the outermost of nested ones ends; `origin` (the outermost's) is for
        `changes()`. Never `await` inside.

        There is no way back: if the block raises, what it had edited stays, is sent, and the error goes on.
        """
        self.check_writable()
        try:
            with self.engine.transaction(origin):
                yield
        finally:
            if not self.engine.in_transaction:
                self._late()

    def undo(self, *scope: Shared, window: float = WINDOW, clock: Callable[[], float] | None = None) -> Undo:
        """Undo of the edits made here, from now on, in `scope` (texts, maps, arrays, with what is nested in them)."""
        if clock is None:
            return Undo(self, scope, window)
        return Undo(self, scope, window, clock)

    def check_writable(self) -> None:
        """Closed or ConfigError unless it may be edited."""
        if self._closed:
            raise Closed(f"document {self.name!r} was closed")
        if self.read_only:
            raise ConfigError(f"document {self.name!r}", "this is an old version, which can only be read")

    # Others

    def merge(self, update: bytes, peer: str | None) -> None:
        """Take in an update that `peer` sent (None: the disk). ValueError as of `apply`: the document is as it was.

        Inside a transaction (somebody awaits there) it is checked now and taken in when that ends.
        """
        if self.engine.in_transaction:
            self.engine.check(update)
            self._waiting.append((update, peer))
        else:
            self.engine.apply(update, _Remote(peer))

    def _late(self) -> None:
        waiting, self._waiting = self._waiting, []
        for update, peer in waiting:
            self.engine.apply(update, _Remote(peer))

    def _changed(self, update: bytes, origin: object) -> None:
        if self.host is not None and not isinstance(origin, _Remote):
            self.host.edited(self, update)

    def _publish_awareness(self, state: bytes | None) -> None:
        if self.host is not None:
            self.host.aware(self, state)

    # Reading along

    def changes(self) -> ChangeReader[Change]:
        """Every transaction from now on, local and remote: `async for change in doc.changes()`. See changes.py."""
        return self._broadcast.reader()

    def _follow(self, active: bool) -> None:
        if active:
            self._unfollow = self.engine.observe_changes(self._tell)
        elif self._unfollow is not None:
            self._unfollow()
            self._unfollow = None

    def _tell(self, parts: tuple[Part, ...], origin: object) -> None:
        if isinstance(origin, _Remote):
            self._broadcast.tell(Change(None, origin.peer or "?", parts))
        else:
            self._broadcast.tell(Change(origin, None, parts))

    # What the peer does

    def _demand_host(self) -> DocumentHost:
        if self._closed:
            raise Closed(f"document {self.name!r} was closed")
        if self.host is None:
            raise ConfigError(f"document {self.name!r}", "no peer holds it: open it with DocumentPeer.open()")
        return self.host

    async def durable(self) -> None:
        """Return when all edits made here so far are on this peer's disk. ConfigError: no peer, or it has no store."""
        await self._demand_host().durable(self)

    async def synced(self, n: int = 1, timeout: float | None = None) -> None:
        """Return when `n` peers have all edits made here so far on their disks. TimedOut after `timeout` seconds."""
        await self._demand_host().synced(self, n, timeout)

    async def joined(self, timeout: float | None = None) -> None:
        """Return when all is here that any peer that can be reached had at the call; one of them at least has it.

        A peer that cannot be asked counts by what it says next. TimedOut after `timeout` seconds, AccessDenied.
        """
        await self._demand_host().joined(self, timeout)

    async def save_version(self, name: str) -> Saved:
        """Keep the content of now under a name."""
        return await self._demand_host().save_version(self, name)

    def saved_versions(self) -> tuple[Saved, ...]:
        """What was kept, the oldest first."""
        return self._demand_host().saved(self)

    def at(self, name: str) -> Document:
        """The document as it was kept under that name: one of its own, to be read. NotFound."""
        return self._demand_host().at(self, name)

    def close(self) -> None:
        """The peer's: it holds this no longer. Readers end, edits raise Closed; what is in it can still be read."""
        if not self._closed:
            self._closed = True
            self._broadcast.end()
            self.awareness.end()
