"""`nngkit discover`: print what the discovery daemons know, as a table or as JSON lines.

The views of several daemons are merged as a resolver merges them (nngkit/discovery/registry/merged_view.py). A daemon
that does not reply is a line on stderr, and an error only if none does.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Final

from nngkit.cli import options
from nngkit.cli.discovery.fields import change_fields, rounds_fields, status_fields
from nngkit.cli.streams.output import columns, json_line, out, span, state_text, utc, wants_colour
from nngkit.cli.tls import add_tls, tls_or_variables
from nngkit.errors import ConfigError, ServiceNotFound

if TYPE_CHECKING:  # --help loads no event loop
    from nngkit.discovery.client import DaemonClient
    from nngkit.discovery.provider import Status
    from nngkit.discovery.queries import ChangeRecord, RoundsReply
    from nngkit.discovery.settings import ClientSettings
    from nngkit.protocols import TLS

NAME: Final = "nngkit discover"
EPILOG: Final = "Exit codes: 0 ok, 1 no such NAME, 2 usage, 3 no daemon found, 4 no daemon replied in time."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="only providers of this service")
    output = parser.add_mutually_exclusive_group()
    options.add_flag(output, "--all", "include unavailable providers: suspect, draining, down")
    options.add_flag(output, "--rounds", "print the daemons' last rounds and counters instead")
    options.add_flag(output, "--watch", "follow the changes: a live table, or lines in a pipe")
    text = "print the changes of the last 15m, 1h or 2d instead"
    output.add_argument("--since", type=options.age, metavar="AGE", help=text)
    options.add(parser, "prefer", "tag", "daemon", "timeout", "json")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Query the daemons once and print the result."""
    import trio

    from nngkit.cli.discovery.daemons import settings_of
    from nngkit.cli.discovery.watch import check_service

    check_service(arguments.name)
    if arguments.name is not None and arguments.rounds:
        raise ConfigError("--rounds", "takes no NAME")
    for option in ("prefer", "tag"):
        for other in ("rounds", "watch", "since"):
            if getattr(arguments, option) and getattr(arguments, other):
                raise ConfigError(f"--{option}", f"conflicts with --{other}")
    if arguments.watch:
        from nngkit.cli.discovery.live import show_live

        return trio.run(show_live, arguments)
    settings = settings_of(arguments)
    zones = settings.prefer if arguments.prefer is None else options.zones(arguments.prefer)
    tls = tls_or_variables(arguments, settings.certificates, "dial", *settings.daemons)
    if arguments.since is not None:
        return trio.run(_changes, settings, arguments, tls)
    if arguments.rounds:
        return trio.run(_rounds, settings, arguments, tls)
    return trio.run(_providers, settings, zones, arguments, tls)


async def _providers(
    settings: ClientSettings, zones: tuple[str, ...], arguments: argparse.Namespace, tls: TLS | None
) -> int:
    from nngkit.cli.discovery.daemons import ask_and_say

    async def ask(client: DaemonClient) -> tuple[Status, ...]:
        return await client.snapshot(arguments.name, everything=arguments.all)

    answers = await ask_and_say(NAME, settings, arguments.timeout, ask, tls)
    now = time.monotonic()
    tags = frozenset(arguments.tag)
    statuses = [status for status in _merged(answers, now) if tags <= status.provider.tags]
    if zones:  # of each name in the order in which callers with this preference try them
        place = {zone: number for number, zone in enumerate(zones)}
        statuses.sort(
            key=lambda row: (row.provider.name, place.get(row.provider.zone, len(place)), row.provider.priority)
        )
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
    from nngkit.discovery.provider import State
    from nngkit.discovery.registry.merged_view import MergedView

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


async def _rounds(settings: ClientSettings, arguments: argparse.Namespace, tls: TLS | None) -> int:
    from nngkit.cli.discovery.daemons import ask_and_say

    answers = await ask_and_say(NAME, settings, arguments.timeout, lambda client: client.rounds(16), tls)
    wall = time.time() - time.monotonic()
    colour = wants_colour(sys.stdout)
    for address, rounds in answers.items():
        fields = rounds_fields(address, rounds, wall)
        out(json_line(fields) if arguments.json else _rounds_text(address, rounds, colour))
    return 0


async def _changes(settings: ClientSettings, arguments: argparse.Namespace, tls: TLS | None) -> int:
    """Print what the daemons have kept of their changes, in the order of time."""
    from nngkit.cli.discovery.daemons import ask_and_say

    async def ask(client: DaemonClient) -> tuple[float, tuple[ChangeRecord, ...]]:
        changes = await client.history(arguments.since, arguments.name)
        return time.time(), changes

    answers = await ask_and_say(NAME, settings, arguments.timeout, ask, tls)
    found = [(now - each.age, address, each) for address, (now, changes) in answers.items() for each in changes]
    colour = wants_colour(sys.stdout)
    for at, address, change in sorted(found, key=lambda one: one[0]):
        if arguments.json:
            out(json_line(change_fields(address, change, at)))
        else:
            which = f"  {address}" if len(answers) > 1 else ""
            state = state_text(change.state, colour)
            out(f"{utc(at)}  {change.name}  {change.address}  {state} ({change.reason}){which}")
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
