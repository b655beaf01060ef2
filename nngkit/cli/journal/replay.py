"""`nngkit replay`: send the records of a journal again, at their pace, faster, or at full speed.

::

    $ nngkit replay ./journal pub --listen tcp://127.0.0.1:7000 --topic weather --speed 10
    nngkit replay: pub listens at tcp://127.0.0.1:7000; waits for peers: 1
    10000 records, 1000000 bytes in 12.3 s; late by 0.4 ms (median), 1.1 ms (99 %)
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any, Final

from nngkit.cli import options
from nngkit.cli.journal.record_range import Skips, add_journal, add_range, range_of
from nngkit.cli.streams.output import json_line, out, picked
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import add_tls, tls_of
from nngkit.errors import ConfigError

EPILOG: Final = """\
Protocols: pub, push, bus, pair, and req, which waits for the reply to each record. Ends when all records are sent.
docs/journal.md has the accuracy of the pace."""
NAME: Final = "nngkit replay"
CLASSES: Final = {"pub": "Pub", "push": "Push", "bus": "Bus", "pair": "Pair0", "req": "Req"}


def speed(text: str) -> float | None:
    """Parse a factor, or `max` (None)."""
    if text == "max":
        return None
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 < factor < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a factor over 0 nor `max`")
    return factor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_journal(parser)
    parser.add_argument("protocol", metavar="PROTOCOL", choices=list(CLASSES), help="protocol to send with, see below")
    options.add_address(parser, "--listen", "listen for receivers; may be repeated", many=True)
    options.add_address(parser, "--dial", "dial receivers; may be repeated", many=True)
    text = "speed relative to the recorded pace, or max (default: 1)"
    options.add_value(parser, "--speed", "X", text, type=speed, default=1.0)
    add_range(parser)
    options.add_flag(parser, "--sequence", "pub: number the messages, so that subscribers detect loss")
    options.add_flag(parser, "--batch", "send records in batches; not for req")
    options.add_whole(parser, "--peers", 0, 65536, "wait for N peers", default=1)
    options.add_seconds(parser, "--linger", 10.0, "seconds that closing may take", zero=True)
    options.add(parser, "json")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Send all records, until a signal; return the exit code."""
    import trio

    if not arguments.listen + arguments.dial:
        raise ConfigError("--listen", "an address is required, here or in --dial")
    for option, allowed, given in (
        ("--sequence", ("pub",), arguments.sequence),
        ("--batch", ("pub", "push", "bus", "pair"), arguments.batch),
    ):
        if given and arguments.protocol not in allowed:
            raise ConfigError(option, f"is for {', '.join(allowed)} only")
    return trio.run(_replay, arguments)


async def _replay(arguments: argparse.Namespace) -> int:
    from nngkit import protocols
    from nngkit.cli.streams.signals import until_signal
    from nngkit.journal.reader import open_journal
    from nngkit.journal.replaying import Replayed, replay

    journal = open_journal(arguments.journal, spool=arguments.spool)
    given: dict[str, Any] = {"sequence": True} if arguments.sequence else {}
    if arguments.batch:
        given["batch"] = True
    tls = tls_of(arguments, *arguments.listen, *arguments.dial)
    socket = getattr(protocols, CLASSES[arguments.protocol])(
        listen=arguments.listen, dial=arguments.dial, linger=arguments.linger, tls=tls, **given
    )
    done, skips = Replayed(), Skips(NAME)
    started = time.monotonic()
    async with socket:
        ways = [f"listens at {address}" for address in socket.addresses] + [f"dials {url}" for url in arguments.dial]
        say(NAME, f"{arguments.protocol} {', '.join(ways)}; waits for peers: {arguments.peers}")

        async def work() -> None:
            nonlocal started
            await socket.await_for_peers(arguments.peers)
            started = time.monotonic()
            wanted = range_of(arguments)
            await replay(journal, socket, speed=arguments.speed, progress=done, skipped=skips, **wanted)

        code = await until_signal(work)
        seconds = time.monotonic() - started
        fields = replay_fields(done, seconds)
        out(json_line(fields) if arguments.json else replay_text(fields))
        skips.finish()
    stats = socket.stats
    if arguments.protocol in ("pub", "push", "pair") and stats.dropped + stats.broken:
        ended = f"{stats.broken} were being sent when their connection ended"
        say(NAME, f"{stats.dropped} messages were dropped, {ended}")
        code = code or (0 if arguments.protocol == "pub" else 1)  # pub promises best effort only
    return code


def replay_fields(done: Any, seconds: float) -> dict[str, Any]:
    """Return the result; docs/schemas/replay.json."""
    paced = bool(done.late)
    return {
        **picked(done, "records size skipped"),
        "seconds": round(seconds, 3),
        "late_p50": done.lateness(0.5) if paced else None,
        "late_p99": done.lateness(0.99) if paced else None,
        "late_max": done.lateness(1.0) if paced else None,
    }


def replay_text(fields: dict[str, Any]) -> str:
    """Format the result as one line."""
    text = f"{fields['records']} records, {fields['size']} bytes in {fields['seconds']:.1f} s"
    if fields["late_p50"] is None:
        return text
    return f"{text}; late by {fields['late_p50'] * 1e3:.1f} ms (median), {fields['late_p99'] * 1e3:.1f} ms (99 %)"
