"""The renamed calls that most programs meet; docs/upgrading.md includes the section."""

import trio

from nngkit import Service, ServiceDiscovery
from nngkit.protocols import DEFAULT, Push


# --8<-- [start:renamed]
async def main() -> None:
    async with (
        ServiceDiscovery(listen="tcp://127.0.0.1:0") as discovery,
        Service("answer", "tcp://127.0.0.1:9000", discovery=discovery.address),
    ):
        await discovery.wait_for_peers(1, timeout=5)  # was await_for_peers
        await discovery.discover(deadline=DEFAULT, early=True)  # was deadline=None
        print(discovery.stats.counters["pipes joined"])  # 1
        print(discovery.stats.socket.dropped)  # 0

    async with Push(linger=0) as push:  # was linger=None, which now waits for ever
        push.close(DEFAULT)  # was close(None)
        print(push.linger)  # 0


# --8<-- [end:renamed]

trio.run(main)
