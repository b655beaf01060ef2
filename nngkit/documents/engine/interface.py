"""Interface of a CRDT engine, and the content digest that all engines and the browser compute alike. Pure.

::

    doc = load_engine("yjs").new()
    body = doc.root("body", "text")
    with doc.transaction():
        body.insert(0, "hello")
    other.apply(doc.changes_since(other.state()))

Text positions are code points, and values are JSON plus bytes, for every engine. An engine needs:
updates as bytes with author and number, a check that an update connects, text positions that survive edits of others,
and undo of one author's edits.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from nngkit.documents.engine.codepoints import Delta
from nngkit.errors import ConfigError

Kind: TypeAlias = Literal["text", "array", "map"]
DEEPEST: Final = 100
"""Nesting depth of shared types that are read and digested; deeper ones read as null. Ours nest 3 deep."""
_ENGINES: Final = {"yjs": "nngkit.documents.engine.yjs"}


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()
"""Value of a key that does not exist, before or after a change."""


@dataclass(frozen=True, slots=True)
class Prelim:
    """Initial content of a shared type that is not in a document yet; the engine creates the type from it.

    `value`: a str; or a dict or list of plain values and nested Prelims.
    """

    kind: Kind
    value: Any


@dataclass(frozen=True, slots=True)
class TextChange:
    """`path`: the root's name, then keys and indices down to the text. `delta` counts code points."""

    path: tuple[str | int, ...]
    delta: Delta


@dataclass(frozen=True, slots=True)
class ArrayChange:
    """`delta` counts items; an Insert holds a tuple of them, shared types as plain values."""

    path: tuple[str | int, ...]
    delta: Delta


@dataclass(frozen=True, slots=True)
class MapChange:
    """`keys`: the old and the new value of each changed key, MISSING for none.

    A new shared type is given as its plain value, a replaced or deleted one as None.
    """

    path: tuple[str | int, ...]
    keys: Mapping[str, tuple[Any, Any]]


Part: TypeAlias = TextChange | ArrayChange | MapChange


class EngineText(Protocol):
    """A text. Positions are code points; the caller checks them."""

    def __len__(self) -> int: ...
    def read(self, start: int, stop: int) -> str: ...
    def insert(self, index: int, text: str) -> None: ...
    def delete(self, start: int, stop: int) -> None: ...
    def cursor(self, index: int, before: bool) -> bytes: ...
    def locate(self, cursor: bytes) -> int | None: ...


class EngineMap(Protocol):
    def __len__(self) -> int: ...
    def keys(self) -> list[str]: ...
    def has(self, key: str) -> bool: ...
    def get(self, key: str) -> Any: ...
    def set(self, key: str, value: Any) -> None: ...
    def delete(self, key: str) -> None: ...


class EngineArray(Protocol):
    def __len__(self) -> int: ...
    def get(self, index: int) -> Any: ...
    def insert(self, index: int, values: list[Any]) -> None: ...
    def delete(self, start: int, stop: int) -> None: ...


@runtime_checkable
class Node(Protocol):
    """A nested shared type: the result of `get`."""

    @property
    def kind(self) -> Kind: ...
    def plain(self) -> Any: ...


class EngineUndo(Protocol):
    @property
    def can_undo(self) -> bool: ...
    @property
    def can_redo(self) -> bool: ...
    def undo(self) -> bool: ...
    def redo(self) -> bool: ...
    def clear(self) -> None: ...


