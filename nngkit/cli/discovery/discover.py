"""`nngkit discover`: print what the discovery daemons know, as a table or as JSON lines.

The views of several daemons are merged as a resolver merges them (nngkit/discovery/merged_view.py). A daemon that does
not reply is a line on stderr, and an error only if none does.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Final

from nngkit.cli import options
from nngkit.cli.discovery.fields import rounds_fields, status_fields
from nngkit.cli.output import columns, json_line, out, state_text, wants_colour
from nngkit.cli.stderr import say
from nngkit.cli.tls import add_tls, tls_or_variables
from nngkit.errors import ConfigError, ServiceNotFound

if TYPE_CHECKING:  # --help loads no event loop
    from nngkit.discovery.client import DaemonClient
    from nngkit.discovery.provider import Status
    from nngkit.discovery.queries import RoundsReply
    from nngkit.discovery.settings import ClientSettings
    from nngkit.protocols import TLS

__all__ = ["EPILOG", "add_arguments", "run"]

NAME: Final = "nngkit discover"
EPILOG: Final = "Exit codes: 0 ok, 1 no such NAME, 2 usage, 3 no daemon found, 4 no daemon replied in time."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="only providers of this service")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--all", action="store_true", help="include unavailable providers: suspect, draining, down")
    output.add_argument("--rounds", action="store_true", help="print the daemons' last rounds and counters instead")
    options.add(parser, "daemon", "timeout", "json")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Query the daemons once and print the result."""
    import trio

    from nngkit.cli.discovery.daemons import settings_of
    from nngkit.discovery.provider import check_name

    if arguments.name is not None:
        try:
            check_name(arguments.name)
        except ValueError as error:
            raise ConfigError("NAME", str(error), arguments.name) from error
        if arguments.rounds:
            raise ConfigError("--rounds", "takes no NAME")
    settings = settings_of(arguments)
    tls = tls_or_variables(arguments, settings.certificates, "dial", *settings.daemons)
    return trio.run(_rounds if arguments.rounds else _providers, settings, arguments, tls)


async def _providers(settings: ClientSettings, arguments: argparse.Namespace, tls: TLS | None) -> int:
    from nngkit.cli.discovery.daemons import ask_all

    async def ask(client: DaemonClient) -> tuple[Status, ...]:
        return await client.snapshot(arguments.name, everything=arguments.all)

    there, timeout = settings.daemons, arguments.timeout
    answers, errors = await ask_all(there, timeout, ask, domain=settings.domain, tls=tls)
    for error in errors[0 if answers else 1 :]:
        say(NAME, str(error))
    if not answers:
        raise errors[0]
    now = time.monotonic()
    statuses = _merged(answers, now)
    if arguments.name is not None and not statuses:
        raise ServiceNotFound(arguments.name)
    wall = time.time() - now
    if arguments.json:
        for status in statuses:
            out(json_line(status_fields(status, wall)))
    elif statuses:
        colour = wants_colour(sys.stdout)
        cells = [_cells(status, now, colour) for status in statuses]
        out(columns(("NAME", "ADDRESS", "STATE", "FOR", "RTT", "ZONE", "PRIORITY", "WEIGHT"), cells, colour))
    return 0


def _merged(answers: dict[str, tuple[Status, ...]], now: float) -> list[Status]:
    from nngkit.discovery.merged_view import MergedView
    from nngkit.discovery.provider import State

    views = MergedView(answers)
    known: dict[tuple[str, str, str, int], Status] = {}
    for address, statuses in answers.items():
        views.saw(address, address, statuses, now)
        known.update((status.provider.key, status) for status in statuses if status.state is State.DOWN)
    known.update(views.merged)
    return [known[key] for key in sorted(known)]


def _cells(status: Status, now: float, colour: bool) -> tuple[str, ...]:
    provider = status.provider
    state = state_text(status.state, colour) + (" (stale)" if status.stale else "")
    rtt = "-" if status.rtt is None else f"{status.rtt * 1000:.1f} ms"
    order = provider.zone or "-", str(provider.priority), str(provider.weight)
    return provider.name, provider.address, state, span(now - status.since), rtt, *order


def span(seconds: float) -> str:
    """Format a length of time for people: 5s, 3m20s, 2h05m, 4d06h."""
    whole = max(0, int(seconds))
    for size, unit, rest in ((86400, "d", 3600), (3600, "h", 60), (60, "m", 1)):
        if whole >= size:
            smaller = {"d": "h", "h": "m", "m": "s"}[unit]
            return f"{whole // size}{unit}{whole % size // rest:02}{smaller}"
    return f"{whole}s"


async def _rounds(settings: ClientSettings, arguments: argparse.Namespace, tls: TLS | None) -> int:
    from nngkit.cli.discovery.daemons import ask_all

    there, timeout = settings.daemons, arguments.timeout
    answers, errors = await ask_all(there, timeout, lambda client: client.rounds(16), domain=settings.domain, tls=tls)
    for error in errors[0 if answers else 1 :]:
        say(NAME, str(error))
    if not answers:
        raise errors[0]
    wall = time.time() - time.monotonic()
    colour = wants_colour(sys.stdout)
    for address, rounds in answers.items():
        if arguments.json:
            out(json_line(rounds_fields(address, rounds, wall)))
        else:
            out(_rounds_text(address, rounds, colour))
    return 0


def _rounds_text(address: str, rounds: RoundsReply, colour: bool) -> str:
    head = ("ROUND", "TOOK", "ASKED", "ANSWERED", "DUE", "MISSED", "HELD")
    cells = [
        (
            f"{each.number}{' (again)' if each.reask else ''}",
            f"{(each.ended - each.started) * 1000:.0f} ms",
            *(str(count) for count in (each.asked, each.answered, each.due, each.missed, each.held)),
        )
        for each in rounds.rounds
    ]
    counts = ", ".join(f"{name} {count}" for name, count in sorted(rounds.counters.items()) if count)
    title = f"{address} ({rounds.daemon}): {rounds.silent} connections without a reply yet; counters: {counts or '-'}"
    return f"{title}\n{columns(head, cells, colour)}"
