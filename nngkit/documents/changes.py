"""What happened to a document, for everybody who reads along: `async for change in doc.changes()`.

::

    async for change in doc.changes():
        for part in change.parts:                   # TextChange, ArrayChange, MapChange
            print(change.peer or "here", part.path, part)

Reading begins with the call, not with the first step, so nothing is missed in between. A reader may stop anywhere, be
cancelled and go on: no change is lost by that. One who falls behind by 4,096 changes reads those that were kept, and
then is told (Full), because a delta with a gap before it means nothing: begin anew from the document's content.
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
"""Changes that a reader may leave: a minute of sixty people who type."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change:
    """One transaction. `origin`: what `transaction(origin)` was given, the Undo for what it took back, else None.

    `peer`: who sent it, None for an edit made here. `parts`: what changed in the roots that are opened here; empty if
    the rest of the document changed.
    """

    origin: object
    peer: str | None
    parts: tuple[Part, ...]


class Broadcast(Generic[T]):
    """Hands what happens to its readers. `active` is called with whether there are any, whenever that changes."""

    def __init__(self, active: Callable[[bool], None] = lambda _: None) -> None:
        self._readers: weakref.WeakSet[ChangeReader[T]] = weakref.WeakSet()  # one that nobody holds any more is none
        self._active = active
        self._on = False
        self._ended = False

    def reader(self) -> ChangeReader[T]:
        """Reads what is told from now on."""
        reader: ChangeReader[T] = ChangeReader(self)
        if self._ended:
            reader.end()
        else:
            self._readers.add(reader)
            self._count()
        return reader

    def tell(self, item: T) -> None:
        """From the thread of trio."""
        for reader in tuple(self._readers):
            reader.put(item)
        self._count()

    def end(self) -> None:
        """Readers end when they have read the rest."""
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
    """An async iterator; also `async with`, or `aclose()`, to leave early. One task at a time."""

    def __init__(self, broadcast: Broadcast[T]) -> None:
        self._broadcast = broadcast
        self._queue: deque[T] = deque()
        self._lost = self._over = False
        self._bell = trio.Event()

    def put(self, item: T) -> None:
        if len(self._queue) >= UNREAD:
            self._lost = True
            self._broadcast.leave(self)
        else:
            self._queue.append(item)
        self._bell.set()

    def end(self) -> None:
        self._over = True
        self._bell.set()

    def __aiter__(self) -> Self:
        demand_trio("changes()")
        return self

    async def __anext__(self) -> T:
        """The next. Cancelled while it waits, it has taken nothing. Raises Full."""
        await trio.lowlevel.checkpoint()
        while not self._queue:
            if self._lost:
                raise Full(f"{UNREAD} changes were left unread: begin anew")
            if self._over:
                raise StopAsyncIteration
            self._bell = trio.Event()
            await self._bell.wait()
        return self._queue.popleft()

    def unread(self) -> list[T]:
        """Take what has come and was not read, without waiting. Raises Full, as reading on would."""
        if self._lost and not self._queue:
            raise Full(f"{UNREAD} changes were left unread: begin anew")
        found = list(self._queue)
        self._queue.clear()
        return found

    async def aclose(self) -> None:
        """Read no more."""
        self._queue.clear()
        self.end()
        self._broadcast.leave(self)
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(shield=True):
            await self.aclose()
