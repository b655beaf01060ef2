"""The engine on pycrdt: Yjs's format and algorithm in Rust, so that a page with Yjs is a peer like any other.

::

    doc = ENGINE.new()
    doc.root("body", "text").insert(0, "hello")
    doc.apply(update)                  # ValueError, and all as before, for what is not an update or does not connect

What was measured of pycrdt 0.14.13, and is kept away from it here (tests/documents/test_pycrdt.py notices when a new
version differs):

- Updates out of order spoil a document. So `apply` reads each with `_v1` first, and lets in only what connects.
- A document may be damaged by what gets through nevertheless (two items that build on each other): it is noticed, and
  the document is built anew from what it had, which is kept as one update and those since. Nested parts and undo have
  to be got again then (Broken says so).
- A panic of Rust is a BaseException.
- A root that came from elsewhere has no type until it is opened; read as another than it is later opened as, observing
  it panics. So what was not opened here is read from a scratch copy.
- Positions are bytes, also in its sticky index, where they are wrong in text that is not ASCII (_yjs_cursors.py).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pycrdt

from nngkit.documents.engine import yjs_update
from nngkit.documents.engine.interface import Engine, Kind, Part, content_digest
from nngkit.documents.engine.weak_callbacks import weakly
from nngkit.documents.engine.yjs_changes import Follower
from nngkit.documents.engine.yjs_cursors import Cursors
from nngkit.documents.engine.yjs_nodes import ArrayNode, MapNode, TextNode, plain_node
from nngkit.documents.engine.yjs_undo import YjsUndo

__all__ = ["ENGINE", "Yjs", "YjsDocument"]

LOCAL: Final = 1  # pycrdt's origins are hashes; ours tell local edits, which undo takes back, from those of others
REMOTE: Final = 2
_SLACK: Final = 1 << 20  # bytes of updates kept beside the last whole before it is encoded anew
_FOUR_BYTES: Final = re.compile(rb"[\xf0-\xf4]")  # begins a character of two UTF-16 units, or is something else
_OVERHEAD: Final = 64  # bytes that Python adds to an update it keeps
_KINDS: Final[dict[Kind, tuple[type, Callable[..., Any]]]] = {
    "text": (pycrdt.Text, TextNode),
    "array": (pycrdt.Array, ArrayNode),
    "map": (pycrdt.Map, MapNode),
}


class YjsDocument:
    """See engine.EngineDocument. `client_id`: under 2**53, random if None; never the same for two that edit."""

    def __init__(self, client_id: int | None = None) -> None:
        self.client_id = client_id if client_id is not None else secrets.randbits(52) + 1
        self.touched: list[TextNode] = []  # texts whose positions changed in this transaction
        self._roots: dict[str, Any] = {}
        self._texts: dict[bytes, TextNode] = {}  # nested ones, by the engine's id: one mirror each
        self._callbacks: list[Callable[[bytes, object], None]] = []
        self._follower = Follower(self)
        self._undos: list[YjsUndo] = []
        self._past: list[bytes] = []
        self._past_size = self._whole_size = 0
        self._known: dict[int, int] = {}  # a state the document has at least
        self._pairs = yjs_update.Pairs()
        self._digest: bytes | None = None
        self._depth = 0
        self._local = True
        self._origin: object = None
        self._update: bytes | None = None
        self._open()
        self.cursors = Cursors(self)

    def _open(self) -> None:
        self.doc: pycrdt.Doc[Any] = pycrdt.Doc(client_id=self.client_id)
        self.doc.observe(weakly(self._committed))

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
        """Roots by name. The first view that has content counts: text, array, map."""
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
        """One transaction of the engine's for several reads; no edit."""
        with self.doc.transaction():
            yield

    def wrapped(self, value: Any) -> Any:
        """A value of pycrdt's as ours: a node, or plain."""
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
        undo = YjsUndo(self, nodes, window, origin, clock, LOCAL)
        self._undos.append(undo)
        return undo

    @contextmanager
    def committing(self, origin: object) -> Iterator[None]:
        """Around what makes a transaction of its own inside the engine."""
        if self._depth:
            raise RuntimeError("inside a transaction")
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
                if not isinstance(error, ValueError):  # that is the decoder's, which touches nothing
                    self._renew()
                raise ValueError(f"not an update: {error}") from error
            # One client's structs that connect are all taken. Those of several may wait for each other for ever.
            if len(parsed.ends) > 1:
                state = yjs_update.read_state(self.doc.get_state())
                if any(state.get(client, 0) < end for client, end in parsed.ends.items()):
                    self._renew()
                    raise ValueError("not an update: its items build on each other")
            self._pairs.note(parsed, self._known)
            for client, end in parsed.ends.items():
                if end > self._known.get(client, 0):
                    self._known[client] = end
        finally:
            self._settle()

    def _renew(self) -> None:
        """Build the document anew from what it had before the transaction that damaged it."""
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

    # What happened

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
        """After a transaction: keep its update and tell of it. Callbacks may edit; they run outside of the engine."""
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
            # the first of all is the whole: a large document that comes at once is not encoded again
            whole = update if len(self._past) == 1 else self.changes_since()
            self._past = [whole]
            self._past_size = self._whole_size = len(whole)
        self.cursors.note(update)
        for callback in self._callbacks:
            callback(update, origin)
        self._follower.tell(parts, origin)


class Yjs:
    """See engine.Engine."""

    name = "yjs"

    def new(self, client_id: int | None = None) -> YjsDocument:
        return YjsDocument(client_id)

    def merge(self, updates: Iterable[bytes]) -> bytes:
        """By the engine's own merge, which costs more than proportionally: for few updates, not for a whole history."""
        several = tuple(updates)
        for update in several:
            yjs_update.parse(update)
        return pycrdt.merge_updates(*several)


ENGINE: Final[Engine] = Yjs()
