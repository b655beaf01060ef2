"""Initial content that several peers may put into a document at once, and that is then there once. Pure.

The update is the same wherever it is made: the author's client id is a hash of the content, and the parts are written
in one order. A CRDT takes an update that it has already as nothing new::

    >>> from nngkit.documents.document import Document
    >>> seed = seeded({"body": "Agenda"}, lambda client: Document("minutes", client_id=client))
    >>> document = Document("minutes")
    >>> document.merge(seed.engine.changes_since(), None)
    >>> document.merge(seed.engine.changes_since(), None)
    >>> document.plain()
    {'body': 'Agenda'}
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, TypeVar

from nngkit.documents.shared import Array, Map, Shared, Text

_FORM: Final = b"nngkit seed 1"  # another order of writing has to have other client ids
_KINDS: Final[dict[type[Shared], str]] = {Text: "t", Map: "m", Array: "a"}


class Draft(Protocol):
    """Interface of a Document, as far as needed."""

    def text(self, name: str) -> Text: ...
    def map(self, name: str) -> Map: ...
    def array(self, name: str) -> Array: ...
    def digest(self) -> bytes: ...
    def transaction(self) -> AbstractContextManager[None]: ...


D = TypeVar("D", bound=Draft)


def seeded(content: Mapping[str, Any], new: Callable[[int], D]) -> D:
    """Return a document with `content` and nothing else; `new` makes one with a given client id.

    `content`: roots by name, as str, dict or list; values as in `Map` and `Array`, shared types among them. Raises
    TypeError or ValueError for others.
    """
    draft = new(1)
    shape = _write(draft, content)
    seed = new(_client(draft.digest(), shape))
    _write(seed, content)
    return seed


def _client(digest: bytes, shape: str) -> int:
    """Return a client id below 2**52: equal for equal content, whose nested parts are of equal types."""
    return int.from_bytes(hashlib.sha256(_FORM + digest + shape.encode()).digest()[:8]) % (2**52 - 1) + 1


def _write(document: Draft, content: Mapping[str, Any]) -> str:
    """Write the roots in the order of their names; return their shape."""
    shape: list[str] = []
    with document.transaction():
        for name in sorted(content):
            value = content[name]
            if isinstance(value, str):
                shape.append("t")
                document.text(name).append(value)
            elif isinstance(value, Mapping):
                shape.append("m")
                _fill(document.map(name), value, shape)
            elif isinstance(value, list | tuple):
                shape.append("a")
                _fill(document.array(name), value, shape)
            else:
                raise TypeError(f"root {name!r}: {type(value).__name__} is neither str, dict nor list")
    return "".join(shape)


def _fill(parent: Any, content: Any, shape: list[str]) -> None:
    """Fill a shared type. A nested one is put in empty first: the engine would write the keys of a map in any order."""
    if isinstance(parent, Text):
        parent.append(content)
        return
    keys: list[Any] = sorted(content) if isinstance(parent, Map) else list(range(len(content)))
    for key in keys:
        value = content[key]
        nested = isinstance(value, Shared)
        shape.append(_KINDS[type(value)] if nested else "v")
        ready = type(value)() if nested else value
        if isinstance(parent, Map):
            parent[key] = ready
        else:
            parent.append(ready)
        if nested:
            _fill(parent[key], value.initial, shape)
    shape.append(".")
