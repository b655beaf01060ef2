"""Text, map and array on pycrdt, with code points and plain values.

::

    body.insert(2, "😀")        # before the third character, whatever their sizes
    rows.insert(0, Prelim("map", {"name": "a"}))

Numbers: JavaScript has one type, and pycrdt returns 3.0 for 3. So an integral number within ±2**53 is returned as int,
however it was stored; beyond, 64-bit ints and floats keep their type.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import pycrdt

from nngkit.documents.engine.codepoints import Delete, Delta, Insert, Keep, Positions, Splice, append, composed
from nngkit.documents.engine.interface import DEEPEST, Kind, Prelim
from nngkit.documents.engine.weak_callbacks import weakly
from nngkit.errors import Broken

_EXACT: Final = 2**53


def made(value: Any) -> Any:
    """Convert a Prelim to a pycrdt type; return any other value unchanged."""
    if not isinstance(value, Prelim):
        return value
    if value.kind == "text":
        return pycrdt.Text(value.value)
    if value.kind == "map":
        return pycrdt.Map({key: made(item) for key, item in value.value.items()})
    return pycrdt.Array([made(item) for item in value.value])


def plain(value: Any) -> Any:
    """Convert a JSON value from pycrdt."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and -_EXACT <= value <= _EXACT else value
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def plain_node(value: Any, depth: int = 0) -> Any:
    """Convert a pycrdt value, or the content of a shared type, down to DEEPEST."""
    if not isinstance(value, pycrdt.Text | pycrdt.Map | pycrdt.Array):
        return plain(value)
    if depth >= DEEPEST:
        return None
    if isinstance(value, pycrdt.Text):
        return str(value)
    if isinstance(value, pycrdt.Map):
        return {key: plain_node(value[key], depth + 1) for key in value.keys()}  # noqa: SIM118
    items = []
    for index in range(len(value)):
        try:
            items.append(plain_node(value[index], depth + 1))
        except ValueError:  # a forged item that is counted but does not exist
            break
    return items


class CursorLookup(Protocol):
    """Positions in a text that survive edits; see yjs_cursors.py."""

    def cursor(self, node: TextNode, index: int, before: bool) -> bytes: ...
    def locate(self, node: TextNode, cursor: bytes) -> int | None: ...


class NodeOwner(Protocol):
    """Interface of the document, for its nodes."""

    touched: list[TextNode]

    @property
    def cursors(self) -> CursorLookup: ...
    @property
    def followed(self) -> bool: ...
    def reading(self) -> AbstractContextManager[None]: ...
    def transaction(self, origin: object = None) -> AbstractContextManager[None]: ...
    def wrapped(self, value: Any) -> Any: ...


class _Node:
    kind: Kind

    def __init__(self, owner: NodeOwner, raw: Any) -> None:
        self.owner = owner
        self._raw: Any = raw

    @property
    def raw(self) -> Any:
        if self._raw is None:
            raise Broken("the document was rebuilt after a damaged update: get this part of it again")
        return self._raw

    def renew(self, raw: Any) -> None:
        """Attach to `raw` in the rebuilt document; None if the node has to be obtained again."""
        self._raw = raw

    def plain(self) -> Any:
        """Return the content as plain values."""
        with self.owner.reading():
            return plain_node(self.raw)


class MapNode(_Node):
    kind: Kind = "map"

    def __len__(self) -> int:
        return len(self.raw)

    def keys(self) -> list[str]:
        return list(self.raw.keys())

    def has(self, key: str) -> bool:
        return key in self.raw

    def get(self, key: str) -> Any:
        """Return the value or node. Raises KeyError."""
        with self.owner.reading():
            if key not in self.raw:
                raise KeyError(key)
            return self.owner.wrapped(self.raw[key])

    def set(self, key: str, value: Any) -> None:
        with self.owner.transaction():
            self.raw[key] = made(value)

    def delete(self, key: str) -> None:
        with self.owner.transaction():
            del self.raw[key]


class ArrayNode(_Node):
    kind: Kind = "array"

    def __len__(self) -> int:
        return len(self.raw)

    def get(self, index: int) -> Any:
        return self.owner.wrapped(self.raw[index])

    def insert(self, index: int, values: list[Any]) -> None:
        with self.owner.transaction():
            self.raw[index:index] = [made(value) for value in values]

    def delete(self, start: int, stop: int) -> None:
        with self.owner.transaction():
            del self.raw[start:stop]


