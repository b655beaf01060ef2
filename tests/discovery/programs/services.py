"""services.py NAME COUNT DAEMON: COUNT Service objects in one process; prints `ready` when all are connected."""

# ruff: noqa: T201

import sys
from contextlib import AsyncExitStack

import trio

from nngkit import Service


async def main() -> None:
    name, count, daemon = sys.argv[1:]
    async with AsyncExitStack() as stack:
        services = [
            await stack.enter_async_context(Service(name, f"tcp://10.1.{n // 250}.{n % 250}:9000", discovery=daemon))
            for n in range(int(count))
        ]
        for service in services:
            await service.wait_for_peers(timeout=30)
        print("ready", flush=True)
        await trio.sleep_forever()


trio.run(main)
