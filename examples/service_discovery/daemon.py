"""The discovery daemon as a program of its own: `nngkit discoverd` in a few lines.

::

    python3 examples/service_discovery/daemon.py

says where it listens, then a line for each change it sees, until SIGTERM or Ctrl-C. The settings are environment
variables: the article's PORT, DEADLINE and INTERVAL (both in milliseconds), or nngkit's own beside them (README.md).
"""

import signal
import sys

import trio

from nngkit import NngkitError
from nngkit.discovery import Daemon, DaemonSettings, Event


def tell(event: Event) -> None:
    print(f"{event.name} at {event.provider.address}: {event.new} ({event.reason})", flush=True)


async def main() -> None:
    settings = DaemonSettings.from_environment()
    for warning in settings.warnings:
        print(f"daemon.py: warning: {warning}", file=sys.stderr)
    async with Daemon(settings) as daemon, trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            print(f"surveys at {daemon.discovery.address}, answers at {daemon.query_addresses[0]}", flush=True)
            nursery.start_soon(daemon.run, tell)
            await anext(signals)
        nursery.cancel_scope.cancel()


try:
    trio.run(main)
except NngkitError as error:  # a setting that cannot be used, a port in use
    sys.exit(f"daemon.py: {error}")
