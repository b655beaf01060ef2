"""`nngkit discover`: what the discovery daemons know, as a table or as JSON lines.

With several daemons, their views are put together as a resolver does it (nngkit/discovery/merged_view.py); one that
does not answer is a line on stderr, and an error only if none does.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any, Final

import trio

from nngkit.cli.asking import ask_all, settings_of
from nngkit.cli.main import say
from nngkit.cli.output import columns, json_line, out, provider_fields, state_text, utc, wants_colour
from nngkit.cli.tls import tls_or_variables
from nngkit.discovery.client import DaemonClient
from nngkit.discovery.merged_view import MergedView
from nngkit.discovery.provider import RoundFigures, State, Status, check_name
from nngkit.discovery.queries import RoundsReply
from nngkit.errors import ConfigError, ServiceNotFound
from nngkit.protocols import TLS

__all__ = ["run"]

NAME: Final = "nngkit discover"


def run(arguments: argparse.Namespace) -> int:
    """Ask once, print, and be done."""
    if arguments.name is not None:
        try:
            check_name(arguments.name)
        except ValueError as error:
            raise ConfigError("NAME", str(error), arguments.name) from error
        if arguments.rounds:
            raise ConfigError("--rounds", "is not about a NAME")
    settings = settings_of(arguments)
    tls = tls_or_variables(arguments, settings.certificates, "dial", *settings.daemons)
    return trio.run(_rounds if arguments.rounds else _providers, settings.daemons, arguments, tls)


async def _providers(daemons: tuple[str, ...], arguments: argparse.Namespace, tls: TLS | None) -> int:
    async def ask(client: DaemonClient) -> tuple[Status, ...]:
        return await client.snapshot(arguments.name, everything=arguments.all)

    answers, errors = await ask_all(daemons, arguments.timeout, ask, tls=tls)
    for error in errors[0 if answers else 1 :]:
        say(NAME, str(error))
    if not answers:
        raise errors[0]
    now = time.monotonic()
    rows = _together(answers, now)
    if arguments.name is not None and not rows:
        raise ServiceNotFound(arguments.name)
    wall = time.time() - now
    if arguments.json:
        for row in rows:
            out(json_line(status_fields(row, wall)))
    elif rows:
        colour = wants_colour(sys.stdout)
        cells = [_cells(row, now, colour) for row in rows]
        out(columns(("NAME", "ADDRESS", "STATE", "FOR", "RTT", "ZONE", "PRIORITY", "WEIGHT"), cells, colour))
    return 0


def _together(answers: dict[str, tuple[Status, ...]], now: float) -> list[Status]:
    views = MergedView(answers)
    known: dict[tuple[str, str, str, int], Status] = {}
    for address, rows in answers.items():
        views.saw(address, address, rows, now)
        known.update((row.provider.key, row) for row in rows if row.state is State.DOWN)
    known.update(views.merged)
    return [known[key] for key in sorted(known)]


def _cells(row: Status, now: float, colour: bool) -> tuple[str, ...]:
    provider = row.provider
    state = state_text(row.state, colour) + (" (stale)" if row.stale else "")
    rtt = "-" if row.rtt is None else f"{row.rtt * 1000:.1f} ms"
    order = provider.zone or "-", str(provider.priority), str(provider.weight)
    return provider.name, provider.address, state, span(now - row.since), rtt, *order


def span(seconds: float) -> str:
    """A length of time for people: 5s, 3m20s, 2h05m, 4d06h."""
    whole = max(0, int(seconds))
    for size, unit, rest in ((86400, "d", 3600), (3600, "h", 60), (60, "m", 1)):
        if whole >= size:
            smaller = {"d": "h", "h": "m", "m": "s"}[unit]
            return f"{whole // size}{unit}{whole % size // rest:02}{smaller}"
    return f"{whole}s"


def status_fields(row: Status, wall: float) -> dict[str, Any]:
    """A provider and its state in JSON; docs/schemas/discover.json. `wall`: what makes row's times those of people."""
    return {
        **provider_fields(row.provider),
        "state": row.state.value,
        "reason": row.reason.value,
        "since": utc(row.since + wall),
        "last_reply": None if row.last_reply is None else utc(row.last_reply + wall),
        "rtt": row.rtt,
        "misses": row.misses,
        "stale": row.stale,
    }


async def _rounds(daemons: tuple[str, ...], arguments: argparse.Namespace, tls: TLS | None) -> int:
    answers, errors = await ask_all(daemons, arguments.timeout, lambda client: client.rounds(16), tls=tls)
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


def rounds_fields(address: str, rounds: RoundsReply, wall: float) -> dict[str, Any]:
    """A daemon's figures in JSON; docs/schemas/discover-rounds.json."""
    return {
        "address": address,
        "daemon": rounds.daemon,
        "silent": rounds.silent,
        "counts": dict(sorted(rounds.counters.items())),
        "rounds": [round_fields(each, wall) for each in rounds.rounds],
    }


def round_fields(each: RoundFigures, wall: float) -> dict[str, Any]:
    """A round in JSON."""
    return {
        "number": each.number,
        "reask": each.reask,
        "started": utc(each.started + wall),
        "took": round(each.ended - each.started, 6),
        "asked": each.asked,
        "answered": each.answered,
        "due": each.due,
        "missed": each.missed,
        "held": each.held,
    }


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
    counted = ", ".join(f"{name} {count}" for name, count in sorted(rounds.counters.items()) if count)
    title = f"{address} ({rounds.daemon}): {rounds.silent} connections have said nothing yet; counted: {counted or '-'}"
    return f"{title}\n{columns(head, cells, colour)}"
