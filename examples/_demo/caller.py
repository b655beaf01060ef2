"""Calls a service by its name, steadily, and says how each call went: a JSON line on stdout. SIGTERM ends it.

How to call a service whose providers come and go is all in ``Caller.call``: ask the resolver who is there, try one of
them, and if it does not answer soon try another one as well, until the time given to the call is over. Calls do not
wait for each other. To ask the resolver costs nothing: its daemon tells it of changes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import trio

from _demo.board import BUDGET, PACE, TRIES
from nngkit import Closed
from nngkit.discovery import ClientSettings, Resolver
from nngkit.protocols import Req

NAME = "answer"
ANSWER = b"The answer is 42"
TRY = 0.3  # seconds after which the next provider is tried: three of them fit into the second that a call has


class Caller:
    """One REQ socket a provider, kept for as long as the provider is known."""

    def __init__(self, resolver: Resolver, tries: int) -> None:
        self.resolver = resolver
        self.tries = tries
        self.sockets: dict[str, Req] = {}

    async def call(self) -> dict[str, Any]:
        """One call, as a report. A slow provider is not given up when the next one is tried: any answer will do."""
        started = time.monotonic()
        tries: list[dict[str, Any]] = []
        answer: bytes | None = None
        send, receive = trio.open_memory_channel[bytes | None](self.tries)
        under_way = 0
        with trio.move_on_after(BUDGET):
            async with trio.open_nursery() as nursery:
                while answer is None and (under_way or len(tries) < self.tries):
                    if len(tries) < self.tries:
                        address = await self.pick({each["to"] for each in tries})
                        tries.append({"to": address, "at": time.monotonic(), "seconds": None, "ok": False})
                        nursery.start_soon(self.ask, tries[-1], send)
                        under_way += 1
                    with trio.move_on_after(TRY if len(tries) < self.tries else BUDGET):
                        answer = await receive.receive()
                        under_way -= 1
                nursery.cancel_scope.cancel()
        return {
            "at": started,
            "seconds": time.monotonic() - started,
            "ok": answer is not None,
            "wrong": answer is not None and answer != ANSWER,
            "tries": tries,
        }

    async def ask(self, this: dict[str, Any], send: trio.MemorySendChannel[bytes | None]) -> None:
        """One try, until it is cancelled. It sends the answer, or None if there will be none."""
        answer = None
        try:
            with contextlib.suppress(Closed):  # it was found to be gone while we waited
                answer = await self.socket(this["to"]).arequest(b"?")
                this["ok"] = True
        finally:
            this["seconds"] = time.monotonic() - this["at"]
            send.send_nowait(answer)

    async def pick(self, tried: set[str]) -> str:
        """The address of one that this call has not tried yet, or if there is no other, of any; waits for the first."""
        known = [provider.address for provider in self.resolver.snapshot().get(NAME, ())]
        fresh = [address for address in known if address not in tried]
        return random.choice(fresh) if tried and fresh else (await self.resolver.find(NAME)).address

    def socket(self, address: str) -> Req:
        if address not in self.sockets:
            self.sockets[address] = Req(dial=address)
        return self.sockets[address]

    async def forget(self) -> None:
        """Close the sockets of providers that are gone; a call that waits on one tries the next provider at once."""
        async for _ in self.resolver.events():
            known = {provider.address for provider in self.resolver.snapshot().get(NAME, ())}
            for address in self.sockets.keys() - known:
                self.sockets.pop(address).close(0.0)


async def main(tries: int) -> None:
    settings = ClientSettings.from_environment()
    async with Resolver(settings.daemons) as resolver:
        await resolver.find(NAME)
        caller = Caller(resolver, tries)

        async def report() -> None:
            print(json.dumps(await caller.call()), flush=True)

        async with trio.open_nursery() as helpers:
            helpers.start_soon(caller.forget)
            async with trio.open_nursery() as calls:  # left when the last of them is over
                with trio.open_signal_receiver(signal.SIGTERM) as signals:
                    due = trio.current_time()
                    ending = trio.Event()
                    helpers.start_soon(set_when, signals, ending)
                    while not ending.is_set():
                        calls.start_soon(report)
                        due += PACE
                        with trio.move_on_at(due):
                            await ending.wait()
            helpers.cancel_scope.cancel()
        for socket in caller.sockets.values():
            socket.close(0.0)


async def set_when(signals: AsyncIterator[int], event: trio.Event) -> None:
    await anext(signals)
    event.set()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Call a service by its name, steadily.")
    parser.add_argument("--tries", type=int, default=TRIES, help="providers that a call may try")
    trio.run(main, parser.parse_args().tries)
