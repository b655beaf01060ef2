"""`nngkit resolve NAME`: the address of one provider, chosen by a discovery daemon; the first that knows one counts."""

from __future__ import annotations

import argparse

import trio

from nngkit.cli.asking import ask_all, settings_of
from nngkit.cli.output import json_line, out, provider_fields
from nngkit.cli.tls import tls_or_variables
from nngkit.discovery.client import DaemonClient
from nngkit.discovery.provider import Provider, check_name
from nngkit.errors import ConfigError, ServiceNotFound
from nngkit.protocols import TLS

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Ask once, print, and be done."""
    try:
        check_name(arguments.name)
    except ValueError as error:
        raise ConfigError("NAME", str(error), arguments.name) from error
    settings = settings_of(arguments)
    zone: str = settings.zone if arguments.zone is None else arguments.zone
    tls = tls_or_variables(arguments, settings.certificates, "dial", *settings.daemons)
    found = trio.run(_resolve, settings.daemons, arguments.name, zone, arguments.timeout, tls)
    out(json_line(provider_fields(found)) if arguments.json else found.address)
    return 0


async def _resolve(daemons: tuple[str, ...], name: str, zone: str, timeout: float, tls: TLS | None) -> Provider:
    async def ask(client: DaemonClient) -> Provider:
        return await client.resolve(name, zone)

    answers, errors = await ask_all(daemons, timeout, ask, first=True, tls=tls)
    for found in answers.values():
        return found
    # "there is none", if one says so, is an answer; that another daemon did not answer is not
    raise next((error for error in errors if isinstance(error, ServiceNotFound)), errors[0])
