"""Clients: their part in the calling thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from nngkit.blocking._base import Blocking
from nngkit.calls.client import Client
from nngkit.portal import BlockingIterator
from nngkit.protocols import Timeout

__all__ = ["Calling"]


class Calling(Blocking[Client]):
    """Base of `Client`."""

    def _request(
        self, body: Any, *, timeout: Timeout, method: str, idempotent: bool | None, hedge: float | None
    ) -> Any:
        inner = self._opened
        if hedge is None and not inner.hedges:
            return inner.request_blocking(body, timeout=timeout, method=method, idempotent=idempotent)
        return self._wait(Client.request, body, timeout=timeout, method=method, idempotent=idempotent, hedge=hedge)

    def _stream(self, body: Any, *, timeout: Timeout, method: str) -> BlockingIterator[Any]:
        async def parts(inner: Client) -> AsyncGenerator[Any, None]:
            async with inner.stream(body, timeout=timeout, method=method) as stream:
                async for part in stream:
                    yield part

        return self._iterate(parts)
