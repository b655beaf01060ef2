"""A TCP proxy that falls silent: what a network, a middlebox or a stopped program does to connections that stay open.

::

    async with Proxy(server.address) as proxy, Subscriber(proxy.address):
        proxy.mute()            # nothing passes any more on present connections; new ones are as good as ever

Bytes are still taken from both ends, so that TCP has nothing to complain of.
"""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import trio

__all__ = ["Proxy"]


class Proxy:
    """Proxy on a free port of 127.0.0.1 for `address`, a URL of tcp or ws. `connections`: accepted so far."""

    def __init__(self, address: str) -> None:
        self._there = urlsplit(address)
        self._host, self._port = self._there.hostname or "", self._there.port or 0
        self._muted = 0
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._nursery_manager: Any = trio.open_nursery()
        nursery: trio.Nursery = await self._nursery_manager.__aenter__()
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        self.address = self._there._replace(netloc=f"127.0.0.1:{port}").geturl()
        nursery.start_soon(trio.serve_listeners, self._serve, [listener])
        self._nursery = nursery
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._nursery.cancel_scope.cancel()
        await self._nursery_manager.__aexit__(kind, value, traceback)

    def mute(self) -> None:
        """Let nothing pass any more on the connections that there are."""
        self._muted = self.connections

    async def _serve(self, near: trio.SocketStream) -> None:
        self.connections += 1
        number = self.connections
        try:
            far = await trio.open_tcp_stream(self._host, self._port)
        except OSError:
            await near.aclose()
            return
        async with near, far, trio.open_nursery() as nursery:
            nursery.start_soon(self._carry, number, far, near, nursery.cancel_scope)
            await self._carry(number, near, far, nursery.cancel_scope)

    async def _carry(
        self, number: int, source: trio.SocketStream, target: trio.SocketStream, end: trio.CancelScope
    ) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                if number > self._muted:
                    await target.send_all(data)
        if number > self._muted:
            end.cancel()
        else:
            await trio.sleep_forever()  # the other end hears nothing of this end's death either
