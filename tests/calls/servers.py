"""Shared by the tests of the server: its callers, and handlers."""

from __future__ import annotations

from typing import Any, Final

import trio

from nngkit.calls import Client, Server
from nngkit.calls.messages import Reply, parse_reply
from nngkit.protocols import Req
from tests.calls.providers import WAIT

CBOR: Final = {"codec": "cbor"}


async def echo(body: Any) -> Any:
    return body


def direct(server: Server, **options: Any) -> Client:
    """Return a client of this server, without discovery."""
    options.setdefault("timeout", WAIT)
    return Client("answer", addresses=server.address, **options)


async def ask(req: Req, request: Any) -> Reply:
    return parse_reply(await req.arequest(request.encode("cbor"), timeout=WAIT), "cbor", limit=1 << 20)


class Gate:
    """Handler that waits until it is opened, and counts."""

    def __init__(self) -> None:
        self.event = trio.Event()
        self.running = self.most = self.cancelled = 0

    async def __call__(self, body: Any) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.event.wait()
        except trio.Cancelled:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return body
