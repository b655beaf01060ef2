"""Text, Map and Array: the shared types of a document, with the interfaces of str, dict and list.

::

    body = doc.text("body")
    body.insert(0, "hello"); body += " 😀"; del body[0:2]; body[0:1] = "L"
    table = doc.array("table")
    table.append(Map({"name": "Ada", "notes": Text("…")}))     # nested: each part is edited on its own
    table.append({"name": "Ada"})                              # a plain value: replaced as a whole

Positions are code points, as everywhere in Python; negative ones count from the end. A Text, Map or Array outside of a
document only holds its initial content. To read or edit it, put it into a document and get it from there.

Values are JSON and bytes: None, bool, int, float, str, bytes, list, dict with str keys. Numbers follow JavaScript,
which has one type: an integral number within ±2**53 is returned as int, even if it was stored as 3.0. Beyond that,
64-bit ints keep their value, but those that fit a short float may be returned as float, 2**60 as 2.0**60. Only 2**63-1
is rejected: the engine would send 2.0**63 (measured, pycrdt 0.14.13).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, Self, SupportsIndex, overload

from nngkit.documents.engine.interface import EngineArray, EngineMap, EngineText, Node, Prelim
from nngkit.envelope import MAX_DEPTH
from nngkit.errors import NngkitError

_INTS: Final = (-(2**63), 2**63 - 2)


class Owner(Protocol):
    """Interface of the document, for its shared types."""

    def check_writable(self) -> None: ...
    def transaction(self, origin: object = None) -> AbstractContextManager[None]: ...


class Shared:
    """Base of Text, Map and Array."""

    def __init__(self, first: Any) -> None:
        self._first = first
        self._document: Owner | None = None
        self._node: Any = None
        self._place: tuple[object, object] | None = None

    @property
    def node(self) -> Any:
        """The engine's node."""
        if self._node is None:
            raise NngkitError(f"this {type(self).__name__} is in no document: put it into one, and get it from there")
        return self._node

    @property
    def initial(self) -> Any:
        """The initial content, for a document to come. Raises NngkitError if it is in one already."""
        if self._node is not None:
            raise NngkitError(f"this {type(self).__name__} is in a document already; use a new one")
        return self._first

    @property
    def document(self) -> Owner:
        """The document that holds it."""
        _ = self.node
        assert self._document is not None
        return self._document

    def plain(self) -> Any:
        """Return the content as str, dict or list, nested types included."""
        return self.node.plain()

    def _writing(self) -> Any:
        self.document.check_writable()
        return self.node

    def prelim(self) -> Prelim:
        """Return the initial content for the engine.

        Raises NngkitError if it is in a document: it cannot be in two places.
        """
        _ = self.initial
        return self._prelim()

    def _prelim(self) -> Prelim:
        raise AssertionError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._first if self._node is None else self.plain()!r})"


class Text(Shared):
    """Text that several peers edit concurrently."""

    def __init__(self, text: str = "") -> None:
        super().__init__(_text(text))

    def _prelim(self) -> Prelim:
        return Prelim("text", self._first)

    @property
    def _own(self) -> EngineText:
        node: EngineText = self.node
        return node

    def __len__(self) -> int:
        return len(self._own)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __str__(self) -> str:
        return str(self._own)

    def __contains__(self, text: str) -> bool:
        return text in str(self)

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            return self._own.read(start, stop) if step == 1 else str(self)[key]
        at = self._at(key, len(self) - 1)
        return self._own.read(at, at + 1)

    def __setitem__(self, key: SupportsIndex | slice, text: str) -> None:
        start, stop = self._range(key)
        self.splice(start, stop - start, text)

    def __delitem__(self, key: SupportsIndex | slice) -> None:
        start, stop = self._range(key)
        self.splice(start, stop - start, "")

    def __iadd__(self, text: str) -> Self:
        self.insert(len(self), text)
        return self

    def insert(self, index: int, text: str) -> None:
        """Insert `text` before code point `index`. Raises IndexError."""
        self.splice(self._at(index, len(self)), 0, text)

    def append(self, text: str) -> None:
        """Append `text`."""
        self.insert(len(self), text)

    def delete(self, start: int, stop: int) -> None:
        """Delete code points `start` to before `stop`, as `del text[start:stop]`."""
        del self[start:stop]

    def splice(self, index: int, count: int, text: str) -> None:
        """Replace `count` code points at `index` by `text`, in one update. Raises IndexError."""
        node: EngineText = self._writing()
        _text(text)
        index = self._at(index, len(node))
        if not 0 <= count <= len(node) - index:
            raise IndexError(f"{count} code points from {index} of a text of {len(node)}")
        with self.document.transaction():
            if count:
                node.delete(index, index + count)
            if text:
                node.insert(index, text)

    def cursor(self, index: int, *, before: bool = False) -> bytes:
        """Return a position that stays at its character while peers edit: bytes for `index_of` at any peer.

        It is bound to the character after `index`, or with `before` to the character before it.
        """
        return self._own.cursor(self._at(index, len(self)), before)

    def index_of(self, cursor: bytes) -> int | None:
        """Return the current index of a position; None if it is invalid, or its edit has not arrived."""
        return self._own.locate(bytes(cursor))

    def _at(self, index: SupportsIndex, last: int) -> int:
        at = index.__index__()
        if at < 0:
            at += len(self)
        if not 0 <= at <= last:
            raise IndexError(f"code point {index!r} of a text of {len(self)}")
        return at

    def _range(self, key: SupportsIndex | slice) -> tuple[int, int]:
        if not isinstance(key, slice):
            at = self._at(key, len(self) - 1)
            return at, at + 1
        start, stop, step = key.indices(len(self))
        if step != 1:
            raise ValueError("a text slice must have step 1")
        return start, max(start, stop)


