"""Yjs engine on pycrdt: the format and algorithm of Yjs in Rust, so that a web page with Yjs is a full peer.

::

    doc = ENGINE.new()
    doc.root("body", "text").insert(0, "hello")
    doc.apply(update)                  # ValueError, and no change, if it is invalid or does not connect

Measured defects of pycrdt 0.14.13 that are worked around here (tests/documents/test_pycrdt.py reports when a new
version differs):

- Updates out of order corrupt a document. So `apply` parses each update first (yjs_update.py), and admits only one
  that connects.
- An update that passes may still corrupt a document (two items that build on each other). This is detected, and the
  document is rebuilt from its earlier content, which is kept as one update and those since. Nested types and undo
  histories must then be obtained again; using the old ones raises Broken.
- A Rust panic is a BaseException.
- A root from a remote update has no type until it is opened. If it is read as one type and later opened as another,
  observing it panics. So roots that were not opened here are read from a scratch copy.
- Positions are bytes; those of its sticky index are wrong in non-ASCII text (yjs_cursors.py).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias
from weakref import finalize

import pycrdt

from nngkit.documents.engine import yjs_update
from nngkit.documents.engine.codepoints import Delete, Insert, Keep
from nngkit.documents.engine.interface import (
    MISSING,
    ArrayChange,
    Engine,
    Kind,
    MapChange,
    Part,
    TextChange,
    content_digest,
)
from nngkit.documents.engine.weak_callbacks import weakly
from nngkit.documents.engine.yjs_cursors import Cursors
from nngkit.documents.engine.yjs_nodes import ArrayNode, MapNode, TextNode, plain_node
from nngkit.documents.versions import Harmful

LOCAL: Final = 1  # pycrdt's origins are hashes; ours separate local edits, which undo tracks, from remote ones
REMOTE: Final = 2
Callback: TypeAlias = Callable[[tuple[Part, ...], object], None]
_SLACK: Final = 1 << 20  # bytes of updates kept beside the last full update before it is encoded again
_FOUR_BYTES: Final = re.compile(rb"[\xf0-\xf4]")  # may begin a character of two UTF-16 units
_OVERHEAD: Final = 64  # bytes of Python overhead for each update kept
_KINDS: Final[dict[Kind, tuple[type, Callable[..., Any]]]] = {
    "text": (pycrdt.Text, TextNode),
    "array": (pycrdt.Array, ArrayNode),
    "map": (pycrdt.Map, MapNode),
}


class YjsDocument:
    """See interface.EngineDocument. `client_id`: below 2**53, random if None; unique among editing replicas."""

    def __init__(self, client_id: int | None = None) -> None:
        self.client_id = client_id if client_id is not None else secrets.randbits(52) + 1
        self.touched: list[TextNode] = []  # texts whose positions changed in this transaction
        self._roots: dict[str, Any] = {}
        self._texts: dict[bytes, TextNode] = {}  # nested texts by the engine's id: one mirror each
        self._callbacks: list[Callable[[bytes, object], None]] = []
        self._follower = Follower(self)
        self._undos: list[YjsUndo] = []
        self._past: list[bytes] = []
        self._past_size = self._whole_size = 0
        self._known: dict[int, int] = {}  # a lower bound of the document's state
        self._pairs = yjs_update.Pairs()
        self._digest: bytes | None = None
        self._depth = 0
        self._local = True
        self._origin: object = None
        self._update: bytes | None = None
        self._let_go: Callable[[], object] = lambda: None
        self._open()
        self.cursors = Cursors(self)

    def _open(self) -> None:
        self._let_go()  # of the document before, if it is rebuilt
        self.doc: pycrdt.Doc[Any] = pycrdt.Doc(client_id=self.client_id)
        # pycrdt's callback holds its document, where no collector looks: it is freed once nothing observes it
        observing = finalize(self, self.doc.unobserve, self.doc.observe(weakly(self._committed)))
        observing.atexit = False
        self._let_go = observing

    # Reading

    def state(self) -> bytes:
        return self.doc.get_state()

    def changes_since(self, state: bytes | None = None) -> bytes:
        if state is not None:
            yjs_update.read_state(state)  # ValueError
        return self.doc.get_update(state)

    def digest(self) -> bytes:
        if self._digest is None:
            self._digest = content_digest(self.content())
        return self._digest

    def content(self) -> dict[str, Any]:
        """Roots by name; the first type that shows content counts: text, array, map."""
        found: dict[str, Any] = {}
        with self.reading():
            names = list(self.doc.keys())
        doc = self.doc
        if any(name not in self._roots for name in names):
            doc = pycrdt.Doc()
            doc.apply_update(self.changes_since())
        with doc.transaction():
            for name in names:
                for view in (pycrdt.Text, pycrdt.Array, pycrdt.Map):
                    if value := plain_node(doc.get(name, type=view)):
                        found[name] = value
                        break
        return found

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Group several reads into one engine transaction; no edit."""
        with self.doc.transaction():
            yield

    def wrapped(self, value: Any) -> Any:
        """Convert a pycrdt value to a node or a plain value."""
        if isinstance(value, pycrdt.Text):
            key = value.sticky_index(0, pycrdt.Assoc.BEFORE).encode()
            if key not in self._texts:
                self._texts[key] = TextNode(self, value)
            return self._texts[key]
        if isinstance(value, pycrdt.Map):
            return MapNode(self, value)
        if isinstance(value, pycrdt.Array):
            return ArrayNode(self, value)
        return plain_node(value)

    def root(self, name: str, kind: Kind) -> Any:
        node = self._roots.get(name)
        if node is None:
            view, made = _KINDS[kind]
            node = self._roots[name] = made(self, self.doc.get(name, type=view))
            self._follower.opened(name, node)
        elif node.kind != kind:
            raise TypeError(f"root {name!r} was opened as {node.kind}, not {kind}")
        return node

    @property
    def roots(self) -> dict[str, Any]:
        return self._roots

    # Local edits

    @property
    def in_transaction(self) -> bool:
        return self._depth > 0

    @contextmanager
    def transaction(self, origin: object = None) -> Iterator[None]:
        if self._depth:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
            return
        self._depth, self._origin, self._local = 1, origin, True
        try:
            with self.doc.transaction(origin=LOCAL):
                try:
                    yield
                finally:
                    self._depth = 0
        finally:
            self._settle()

    def undo(self, nodes: Sequence[Any], window: float, origin: object, clock: Callable[[], float]) -> YjsUndo:
        undo = YjsUndo(self, nodes, window, origin, clock)
        self._undos.append(undo)
        return undo

    @contextmanager
    def committing(self, origin: object) -> Iterator[None]:
        """Prepare for an operation that makes its own engine transaction."""
        if self._depth:
            raise RuntimeError("not allowed inside a transaction")
        self._origin, self._local = origin, True
        try:
            yield
        finally:
            self._settle()

    # Remote edits

    def check(self, update: bytes) -> None:
        self._read(update)

    def _read(self, update: bytes) -> yjs_update.Parsed:
        parsed = yjs_update.parse(update)
        if yjs_update.missing(parsed, self._known) is not None:
            self._known = yjs_update.read_state(self.doc.get_state())
            if (lacks := yjs_update.missing(parsed, self._known)) is not None:
                raise ValueError(f"update does not connect: missing {lacks}")
        if (cut := self._pairs.cut(parsed, self._known)) is not None:
            raise ValueError(f"not an update: it cuts {cut}")
        return parsed

    def apply(self, update: bytes, origin: object = None) -> None:
        if self._depth:
            raise RuntimeError("a remote update inside a local transaction")
        parsed = self._read(update)
        self._origin, self._local = origin, False
        try:
            try:
                with self.doc.transaction(origin=REMOTE):
                    self.doc.apply_update(update)
            except BaseException as error:
                if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                    raise
                if isinstance(error, ValueError):  # it comes from the decoder, which changes nothing
                    raise ValueError(f"not an update: {error}") from error
                self._renew()
                raise Harmful(f"not an update: {error}") from error
            # Connected structs of one client are all applied. Those of several may wait for each other forever.
            if len(parsed.ends) > 1:
                state = yjs_update.read_state(self.doc.get_state())
                if any(state.get(client, 0) < end for client, end in parsed.ends.items()):
                    self._renew()
                    raise Harmful("not an update: its items build on each other")
            self._pairs.note(parsed, self._known)
            for client, end in parsed.ends.items():
                if end > self._known.get(client, 0):
                    self._known[client] = end
        finally:
            self._settle()

    def _renew(self) -> None:
        """Rebuild the document as it was before the transaction that damaged it."""
        self._update = None
        for node in self.touched:
            node.settle()
        self.touched.clear()
        self._follower.dropped()
        self._open()
        with self.doc.transaction(origin=REMOTE):
            for update in self._past:
                self.doc.apply_update(update)
        self._update = None
        self._known = {}
        for name, node in self._roots.items():
            node.renew(self.doc.get(name, type=_KINDS[node.kind][0]))
            self._follower.opened(name, node)
        for text in self._texts.values():
            text.renew(None)
        self._texts.clear()
        self.cursors.forget()
        for undo in self._undos:
            undo.renew()

    # Notifications

    def observe(self, callback: Callable[[bytes, object], None]) -> None:
        self._callbacks.append(callback)

    def observe_changes(self, callback: Callable[[tuple[Part, ...], object], None]) -> Callable[[], None]:
        return self._follower.add(callback)

    @property
    def followed(self) -> bool:
        return self._follower.active

    def _committed(self, event: Any) -> None:
        self._update = event.update

    def _settle(self) -> None:
        """Finish a transaction: keep its update and notify. Callbacks may edit; they run outside of the engine."""
        update, self._update = self._update, None
        origin, self._origin = self._origin, None
        parts = self._follower.collected() if update is not None else ()
        for node in self.touched:
            node.settle()
        self.touched.clear()
        if update is None:
            return
        self._digest = None
        if self._local and _FOUR_BYTES.search(update) is not None:
            self._pairs.note(yjs_update.parse(update), {})
        self._past.append(update)
        self._past_size += len(update) + _OVERHEAD
        if self._past_size > 2 * self._whole_size + _SLACK:
            # The first update is already full: a large initial update is not encoded again.
            whole = update if len(self._past) == 1 else self.changes_since()
            self._past = [whole]
            self._past_size = self._whole_size = len(whole)
        self.cursors.note(update)
        for callback in self._callbacks:
            callback(update, origin)
        self._follower.notify(parts, origin)


