"""`nngkit discoverd`: run the discovery daemon. Prints a line for each change of state; diagnostics go to stderr.

::

    $ nngkit discoverd
    2026-01-31T12:00:00.123Z  answer  tcp://127.0.0.1:9000  up (answered)
    2026-01-31T12:00:07.456Z  answer  tcp://127.0.0.1:9000  down (pipe lost)

A thread writes the lines, so that a reader that stalls does not stop the surveys. 65,536 changes are queued for it; at
an overflow, a line on stderr says so, and the current view is printed again.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nngkit.cli import door, options
from nngkit.cli.discovery.dns import add_dns, serve_dns, zone_of
from nngkit.cli.discovery.fields import event_fields, round_fields, status_fields
from nngkit.cli.exit_codes import BROKEN_PIPE
from nngkit.cli.streams import notify
from nngkit.cli.streams.output import json_line, state_text, utc, wants_colour
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import add_tls, tls_or_variables
from nngkit.errors import ConfigError, Full

if TYPE_CHECKING:  # --help loads no event loop
    from nngkit.cli.discovery.round_journal import RoundJournal
    from nngkit.discovery.daemon import Daemon
    from nngkit.discovery.history import History
    from nngkit.discovery.provider import Event
    from nngkit.discovery.settings import DaemonSettings
    from nngkit.protocols import TLS
    from nngkit.telemetry.metrics import Watchable
    from nngkit.web.door import Route
    from nngkit.web.status import Section

NAME: Final = "nngkit discoverd"
EPILOG: Final = """\
Environment: PORT, DEADLINE and INTERVAL (milliseconds) as in the article that this follows, NNGKIT_PORT and so on,
NNGKIT_LISTEN, NNGKIT_QUERY, NNGKIT_CERT; options take precedence. docs/discovery.md lists them all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_address, add_value = partial(options.add_address, parser), partial(options.add_value, parser)
    text = "survey here, may be repeated (default: tcp://127.0.0.1:5555)"
    add_address("--listen", text, "NNGKIT_LISTEN", "NNGKIT_HOST", "NNGKIT_PORT", action="append")
    text = "answer queries here, may be repeated (default: the next port)"
    add_address("--query", text, "NNGKIT_QUERY", action="append")
    text = "seconds that a round waits for responses (default: 5)"
    add_value("--deadline", "S", text, "NNGKIT_DEADLINE", type=options.more_than_no_seconds)
    text = "seconds of pause after a round (default: 2)"
    add_value("--interval", "S", text, "NNGKIT_INTERVAL", type=options.seconds)
    text = "send no surveys in the article's text form"
    options.declare(parser.add_argument("--no-text", action="store_true", help=text), "NNGKIT_TEXT")
    text = "show services of this domain alone (default: NNGKIT_DOMAIN, or no name)"
    add_value("--domain", "NAME", text, "NNGKIT_DOMAIN")
    parser.add_argument("--journal", metavar="JOURNAL", help="record every round in this journal (docs/journal.md)")
    options.add_partition(parser, "partition of the journal, one for each recorder", 0)
    history = parser.add_mutually_exclusive_group()
    text = (
        "keep the changes here, for `nngkit discover --since` (default: NNGKIT_HISTORY, or discoverd-PORT.sqlite"
        " in $STATE_DIRECTORY, or in nngkit in the state folder of XDG)"
    )
    options.add_value(history, "--history", "FILE", text, "NNGKIT_HISTORY")
    options.add_flag(history, "--no-history", "keep no changes")
    add_dns(parser)
    options.add_max_pipes(parser)
    door.add_http(parser)
    options.add(parser, "json")
    add_tls(parser, variables=True)


def check(arguments: argparse.Namespace) -> tuple[DaemonSettings, TLS | None]:
    """Return the settings of the daemon. Raises ConfigError for arguments that the start would refuse."""
    from nngkit.discovery.daemon import Daemon
    from nngkit.discovery.domains import check_domain
    from nngkit.discovery.settings import DaemonSettings

    settings = DaemonSettings.from_environment()
    given = {
        "listen": arguments.listen and tuple(arguments.listen),
        "query": arguments.query and tuple(arguments.query),
        "deadline": arguments.deadline,
        "interval": arguments.interval,
        "domain": None if arguments.domain is None else check_domain(arguments.domain),
        "text": False if arguments.no_text else None,
        "warnings": () if arguments.listen else None,
        "open": False if arguments.listen else None,
    }
    settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
    tls = tls_or_variables(arguments, settings.certificates, "listen", *settings.listen, *settings.query)
    zone_of(arguments)
    Daemon(settings, tls=tls)  # refuses listeners that other machines can reach without protection
    door.check_http(arguments)
    return settings, tls


def run(arguments: argparse.Namespace) -> int:
    """Run the daemon until a signal arrives or the reader of its output has gone."""
    import trio

    settings, tls = check(arguments)
    options.limit_pipes(arguments)
    return trio.run(_serve, settings, arguments, tls)


async def _serve(settings: DaemonSettings, arguments: argparse.Namespace, tls: TLS | None) -> int:
    async with AsyncExitStack() as opened:
        journal = None
        if arguments.journal is not None:
            from nngkit.cli.discovery.round_journal import RoundJournal
            from nngkit.journal.recorder import Recorder

            journal = RoundJournal(
                await opened.enter_async_context(Recorder(arguments.journal, partition=arguments.partition))
            )
        history = None if arguments.no_history else _history(arguments.history, settings.listen[0])
        if history is not None:
            opened.callback(history.close)
        return await _serve_and_record(settings, arguments, journal, history, tls)


