"""`nngkit top`: message rates by peer and topic, and losses: a live table, or lines in a pipe.

::

    $ nngkit top --sub tcp://127.0.0.1:5555
    12.0 s  1 peers  4810 messages  402.1/s  40.2 kB/s  dropped 0
    PEER                  TOPIC         MESSAGES  RATE     BYTES      SIZES    QUIET
    tcp://127.0.0.1:5555  weather.oslo  4810      402.1/s  40.2 kB/s  100-100  0s

A process sees only its own sockets: peers and drops of others cannot be queried. So this is a peer itself: a
subscriber, a node of a bus, a puller (which takes messages from other pullers), or a client of discovery daemons.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.option_errors import named
from nngkit.cli.ports import say_chosen
from nngkit.cli.streams.output import columns, cut, json_line, picked, state_text, utc, wants_colour
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import add_tls, tls_of, tls_or_variables
from nngkit.cli.tools.traffic import Traffic
from nngkit.errors import BadMessage, ConfigError, TimedOut

if TYPE_CHECKING:
    from nngkit.cli.streams.line_writer import LineWriter
    from nngkit.protocols import Socket

EPILOG: Final = """\
Requires one of --sub, --bus, --pull and --daemon. --pull TAKES the messages it shows from other pullers.
Exit codes: 2 usage, 4 no message (--once: in its interval), 130 interrupted. docs/tools.md describes the table."""
NAME: Final = "nngkit top"
BUFFER: Final = 1 << 20  # bytes of tables queued for a slow reader
CLEAR: Final = "\033[H\033[J"
WAYS: Final = ("sub", "bus", "pull")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    url: dict[str, Any] = {"type": options.address, "action": "append", "metavar": "URL"}
    source = parser.add_argument_group("source of the messages")
    source.add_argument("--sub", **url, help="subscribe at URL; may be repeated")
    source.add_argument("--bus", **url, help="join the bus at URL; may be repeated")
    source.add_argument("--pull", **url, help="pull messages from URL; may be repeated")
    options.add(source, "daemon")
    options.add_flag(parser, "--listen", "listen at the addresses (default: dial them)")
    parser.add_argument(
        "--topic", action="append", metavar="TEXT", help="--sub: these topics, counted separately (default: all)"
    )
    options.add_flag(parser, "--words", "count messages by their first word")
    options.add_flag(parser, "--sequence", "--sub: count gaps in numbered messages")
    options.add_flag(parser, "--batch", "the messages are batches")
    options.add_seconds(parser, "--interval", 1.0, "seconds between updates")
    options.add_whole(parser, "--rows", 1, 1000, "rows at most", default=30)
    options.add_flag(parser, "--once", "print one table and exit")
    options.add(parser, "timeout", "max-size", "json")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print until a signal, or once; return the exit code."""
    import trio

    ways = [way for way in (*WAYS, "daemon") if getattr(arguments, way)]
    if len(ways) != 1:
        raise ConfigError(f"--{ways[1]}" if ways else "--sub", "one of --sub, --bus, --pull and --daemon is required")
    (way,) = ways
    for option, fits in (
        ("topic", ("sub",)),
        ("sequence", ("sub",)),
        ("words", WAYS),
        ("batch", WAYS),
        ("listen", WAYS),
    ):
        if getattr(arguments, option) and way not in fits:
            raise ConfigError(f"--{option}", f"conflicts with --{way}")
    if way == "daemon":
        return trio.run(_shown, arguments, _daemon)
    with _open(way, arguments) as socket:
        return trio.run(_shown, arguments, partial(_messages, socket, way))


def _open(way: str, arguments: argparse.Namespace) -> Socket:
    from nngkit import protocols

    addresses = getattr(arguments, way)
    given: dict[str, Any] = {"listen" if arguments.listen else "dial": addresses}
    if way == "sub":
        given |= {"topics": arguments.topic or b"", "sequence": arguments.sequence}
    try:
        socket: Socket = getattr(protocols, way.capitalize())(
            recv_max_size=arguments.max_size, tls=tls_of(arguments, *addresses), batch=arguments.batch or None, **given
        )
    except ConfigError as error:
        raise named(error, f"--{way}") from error
    if arguments.listen:
        say_chosen(partial(say, NAME), addresses, socket.addresses)
    return socket


