"""Clients: their part in the calling thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from nngkit.blocking._base import Blocking
from nngkit.calls.client import Client
from nngkit.calls.middleware import Reply
from nngkit.calls.stream import Stream
from nngkit.portal import BlockingIterator, Calls

__all__ = ["Calling", "Parts"]


class Parts(BlockingIterator[Any]):
    """Iterator over the parts of a reply; see `nngkit.Stream`."""

    def __init__(self, portal: Calls, stream: Stream) -> None:
        async def parts() -> AsyncGenerator[Any, None]:
            async with stream:
                async for part in stream:
                    yield part

        super().__init__(portal, parts())
        self._stream = stream

    @property
    def headers(self) -> dict[str, str | bytes]:
        """Headers of the reply; those that the handler has set before its first part are there with it."""
        return self._stream.headers


class Calling(Blocking[Client]):
    """Base of `Client`."""

    def _request(self, body: Any, **options: Any) -> Any:
        inner = self._opened
        if options["hedge"] is None and options["headers"] is None and inner.plain:
            del options["hedge"], options["headers"]
            return inner.request_blocking(body, **options)
        return self._call(body, **options).body

    def _call(self, body: Any, **options: Any) -> Reply:
        return self._opened.call_blocking(self._wait, body, **options)

    def _stream(self, body: Any, **options: Any) -> Parts:
        calls, inner = self._open_object()
        return Parts(calls, inner.stream(body, **options))
