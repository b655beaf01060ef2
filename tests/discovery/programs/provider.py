"""provider.py NAME ADDRESS DAEMON...: a Service in its own process; prints `ready` when a daemon is connected."""

# ruff: noqa: T201

import sys

import trio

from nngkit import Service


async def main() -> None:
    name, address, *daemons = sys.argv[1:]
    async with Service(name, address, discovery=daemons) as service:
        await service.wait_for_peers(timeout=15)
        print("ready", flush=True)
        await trio.sleep_forever()


trio.run(main)
