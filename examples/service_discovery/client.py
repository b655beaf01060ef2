"""Find a service by its name and send it a request.

::

    python3 examples/service_discovery/client.py

prints, with daemon.py and answer.py beside it running::

    tcp://127.0.0.1:9000 says: The answer is 42

It waits ten seconds for a provider. The settings are environment variables (all in README.md): DISCOVERY_HOST and
DISCOVERY_PORT give the daemon's address, SERVICE_NAME the service to find.
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
except NngkitError as error:  # not found, no reply, an invalid setting
    sys.exit(f"client.py: {error}")
