"""`nngkit consume`: print or process the records of a journal as a durable consumer; serve a journal to consumers.

::

    $ nngkit consume --serve --journal ./journal --listen tcp://0.0.0.0:7100 --trust open
    $ nngkit consume billing --server tcp://host:7100 --exec './bill'      # acknowledged when it ends with 0
    $ nngkit consume audit --journal ./journal --json                      # without a server: one process a name
"""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from nngkit.cli import door, options
from nngkit.cli.journal.record_range import content_fields, micros
from nngkit.cli.streams import notify
from nngkit.cli.streams.output import columns, json_line, out, picked, utc_of, wants_colour
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import add_tls, tls_of
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.fanout import Consumer, ConsumerInfo, ConsumerServer, Delivery
    from nngkit.web.door import Route

EPILOG: Final = """\
A record is delivered until it is acknowledged: after it was printed or --exec ended with 0 (--ack after), or as it
arrives (--ack auto: at most once). A failed command is tried again after --retry seconds. Commands of one NAME share
the records. --exec gets the value on standard input, and NNGKIT_TOPIC, NNGKIT_OFFSET, NNGKIT_PARTITION, NNGKIT_KEY
(base64) and NNGKIT_DELIVERIES. docs/consumers.md has the guarantees."""
NAME: Final = "nngkit consume"
LONGEST_RUN: Final = 86_400.0


def beginning(text: str) -> tuple[str, int]:
    """Parse `--from`: earliest, latest, an offset, or a time."""
    if text in ("earliest", "latest"):
        return text, 0
    if text.isascii() and text.isdigit():
        return "offset", options.whole(text, 0, (1 << 63) - 1)
    return "time", micros(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="the consumer, created by its first use")
    options.add_address(parser, "--server", "the server of consumers")
    parser.add_argument("--journal", metavar="DIR", help="the journal, instead of a server")
    parser.add_argument("--spool", metavar="DIR", help="for shared storage: the folder of the recorder's logs")
    parser.add_argument("--state", metavar="DIR", help="the folder of positions (default: JOURNAL/consumers)")
    options.add_flag(parser, "--serve", "serve --journal to consumers at --listen")
    options.add_address(parser, "--listen", "with --serve: an address to listen at; may be repeated", many=True)
    options.add_flag(parser, "--info", "print the position of NAME, or of all; consume nothing")
    options.add_flag(parser, "--delete", "delete NAME and its position")
    text = "for a new NAME: earliest (default), latest, an offset, or a time as 2026-01-31T12:00:00Z"
    parser.add_argument("--from", dest="start", type=beginning, metavar="WHERE", help=text)
    parser.add_argument("--topic", action="append", metavar="NAME", help="only this topic; may be repeated")
    parser.add_argument("--exec", metavar="CMD", help="run this shell command for each record")
    parser.add_argument("--ack", choices=("after", "auto"), default="after", help="when (default: after)")
    options.add_seconds(parser, "--retry", 1.0, "pause before a failed command gets its record again")
    options.add_seconds(parser, "--ack-wait", None, "deliver again after S s (default: 30)")
    options.add_flag(parser, "--change", "change --topic, --ack-wait and --max-deliver of a known NAME to these")
    most = (1 << 31) - 1
    options.add_whole(parser, "--max-deliver", 1, most, "give a record up after N deliveries (default: never)")
    options.add_whole(parser, "--count", 1, most, "end after N records")
    options.add_seconds(parser, "--idle", None, "end when no record has come for S seconds", zero=True)
    door.add_http(parser)
    options.add(parser, "json", "shared-files")
    add_tls(parser)


def check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for arguments that do not go together."""
    tls_of(arguments, *arguments.listen, *([arguments.server] if arguments.server else []))
    if arguments.serve:
        if arguments.journal is None or not arguments.listen:
            raise ConfigError("--serve", "needs --journal and --listen")
        door.check_http(arguments)
        return
    for option in ("listen", "http", "http_name"):
        if getattr(arguments, option):
            raise ConfigError(f"--{option.replace('_', '-')}", "is for --serve")
    if (arguments.server is None) == (arguments.journal is None):
        raise ConfigError("--server", "give either it or --journal")
    if arguments.name is None and not arguments.info:
        raise ConfigError("NAME", "is required, unless with --serve or --info")


def run(arguments: argparse.Namespace) -> int:
    """Consume until a signal, or serve; return the exit code."""
    import trio

    check(arguments)
    return trio.run(_serve if arguments.serve else _consume, arguments)


async def _serve(arguments: argparse.Namespace) -> int:
    import trio

    from nngkit.cli.streams.signals import until_signal
    from nngkit.fanout import ConsumerServer

    tls = tls_of(arguments, *arguments.listen)
    async with ConsumerServer(
        arguments.journal, state=arguments.state, spool=arguments.spool, listen=arguments.listen, tls=tls
    ) as server:
        where = f"serves {arguments.journal}; listens at {', '.join(server.addresses)}"
        say(NAME, where)
        async with door.opened(NAME, arguments, partial(_routes, server), watch=[server]):
            notify.ready(where)
            return await until_signal(trio.sleep_forever)


def _routes(server: ConsumerServer) -> dict[str, Route]:
    from nngkit.web.door import Rows

    return {
        "v1/consumers": Rows(
            "Consumers and their positions by partition, as `nngkit consume --info --json`.",
            server.consumers,
            info_fields,
            door.line_schema("consume")["oneOf"][1],
        )
    }


@asynccontextmanager
async def _address(arguments: argparse.Namespace) -> AsyncIterator[str]:
    """Yield the server's address; of one in this process for `--journal`."""
    from nngkit.fanout import ConsumerServer

    if arguments.server is not None:
        yield arguments.server
        return
    async with ConsumerServer(
        arguments.journal, state=arguments.state, spool=arguments.spool, listen="inproc://nngkit-consume"
    ) as server:
        yield server.address


