"""How commands ask the daemons: all at once, and whoever answers counts."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from nngkit.discovery.client import DaemonClient
from nngkit.discovery.settings import ClientSettings
from nngkit.errors import NngkitError
from nngkit.protocols import TLS

__all__ = ["ask_all", "settings_of"]

T = TypeVar("T")


def settings_of(arguments: argparse.Namespace) -> ClientSettings:
    """Which daemons, and from which zone: what the options say, and the environment where they do not."""
    return ClientSettings.from_environment(daemons=tuple(dict.fromkeys(arguments.daemon or ())))


async def ask_all(
    daemons: tuple[str, ...],
    timeout: float,
    ask: Callable[[DaemonClient], Awaitable[T]],
    *,
    first: bool = False,
    tls: TLS | None = None,
) -> tuple[dict[str, T], list[NngkitError]]:
    """What each daemon answered, by address, and what went wrong with the others. `first`: one answer is enough."""
    answers: dict[str, T] = {}
    errors: list[NngkitError] = []

    async def one(address: str, enough: trio.CancelScope) -> None:
        try:
            async with DaemonClient(address, timeout=timeout, tls=tls) as client:
                answers[address] = await ask(client)
        except NngkitError as error:
            errors.append(error)
        else:
            if first:
                enough.cancel()

    async with trio.open_nursery() as nursery:
        for address in daemons:
            nursery.start_soon(one, address, nursery.cancel_scope)
    return answers, errors