async def _shown(arguments: argparse.Namespace, watch: Callable[[argparse.Namespace, _Screen], Awaitable[int]]) -> int:
    """Run `watch` with output by a thread, so that a stalled reader does not affect the measurement."""
    from nngkit.cli.streams.line_writer import printed, to_stdout

    lines = to_stdout(BUFFER)
    async with printed(lines):
        code = await watch(arguments, _Screen(arguments, lines))
        if arguments.once:
            await lines.finish(math.inf)
    if lines.dropped:
        say(NAME, f"{lines.dropped} tables were not read in time, and dropped")
    return code


# ---- messages --------------------------------------------------------------------------------------------------------


async def _messages(socket: Any, way: str, arguments: argparse.Namespace, screen: _Screen) -> int:
    import trio

    from nngkit.cli.streams.signals import until_signal

    started = time.monotonic()
    topics = [topic.encode("utf-8", "surrogateescape") for topic in arguments.topic or ()]
    traffic = Traffic(started, topics, words=arguments.words)

    async def take() -> None:
        while True:
            try:
                message = await socket.arecv_msg()
            except BadMessage:  # counted in `stats.bad`
                continue
            traffic.add(message, None if message.pipe is None else message.pipe.address, time.monotonic())

    def show() -> None:
        fields = flow_fields(traffic, socket, way, arguments, time.monotonic() - started)
        screen.show(fields, _flow_text)

    async def work() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            await _looks(arguments, show)
            nursery.cancel_scope.cancel()

    code = await until_signal(work)
    return code or (0 if traffic.total.messages else 4)


async def _looks(arguments: argparse.Namespace, show: Callable[[], Any]) -> None:
    """Show the table at every interval, or once."""
    import trio

    while True:
        await trio.sleep(arguments.interval)
        show()
        if arguments.once:
            return


def flow_fields(
    traffic: Traffic, socket: Socket, way: str, arguments: argparse.Namespace, seconds: float
) -> dict[str, Any]:
    """Return the traffic; docs/schemas/top.json."""
    stats, now = socket.stats, time.monotonic()
    rows = [
        {
            "peer": row.peer,
            "topic": row.topic,
            "messages": row.messages,
            "bytes": row.size,
            "per_second": round(row.per_second, 3),
            "bytes_per_second": round(row.bytes_per_second, 1),
            "smallest": row.smallest,
            "largest": row.largest,
            "quiet": round(now - row.last, 3),
        }
        for row in traffic.rows(now)
    ]
    return {
        "time": utc(time.time()),
        "seconds": round(seconds, 3),
        "kind": way,
        "rows": rows,
        "peers": stats.pipes,
        **picked(stats, "joined left"),
        "messages": traffic.total.messages,
        "bytes": traffic.total.size,
        "per_second": round(traffic.total.per_second, 3),
        "bytes_per_second": round(traffic.total.bytes_per_second, 1),
        "dropped": stats.dropped if way != "pull" else None,  # a PULL applies backpressure instead
        "lost": stats.lost if arguments.sequence else None,
        "bad": stats.bad,
    }


def _flow_text(fields: dict[str, Any], most: int, colour: bool) -> str:
    counts = "".join(f"  {name} {fields[name]}" for name in ("dropped", "lost") if fields[name] is not None)
    bad = f"  bad {fields['bad']}" if fields["bad"] else ""
    head = (
        f"{fields['seconds']:.1f} s  {fields['peers']} peers  {fields['messages']} messages  "
        f"{fields['per_second']:.1f}/s  {_bytes(fields['bytes_per_second'])}/s{counts}{bad}"
    )
    cells = [
        (
            row["peer"] or "-",
            row["topic"] or "-",
            str(row["messages"]),
            f"{row['per_second']:.1f}/s",
            f"{_bytes(row['bytes_per_second'])}/s",
            f"{row['smallest']}-{row['largest']}",
            f"{row['quiet']:.0f}s",
        )
        for row in fields["rows"][:most]
    ]
    if not cells:
        return head
    return f"{head}\n{columns(('PEER', 'TOPIC', 'MESSAGES', 'RATE', 'BYTES', 'SIZES', 'QUIET'), cells, colour)}"


def _bytes(number: float) -> str:
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} B"


# ---- discovery daemons -----------------------------------------------------------------------------------------------