def _history(given: str | None, listen: str) -> History | None:
    """Return the history to keep. One that was not asked for is left out where it cannot be."""
    from nngkit.discovery.history import History

    named = given or os.environ.get("NNGKIT_HISTORY")
    if named:
        return History(named)
    place = re.sub(r"[^A-Za-z0-9]+", "-", listen.rpartition(":")[2]).strip("-")
    if place == "0":
        return None  # a daemon at another port each time has no past
    name = f"discoverd-{place}.sqlite"
    folder = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    try:
        if not folder:
            state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
            folder = str(Path(state, "nngkit"))
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        return History(Path(folder, name))
    except (ConfigError, OSError, RuntimeError) as wrong:  # RuntimeError: there is no home
        say(NAME, f"no history is kept: {wrong}")
        return None


async def _serve_and_record(
    settings: DaemonSettings,
    arguments: argparse.Namespace,
    journal: RoundJournal | None,
    history: History | None,
    tls: TLS | None,
) -> int:
    import trio

    from nngkit.discovery.daemon import Daemon

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        on_round = None if journal is None else journal.round
        async with Daemon(settings, on_round=on_round, tls=tls, history=history) as daemon:
            for warning in settings.warnings:
                say(NAME, f"warning: {warning}")
            surveys, queries = " ".join(daemon.discovery.addresses), " ".join(daemon.query_addresses)
            code = 0
            zone = zone_of(arguments)
            watch: list[Watchable] = [daemon, *([] if zone is None else [zone])]
            async with (
                door.opened(
                    NAME,
                    arguments,
                    partial(_routes, daemon),
                    watch=watch,
                    ready=partial(_unready, daemon),
                    sections=partial(_sections, daemon, history),
                ),
                trio.open_nursery() as nursery,
            ):
                if zone is not None:
                    port = await nursery.start(serve_dns, zone, arguments.dns, daemon.discovery)
                    say(NAME, f"DNS of {zone.apex} at {arguments.dns[0]}, port {port}")
                where = f"surveys at {surveys}, answers at {queries}"
                say(NAME, where)
                notify.ready(where)

                async def print_changes() -> None:
                    nonlocal code
                    try:
                        await _print_changes(daemon, bool(arguments.json))
                    except BrokenPipeError:
                        code = BROKEN_PIPE
                        nursery.cancel_scope.cancel()
                    except OSError as error:
                        say(NAME, f"cannot write the output: {error.strerror or error}")
                        code = 1
                        nursery.cancel_scope.cancel()

                if journal is not None:
                    journal.daemon = daemon
                    nursery.start_soon(daemon.run, journal.event)
                nursery.start_soon(print_changes)
                async for number in signals:
                    notify.stopping()
                    code = 128 + number
                    nursery.cancel_scope.cancel()
                    break
            return code


async def _print_changes(daemon: Daemon, as_json: bool) -> None:
    from nngkit.cli.streams.stdin import write_all

    colour = wants_colour(sys.stdout)
    while True:
        try:
            events: AsyncGenerator[Event, None] = daemon.discovery.events()
            async with aclosing(events) as changes:
                async for event in changes:
                    # events carry the daemon's monotonic clock
                    at = time.time() - (daemon.discovery.now() - event.time)
                    line = json_line(event_fields(event, at)) if as_json else event_text(event, at, colour)
                    await write_all(line.encode() + b"\n")
            return
        except Full as behind:
            say(NAME, f"the output is not read: {behind}; the current state follows")


def event_text(event: Event, at: float, colour: bool) -> str:
    """Format a change of state, at `at` seconds since 1970, as a line for people."""
    state = state_text(event.new, colour)
    return f"{utc(at)}  {event.name}  {event.provider.address}  {state} ({event.reason.value})"


def _unready(daemon: Daemon) -> str | None:
    return None if daemon.discovery.rounds else "no survey has ended yet"


def _sections(daemon: Daemon, history: History | None) -> list[Section]:
    from nngkit.web.status import Section
    from nngkit.web.status.sections import poll
    from nngkit.web.status.services import services

    def rounds() -> dict[str, object]:
        wall = _wall(daemon)
        return {str(each.number): round_fields(each, wall) for each in daemon.discovery.rounds}

    return [
        services(daemon.discovery, view=daemon.discovery.view, history=history),
        Section({"rounds": "The last rounds of surveys."}, partial(poll, rounds)),
    ]


def _wall(daemon: Daemon) -> float:
    return time.time() - daemon.discovery.now()


def _routes(daemon: Daemon) -> dict[str, Route]:
    from nngkit.web.door import Rows

    return {
        "v1/services": Rows(
            "Providers and their states, as `nngkit discover --json`.",
            daemon.discovery.view,
            lambda row: status_fields(row, _wall(daemon)),
            door.line_schema("discover"),
        ),
        "v1/rounds": Rows(
            "The last rounds of surveys, oldest first.",
            lambda: daemon.discovery.rounds,
            lambda figures: round_fields(figures, _wall(daemon)),
            door.line_schema("discover-rounds")["properties"]["rounds"]["items"],
        ),
    }
