"""`nngkit resolve NAME`: print the address of one provider, chosen by the first daemon that knows one."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Final

from nngkit.cli import options
from nngkit.cli.streams.output import json_line, out, provider_fields
from nngkit.cli.tls import add_tls, tls_or_variables
from nngkit.errors import ServiceNotFound

if TYPE_CHECKING:  # --help loads no event loop
    from collections.abc import Awaitable, Callable

    from nngkit.discovery.client import DaemonClient
    from nngkit.discovery.provider import Provider
    from nngkit.discovery.settings import ClientSettings
    from nngkit.protocols import TLS

EPILOG: Final = "Exit codes: 0 ok, 1 no such NAME, 2 usage, 3 no daemon found, 4 no daemon replied in time."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("name", metavar="NAME", help="the service")
    options.add(parser, "prefer", "tag", "daemon", "timeout", "json")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Query the daemons once and print the provider."""
    import trio

    from nngkit.cli.discovery.daemons import settings_of
    from nngkit.cli.discovery.watch import check_service
    from nngkit.discovery.client import DaemonClient

    check_service(arguments.name)
    settings = settings_of(arguments)
    prefer = settings.prefer if arguments.prefer is None else options.zones(arguments.prefer)
    tls = tls_or_variables(arguments, settings.certificates, "dial", *settings.daemons)
    choose = partial(DaemonClient.resolve, name=arguments.name, prefer=prefer, tags=tuple(arguments.tag))
    found = trio.run(_resolve, settings, choose, arguments.timeout, tls)
    out(json_line(provider_fields(found)) if arguments.json else found.address)
    return 0


async def _resolve(
    settings: ClientSettings, choose: Callable[[DaemonClient], Awaitable[Provider]], timeout: float, tls: TLS | None
) -> Provider:
    from nngkit.cli.discovery.daemons import ask_all

    there, domain = settings.daemons, settings.domain
    answers, errors = await ask_all(there, timeout, choose, first=True, domain=domain, tls=tls)
    for found in answers.values():
        return found
    # "there is no such service" is a reply, and counts more than a daemon that did not reply
    raise next((error for error in errors if isinstance(error, ServiceNotFound)), errors[0])
