"""The article's service: it answers "The answer is 42", and announces itself to the daemon.

::

    python3 examples/service_discovery/answer.py

prints its address, and serves until SIGTERM or Ctrl-C. The settings are the article's environment variables (README.md
lists them all): DISCOVERY_HOST and DISCOVERY_PORT are the daemon's; SERVICE_NAME, SERVICE_HOST, SERVICE_PORT and
SERVICE_PROTOCOL are announced to it. The daemon may start later, and may restart.
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
LAST_ANSWERS = 0.2  # seconds for calls in progress after the goodbye


async def answer(server: Rep) -> None:
    async for request in server:
        await request.areply(b"The answer is 42")


async def main() -> None:
    settings = ServiceSettings.from_environment({"SERVICE_NAME": "answer", **os.environ})
    wanted = urlsplit(settings.address)
    async with Rep(listen=f"{wanted.scheme}://{BIND_HOST}:{wanted.port}") as server:
        # with SERVICE_PORT=0 the socket chooses the port
        address = f"{wanted.scheme}://{wanted.hostname}:{urlsplit(server.address).port}"
        async with (
            Service(
                settings.name,
                address,
                discovery=settings.discovery,
                zone=settings.zone,
                priority=settings.priority,
                domain=settings.domain,
                tls=settings.certificates.tls,
            ) as service,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(answer, server)
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                print(f"{settings.name} at {address}", flush=True)
                await anext(signals)
            await service.aclose()  # goodbye first: it ends the flow of new callers
            await trio.sleep(LAST_ANSWERS)
            nursery.cancel_scope.cancel()


try:
    trio.run(main)
except NngkitError as error:  # an invalid setting, a port in use
    sys.exit(f"answer.py: {error}")