async def _consume(arguments: argparse.Namespace) -> int:
    from nngkit.background import Background
    from nngkit.cli.silence import hint_if
    from nngkit.cli.streams.signals import until_signal
    from nngkit.fanout import Consumer, consumers

    tls = tls_of(arguments, *([arguments.server] if arguments.server else []))
    reached = False
    async with _address(arguments) as address, Background() as tasks:
        if arguments.server is not None:
            tasks.start(hint_if, lambda: not reached, NAME, [address], "req")
        if arguments.info:
            _print(await consumers(address, arguments.name or "", tls=tls), arguments.json)
            return 0
        where, value = arguments.start or ("", 0)
        async with Consumer(
            arguments.name,
            address,
            start={"": None, "time": None, "offset": value}.get(where, where),
            start_time=value if where == "time" else None,
            topics=arguments.topic,
            ack_wait=arguments.ack_wait,
            max_deliver=arguments.max_deliver,
            change=arguments.change,
            records=1 if arguments.exec else 1000,
            tls=tls,
        ) as consumer:
            reached = True
            if arguments.delete:
                await consumer.delete()
                return 0
            work = _Work(arguments, consumer)
            notify.ready(f"consumes as {arguments.name}")
            return await until_signal(work.run) or work.code


class _Work:
    """Loop over the records."""

    def __init__(self, arguments: argparse.Namespace, consumer: Consumer) -> None:
        self.code = 0
        self._arguments = arguments
        self._consumer = consumer

    async def run(self) -> None:
        import trio

        arguments, done = self._arguments, 0
        while arguments.count is None or done < arguments.count:
            delivery = None
            with trio.move_on_after(float("inf") if arguments.idle is None else arguments.idle):
                delivery = await self._consumer.receive()
            if delivery is None:
                break
            if arguments.ack == "auto":
                await delivery.ack()
            if await self._handled(delivery):
                done += 1
                if arguments.ack == "after":
                    delivery.ack_soon()
            elif arguments.ack == "after":
                await delivery.nak(arguments.retry)
        await self._consumer.flush()

    async def _handled(self, delivery: Delivery) -> bool:
        if self._arguments.exec:
            return await self._executed(delivery)
        if self._arguments.json:
            out(json_line(delivery_fields(delivery)))
        else:
            sys.stdout.buffer.write(delivery.value + b"\n")
            sys.stdout.buffer.flush()
        return True

    async def _executed(self, delivery: Delivery) -> bool:
        from nngkit.cli.streams.shell import run_shell, shell_environment

        variables = {
            "NNGKIT_TOPIC": delivery.topic,
            "NNGKIT_OFFSET": str(delivery.offset),
            "NNGKIT_PARTITION": str(delivery.partition),
            "NNGKIT_KEY": base64.b64encode(delivery.key or b"").decode(),
            "NNGKIT_DELIVERIES": str(delivery.deliveries),
        }
        script = self._arguments.exec
        ran = await run_shell(script, delivery.value, shell_environment(**variables), LONGEST_RUN)
        if why := ran.failure():
            say(NAME, f"offset {delivery.offset} of partition {delivery.partition}: {script}: {why}")
        return not why


def delivery_fields(delivery: Delivery) -> dict[str, Any]:
    """Return a delivered record, bytes in base64; docs/schemas/consume.json."""
    return {
        **picked(delivery, "partition offset timestamp"),
        "time": utc_of(delivery.timestamp),
        "topic": delivery.topic,
        **content_fields(delivery),
        "deliveries": delivery.deliveries,
    }


def info_fields(info: ConsumerInfo) -> dict[str, Any]:
    """Return the state of a consumer in a partition; docs/schemas/consume.json."""
    return {**asdict(info), "behind": info.behind}


def _print(infos: list[ConsumerInfo], as_json: bool) -> None:
    if as_json:
        for info in infos:
            out(json_line(info_fields(info)))
        return
    head = ("NAME", "PARTITION", "CURSOR", "BEHIND", "PENDING", "REDELIVERED", "GIVEN UP", "SKIPPED")
    names = "name partition cursor behind pending redelivered given_up skipped"
    rows = [tuple(map(str, picked(each, names).values())) for each in infos]
    out(columns(head, rows, wants_colour(sys.stdout)))