class YjsUndo:
    """See interface.EngineUndo. Its manager tracks the local origin only. A document rebuilt after damage has none."""

    def __init__(
        self, owner: YjsDocument, nodes: Sequence[Any], window: float, origin: object, clock: Callable[[], float]
    ) -> None:
        self._owner = owner
        self._nodes = tuple(nodes)
        self._window = round(window * 1000)
        self._origin = origin
        self._clock = clock
        self.renew()

    def renew(self) -> None:
        clock = self._clock  # not self, see weak_callbacks.py
        self._manager = pycrdt.UndoManager(
            scopes=[node.raw for node in self._nodes],
            capture_timeout_millis=self._window,
            timestamp=lambda: int(clock() * 1000),
        )
        self._manager.include_origin(LOCAL)

    @property
    def can_undo(self) -> bool:
        return self._manager.can_undo()

    @property
    def can_redo(self) -> bool:
        return self._manager.can_redo()

    def undo(self) -> bool:
        with self._owner.committing(self._origin):
            return self._manager.undo()

    def redo(self) -> bool:
        with self._owner.committing(self._origin):
            return self._manager.redo()

    def clear(self) -> None:
        self._manager.clear()


class Follower:
    """Subscribers of changes, and pycrdt's deep events for them; read only while subscribed, as reading is costly.

    Events are read while the transaction commits (later they are gone), and converted to Parts after it. Text deltas in
    code points come from the mirrors (TextNode); nested texts are found by their path.
    """

    def __init__(self, owner: YjsDocument) -> None:
        self._owner = owner
        self._callbacks: list[Callback] = []
        self._subscriptions: list[finalize[Any, Any]] = []
        self._events: list[tuple[tuple[str | int, ...], Any]] = []

    @property
    def active(self) -> bool:
        return bool(self._callbacks)

    def add(self, callback: Callback) -> Callable[[], None]:
        """Subscribe. Returns a function that unsubscribes."""
        self._callbacks.append(callback)
        if len(self._callbacks) == 1:
            for name, node in self._owner.roots.items():
                self._watch(name, node)

        def end() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)
            if not self._callbacks:
                self._let_go()

        return end

    def opened(self, name: str, node: Any) -> None:
        if self._callbacks:
            self._watch(name, node)

    def dropped(self) -> None:
        """Drop all events and subscriptions: the document is about to be rebuilt."""
        self._let_go()
        self._events.clear()

    def _let_go(self) -> None:
        for observing in self._subscriptions:
            observing()
        self._subscriptions.clear()

    def _watch(self, name: str, node: Any) -> None:
        raw = node.raw

        kept = self._events  # not self, see weak_callbacks.py

        def changed(events: Any) -> None:
            for event in events if isinstance(events, list) else [events]:
                kept.append(((name, *event.path), event))

        observing = finalize(self, raw.unobserve, raw.observe_deep(changed))  # see YjsDocument._open
        observing.atexit = False
        self._subscriptions.append(observing)
        self._open_nested(node)

    def _open_nested(self, node: Any) -> None:
        """Create the mirrors of nested texts before they change: deleted text cannot be read afterwards."""
        if isinstance(node, TextNode):
            node.freshen()  # from now on it follows events
        elif isinstance(node, MapNode):
            for key in node.keys():  # noqa: SIM118
                self._open_nested(node.get(key))
        elif isinstance(node, ArrayNode):
            for index in range(len(node)):
                self._open_nested(node.get(index))

    def collected(self) -> tuple[Part, ...]:
        """Return the parts of the transaction that just ended."""
        events = self._events[:]
        self._events.clear()  # keep the list object: the callbacks reference it
        parts: list[Part] = []
        for path, event in events:
            if isinstance(event, pycrdt.TextEvent):
                node = self._find(path)
                if isinstance(node, TextNode) and node.delta is not None:
                    parts.append(TextChange(path, node.delta))
            elif isinstance(event, pycrdt.MapEvent):
                keys = event.keys  # type: ignore[attr-defined]
                parts.append(MapChange(path, {key: self._key(change) for key, change in keys.items()}))
            else:
                parts.append(ArrayChange(path, tuple(self._item(part) for part in event.delta)))
        return tuple(parts)

    def notify(self, parts: tuple[Part, ...], origin: object) -> None:
        for callback in tuple(self._callbacks):
            callback(parts, origin)

    def _find(self, path: tuple[str | int, ...]) -> Any:
        node: Any = self._owner.roots.get(str(path[0]))
        for step in path[1:]:
            try:
                node = node.get(step)
            except (KeyError, IndexError, AttributeError):  # deleted in the same transaction
                return None
        return node

    def _new(self, raw: Any) -> Any:
        self._open_nested(self._owner.wrapped(raw))
        return plain_node(raw)

    def _key(self, change: dict[str, Any]) -> tuple[Any, Any]:
        old, new = change.get("oldValue", MISSING), change.get("newValue", MISSING)
        if isinstance(old, pycrdt.Text | pycrdt.Map | pycrdt.Array):
            old = None
        return plain_node(old), self._new(new) if new is not MISSING else MISSING

    def _item(self, part: dict[str, Any]) -> Keep | Insert | Delete:
        if "insert" in part:
            return Insert(tuple(self._new(item) for item in part["insert"]))
        return Keep(int(part["retain"])) if "retain" in part else Delete(int(part["delete"]))


class Yjs:
    """See interface.Engine."""

    name = "yjs"

    def new(self, client_id: int | None = None) -> YjsDocument:
        return YjsDocument(client_id)

    def merge(self, updates: Iterable[bytes]) -> bytes:
        """Use the engine's merge, which is superlinear: for few updates, not for a whole history."""
        several = tuple(updates)
        for update in several:
            yjs_update.parse(update)
        return pycrdt.merge_updates(*several)


ENGINE: Final[Engine] = Yjs()
