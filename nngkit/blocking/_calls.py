"""Clients: their part in the calling thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, TypeVar, cast

from nngkit.blocking._base import Blocking
from nngkit.calls.client import Client
from nngkit.calls.middleware import Reply
from nngkit.calls.stream import Stream
from nngkit.calls.typed import Contract, Typed, interface_methods
from nngkit.headers import Headers
from nngkit.portal import BlockingIterator, Calls
from nngkit.protocols import Timeout

T = TypeVar("T")

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

    def _typed(
        self,
        interface: Callable[..., T],
        *,
        timeout: Timeout,
        idempotent: bool | None,
        hedge: float | None,
        headers: Headers | None,
    ) -> T:
        options: dict[str, Any] = {"timeout": timeout, "headers": headers}

        def request(body: Any, method: str, contract: Contract) -> Any:
            reply = self._call(body, method=method, idempotent=idempotent, hedge=hedge, **options)
            return contract.read_reply(reply.body, reply.provider or None)

        def stream(body: Any, method: str, contract: Contract) -> Iterator[Any]:
            for part in self._stream(body, method=method, **options):
                yield contract.read_reply(part, None)

        return cast(T, Typed(interface, interface_methods(interface, self._opened.codec), request, stream))

    def _stream(self, body: Any, **options: Any) -> Parts:
        calls, inner = self._open_object()
        return Parts(calls, inner.stream(body, **options))
