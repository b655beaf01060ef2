"""Queries to several discovery daemons at once."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from nngkit.cli.silence import with_cause
from nngkit.cli.streams.stderr import say
from nngkit.discovery.client import DaemonClient
from nngkit.discovery.settings import ClientSettings
from nngkit.errors import NngkitError
from nngkit.protocols import TLS

T = TypeVar("T")


def settings_of(arguments: argparse.Namespace) -> ClientSettings:
    """Return the daemons and the preferred zones, from the options or else from the environment."""
    return ClientSettings.from_environment(daemons=tuple(dict.fromkeys(arguments.daemon or ())))


async def ask_and_say(
    name: str, settings: ClientSettings, timeout: float, ask: Callable[[DaemonClient], Awaitable[T]], tls: TLS | None
) -> dict[str, T]:
    """Query all daemons; return the replies by address. Errors are lines on stderr; the first is raised if all fail."""
    answers, errors = await ask_all(settings.daemons, timeout, ask, domain=settings.domain, tls=tls)
    for error in errors[0 if answers else 1 :]:
        say(name, str(error))
    if not answers:
        raise errors[0]
    return answers


async def ask_all(
    daemons: tuple[str, ...],
    timeout: float,
    ask: Callable[[DaemonClient], Awaitable[T]],
    *,
    first: bool = False,
    domain: str = "",
    tls: TLS | None = None,
) -> tuple[dict[str, T], list[NngkitError]]:
    """Query all daemons; return the replies by address, and the errors. With `first`, return after one reply."""
    answers: dict[str, T] = {}
    errors: list[NngkitError] = []

    async def one(address: str, enough: trio.CancelScope) -> None:
        try:
            async with DaemonClient(address, timeout=timeout, domain=domain, tls=tls) as client:
                answers[address] = await ask(client)
        except NngkitError as error:
            errors.append(await with_cause(error, [address]))
        else:
            if first:
                enough.cancel()

    async with trio.open_nursery() as nursery:
        for address in daemons:
            nursery.start_soon(one, address, nursery.cancel_scope)
    return answers, errors