class EngineDocument(Protocol):
    """One replica. For one thread only."""

    client_id: int

    def apply(self, update: bytes, origin: object = None) -> None:
        """Apply a remote update. RuntimeError inside a transaction.

        Raises ValueError, and changes nothing, if it is no valid update or does not connect to the content; Harmful if
        the content had to be rebuilt from its earlier updates for that.
        """

    def check(self, update: bytes) -> None:
        """Raise ValueError if `apply` would reject the update; do not apply it."""

    def changes_since(self, state: bytes | None = None) -> bytes:
        """Return an update with everything missing at `state` (None: everything), always with all deletions."""

    def state(self) -> bytes:
        """Return the engine's state vector; it counts insertions, not deletions."""

    def digest(self) -> bytes:
        """Return 16 bytes; see `content_digest`."""

    def observe(self, callback: Callable[[bytes, object], None]) -> None:
        """Call `callback(update, origin)` after each transaction that changed something, local or remote."""

    def observe_changes(self, callback: Callable[[tuple[Part, ...], object], None]) -> Callable[[], None]:
        """Call `callback(parts, origin)` right after those of `observe`. Returns a function that unsubscribes."""

    def transaction(self, origin: object = None) -> AbstractContextManager[None]:
        """Group local edits into one update, that of the outermost block. Edits before an exception stay."""

    @property
    def in_transaction(self) -> bool: ...

    def root(self, name: str, kind: Kind) -> Any:
        """Return a root: EngineText, EngineMap, EngineArray. No edit. TypeError if it was opened as another type."""

    def content(self) -> dict[str, Any]:
        """Return the plain value of every root that has content, opened or not."""

    def undo(self, nodes: Sequence[Any], window: float, origin: object, clock: Callable[[], float]) -> EngineUndo:
        """Return an undo history of local edits under `nodes`; edits within `window` seconds are undone together."""


class Engine(Protocol):
    name: str

    def new(self, client_id: int | None = None) -> EngineDocument: ...
    def merge(self, updates: Iterable[bytes]) -> bytes:
        """Merge updates, in order, into one. They may need others before them. Raises ValueError."""


def load_engine(name: str = "yjs") -> Engine:
    """Return the engine of that name. Raises ConfigError if it is unknown, or its package is not installed."""
    module = _ENGINES.get(name)
    if module is None:
        raise ConfigError("engine", f"unknown; available: {', '.join(_ENGINES)}", name)
    try:
        made: Engine = import_module(module).ENGINE
    except ModuleNotFoundError as error:
        if error.name != "pycrdt":
            raise
        raise ConfigError("documents", "pycrdt is not installed: pip install 'nngkit[documents]'", name) from error
    return made


def content_digest(content: Mapping[str, Any]) -> bytes:
    """Return 16 bytes of SHA-256 over roots and their plain values, equal for equal content in every implementation.

    str(x) is a length (4 bytes, big-endian) and UTF-8. For each root with content, sorted as UTF-8: str(name), value. A
    value: null n | true t | false f | d and 8 bytes of IEEE double for numbers | i and 8 bytes for integers that a
    double cannot hold | s str | b length bytes | a count values | m count (str(key) value)*, sorted as UTF-8. Minus
    zero counts as zero, every NaN as 7ff8000000000000. tests/documents/digests.json has examples.
    """
    parts: list[bytes] = []
    for name in sorted(content, key=str.encode):
        parts.append(_string(name))
        _value(content[name], parts)
    return hashlib.sha256(b"".join(parts)).digest()[:16]


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">I", len(raw)) + raw


def _value(value: Any, parts: list[bytes]) -> None:
    if value is None:
        parts.append(b"n")
    elif value is True or value is False:
        parts.append(b"t" if value else b"f")
    elif isinstance(value, str):
        parts.append(b"s" + _string(value))
    elif isinstance(value, int) and int(float(value)) != value:
        parts.append(struct.pack(">cq", b"i", value))
    elif isinstance(value, int | float):
        number = math.nan if value != value else float(value) or 0.0
        parts.append(struct.pack(">cd", b"d", number) if number == number else b"d\x7f\xf8" + bytes(6))
    elif isinstance(value, bytes):
        parts.append(struct.pack(">cI", b"b", len(value)) + value)
    elif isinstance(value, list):
        parts.append(struct.pack(">cI", b"a", len(value)))
        for item in value:
            _value(item, parts)
    else:
        parts.append(struct.pack(">cI", b"m", len(value)))
        for key in sorted(value, key=str.encode):
            parts.append(_string(key))
            _value(value[key], parts)
