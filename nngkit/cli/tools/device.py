"""`nngkit device`: forward messages between two addresses until a signal.

::

    $ nngkit device queue --front-listen tcp://0.0.0.0:6000 --back-listen tcp://0.0.0.0:6001
    nngkit device: queue: front (Rep) listens at tcp://0.0.0.0:6000; back (Req) listens at tcp://0.0.0.0:6001

Statistics are printed to stdout at the end, every `--stats` seconds, and on SIGUSR1. Threads write them and
`--capture`, so that slow readers do not delay the device.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import door, options
from nngkit.cli.exit_codes import BROKEN_PIPE
from nngkit.cli.option_errors import named
from nngkit.cli.streams import notify
from nngkit.cli.streams.output import json_line, picked, utc
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import add_tls, check_tls, tls_of
from nngkit.devices.kinds import KINDS
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.cli.streams.line_writer import LineWriter
    from nngkit.devices.device import Device
    from nngkit.protocols import TLS, Socket
    from nngkit.web.door import Route

EPILOG: Final = """\
kinds:
{}

Messages enter at the front. Each side may listen, dial, or both, at several addresses.
SIGUSR1 prints statistics. TLS options of one side (--front-cert ...) override those of both (--cert ...).
docs/devices.md has the limits and losses of a device.""".format(
    "\n".join(f"  {kind.name:9}  {kind.what}" for kind in KINDS.values())
)
NAME: Final = "nngkit device"
SIDES: Final = ("front", "back")
FIGURES: Final = "in_flight unanswered lost rings far"  # of a Device, in the statistics
CAPTURE_BUFFER: Final = 64 << 20  # bytes of records queued for the disk
STATS_BUFFER: Final = 1 << 20  # bytes of statistics queued for a slow reader


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("kind", metavar="KIND", choices=list(KINDS), help="see below")
    for side, peers in (("front", "senders and requesters"), ("back", "receivers and repliers")):
        options.add_address(parser, f"--{side}-listen", f"listen for {peers}; may be repeated", many=True)
        options.add_address(parser, f"--{side}-dial", f"dial {peers}; may be repeated", many=True)
    parser.add_argument("--topic", action="append", metavar="TEXT", help="forwarder: only these topics (default: all)")
    text = "forwarder: only such topics, as in orders.*.eu or orders.>"
    parser.add_argument("--pattern", action="append", metavar="PATTERN", help=text)
    text = "queue: seconds until a request is abandoned (default: 60); survey: for responses (default: 10)"
    options.add_seconds(parser, "--request-timeout", None, text)
    options.add_whole(parser, "--in-flight", 1, 65536, "queue, survey: concurrent requests (default: 1024)")
    options.add_whole(parser, "--hold", 1, 8192, "messages that each side may queue (default: see docs/protocols.md)")
    text = "messages (requests) a second in each direction (default: any number)"
    parser.add_argument("--rate", type=_rate, metavar="N", help=text)
    options.add_seconds(parser, "--once", None, "drop a body that was forwarded in the same direction within S seconds")
    options.add_whole(parser, "--hops", 1, 7, "queue, survey: devices in a row that a request may pass (default: 7)")
    parser.add_argument("--capture", metavar="FILE", help="append a JSON line for each incoming message")
    text = "listen for subscribers of a copy of all messages; may be repeated"
    options.add_address(parser, "--tap", text, many=True)
    parser.add_argument("--record", metavar="DIR", help="record all messages in this journal")
    options.add_seconds(parser, "--stats", None, "print statistics every S seconds")
    options.add_seconds(parser, "--linger", 1.0, "seconds that closing may take", zero=True)
    door.add_http(parser)
    options.add(parser, "max-size", "json")
    add_tls(parser, "front", "back")


def _rate(text: str) -> float:
    return float(options.whole(text, 1, 1_000_000_000))


def check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for arguments that do not go together."""
    for side in SIDES:
        if not getattr(arguments, f"{side}_listen") + getattr(arguments, f"{side}_dial"):
            raise ConfigError(f"--{side}-listen", f"the {side} needs an address, here or in --{side}-dial")
    kind = KINDS[arguments.kind]
    for option, only, value in (
        ("--topic", ("forwarder",), arguments.topic),
        ("--pattern", ("forwarder",), arguments.pattern),
        ("--request-timeout", ("queue", "survey"), arguments.request_timeout),
        ("--in-flight", ("queue", "survey"), arguments.in_flight),
        ("--hops", ("queue", "survey"), arguments.hops),
    ):
        if value is not None and kind.name not in only:
            raise ConfigError(option, f"is for a {' or '.join(only)} only")
    sides = _sides(arguments)
    check_tls(arguments, *sides["front"], *sides["back"])
    door.check_http(arguments)


