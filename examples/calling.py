"""A service and its callers: a name, three providers, calls with values, a stream, and a provider that leaves.

    python3 examples/calling.py

prints::

    2 + 3 = 5
    countdown: 3 2 1
    RemoteError: b is 0
    100 calls by 3 providers while one of them leaves: 0 failed

The discovery would be `nngkit discoverd`, or several; here it is part of the program. Providers are found by the name
`calc`, wherever they listen. nngkit.aio and nngkit.blocking have the same classes for asyncio and threads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import trio

from nngkit import Client, RemoteError, Server, ServiceDiscovery


def calculator(discovery: str) -> Server:
    """Return a provider of `calc`."""
    server = Server("calc", discovery=discovery, codec="cbor")

    @server.method
    async def add(body: dict[str, int]) -> int:
        return body["a"] + body["b"]

    @server.method
    def divide(body: dict[str, int]) -> float:  # a plain function runs in a thread
        if body["b"] == 0:
            raise RemoteError("b is 0")  # any other exception reaches the caller too, and is logged here
        return body["a"] / body["b"]

    @server.method
    async def countdown(body: int) -> AsyncIterator[int]:
        for number in range(body, 0, -1):
            yield number

    return server


async def main() -> None:
    async with (
        ServiceDiscovery(listen="tcp://127.0.0.1:0", interval=1.0) as discovery,
        Client("calc", discovery=discovery, codec="cbor", timeout=5.0) as calc,
        AsyncExitStack() as providers,
    ):
        servers = [await providers.enter_async_context(calculator(discovery.address)) for _ in range(3)]
        await calc.wait_for_providers(3)

        print("2 + 3 =", await calc.request({"a": 2, "b": 3}, method="add"))
        print("countdown:", *[number async for number in calc.stream(3, method="countdown")])
        try:
            await calc.request({"a": 1, "b": 0}, method="divide")
        except RemoteError as error:
            print(f"RemoteError: {error.message}")

        before = calc.stats.requests
        async with trio.open_nursery() as nursery:
            nursery.start_soon(servers[0].aclose)  # says goodbye, and finishes its calls
            for number in range(100):
                nursery.start_soon(lambda a: calc.request({"a": a, "b": 1}, method="add"), number)
        stats = calc.stats
        print(f"{stats.requests - before} calls by 3 providers while one of them leaves: {stats.failed - 1} failed")


if __name__ == "__main__":
    trio.run(main)