class TextNode(_Node):
    """A text with a mirror of its characters (codepoints.py), which is None while the text is ASCII.

    A local edit updates the mirror at once, for the next edit in the same transaction. Remote edits and undo arrive as
    an event at the end of their transaction. An event is read only while there are subscribers, because pycrdt counts
    it from the beginning of the text: 0.5 ms in a text of 20,000 pieces. Without subscribers, the mirror is rebuilt at
    its next use.
    """

    kind: Kind = "text"

    def __init__(self, owner: NodeOwner, raw: Any) -> None:
        super().__init__(owner, raw)
        self._edits: list[Splice] = []
        self._touched = False
        self._stale = False
        self.delta: Delta | None = None  # of the last transaction, while there are subscribers
        self._begin()

    def renew(self, raw: Any) -> None:
        super().renew(raw)
        if raw is not None:
            self._begin()

    def _begin(self) -> None:
        self._fit(str(self._raw), len(self._raw))
        # Bypasses pycrdt's wrapper, which reads the whole event and costs more than the engine's transaction.
        self._subscription = self._raw.integrated.observe(weakly(self._changed))

    def freshen(self) -> None:
        """Rebuild the mirror if remote edits made it stale."""
        if self._stale:
            self._fit(str(self.raw), len(self.raw))

    def _fit(self, text: str, size: int) -> None:
        self._stale = False
        self._ascii = len(text)
        self._mirror = None if text.isascii() else Positions(text)
        # Non-text items count one byte each in the engine's positions, and do not show in the string.
        self._mixed = size != (self._mirror.size if self._mirror else self._ascii)

    def __len__(self) -> int:
        self.freshen()
        return self._ascii if self._mirror is None else len(self._mirror)

    def __str__(self) -> str:
        self.freshen()
        return str(self.raw) if self._mirror is None else str(self._mirror)

    @property
    def mirror(self) -> Positions | None:
        self.freshen()
        return self._mirror

    def to_bytes(self, index: int) -> int:
        self.freshen()
        return index if self._mirror is None else self._mirror.to_bytes(index)

    def read(self, start: int, stop: int) -> str:
        self.freshen()
        return str(self)[start:stop] if self._mirror is None else self._mirror.text(start, stop)

    def _writable(self) -> Any:
        self.freshen()
        if self._mixed:
            raise Broken("this text holds items that are not text (another peer uses it as an array): it is read-only")
        return self.raw

    def insert(self, index: int, text: str) -> None:
        with self.owner.transaction():
            raw = self._writable()
            self._touch((index, 0, text))
            raw.insert(self.to_bytes(index), text)
            if self._mirror is not None:
                self._mirror.insert(index, text)
            elif text.isascii():
                self._ascii += len(text)
            else:
                self._mirror = Positions(str(raw))

    def delete(self, start: int, stop: int) -> None:
        with self.owner.transaction():
            raw = self._writable()
            self._touch((start, stop - start, ""))
            del raw[self.to_bytes(start) : self.to_bytes(stop)]
            if self._mirror is not None:
                self._mirror.delete(start, stop)
            else:
                self._ascii -= stop - start

    def _touch(self, edit: Splice) -> None:
        if not self._touched:
            self._touched = True
            self.owner.touched.append(self)
        if self.owner.followed:
            self._edits.append(edit)

    def settle(self) -> None:
        """Reset the state of the transaction."""
        self._touched = False
        self._edits.clear()
        self.delta = None

    def _changed(self, event: Any) -> None:
        """Handle the engine's event while the transaction commits; must not raise."""
        if self._touched:
            self.delta = composed(self._edits) if self.owner.followed else None
            return
        if not self.owner.followed:
            self._stale = True
            return
        self.owner.touched.append(self)
        delta = _delta(event.delta)
        before = len(self)
        raw, transaction = self._raw.integrated, event.transaction
        try:
            if delta is None or self._mixed:
                raise ValueError("items that are not text")
            if self._mirror is not None:
                self.delta = self._mirror.follow(delta)
            elif all(part.value.isascii() for part in delta if isinstance(part, Insert)):
                self._ascii += sum(_growth(part) for part in delta)
                self.delta = delta
            else:
                self._fit(raw.get_string(transaction), raw.len(transaction))
                self.delta = delta
            if raw.len(transaction) != (self._ascii if self._mirror is None else self._mirror.size):
                raise ValueError("the mirror and the text differ")
        except ValueError:
            text = raw.get_string(transaction)
            self._fit(text, raw.len(transaction))
            self.delta = (Insert(text), Delete(before))

    def cursor(self, index: int, before: bool) -> bytes:
        return self.owner.cursors.cursor(self, index, before)

    def locate(self, cursor: bytes) -> int | None:
        return self.owner.cursors.locate(self, cursor)


def _growth(part: Keep | Insert | Delete) -> int:
    return len(part.value) if isinstance(part, Insert) else -part.count if isinstance(part, Delete) else 0


def _delta(raw: list[dict[str, Any]]) -> Delta | None:
    """Convert a delta from pycrdt; None if it inserts non-text items."""
    out: list[Keep | Insert | Delete] = []
    for part in raw:
        if "insert" in part:
            if not isinstance(part["insert"], str):
                return None
            append(out, Insert(part["insert"]))
        elif "retain" in part:
            append(out, Keep(int(part["retain"])))
        else:
            append(out, Delete(int(part["delete"])))
    return tuple(out)
