"""Finds a service by its name, and asks it.

::

    python3 examples/service_discovery/client.py

prints, with daemon.py and answer.py beside it running::

    tcp://127.0.0.1:9000 says: The answer is 42

It waits ten seconds for somebody to be found. The settings are environment variables (README.md has them all):
DISCOVERY_HOST and DISCOVERY_PORT say where the daemon is, SERVICE_NAME whom to find.
"""

import os
import sys

import trio

from nngkit import NngkitError
from nngkit.discovery import ClientSettings, Resolver
from nngkit.protocols import Req

NAME = os.environ.get("SERVICE_NAME", "answer")


async def main() -> None:
    settings = ClientSettings.from_environment()
    async with Resolver(settings.daemons, zone=settings.zone, tls=settings.certificates.tls) as resolver:
        provider = await resolver.find(NAME, timeout=10)
        async with Req(dial=provider.address) as service:
            answer = await service.arequest(b"What is the answer?", timeout=5)
            print(f"{provider.address} says: {answer.decode()}")


try:
    trio.run(main)
except NngkitError as error:  # not found, no answer, a setting that cannot be used
    sys.exit(f"client.py: {error}")
