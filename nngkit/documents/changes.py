"""Changes of a document, as an async iterator: `async for change in doc.changes()`.

::

    async for change in doc.changes():
        for part in change.parts:                   # TextChange, ArrayChange, MapChange
            print(change.peer or "here", part.path, part)

A reader receives changes from the call on, not from the first iteration, so none is missed in between. It may stop
anywhere, be cancelled and continue without loss. A reader that falls behind by 4,096 changes gets those that were
kept, then Full: a delta after a gap is useless, so it has to start again from the document's content.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Self, TypeVar

import trio

from nngkit.background import demand_trio
from nngkit.documents.engine.codepoints import Delete, Delta, Insert, Keep
from nngkit.documents.engine.interface import MISSING, ArrayChange, MapChange, Part, TextChange
from nngkit.errors import Full

__all__ = [
    "MISSING",
    "ArrayChange",
    "Broadcast",
    "Change",
    "ChangeReader",
    "Delete",
    "Delta",
    "Insert",
    "Keep",
    "MapChange",
    "Part",
    "TextChange",
]

UNREAD: Final = 4096
"""Cap on the unread changes of a reader: one minute of sixty people typing."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change:
    """One transaction.

    `origin`: the argument of `transaction(origin)`; the Undo for what it undid or redid; else None. `peer`: the sender,
    None for a local edit. `parts`: changes of the opened roots; empty if only other roots changed.
    """

    origin: object
    peer: str | None
    parts: tuple[Part, ...]


class Broadcast(Generic[T]):
    """Passes items to its readers.

    `active` is called with True for the first reader, and with False after the last one has left.
    """

    def __init__(self, active: Callable[[bool], None] = lambda _: None) -> None:
        # weak: a reader without references is removed
        self._readers: weakref.WeakSet[ChangeReader[T]] = weakref.WeakSet()
        self._active = active
        self._on = False
        self._ended = False

    def reader(self) -> ChangeReader[T]:
        """Return a reader of the items from now on."""
        reader: ChangeReader[T] = ChangeReader(self)
        if self._ended:
            reader.end()
        else:
            self._readers.add(reader)
            self._count()
        return reader

    def send(self, item: T) -> None:
        """Pass an item to all readers. Call it in the trio thread."""
        for reader in tuple(self._readers):
            reader.put(item)
        self._count()

    def end(self) -> None:
        """End the readers, each after its unread items."""
        self._ended = True
        for reader in tuple(self._readers):
            reader.end()
        self._readers.clear()
        self._count()

    def leave(self, reader: ChangeReader[T]) -> None:
        self._readers.discard(reader)
        self._count()

    def _count(self) -> None:
        if self._on != bool(self._readers):
            self._on = not self._on
            self._active(self._on)


class ChangeReader(Generic[T]):
    """Async iterator over changes. Leave early with `async with` or `aclose()`. For one task at a time."""

    def __init__(self, broadcast: Broadcast[T]) -> None:
        self._broadcast = broadcast
        self._queue: deque[T] = deque()
        self._lost = self._over = False
        self._wakeup = trio.Event()

    def put(self, item: T) -> None:
        if len(self._queue) >= UNREAD:
            self._lost = True
            self._broadcast.leave(self)
        else:
            self._queue.append(item)
        self._wakeup.set()

    def end(self) -> None:
        self._over = True
        self._wakeup.set()

    def __aiter__(self) -> Self:
        demand_trio("changes()")
        return self

    async def __anext__(self) -> T:
        """Return the next change. Cancellation loses none. Raises Full."""
        await trio.lowlevel.checkpoint()
        while not self._queue:
            if self._lost:
                raise Full(f"{UNREAD} changes were left unread: start again from the content")
            if self._over:
                raise StopAsyncIteration
            self._wakeup = trio.Event()
            await self._wakeup.wait()
        return self._queue.popleft()

    def unread(self) -> list[T]:
        """Return the unread changes without waiting. Raises Full, as iterating would."""
        if self._lost and not self._queue:
            raise Full(f"{UNREAD} changes were left unread: start again from the content")
        found = list(self._queue)
        self._queue.clear()
        return found

    async def aclose(self) -> None:
        """Stop reading."""
        self._queue.clear()
        self.end()
        self._broadcast.leave(self)
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(shield=True):
            await self.aclose()
