"""`nngkit bench URL`: measure throughput, latency and loss between two processes.

::

    $ nngkit bench tcp://127.0.0.1:0 --protocol pubsub --seconds 1
    pubsub: 48200 messages/s, 4.82 MB/s, 100 bytes each, 1.0 s; 190080 sent, 141880 dropped; one way p50 9.312, ...

Without a role both ends are started: the listening one as a separate process, the dialing one here.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.option_errors import named
from nngkit.cli.streams.output import json_line, picked
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import add_tls, tls_of
from nngkit.errors import Broken, ConfigError, TimedOut
from nngkit.histogram import milliseconds

if TYPE_CHECKING:
    from nngkit.cli.tools.bench_load import Result
    from nngkit.protocols import Socket

EPILOG: Final = """\
Both ends run on this machine. For two machines: --listen on one, --dial on the other, with the same --protocol,
--size and --batch. Ctrl-C ends it with the results so far."""
NAME: Final = "nngkit bench"
PROTOCOLS: Final = ("pair", "reqrep", "pipeline", "pubsub", "bus", "survey")
ASKING: Final = ("reqrep", "survey")
SHARES: Final = (0.5, 0.9, 0.99, 0.999)
BUFFER: Final = 1 << 20  # bytes of results queued for a slow reader: far more than needed
LEAST: Final = 24  # bytes of a message: the end message has three numbers of 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("url", metavar="URL", type=options.address, help="address of the listening end; port 0 is any")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="protocol (default: all, one after the other)")
    role = parser.add_mutually_exclusive_group()
    options.add_flag(role, "--listen", "run the listening end, which receives or replies")
    options.add_flag(role, "--dial", "run the dialing end, which sends or requests")
    options.add_seconds(parser, "--seconds", 3.0, "seconds for each protocol")
    options.add_whole(parser, "--size", LEAST, 1 << 28, f"of a message, from {LEAST}", default=100, metavar="BYTES")
    options.add_whole(parser, "--batch", 1, 65536, "send in batches of N messages")
    options.add_whole(parser, "--window", 1, 8192, "requests or surveys in flight", default=1)
    options.add_seconds(parser, "--timeout", 30.0, "seconds to wait for the other end")
    output = parser.add_mutually_exclusive_group()
    options.add_flag(output, "--csv", "print CSV with a header")
    options.add(output, "json")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure the protocols in turn; return the exit code."""
    import trio

    role = "listen" if arguments.listen else "dial" if arguments.dial else "both"
    protocols: tuple[str, ...] = (arguments.protocol,) if arguments.protocol else PROTOCOLS
    if role != "both" and not arguments.protocol:
        raise ConfigError("--protocol", f"is needed with --{role}")
    if arguments.batch is not None:
        if arguments.protocol in ASKING:
            raise ConfigError("--batch", f"does not apply to {arguments.protocol}")
        protocols = tuple(each for each in protocols if each not in ASKING)
    if role == "both" and arguments.url.startswith("inproc:"):
        raise ConfigError("URL", "inproc does not reach another process")
    return trio.run(_measure, protocols, role, arguments)


async def _measure(protocols: tuple[str, ...], role: str, arguments: argparse.Namespace) -> int:
    """Measure the protocols in turn. A stalled reader does not delay them; results are queued for it."""
    from nngkit.cli.streams.line_writer import printed, to_stdout

    lines = to_stdout(BUFFER)
    async with printed(lines):
        for number, protocol in enumerate(protocols):
            fields, code = await (_both if role == "both" else _one)(protocol, role, arguments)
            if arguments.json:
                lines.put(json_line(fields))
            else:
                lines.put(_csv(fields, head=number == 0) if arguments.csv else _text(fields))
            if code:  # interrupted
                return code
        await lines.finish(math.inf)
    return 0


def _open(protocol: str, role: str, url: str, arguments: argparse.Namespace) -> Socket:
    from nngkit import protocols
    from nngkit.cli.tools.bench_load import ENDS

    given: dict[str, Any] = {}
    if arguments.batch is not None:
        given["batch"] = protocols.Batch(items=arguments.batch, size=max(65536, arguments.batch * (arguments.size + 5)))
    name = ENDS[protocol][role == "listen"]
    if name == "Sub":
        given["topics"] = b""
    try:
        socket: Socket = getattr(protocols, name)(
            **{role: url}, recv_max_size=max(1 << 20, arguments.size), tls=tls_of(arguments, url), **given
        )
    except ConfigError as error:
        raise named(error, "URL") from error
    return socket


