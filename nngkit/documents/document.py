"""Document: named texts, maps and arrays that several peers edit concurrently and that converge to the same content.

::

    doc = peer.open("minutes")                       # or Document("minutes"), on its own
    doc.text("body").insert(0, "hello")
    with doc.transaction(origin="import"):           # one update for all of it
        doc.map("meta")["title"] = "Minutes"
        doc.array("rows").append([1, "x"])
    async for change in doc.changes(): ...

Knows no socket and no file: it reports local edits to its `DocumentHost`, the peer, which passes remote updates to
`merge`. For one thread only; nothing blocks, and only `async` methods wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from nngkit.documents.awareness import Awareness
from nngkit.documents.changes import Broadcast, Change, ChangeReader
from nngkit.documents.engine.interface import Engine, EngineDocument, Kind, Part, load_engine
from nngkit.documents.names import check_name
from nngkit.documents.records import Saved
from nngkit.documents.seeding import seeded
from nngkit.documents.shared import Array, Map, Shared, Text, check_root, wrapped
from nngkit.documents.undo import WINDOW, Undo
from nngkit.errors import Closed, ConfigError, EditRefused


class DocumentHost(Protocol):
    """Interface of the peer, for its documents."""

    def edited(self, document: Document, update: bytes) -> None:
        """Report a local transaction."""

    def aware(self, document: Document, state: bytes | None) -> None:
        """Publish the local awareness state, number `document.awareness.clock`; None: removed."""

    async def durable(self, document: Document) -> None: ...
    async def synced(self, document: Document, peers: int, timeout: float | None) -> None: ...
    async def joined(self, document: Document, timeout: float | None) -> None: ...
    def refusals_of(self, document: Document) -> tuple[EditRefused, ...]: ...
    async def save_version(self, document: Document, name: str) -> Saved: ...
    def saved(self, document: Document) -> tuple[Saved, ...]: ...
    def at(self, document: Document, name: str) -> Document: ...


@dataclass(frozen=True, slots=True)
class _Remote:
    """Origin of a remote update."""

    peer: str | None


class Document:
    """A document and its shared types. `client_id`: id of the local author in the engine, random if None.

    `read_only`: edits raise ConfigError, `merge` does not; used for saved versions.
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
        self._made = made
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

    # Shared types

    def text(self, name: str) -> Text:
        """Return the root text of that name, empty at first. Opening a root is not an edit.

        TypeError if it has another type.
        """
        root: Text = self._root(name, "text")
        return root

    def map(self, name: str) -> Map:
        """Return the root map of that name; as `text`."""
        root: Map = self._root(name, "map")
        return root

    def array(self, name: str) -> Array:
        """Return the root array of that name; as `text`."""
        root: Array = self._root(name, "array")
        return root

    def _root(self, name: str, kind: Kind) -> Any:
        node = self.engine.root(check_root(name), kind)
        if name not in self._roots:
            self._roots[name] = wrapped(node, self)
        return self._roots[name]

    def opened(self, name: str) -> Any:
        """Return the engine's node of an opened root, else None."""
        root = self._roots.get(name)
        return None if root is None else root.node

    def plain(self) -> dict[str, Any]:
        """Return all roots that have content, opened or not, as plain values."""
        return self.engine.content()

    def digest(self) -> bytes:
        """Return 16 bytes that are equal for equal content, also in the browser. Cached until the next change."""
        return self.engine.digest()

    # Edits

    @contextmanager
    def transaction(self, origin: object = None) -> Iterator[None]:
        """Group edits into one update, sent when the outermost block ends. Never `await` inside.

        `origin` (of the outermost block) appears in `changes()`. There is no rollback: if the block raises, its edits
        stay and are sent, and the exception propagates.
        """
        self.check_writable()
        try:
            with self.engine.transaction(origin):
                yield
        finally:
            if not self.engine.in_transaction:
                self._late()

    def seed(self, content: Mapping[str, Any]) -> bool:
        """Put `content` into a document that has no edit yet; return False, and do nothing, if it has one.

        Any number of peers may do so at once: equal content is there once. Of different contents all are there, texts
        one after the other. `content`: roots by name, as str, dict or list, with shared types inside. It is not undone
        by `undo`. Raises TypeError or ValueError for other content.
        """
        self.check_writable()
        if self.engine.state() != self._made.new().state():
            return False
        seed = seeded(content, lambda client: Document(self.name, engine=self._made, client_id=client))
        self.engine.apply(seed.engine.changes_since(), "seed")
        return True

    def undo(self, *scope: Shared, window: float = WINDOW, clock: Callable[[], float] | None = None) -> Undo:
        """Return an undo history of local edits in `scope` (shared types, with those nested in them), from now on."""
        if clock is None:
            return Undo(self, scope, window)
        return Undo(self, scope, window, clock)

    def check_writable(self) -> None:
        """Raise Closed or ConfigError unless the document can be edited."""
        if self._closed:
            raise Closed(f"document {self.name!r} was closed")
        if self.read_only:
            raise ConfigError(f"document {self.name!r}", "a saved version is read-only")

    # Remote updates

    def merge(self, update: bytes, peer: str | None) -> None:
        """Apply an update that `peer` sent (None: from storage).

        Raises ValueError, and changes nothing, if it is invalid. Inside a transaction the update is checked now and
        applied when the transaction ends.
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

    # Changes

    def changes(self) -> ChangeReader[Change]:
        """Return a reader of all transactions from now on, local and remote: `async for change in doc.changes()`."""
        return self._broadcast.reader()

    def _follow(self, active: bool) -> None:
        if active:
            self._unfollow = self.engine.observe_changes(self._notify)
        elif self._unfollow is not None:
            self._unfollow()
            self._unfollow = None

    def _notify(self, parts: tuple[Part, ...], origin: object) -> None:
        if isinstance(origin, _Remote):
            self._broadcast.send(Change(None, origin.peer or "?", parts))
        else:
            self._broadcast.send(Change(origin, None, parts))

    # Provided by the peer

    def _demand_host(self) -> DocumentHost:
        if self._closed:
            raise Closed(f"document {self.name!r} was closed")
        if self.host is None:
            raise ConfigError(f"document {self.name!r}", "it belongs to no peer: open it with DocumentPeer.open()")
        return self.host

    async def durable(self) -> None:
        """Wait until all local edits so far are on this peer's disk. Raises ConfigError without a peer or a store."""
        await self._demand_host().durable(self)

    async def synced(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until `n` peers have all current edits on disk.

        Raises TimedOut after `timeout` seconds, EditRefused if too few are left that take them, AccessDenied.
        """
        await self._demand_host().synced(self, n, timeout)

    @property
    def refused(self) -> tuple[EditRefused, ...]:
        """Refusals of local edits by present peers, which will not get what follows these edits either."""
        return self._demand_host().refusals_of(self)

    async def joined(self, timeout: float | None = None) -> None:
        """Wait until this peer has all edits that a reachable peer had at the call.

        At least one reachable peer must have the document. For a peer without a REP socket, its next heartbeat
        decides. Raises TimedOut after `timeout` seconds, AccessDenied.
        """
        await self._demand_host().joined(self, timeout)

    async def save_version(self, name: str) -> Saved:
        """Save the current content under a name. On disk when this returns."""
        return await self._demand_host().save_version(self, name)

    def saved_versions(self) -> tuple[Saved, ...]:
        """Return the saved versions, oldest first."""
        return self._demand_host().saved(self)

    def at(self, name: str) -> Document:
        """Return a saved version as a read-only document. Raises NotFound."""
        return self._demand_host().at(self, name)

    def close(self) -> None:
        """Close the document; called by its peer. Readers end, edits raise Closed; the content stays readable."""
        if not self._closed:
            self._closed = True
            self._broadcast.end()
            self.awareness.end()


class DocumentContent:
    """A document as its copy sees it: the `Content` of nngkit.documents.sync.local_copy."""

    __slots__ = ("_changed", "_document", "_engine")

    def __init__(self, document: Document, engine: Engine) -> None:
        self._document = document
        self._engine = engine
        self._changed = False
        document.engine.observe(self._observed)

    def _observed(self, update: bytes, origin: object) -> None:
        self._changed = True

    def apply(self, update: bytes, origin: object = None) -> bool:
        """Apply a remote update. Return True if it changed anything."""
        self._changed = False
        self._document.merge(update, None if origin is None else str(origin))
        return self._changed

    def changes_since(self, state: bytes | None = None) -> bytes:
        """Return an update with everything missing at `state`."""
        return self._document.engine.changes_since(state)

    def merge(self, updates: Sequence[bytes]) -> bytes:
        """Merge updates into one."""
        return self._engine.merge(updates)

    def state(self) -> bytes:
        """Return the state vector."""
        return self._document.engine.state()

    def digest(self) -> bytes:
        """Return the digest of the content."""
        return self._document.engine.digest()