class Map(Shared, MutableMapping[str, Any]):
    """Map of str keys to values. If two peers set a key concurrently, all peers keep the same one of the values."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        super().__init__({_key(key): value for key, value in (values or {}).items()})

    def _prelim(self) -> Prelim:
        return Prelim("map", {key: prepared(value) for key, value in self._first.items()})

    @property
    def _own(self) -> EngineMap:
        node: EngineMap = self.node
        return node

    def __len__(self) -> int:
        return len(self._own)

    def __iter__(self) -> Iterator[str]:
        return iter(self._own.keys())

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and _lone_surrogate(key) is None and self._own.has(key)

    def __getitem__(self, key: str) -> Any:
        if type(key) is not str or _lone_surrogate(key) is not None:
            raise KeyError(key)
        return wrapped(self._own.get(key), self.document, (self._node, key))

    def __setitem__(self, key: str, value: Any) -> None:
        node: EngineMap = self._writing()
        if isinstance(value, Shared) and value._place == (node, key):
            return  # map["text"] += "x" assigns the same object
        ready = prepared(value)
        with self.document.transaction():
            node.set(_key(key), ready)

    def __delitem__(self, key: str) -> None:
        node: EngineMap = self._writing()
        if key not in self:
            raise KeyError(key)
        with self.document.transaction():
            node.delete(key)

    def update(self, *others: Any, **more: Any) -> None:
        """As dict.update, in one update."""
        with self.document.transaction():
            super().update(*others, **more)

    def clear(self) -> None:
        """Delete all keys, in one update."""
        with self.document.transaction():
            for key in list(self):
                del self[key]

    __hash__ = object.__hash__
    __eq__ = object.__eq__  # identity; compare content by `plain()`


class Array(Shared, MutableSequence[Any]):
    """List of values."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__(list(values))

    def _prelim(self) -> Prelim:
        return Prelim("array", [prepared(value) for value in self._first])

    @property
    def _own(self) -> EngineArray:
        node: EngineArray = self.node
        return node

    def __len__(self) -> int:
        return len(self._own)

    @overload
    def __getitem__(self, key: int) -> Any: ...
    @overload
    def __getitem__(self, key: slice) -> list[Any]: ...
    def __getitem__(self, key: int | slice) -> Any:
        if isinstance(key, slice):
            return [self._get(at) for at in range(*key.indices(len(self)))]
        return self._get(self._at(key, len(self) - 1))

    def _get(self, at: int) -> Any:
        return wrapped(self._own.get(at), self.document, (self._node, at))

    def __iter__(self) -> Iterator[Any]:
        for at in range(len(self)):
            yield self._get(at)

    def __setitem__(self, key: int | slice, value: Any) -> None:
        """Replace an item, or a slice by any number of items, in one update."""
        node: EngineArray = self._writing()
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise ValueError("an array slice must have step 1")
            values = [prepared(item) for item in value]
        else:
            start = self._at(key, len(self) - 1)
            if isinstance(value, Shared) and value._place == (node, start):
                return
            stop, values = start + 1, [prepared(value)]
        with self.document.transaction():
            if stop > start:
                node.delete(start, stop)
            node.insert(start, values)

    def __delitem__(self, key: int | slice) -> None:
        node: EngineArray = self._writing()
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                raise ValueError("an array slice must have step 1")
        else:
            start = self._at(key, len(self) - 1)
            stop = start + 1
        if stop > start:
            with self.document.transaction():
                node.delete(start, stop)

    def insert(self, index: int, value: Any) -> None:
        """Insert `value` before item `index`, clamped to the length as in a list."""
        at, _, _ = slice(index, None).indices(len(self))
        self[at:at] = [value]

    def append(self, value: Any) -> None:
        """Append `value`."""
        self.insert(len(self), value)

    def extend(self, values: Iterable[Any]) -> None:
        """Append `values`, in one update."""
        self[len(self) :] = list(values)

    def clear(self) -> None:
        """Delete all items, in one update."""
        del self[:]

    def reverse(self) -> None:
        """Not supported: the items would be replaced, and concurrent edits to the old ones lost."""
        raise TypeError("a shared array cannot be reversed in place")

    def pop(self, index: int = -1) -> Any:
        """Delete an item and return its plain value; a deleted shared type has no content."""
        with self.document.transaction():
            at = self._at(index, len(self) - 1)
            value = self._own.get(at)
            value = value.plain() if isinstance(value, Node) else value
            del self[at]
        return value

    def move(self, index: int, to: int) -> None:
        """Remove item `index`, then insert it before item `to` of the remaining list, in one update.

        Two peers that move the same item concurrently duplicate it: the engine has no move. TypeError for a shared
        type.
        """
        with self.document.transaction():
            value = self[index]
            if isinstance(value, Shared):
                raise TypeError("a shared type cannot be moved: concurrent edits to it would be lost")
            del self[index]
            self.insert(to, value)

    def _at(self, index: SupportsIndex, last: int) -> int:
        at = index.__index__()
        if at < 0:
            at += len(self)
        if not 0 <= at <= last:
            raise IndexError(f"item {index!r} of an array of {len(self)}")
        return at

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def wrapped(value: Any, document: Owner, place: tuple[object, object] | None = None) -> Any:
    """Return a node of the engine as a shared type; any other value unchanged."""
    if not isinstance(value, Node):
        return value
    shared: Shared = {"text": Text, "map": Map, "array": Array}[value.kind]()
    shared._document, shared._node, shared._place = document, value, place
    return shared


