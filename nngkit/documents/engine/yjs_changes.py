"""Changes of a transaction, from pycrdt's deep events; read only while subscribed, as reading is costly.

Events are read while the transaction commits (later they are gone), and converted to Parts after it. Text deltas in
code points come from the mirrors (TextNode); nested texts are found by their path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pycrdt

from nngkit.documents.engine.codepoints import Delete, Insert, Keep
from nngkit.documents.engine.interface import MISSING, ArrayChange, MapChange, Part, TextChange
from nngkit.documents.engine.yjs_nodes import ArrayNode, MapNode, TextNode, plain_node

Callback = Callable[[tuple[Part, ...], object], None]


class FollowedDocument(Protocol):
    """Interface of the document, for Follower."""

    @property
    def roots(self) -> dict[str, Any]: ...
    def wrapped(self, value: Any) -> Any: ...


class Follower:
    """Subscribers of changes, and the events collected for them."""

    def __init__(self, owner: FollowedDocument) -> None:
        self._owner = owner
        self._callbacks: list[Callback] = []
        self._subscriptions: list[tuple[Any, Any]] = []
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
                for raw, subscription in self._subscriptions:
                    raw.unobserve(subscription)
                self._subscriptions.clear()

        return end

    def opened(self, name: str, node: Any) -> None:
        if self._callbacks:
            self._watch(name, node)

    def dropped(self) -> None:
        """Drop all events and subscriptions: the document is about to be rebuilt."""
        self._subscriptions.clear()
        self._events.clear()

    def _watch(self, name: str, node: Any) -> None:
        raw = node.raw

        kept = self._events  # not self, see weak_callbacks.py

        def changed(events: Any) -> None:
            for event in events if isinstance(events, list) else [events]:
                kept.append(((name, *event.path), event))

        self._subscriptions.append((raw, raw.observe_deep(changed)))
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
