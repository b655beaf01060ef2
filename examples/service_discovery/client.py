"""Client: resolves a service by its name, and sends it a request.

::

    python3 examples/service_discovery/client.py

prints, while daemon.py and answer.py run::

    tcp://127.0.0.1:9000 says: The answer is 42

It waits up to ten seconds for a provider. The settings are environment variables (README.md lists them all):
DISCOVERY_HOST and DISCOVERY_PORT are the daemon's, SERVICE_NAME is the service to resolve.
"""

import os
import sys

import trio

from nngkit import NngkitError, Resolver
from nngkit.discovery import ClientSettings
from nngkit.protocols import Req

NAME = os.environ.get("SERVICE_NAME", "answer")


async def main() -> None:
    settings = ClientSettings.from_environment()
    async with Resolver(
        settings.daemons, prefer=settings.prefer, domain=settings.domain, tls=settings.certificates.tls
    ) as resolver:
        provider = await resolver.find(NAME, timeout=10)
        async with Req(dial=provider.address) as service:
            answer = await service.arequest(b"What is the answer?", timeout=5)
            print(f"{provider.address} says: {answer.decode()}")


try:
    trio.run(main)
except NngkitError as error:  # not found, no reply, an invalid setting
    sys.exit(f"client.py: {error}")