def prepared(value: Any) -> Any:
    """Return a value as the engine takes it. TypeError or ValueError, with the place in it, for unsupported values."""
    return value.prelim() if isinstance(value, Shared) else _value(value, "", 0)


def _value(value: Any, where: str, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is float or kind is bytes:
        return value
    if kind is str:
        return _text(value, where)
    if kind is int:
        if not _INTS[0] <= value <= _INTS[1]:
            raise ValueError(f"value{where}: integer outside of -2**63 to 2**63-2")
        return value
    if depth >= MAX_DEPTH:
        raise ValueError(f"value{where}: nested more than {MAX_DEPTH} deep")
    if kind is list or kind is tuple:
        return [_value(item, f"{where}[{at}]", depth + 1) for at, item in enumerate(value)]
    if kind is dict:
        return {_key(key, where): _value(item, f"{where}[{key!r}]", depth + 1) for key, item in value.items()}
    if isinstance(value, Shared):
        raise TypeError(f"value{where}: {kind.__name__} within a plain list or dict; use Array or Map around it")
    raise TypeError(f"value{where}: {kind.__name__} is not supported")


def check_root(name: str) -> str:
    """Return `name` if it is a non-empty str. Raises TypeError, ValueError."""
    if not _key(name):
        raise ValueError("the name of a root is empty")
    return name


def _key(key: object, where: str = "") -> str:
    if type(key) is not str:
        raise TypeError(f"value{where}: a key must be str, not {type(key).__name__}")
    return _text(key, where)


def _text(text: object, where: str = "") -> str:
    if type(text) is not str:
        raise TypeError(f"value{where}: {type(text).__name__} where str was expected")
    if (at := _lone_surrogate(text)) is not None:
        raise ValueError(f"value{where}: lone surrogate at {at}")
    return text


def _lone_surrogate(text: str) -> int | None:
    """Return the index of the first lone surrogate in `text`, None if there is none."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return error.start
    return None
