"""Providers for the tests of the client: a Rep socket with a scripted handler, announced or at a fixed address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from nngkit.calls.messages import CallRequest, Reply, ResultReply, parse_request
from nngkit.protocols import Rep, Request

ANY = "tcp://127.0.0.1:0"
WAIT = 15.0  # seconds for any one event, on a busy machine


class Provider:
    """A Rep socket whose requests are answered, at once, by `handler`; `seen` has their bodies.

    `handler(request)` replies itself; the default echoes. `hold()` makes it keep requests unanswered.
    """

    def __init__(self, rep: Rep, handler: Callable[[Request], Awaitable[object]] | None = None) -> None:
        self.rep = rep
        self.seen: list[bytes] = []
        self.held: list[Request] = []
        self.handler = handler or self.echo

    @property
    def address(self) -> str:
        return self.rep.address

    async def echo(self, request: Request) -> None:
        await request.areply(self.address.encode() + b" " + request.body)

    async def keep(self, request: Request) -> None:
        self.held.append(request)

    async def run(self) -> None:
        async for request in self.rep:
            self.seen.append(request.body)
            await self.handler(request)

    def close(self) -> None:
        """Close its socket, as a crash would."""
        self.rep.close(0.0)


@asynccontextmanager
async def provider(
    listen: str = ANY, handler: Callable[[Request], Awaitable[object]] | None = None, **options: Any
) -> AsyncIterator[Provider]:
    """Run a Provider until the block ends."""
    async with trio.open_nursery() as nursery:
        with Rep(listen=listen, **options) as rep:
            made = Provider(rep, handler)
            nursery.start_soon(made.run)
            yield made
            nursery.cancel_scope.cancel()


def answers(*replies: Reply | bytes | None) -> Callable[[Request], Awaitable[object]]:
    """Return a handler for codec "cbor" that gives these replies in turn, the last one for ever; None: no reply."""
    left = list(replies)

    async def handle(request: Request) -> None:
        reply = left.pop(0) if len(left) > 1 else left[0]
        if reply is not None:
            await request.areply(reply if isinstance(reply, bytes) else reply.encode("cbor"))

    return handle


async def cbor_echo(request: Request) -> None:
    """Answer a call with its own fields."""
    call = parse_request(request.body, "cbor", limit=1 << 20)
    assert isinstance(call, CallRequest)
    fields = {"body": call.body, "method": call.method, "timeout": call.timeout}
    await request.areply(ResultReply(fields).encode("cbor"))
