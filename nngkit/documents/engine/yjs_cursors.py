"""Text positions that survive edits, encoded as Yjs's relative positions; exact in non-ASCII text too.

::

    cursor = [0, client, clock, assoc]       the item at the position (assoc 0: after it; -1, as 65: before it)
           | [1, root name, assoc]           the end of a root (assoc 0), or its beginning
           | [2, client, clock, assoc]       the same for a nested text

pycrdt encodes them with a defect: it adds UTF-8 bytes to the clock, which counts UTF-16 units, so its positions after a
non-ASCII character are wrong, or panic. Positions in non-ASCII text are therefore computed in a shadow document that
has an "x" for each UTF-16 unit, where both counts agree. It is created at the first use, and follows by rewritten
updates.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import pycrdt

from nngkit.documents.engine import yjs_update
from nngkit.documents.engine.yjs_nodes import TextNode

_PENDING: Final = 1 << 20  # bytes of pending updates; beyond, a new shadow is cheaper
_AFTER, _BEFORE = b"\x00", b"\x41"


class CursorDocument(Protocol):
    """Interface of the document, for Cursors."""

    @property
    def in_transaction(self) -> bool: ...
    @property
    def roots(self) -> dict[str, Any]: ...
    def state(self) -> bytes: ...
    def changes_since(self, state: bytes | None = None) -> bytes: ...


class Cursors:
    """Positions in the texts of one document."""

    def __init__(self, owner: CursorDocument) -> None:
        self._owner = owner
        self.forget()

    def forget(self) -> None:
        """Drop the shadow; the next use creates one."""
        self._shadow: pycrdt.Doc[Any] | None = None
        self._pending: list[bytes] = []
        self._size = 0
        self._texts: dict[bytes, pycrdt.Text] = {}

    def note(self, update: bytes) -> None:
        if self._shadow is not None:
            self._pending.append(update)
            self._size += len(update)
            if self._size > _PENDING:
                self.forget()

    def cursor(self, node: TextNode, index: int, before: bool) -> bytes:
        """Encode the position before code point `index`; with `before`, bound to the character in front of it."""
        text, at = self._text(node, index)
        if before:
            return text.sticky_index(at, pycrdt.Assoc.BEFORE).encode()
        if index == len(node):
            return _own_id(text) + _AFTER
        return text.sticky_index(at, pycrdt.Assoc.AFTER).encode()

    def locate(self, node: TextNode, cursor: bytes) -> int | None:
        """Return the current code point of a position; None if it is invalid, or its item is missing."""
        try:
            kind, client, clock, after = _read(cursor)
        except ValueError:
            return None
        text, _ = self._text(node, 0)
        if kind != 0:
            if cursor[:-1] != _own_id(text):
                return None
            return len(node) if after else 0
        if clock >= yjs_update.read_state(self._owner.state()).get(client, 0):
            return None
        with text.doc.transaction() as transaction:
            at = pycrdt.StickyIndex.decode(cursor).get_index(transaction)
        if node.mirror is None:
            return min(at, len(node))
        return _from_utf16(str(node), at)

    def _text(self, node: TextNode, index: int) -> tuple[pycrdt.Text, int]:
        """Return the text to query for `node`, and `index` in it."""
        if self._owner.in_transaction:
            raise RuntimeError("a position inside a transaction: take it before or after")
        if node.mirror is None:
            return node.raw, index
        own = _own_id(node.raw)
        shadow = self._current()
        if own not in self._texts:
            for name, root in self._owner.roots.items():
                view = {"text": pycrdt.Text, "map": pycrdt.Map, "array": pycrdt.Array}[root.kind]
                self._collect(shadow.get(name, type=view))
        return self._texts[own], len(node.read(0, index).encode("utf-16-le")) // 2

    def _current(self) -> pycrdt.Doc[Any]:
        if self._shadow is None:
            self.forget()
            self._shadow = pycrdt.Doc()
            self._pending.append(self._owner.changes_since())
        with self._shadow.transaction():
            for update in self._pending:
                self._shadow.apply_update(yjs_update.in_ascii(update))
        self._pending.clear()
        self._size = 0
        return self._shadow

    def _collect(self, value: Any) -> None:
        if isinstance(value, pycrdt.Text):
            self._texts[_own_id(value)] = value
        elif isinstance(value, pycrdt.Map):
            for key in value.keys():  # noqa: SIM118
                self._collect(value[key])
        elif isinstance(value, pycrdt.Array):
            for index in range(len(value)):
                self._collect(value[index])


def _own_id(text: Any) -> bytes:
    """Return the position at the beginning of a text, without its assoc: it identifies the text."""
    encoded: bytes = text.sticky_index(0, pycrdt.Assoc.BEFORE).encode()
    return encoded[:-1]


def _read(cursor: bytes) -> tuple[int, int, int, bool]:
    """Return kind, client, clock, and whether the position is bound to what follows. Raises ValueError."""
    if len(cursor) < 3 or cursor[-1:] not in (_AFTER, _BEFORE) or cursor[0] > 2:
        raise ValueError("not a position")
    after = cursor[-1:] == _AFTER
    if cursor[0] == 1:
        return 1, 0, 0, after
    state = yjs_update.read_state(b"\x01" + cursor[1:-1])  # a single client and clock have the same encoding in both
    ((client, clock),) = state.items()
    return cursor[0], client, clock, after


def _from_utf16(text: str, at: int) -> int:
    """Return the code point at a UTF-16 offset; within a character, that character."""
    return len(text.encode("utf-16-le")[: 2 * at].decode("utf-16-le", "ignore"))
