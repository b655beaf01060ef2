"""`nngkit resolve NAME`: the address of one provider, chosen by a discovery daemon; the first that knows one counts."""

from __future__ import annotations

import argparse
from typing import Final

import trio

from nngkit.cli import options
from nngkit.cli.asking import ask_all, settings_of
from nngkit.cli.output import json_line, out, provider_fields
from nngkit.discovery.client import DaemonClient
from nngkit.discovery.provider import Provider, check_name
from nngkit.errors import ConfigError, ServiceNotFound

__all__ = ["EPILOG", "add_arguments", "run"]

EPILOG: Final = "Exit codes: 0 ok, 1 nobody of that NAME, 2 usage, 3 no daemon there, 4 a daemon that does not answer."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("name", metavar="NAME", help="the service")
    parser.add_argument("--zone", metavar="ZONE", help="prefer a provider of this zone (default: NNGKIT_ZONE)")
    options.add(parser, "daemon", "timeout", "json")


def run(arguments: argparse.Namespace) -> int:
    """Ask once, print, and be done."""
    try:
        check_name(arguments.name)
    except ValueError as error:
        raise ConfigError("NAME", str(error), arguments.name) from error
    settings = settings_of(arguments)
    zone: str = settings.zone if arguments.zone is None else arguments.zone
    found = trio.run(_resolve, settings.daemons, arguments.name, zone, arguments.timeout)
    out(json_line(provider_fields(found)) if arguments.json else found.address)
    return 0


async def _resolve(daemons: tuple[str, ...], name: str, zone: str, timeout: float) -> Provider:
    async def ask(client: DaemonClient) -> Provider:
        return await client.resolve(name, zone)

    answers, errors = await ask_all(daemons, timeout, ask, first=True)
    for found in answers.values():
        return found
    # "there is none", if one says so, is an answer; that another daemon did not answer is not
    raise next((error for error in errors if isinstance(error, ServiceNotFound)), errors[0])
