"""One socket, awaited by tasks of asyncio; the same calls work under trio."""

import asyncio

from nngkit.protocols import Rep, Req


# --8<-- [start:tasks]
async def serve(rep: Rep) -> None:
    async for request in rep:
        await request.areply(request.body.upper())


async def main() -> None:
    async with Rep(listen="tcp://127.0.0.1:0") as rep, Req(dial=rep.address) as req:
        server = asyncio.create_task(serve(rep))
        words = [b"one", b"two", b"three"]
        print(await asyncio.gather(*(req.arequest(word, timeout=5) for word in words)))  # [b'ONE', b'TWO', b'THREE']
        server.cancel()


asyncio.run(main())
# --8<-- [end:tasks]