async def _daemon(arguments: argparse.Namespace, screen: _Screen) -> int:
    import trio

    from nngkit.cli.discovery.daemons import ask_all, settings_of
    from nngkit.cli.streams.signals import until_signal
    from nngkit.discovery.client import DaemonClient

    started, heard = time.monotonic(), False
    settings = settings_of(arguments)
    daemons, domain = settings.daemons, settings.domain
    tls = tls_or_variables(arguments, settings.certificates, "dial", *daemons)

    async def ask(client: DaemonClient) -> tuple[Any, Any]:
        return await client.snapshot(None, everything=True), await client.rounds(1)

    async def work() -> None:
        nonlocal heard
        while True:
            answers, errors = await ask_all(daemons, arguments.timeout, ask, domain=domain, tls=tls)
            if not answers and arguments.once:
                raise errors[0]
            heard = heard or bool(answers)
            fields = daemon_fields(daemons, answers, time.monotonic() - started)
            screen.show(fields, _daemon_text)
            if arguments.once:
                return
            await trio.sleep(arguments.interval)

    code = await until_signal(work)
    if not heard and not code:
        raise TimedOut("no daemon replied")
    return code


def daemon_fields(daemons: tuple[str, ...], answers: dict[str, tuple[Any, Any]], seconds: float) -> dict[str, Any]:
    """Return the daemons' views; docs/schemas/top.json."""
    wall = time.time() - time.monotonic()
    known = {}
    for rows, _ in answers.values():
        for row in rows:
            known[row.provider.name, row.provider.address, row.provider.id] = row
    asked = []
    for address in daemons:
        rounds = answers[address][1].rounds if address in answers else ()
        last = max(rounds, key=lambda each: each.number, default=None)
        asked.append(
            {
                "address": address,
                "answers": address in answers,
                "rounds": None if last is None else last.number,
                "asked": None if last is None else last.asked,
                "missed": None if last is None else last.missed,
            }
        )
    services = [
        {
            "name": row.provider.name,
            "address": row.provider.address,
            "state": row.state.value,
            "since": utc(row.since + wall),
            "rtt": row.rtt,
            "misses": row.misses,
            "load": row.provider.load,
        }
        for _, row in sorted(known.items())
    ]
    return {
        "time": utc(time.time()),
        "seconds": round(seconds, 3),
        "kind": "daemon",
        "services": services,
        "daemons": asked,
    }


def _daemon_text(fields: dict[str, Any], most: int, colour: bool) -> str:
    from nngkit.discovery.provider import State
    from nngkit.histogram import milliseconds

    lines = []
    for daemon in fields["daemons"]:
        state = "no reply"
        if daemon["answers"]:
            state = f"round {daemon['rounds'] or 0}: {daemon['asked'] or 0} asked, {daemon['missed'] or 0} missed"
        lines.append(f"{fields['seconds']:.1f} s  {daemon['address']}  {state}")
    cells = [
        (
            row["name"],
            row["address"],
            state_text(State(row["state"]), colour),
            row["since"],
            f"{milliseconds(row['rtt'])} ms",
            str(row["misses"]),
            f"{row['load']:g}",
        )
        for row in fields["services"][:most]
    ]
    if cells:
        lines.append(columns(("NAME", "ADDRESS", "STATE", "SINCE", "RTT", "MISSES", "LOAD"), cells, colour))
    return "\n".join(lines)


class _Screen:
    """Output: a table redrawn on a terminal, successive tables in a pipe, or lines of JSON."""

    def __init__(self, arguments: argparse.Namespace, lines: LineWriter) -> None:
        self._lines = lines
        self._json = arguments.json
        self._rows = arguments.rows
        self._live = not (arguments.json or arguments.once) and sys.stdout is not None and sys.stdout.isatty()
        self._colour = wants_colour(sys.stdout)

    def show(self, fields: dict[str, Any], text: Callable[[dict[str, Any], int, bool], str]) -> None:
        """Print a table."""
        if self._json:
            self._lines.put(json_line(fields))
        else:
            table = text(fields, self._rows, self._colour)
            if self._live:  # a line that is longer than the terminal would push others out of it
                width = shutil.get_terminal_size().columns
                table = CLEAR + "\n".join(cut(line, width) for line in table.split("\n"))
            self._lines.put(table)
