"""DNS of `nngkit discoverd --dns`: the zone of the daemon's services, and the server."""

from __future__ import annotations

import argparse
import ipaddress
import random
import time
from typing import TYPE_CHECKING, Final

from nngkit.cli import options
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    import trio

    from nngkit.discovery.dns.zone import Zone
    from nngkit.discovery.service_discovery import ServiceDiscovery

SHARE: Final = 10  # a new zone is made at most a tenth of the time: with 10,000 services it takes milliseconds


def add_dns(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    text = "answer DNS here, over UDP and TCP: SRV, A and AAAA of NAME.service.ZONE"
    parser.add_argument("--dns", type=options.host_port, metavar="[HOST:]PORT", help=text)
    parser.add_argument("--dns-zone", default="nngkit", metavar="ZONE", help="domain of the names (default: nngkit)")


def zone_of(arguments: argparse.Namespace) -> Zone | None:
    """Return the zone to serve; None without `--dns`. Raises ConfigError."""
    if arguments.dns is None:
        return None
    from nngkit.discovery.dns.zone import Zone
    from nngkit.protocols.own_host import check_guarded
    from nngkit.trust import OPEN, chosen

    host = arguments.dns[0]
    try:
        version = ipaddress.ip_address(host).version
    except ValueError as error:
        raise ConfigError("--dns", f"{host!r} is not a numeric address", host) from error
    try:  # a pass does not help: DNS knows no identities
        url = f"tcp://[{host}]:1" if version == 6 else f"tcp://{host}:1"
        check_guarded([url], OPEN if chosen(None) is OPEN else None, None)
    except ConfigError as error:
        why = "other machines can reach it, and DNS knows no identities: use 127.0.0.1, or --trust open"
        raise ConfigError("--dns", f"{host}: {why}", host) from error
    return Zone(arguments.dns_zone, rng=random.Random())


async def serve_dns(
    zone: Zone, place: tuple[str, int], discovery: ServiceDiscovery, *, task_status: trio.TaskStatus[int]
) -> None:
    """Serve the services of `discovery` at `place` until cancelled; report the port. Raises Unreachable."""
    from nngkit.discovery.dns.server import serve

    seen, next_at = -1, 0.0

    def reply(query: bytes, most: int | None) -> bytes | None:
        nonlocal seen, next_at
        if (version := discovery.version) != seen and (now := time.monotonic()) >= next_at:
            seen = version
            zone.update(version, discovery.snapshot())
            made = time.monotonic()
            next_at = made + (SHARE - 1) * (made - now)
        return zone.reply(query, most)

    await serve(*place, reply, zone.stats, task_status=task_status)
