import trio

from nngkit import Client, Server, ServiceDiscovery


async def answer(question: bytes) -> bytes:
    return b"42"


async def main() -> None:
    async with (
        ServiceDiscovery(listen="tcp://127.0.0.1:0", interval=1.0) as discovery,
        Server("answer", answer, discovery=discovery.address),
        Client("answer", discovery=discovery) as client,
    ):
        print(await client.request(b"?", timeout=5.0))  # b'42'


trio.run(main)