async def _one(protocol: str, role: str, arguments: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """Run one end here; return its result and the exit code of an interrupt."""
    from nngkit.cli.streams.progress import shown
    from nngkit.cli.streams.signals import until_signal
    from nngkit.cli.tools.bench_load import Load, Result, joined, sink, source

    result = Result()
    async with _open(protocol, role, arguments.url, arguments) as socket:
        if role == "listen":
            say(NAME, f"listens at {socket.address}")

        async def work() -> None:
            await joined(socket, arguments.timeout)
            if role == "listen":
                await sink(socket, result)
            else:
                async with shown(protocol, arguments.seconds):
                    await source(socket, Load(arguments.seconds, arguments.size, arguments.window), result)

        code = await until_signal(work)
        address = arguments.url if role == "dial" else socket.address
    return result_fields(protocol, role, address, arguments, result, interrupted=bool(code)), code


async def _both(protocol: str, _: str, arguments: argparse.Namespace) -> tuple[dict[str, Any], int]:
    """Run the listening end in another process, the dialing one here."""
    import trio

    given = [arguments.url, "--protocol", protocol, "--listen", "--json", "--timeout", str(arguments.timeout)]
    given += ["--size", str(arguments.size)]
    for name in ("batch", "cacert", "cert", "key", "server_name"):
        if (value := getattr(arguments, name)) is not None:
            given += [f"--{name.replace('_', '-')}", str(value)]
    given += [f"--{name}" for name in ("insecure", "tls12") if getattr(arguments, name)]
    command = [sys.executable, "-m", "nngkit", "bench", *given]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1, text=True)  # noqa: ASYNC220
    try:
        assert process.stderr is not None
        line = await trio.to_thread.run_sync(process.stderr.readline, abandon_on_cancel=True)
        found = re.search(r"listens at (\S+)", line)
        if found is None:
            raise Broken(f"the listening end: {line.removeprefix(f'{NAME}: ').strip() or 'ended at once'}")
        near = argparse.Namespace(**{**vars(arguments), "url": found[1]})
        fields, code = await _one(protocol, "dial", near)
        far = json.loads(await trio.to_thread.run_sync(_output, process, abandon_on_cancel=True))
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()
    if protocol not in ASKING:  # measured by the other end
        counted = ("seconds", "received", "per_second", "bytes_per_second", "latency")
        fields |= {name: far[name] for name in counted}
        if fields["received"] is not None:
            fields["dropped"] = max(0, fields["sent"] - fields["received"])
    return {**fields, "role": "both"}, code


def _output(process: subprocess.Popen[str]) -> str:
    """Return the output of the other end when it has ended."""
    try:
        return process.communicate(timeout=10)[0]
    except subprocess.TimeoutExpired as late:
        raise TimedOut("the listening end does not end", late.timeout) from late


def result_fields(
    protocol: str, role: str, address: str, arguments: argparse.Namespace, result: Result, *, interrupted: bool
) -> dict[str, Any]:
    """Return the result; docs/schemas/bench.json."""
    counted = result.sent if result.received is None else result.received
    rate = (counted or 0) / result.seconds if result.seconds else 0.0
    return {
        "address": address,
        "protocol": protocol,
        "role": role,
        "size": arguments.size,
        "batch": arguments.batch or 0,
        "window": arguments.window if protocol in ASKING else 0,
        "seconds": round(result.seconds, 6),
        **picked(result, "sent received dropped"),
        "per_second": round(rate, 1),
        "bytes_per_second": round(rate * arguments.size, 1),
        "interrupted": interrupted,
        "latency": result.spread.fields(*SHARES),
    }


def _csv(fields: dict[str, Any], *, head: bool) -> str:
    flat = {name: value for name, value in fields.items() if name != "latency"}
    flat |= {f"latency_{name}": value for name, value in fields["latency"].items()}
    text = io.StringIO()
    rows = csv.DictWriter(text, list(flat), lineterminator="\n")
    if head:
        rows.writeheader()
    rows.writerow(flat)
    return text.getvalue().rstrip("\n")


def _text(fields: dict[str, Any]) -> str:
    what = "round trips" if fields["protocol"] in ASKING else "messages"
    rates = f"{fields['per_second']:.0f} {what}/s, {fields['bytes_per_second'] / 1e6:.2f} MB/s"
    words = [f"{fields['protocol']}: {rates}, {fields['size']} bytes each, {fields['seconds']:.1f} s"]
    counted = [f"{fields[name]} {name}" for name in ("sent", "received", "dropped") if fields[name] is not None]
    words.append(", ".join(counted))
    if fields["latency"]["p50"] is not None:
        way = "round trip" if fields["protocol"] in ASKING else "one way"
        shown = ", ".join(f"{name} {milliseconds(fields['latency'][name])}" for name in ("p50", "p99", "max"))
        words.append(f"{way} {shown} ms")
    return "; ".join(word for word in words if word)
