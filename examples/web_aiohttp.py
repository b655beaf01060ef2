"""aiohttp: a web application that passes on the parts of a reply as they arrive, under asyncio.

::

    python3 examples/web_aiohttp.py

prints::

    GET /count/5: 0 1 2 3 4
    GET /count/1000000, left after 3 parts: 0 1 2
    the service counts no longer

The service streams; the application writes each part to its own caller. A browser that leaves ends the request: aiohttp
cancels the handler, the client cancels the call, and the service's generator ends. One client serves all requests of
the application: see `numbers`. Needs aiohttp.
"""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import ClientSession, web

from nngkit.aio import Client, Server

NUMBERS: web.AppKey[Client] = web.AppKey("NUMBERS", Client)

# ---- the service -----------------------------------------------------------------------------------------------------

ended = asyncio.Event()


async def count(number: int) -> AsyncIterator[int]:
    ended.clear()
    try:
        for n in range(number):
            yield n
            await asyncio.sleep(0.001)
    finally:
        ended.set()


# ---- the application -------------------------------------------------------------------------------------------------


def application(address: str) -> web.Application:
    async def numbers(app: web.Application) -> AsyncIterator[None]:
        async with Client("numbers", addresses=address, codec="cbor", timeout=60.0) as app[NUMBERS]:
            yield

    async def get_count(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        async with request.app[NUMBERS].stream(int(request.match_info["number"]), method="count") as parts:
            async for part in parts:
                await response.write(b"%d\n" % part)
        return response

    app = web.Application()
    app.cleanup_ctx.append(numbers)
    app.router.add_get("/count/{number}", get_count)
    return app


# ---- both, and some requests -----------------------------------------------------------------------------------------


async def main() -> None:
    service = Server("numbers", codec="cbor")
    service.method(count)
    async with service:
        runner = web.AppRunner(application(service.address), handler_cancellation=True, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0]
        async with ClientSession(f"http://{host}:{port}") as browser:
            async with browser.get("/count/5") as reply:
                print("GET /count/5:", " ".join((await reply.text()).split()))
            async with browser.get("/count/1000000") as reply:
                lines = [(await reply.content.readline()).decode().strip() for _ in range(3)]
                print("GET /count/1000000, left after 3 parts:", " ".join(lines))
                reply.close()
            async with asyncio.timeout(10):
                await ended.wait()
            print("the service counts no longer")
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
