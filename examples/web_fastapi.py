"""FastAPI: a web application that calls a service by its name, under asyncio.

::

    python3 examples/web_fastapi.py

prints::

    GET /double/21: 200 {"result":42}
    GET /double/-1: 422 {"detail":"declined"}
    GET /slow: 504 {"detail":"no reply within 0.1 s"}

One client serves all requests of the application, and lives as long as it: see `lifespan`. The service would be other
processes; here it runs beside the application, found through a discovery daemon. Needs fastapi and uvicorn.
"""

import asyncio
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request

from nngkit import RemoteError, TimedOut
from nngkit.aio import Client, Daemon, Server
from nngkit.discovery import DaemonSettings

# ---- the service -----------------------------------------------------------------------------------------------------


async def double(number: int) -> int:
    if number < 0:
        raise RemoteError("not negative ones", kind="declined")
    return 2 * number


async def slow(_: Any) -> None:
    await asyncio.sleep(60)  # cancelled when the caller's deadline has passed


# ---- the application -------------------------------------------------------------------------------------------------


def application(daemons: tuple[str, ...]) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with Client("numbers", daemons=daemons, codec="cbor", timeout=5.0) as app.state.numbers:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/double/{number}")
    async def get_double(number: int, request: Request) -> dict[str, int]:
        try:
            return {"result": await request.app.state.numbers.request(number, method="double")}
        except RemoteError as error:
            raise HTTPException(422, error.kind) from error

    @app.get("/slow")
    async def get_slow(request: Request) -> None:
        try:
            await request.app.state.numbers.request(None, method="slow", timeout=0.1)
        except TimedOut as error:
            raise HTTPException(504, "no reply within 0.1 s") from error

    return app


# ---- both, and some requests -----------------------------------------------------------------------------------------


def get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return f"{reply.status} {reply.read().decode()}"
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.code} {error.read().decode()}"


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    async with Daemon(DaemonSettings(listen=("tcp://127.0.0.1:0",))) as daemon:
        numbers = Server("numbers", discovery=daemon.addresses, codec="cbor")
        numbers.method(double)
        numbers.method(slow)
        async with numbers:
            web = uvicorn.Server(uvicorn.Config(application(daemon.query_addresses), log_level="warning"))
            serving = asyncio.create_task(web.serve(sockets=[listener]))
            for path in ("/double/21", "/double/-1", "/slow"):
                url = f"http://127.0.0.1:{listener.getsockname()[1]}{path}"
                print(f"GET {path}: {await asyncio.to_thread(get, url)}")
            web.should_exit = True
            await serving


if __name__ == "__main__":
    asyncio.run(main())