def _sides(arguments: argparse.Namespace) -> dict[str, list[str]]:
    return {side: getattr(arguments, f"{side}_listen") + getattr(arguments, f"{side}_dial") for side in SIDES}


def run(arguments: argparse.Namespace) -> int:
    """Forward until a signal; return the exit code."""
    import trio

    check(arguments)
    capture = None
    if arguments.capture is not None:
        try:
            capture = os.open(arguments.capture, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise ConfigError("--capture", f"{arguments.capture}: {error.strerror}") from error
    try:
        return trio.run(_serve, arguments, capture)
    finally:
        if capture is not None:
            os.close(capture)


def _open(side: str, arguments: argparse.Namespace, tls: TLS | None) -> Socket:
    from nngkit import protocols

    listen, dial = getattr(arguments, f"{side}_listen"), getattr(arguments, f"{side}_dial")
    given: dict[str, Any] = {}
    name = getattr(KINDS[arguments.kind], side)
    if name == "Sub":
        try:
            patterns = [protocols.Pattern(text) for text in arguments.pattern or ()]
        except ConfigError as error:
            raise ConfigError("--pattern", error.why, error.value) from error
        given["topics"] = [*(arguments.topic or ()), *patterns] or b""
    if name == "Req":
        given["resend"] = None  # the requesters resend themselves
    if arguments.hold is not None:
        given |= {"recv_buffer": arguments.hold, "send_buffer": arguments.hold}
    try:
        socket: Socket = getattr(protocols, name)(
            listen=listen, dial=dial, recv_max_size=arguments.max_size, linger=arguments.linger, tls=tls, **given
        )
    except ConfigError as error:
        raise named(error, f"--{side}-{error.what}", side) from error
    return socket


async def _serve(arguments: argparse.Namespace, capture: int | None) -> int:
    import trio

    from nngkit.cli.streams.line_writer import LineWriter, every
    from nngkit.cli.tools import device_taps
    from nngkit.cli.tools.device_places import registered
    from nngkit.devices.device import HOPS, IN_FLIGHT, Device
    from nngkit.protocols import DEFAULT

    tls = {side: tls_of(arguments, *addresses, side=side) for side, addresses in _sides(arguments).items()}
    records = None if capture is None else LineWriter(capture, CAPTURE_BUFFER)
    prints = LineWriter(1, STATS_BUFFER)
    code = 0
    with ExitStack() as stack:
        signals = stack.enter_context(trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGUSR1))
        async with (
            _open("front", arguments, tls["front"]) as front,
            _open("back", arguments, tls["back"]) as back,
            device_taps.opened(arguments, records, tls["back"]) as (tap, taps),
        ):
            device = Device(
                front,
                back,
                tap=tap,
                rate=arguments.rate,
                once=arguments.once,
                timeout=arguments.request_timeout or DEFAULT,
                in_flight=arguments.in_flight or IN_FLIGHT,
                hops=arguments.hops or HOPS,
            )
            stack.enter_context(registered(device.place))
            where = f"{arguments.kind}: {_where('front', front)}; {_where('back', back)}{taps}"
            say(NAME, where)
            notify.ready(where)
            started = time.monotonic()

            def show() -> None:
                fields = stats_fields(device, time.monotonic() - started, time.time(), records)
                prints.put(json_line(fields) if arguments.json else stats_text(fields))

            async with (
                door.opened(NAME, arguments, partial(_routes, device, started, records), watch=[device]),
                trio.open_nursery() as helpers,
            ):
                if records is not None:
                    helpers.start_soon(_captured, records, arguments.capture)

                async def printed() -> None:
                    nonlocal code
                    try:
                        await prints.write_all()
                    except BrokenPipeError:
                        code = BROKEN_PIPE
                    except OSError as error:
                        say(NAME, f"cannot write the output: {error.strerror or error}")
                        code = 1
                    device.stop(arguments.linger)

                helpers.start_soon(printed)
                async with trio.open_nursery() as working:

                    async def handle_signals() -> None:
                        nonlocal code
                        async for number in signals:
                            if number == signal.SIGUSR1:
                                show()
                            elif code:  # a second signal: at once
                                device.stop(0.0)
                            else:
                                notify.stopping()
                                code = 128 + number
                                device.stop(arguments.linger)

                    working.start_soon(handle_signals)
                    if arguments.stats is not None:
                        working.start_soon(every, arguments.stats, show)
                    await device.run()
                    working.cancel_scope.cancel()
                if records is not None:
                    await records.finish(arguments.linger)
                show()
                await prints.finish(arguments.linger)
                helpers.cancel_scope.cancel()
                if prints.dropped and code not in (1, BROKEN_PIPE):  # else reported already, or without a reader
                    say(NAME, f"{prints.dropped} lines of statistics were not read in time, and dropped")
    return code


