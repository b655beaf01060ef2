"""`nngkit ping URL`: measure round-trip times repeatedly.

::

    $ nngkit ping tcp://127.0.0.1:5555 --count 2
    reply 1: 0.312 ms, 4 bytes
    reply 2: 0.287 ms, 4 bytes
    2 asked, 2 answered: min 0.287, avg 0.300, p50 0.289, p90 0.312, p99 0.312, max 0.312 ms

On a terminal it updates one line. A round trip starts when a peer is connected: the time to connect is not included.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.option_errors import named
from nngkit.cli.ports import say_chosen
from nngkit.cli.streams.output import json_line
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import add_tls, tls_of
from nngkit.errors import ConfigError, TimedOut
from nngkit.histogram import Histogram, milliseconds

if TYPE_CHECKING:
    from nngkit.cli.streams.line_writer import LineWriter
    from nngkit.protocols import Req, Surveyor

EPILOG: Final = """\
Exit codes: 0 a reply arrived, 2 usage, 3 cannot listen, 4 no reply, 130 interrupted (with the results so far).
Works with any REP, whatever it replies."""
NAME: Final = "nngkit ping"
BUFFER: Final = 1 << 20  # bytes of lines queued for a slow reader
SHARES: Final = (0.5, 0.9, 0.99)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("url", metavar="URL", type=options.address, help="address of the peer")
    options.add_flag(parser, "--listen", "listen at URL (default: dial it)")
    options.add_flag(parser, "--survey", "survey all RESPONDENTs (default: request from a REP)")
    options.add_whole(parser, "--count", 1, 10**9, "number of round trips (default: unlimited)")
    options.add_seconds(parser, "--interval", 1.0, "seconds between round trips", zero=True)
    parser.add_argument("--data", metavar="TEXT", help="text of the request (default: ping)")
    parser.add_argument("--size", type=options.size, metavar="BYTES", help="send a request of BYTES zeros instead")
    options.add(parser, "timeout", "json")
    add_tls(parser)


class Report:
    """Output: lines in a pipe, one updated line on a terminal, JSON objects with --json."""

    def __init__(self, lines: LineWriter, address: str, mode: str, as_json: bool) -> None:
        self.spread = Histogram()
        self.asked = 0
        self.answered = 0
        self._lines = lines
        self._address = address
        self._mode = mode
        self._json = as_json
        self._live = not as_json and sys.stdout is not None and sys.stdout.isatty()

    def replies(self, found: list[tuple[float, int, str | None]]) -> None:
        """Record the replies of a round trip: seconds, size, peer."""
        self.asked += 1
        self.answered += 1
        for seconds, size, peer in found:
            self.spread.add(seconds)
            if self._json:
                fields = {
                    "event": "reply",
                    "number": self.asked,
                    "seconds": round(seconds, 9),
                    "size": size,
                    "peer": peer,
                }
                self._lines.put(json_line(fields))
            elif not self._live:
                whose = f" from {peer}" if peer else ""
                self._lines.put(f"reply {self.asked}{whose}: {milliseconds(seconds)} ms, {size} bytes")
        self._show()

    def lost(self, seconds: float, why: str) -> None:
        """Record a round trip without a reply."""
        self.asked += 1
        if self._json:
            self._lines.put(
                json_line({"event": "lost", "number": self.asked, "seconds": round(seconds, 9), "why": why})
            )
        elif not self._live:
            self._lines.put(f"lost {self.asked}: {why} in {seconds:.1f} s")
        self._show()

    def end(self) -> None:
        """Print the summary."""
        if self._json:
            counted = {"asked": self.asked, "answered": self.answered, "replies": self.spread.count}
            fields = {"event": "summary", "address": self._address, "mode": self._mode, **counted}
            self._lines.put(json_line({**fields, **self.spread.fields(*SHARES)}))
        elif self._live:
            self._lines.put("")
        else:
            self._lines.put(self._text())

    def _show(self) -> None:
        if self._live:
            # erase the rest of a longer line
            self._lines.put(f"\r{self._text()}\033[K", end="")

    def _text(self) -> str:
        figures = ", ".join(f"{name} {milliseconds(value)}" for name, value in self.spread.fields(*SHARES).items())
        return f"{self.asked} asked, {self.answered} answered: {figures} ms"


def run(arguments: argparse.Namespace) -> int:
    """Measure until --count or a signal; return the exit code."""
    import trio

    from nngkit.protocols import Req, Surveyor

    if arguments.data is not None and arguments.size is not None:
        raise ConfigError("--size", "conflicts with --data")
    data = b"ping" if arguments.data is None else arguments.data.encode("utf-8", "surrogateescape")
    if arguments.size is not None:
        data = bytes(arguments.size)
    end = "listen" if arguments.listen else "dial"
    try:
        # no limit: a reply may be larger than its request
        given: dict[str, Any] = {end: arguments.url, "recv_max_size": 0, "tls": tls_of(arguments, arguments.url)}
        socket = Surveyor(**given) if arguments.survey else Req(**given)
    except ConfigError as error:
        raise named(error, "URL") from error
    with socket:
        if arguments.listen:
            say_chosen(partial(say, NAME), [arguments.url], socket.addresses)
        return trio.run(_ping, socket, data, arguments)


async def _ping(socket: Req | Surveyor, data: bytes, arguments: argparse.Namespace) -> int:
    import trio

    from nngkit.cli.streams.line_writer import printed, to_stdout
    from nngkit.cli.streams.signals import until_signal

    lines = to_stdout(BUFFER)
    report = Report(lines, arguments.url, "survey" if arguments.survey else "req", arguments.json)

    async def ask() -> None:
        due = trio.current_time()
        while arguments.count is None or report.asked < arguments.count:
            await trio.sleep_until(due)
            # a slow reply delays later requests, without a burst
            due = max(due, trio.current_time()) + arguments.interval
            started = time.monotonic()
            try:
                await socket.await_for_peers(1, arguments.timeout)
                found = await _round(socket, data, arguments.timeout)
            except TimedOut:
                report.lost(time.monotonic() - started, "no reply" if socket.pipes else "no peer connected")
            else:
                report.replies(found)

    async with printed(lines):
        code = await until_signal(ask)
        report.end()
        if not code:
            await lines.finish(math.inf)
    if lines.dropped:
        say(NAME, f"{lines.dropped} lines were not read in time, and dropped")
    return code or (0 if report.answered else 4)


async def _round(socket: Req | Surveyor, data: bytes, timeout: float) -> list[tuple[float, int, str | None]]:
    """Make one round trip. Raises TimedOut without a reply."""
    from nngkit.protocols import Req

    started = time.monotonic()
    if isinstance(socket, Req):
        reply = await socket.arequest(data, timeout)
        return [(time.monotonic() - started, len(reply), None)]
    result = await socket.asurvey(data, timeout, early=True)
    if not result.replies:
        raise TimedOut("no reply", timeout)
    return [
        (reply.elapsed, len(reply.body), None if reply.pipe is None else reply.pipe.address) for reply in result.replies
    ]
