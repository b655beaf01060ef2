"""`nngkit discoverd`: the discovery daemon as a command. A line on stdout for each change; stderr for the rest.

::

    $ nngkit discoverd
    2026-01-31T12:00:00.123Z  answer  tcp://127.0.0.1:9000  up (answered)
    2026-01-31T12:00:07.456Z  answer  tcp://127.0.0.1:9000  down (pipe lost)

Lines are written by a thread of their own: a reader that stops reading must not stop the surveys. What it leaves unread
is kept (65,536 changes, then a line on stderr, and the view anew).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import trio

from nngkit.cli.main import BROKEN_PIPE, say
from nngkit.cli.output import json_line, provider_fields, state_text, utc, wants_colour
from nngkit.cli.tls import tls_or_variables
from nngkit.discovery.daemon import Daemon
from nngkit.discovery.provider import Event
from nngkit.discovery.settings import DaemonSettings
from nngkit.errors import Full
from nngkit.protocols import TLS

if TYPE_CHECKING:
    from nngkit.cli.keeping import Keeping

__all__ = ["event_fields", "run"]

NAME: Final = "nngkit discoverd"


def run(arguments: argparse.Namespace) -> int:
    """Until a signal, or until nobody reads what it prints."""
    settings = DaemonSettings.from_environment()
    given = {
        "listen": arguments.listen and tuple(arguments.listen),
        "query": arguments.query and tuple(arguments.query),
        "deadline": arguments.deadline,
        "interval": arguments.interval,
        "text": False if arguments.no_text else None,
        "warnings": () if arguments.listen else None,
    }
    settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
    tls = tls_or_variables(arguments, settings.certificates, "listen", *settings.listen, *settings.query)
    return trio.run(_serve, settings, arguments, tls)


async def _serve(settings: DaemonSettings, arguments: argparse.Namespace, tls: TLS | None) -> int:
    async with AsyncExitStack() as opened:
        keeping = None
        if arguments.journal is not None:
            from nngkit.cli.keeping import Keeping
            from nngkit.journal.recorder import Recorder

            keeping = Keeping(
                await opened.enter_async_context(Recorder(arguments.journal, partition=arguments.partition))
            )
        return await _serve_and_keep(settings, bool(arguments.json), keeping, tls)


async def _serve_and_keep(settings: DaemonSettings, as_json: bool, keeping: Keeping | None, tls: TLS | None) -> int:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with Daemon(settings, on_round=None if keeping is None else keeping.round, tls=tls) as daemon:
            for warning in settings.warnings:
                say(NAME, f"warning: {warning}")
            surveys, queries = " ".join(daemon.discovery.addresses), " ".join(daemon.query_addresses)
            say(NAME, f"surveys at {surveys}, answers at {queries}")
            code = 0
            async with trio.open_nursery() as nursery:

                async def print_changes() -> None:
                    nonlocal code
                    try:
                        await _print_changes(daemon, as_json)
                    except BrokenPipeError:
                        code = BROKEN_PIPE
                        nursery.cancel_scope.cancel()
                    except OSError as error:
                        say(NAME, f"cannot write the output: {error.strerror or error}")
                        code = 1
                        nursery.cancel_scope.cancel()

                if keeping is not None:
                    keeping.daemon = daemon
                    nursery.start_soon(daemon.run, keeping.event)
                nursery.start_soon(print_changes)
                async for number in signals:
                    code = 128 + number
                    nursery.cancel_scope.cancel()
                    break
            return code


async def _print_changes(daemon: Daemon, as_json: bool) -> None:
    colour = wants_colour(sys.stdout)
    while True:
        try:
            events: AsyncGenerator[Event, None] = daemon.discovery.events()
            async with aclosing(events) as changes:
                async for event in changes:
                    # events carry the daemon's own clock, people have another
                    at = time.time() - (daemon.discovery.now() - event.time)
                    line = json_line(event_fields(event, at)) if as_json else event_text(event, at, colour)
                    # not through sys.stdout: a thread that hangs in there would keep the process from ending
                    await trio.to_thread.run_sync(_write, line.encode() + b"\n", abandon_on_cancel=True)
            return
        except Full as behind:
            say(NAME, f"the output is not read: {behind}; what there is now follows")


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def event_fields(event: Event, at: float) -> dict[str, Any]:
    """A change in JSON; docs/schemas/discoverd.json."""
    return {
        "time": utc(at),
        "name": event.name,
        "address": event.provider.address,
        "state": event.new.value,
        "reason": event.reason.value,
        "was": event.old.value,
        "round": event.round,
        **provider_fields(event.provider),
    }


def event_text(event: Event, at: float, colour: bool) -> str:
    """A change for people."""
    state = state_text(event.new, colour)
    return f"{utc(at)}  {event.name}  {event.provider.address}  {state} ({event.reason.value})"
