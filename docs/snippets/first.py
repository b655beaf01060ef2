import trio

from nngkit import Service, ServiceDiscovery


async def main() -> None:
    async with (
        ServiceDiscovery(listen="tcp://127.0.0.1:0", deadline=0.5) as discovery,
        Service("answer", "tcp://127.0.0.1:9000", discovery=[discovery.address]),
    ):
        await discovery.discover()
        print(discovery.resolve("answer").address)  # tcp://127.0.0.1:9000


trio.run(main)