async def _captured(records: LineWriter, path: str) -> None:
    try:
        await records.write_all()
    except OSError as error:  # forwarding matters more than its record
        say(NAME, f"--capture: {path}: {error.strerror or error}; messages are forwarded without capture")


def _where(side: str, socket: Socket) -> str:
    ways = [f"listens at {address}" for address in socket.addresses]
    ways += [f"dials {address}" for address in socket.dialed]
    return f"{side} ({type(socket).__name__}) {', '.join(ways)}"


def _routes(device: Device, started: float, records: LineWriter | None) -> dict[str, Route]:
    from nngkit.web.door import Value

    return {
        "v1/device": Value(
            "Statistics, as `nngkit device --json` prints them; rates are those since they were last asked for.",
            lambda: stats_fields(device, time.monotonic() - started, time.time(), records),
            door.line_schema("device"),
        )
    }


def stats_fields(device: Device, seconds: float, at: float, records: LineWriter | None) -> dict[str, Any]:
    """Return the statistics; docs/schemas/device.json."""
    return {
        "time": utc(at),
        "seconds": round(seconds, 3),
        "kind": device.kind.name,
        "up": asdict(device.up),
        "down": asdict(device.down),
        **picked(device, FIGURES),
        "peers": [asdict(peer) for peer in device.peers()],
        "front": {"addresses": list(device.front.addresses), **asdict(device.front.stats)},
        "back": {"addresses": list(device.back.addresses), **asdict(device.back.stats)},
        "captured": 0 if records is None else records.written,
        "uncaptured": 0 if records is None else records.dropped,
    }


def stats_text(fields: dict[str, Any]) -> str:
    """Format the statistics as one line, without zero counts."""
    words = [f"{fields['seconds']:.1f} s {fields['kind']}"]
    for way in ("up", "down"):
        flow = fields[way]
        if flow["received"]:
            words.append(f"{way} {flow['passed']} of {flow['received']} messages, {flow['size']} bytes")
        if flow["dropped"]:
            words.append(f"{way} left out {flow['dropped']}")
    words += [f"{name.replace('_', ' ')} {fields[name]}" for name in FIGURES.split() if fields[name]]
    for side in ("front", "back"):
        counted = fields[side]
        found = [
            f"{name} {counted[name]}" for name in ("dropped", "broken", "too_large", "bad", "lost") if counted[name]
        ]
        words.append(", ".join([f"{side} {counted['pipes']} peers", *found]))
    words += [f"{name} {fields[name]}" for name in ("captured", "uncaptured") if fields[name]]
    return "; ".join(words)
