"""Documents of an object in the portal, for threads."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

from nngkit.blocking._base import Blocking
from nngkit.documents import document as _document
from nngkit.documents.threads import Document
from nngkit.portal import BlockingIterator

__all__ = ["Document", "Opening"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class Opening(Blocking[T]):
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

    def __init__(self, owner: Blocking[Any]) -> None:
        self._owner = owner

    def do(self, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
        portal, _ = self._owner._open_object()
        return portal.do(function, *arguments, **options)

    def wait(self, function: Callable[P, Awaitable[R]], *arguments: P.args, **options: P.kwargs) -> R:
        portal, _ = self._owner._open_object()
        return portal.call(function, *arguments, **options)

    def iterate(self, source: AsyncGenerator[R, None]) -> BlockingIterator[R]:
        portal, _ = self._owner._open_object()
        return BlockingIterator(portal, source)

    def hold(self) -> AbstractContextManager[None]:
        portal, _ = self._owner._open_object()
        return portal.hold()
