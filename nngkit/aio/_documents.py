"""Documents of an object in the portal, for asyncio programs."""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar, cast

from nngkit.aio._base import Aio, AsyncioIterator, in_portal
from nngkit.documents import document as _document
from nngkit.documents import threads as _threads
from nngkit.documents.changes import Change
from nngkit.documents.records import Saved

__all__ = ["Document", "Opening"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class Document(_threads.Document):
    """A document of nngkit.documents, for asyncio. `DocumentPeer.open` and `document` of a cluster's node return it.

    Edits are plain calls; `durable`, `synced`, `joined` and `save_version` are awaited, `changes` is an async iterator.
    """

    _loop: HostedLoop

    async def durable(self) -> None:  # type: ignore[override]
        await self._loop.awaiting(self._inner.durable)

    async def synced(self, n: int = 1, timeout: float | None = None) -> None:  # type: ignore[override]
        await self._loop.awaiting(self._inner.synced, n, timeout)

    async def joined(self, timeout: float | None = None) -> None:  # type: ignore[override]
        await self._loop.awaiting(self._inner.joined, timeout)

    async def save_version(self, name: str) -> Saved:  # type: ignore[override]
        return await self._loop.awaiting(self._inner.save_version, name)

    def changes(self) -> AsyncioIterator[Change]:  # type: ignore[override]
        """Iterate over transactions from now on, local and remote. Raises Full: see changes.py."""
        return cast(AsyncioIterator[Change], super().changes())

    def at(self, name: str) -> Document:
        return Document(self._loop.do(self._inner.at, name), self._loop)

    durable.__doc__ = _document.Document.durable.__doc__
    synced.__doc__ = _document.Document.synced.__doc__
    joined.__doc__ = _document.Document.joined.__doc__
    save_version.__doc__ = _document.Document.save_version.__doc__
    at.__doc__ = _document.Document.at.__doc__


class Opening(Aio[T]):
    """Base of objects that open documents, the same one each time."""

    def __init__(self) -> None:
        super().__init__()
        self._documents: dict[str, tuple[_document.Document, Document]] = {}
        self._opening = threading.Lock()

    def _for_program(self, inner: _document.Document) -> Document:
        """Return the document for the program."""
        with self._opening:
            known, document = self._documents.get(inner.name, (None, None))
            if document is None or known is not inner:
                document = Document(inner, HostedLoop(self))
                self._documents[inner.name] = inner, document
            return document

    def _all(self, opened: dict[str, _document.Document]) -> dict[str, Document]:
        return {name: self._for_program(inner) for name, inner in opened.items()}


class HostedLoop:
    """Access to the loop of an object with documents, while it is open: a documents.threads.Loop."""

    def __init__(self, owner: Aio[Any]) -> None:
        self._owner = owner

    def do(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        portal, _ = self._owner._open_object()
        return portal.do(function, *arguments, **options)

    def wait(self, function: Callable[P, Awaitable[R]], *arguments: P.args, **options: P.kwargs) -> R:
        raise TypeError("a wait is awaited: Document.durable() and its kin are coroutines here")

    async def awaiting(self, function: Callable[P, Awaitable[R]], *arguments: P.args, **options: P.kwargs) -> R:
        """Await a coroutine function of the document in the portal."""
        portal, _ = self._owner._open_object()
        return await in_portal(portal, functools.partial(function, *arguments, **options))

    def iterate(self, source: AsyncGenerator[R, None]) -> Any:
        """Return an async iterator over `source`."""
        portal, _ = self._owner._open_object()
        return AsyncioIterator(portal, source)

    def hold(self) -> AbstractContextManager[None]:
        portal, _ = self._owner._open_object()
        return portal.hold()
