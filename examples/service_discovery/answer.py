"""A service as in the article: it answers "The answer is 42", and lets itself be found.

::

    python3 examples/service_discovery/answer.py

says where it serves, and serves until SIGTERM or Ctrl-C. The settings are environment variables, the article's
(README.md has them all): DISCOVERY_HOST and DISCOVERY_PORT say where the daemon is; SERVICE_NAME, SERVICE_HOST,
SERVICE_PORT and SERVICE_PROTOCOL what it is told. The daemon may start later, and may restart.
"""

import os
import signal
import sys
from urllib.parse import urlsplit

import trio

from nngkit import NngkitError, Service
from nngkit.discovery import ServiceSettings
from nngkit.protocols import Rep

BIND_HOST = os.environ.get("BIND_HOST", "127.0.0.1")  # the interface to serve on; in a container 0.0.0.0
LAST_ANSWERS = 0.2  # seconds for calls that are under way when nobody new is sent here any more


async def answer(server: Rep) -> None:
    async for request in server:
        await request.areply(b"The answer is 42")


async def main() -> None:
    settings = ServiceSettings.from_environment({"SERVICE_NAME": "answer", **os.environ})
    wanted = urlsplit(settings.address)
    async with Rep(listen=f"{wanted.scheme}://{BIND_HOST}:{wanted.port}") as server:
        # SERVICE_PORT=0 takes a free port, and only the socket knows which
        address = f"{wanted.scheme}://{wanted.hostname}:{urlsplit(server.address).port}"
        async with (
            Service(
                settings.name,
                address,
                discovery=settings.discovery,
                zone=settings.zone,
                priority=settings.priority,
                tls=settings.certificates.tls,
            ) as service,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(answer, server)
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                print(f"{settings.name} at {address}", flush=True)
                await anext(signals)
            await service.aclose()  # good-bye first: from now on nobody is sent here
            await trio.sleep(LAST_ANSWERS)
            nursery.cancel_scope.cancel()


try:
    trio.run(main)
except NngkitError as error:  # a setting that cannot be used, a port in use
    sys.exit(f"answer.py: {error}")
