"""`nngkit record`: record the messages that sockets receive in a journal, until a signal.

::

    $ nngkit record ./journal --stream 'weather=sub dial=tcp://127.0.0.1:7000 subscribe=weather.' \\
                              --stream 'orders=rep listen=tcp://127.0.0.1:7001'
    nngkit record: ./journal, partition 0, from offset 0 on; weather (sub) dials tcp://127.0.0.1:7000; ...

Statistics are printed to stdout at the end, every `--stats` seconds, and on SIGUSR1.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import door, options
from nngkit.cli.exit_codes import BROKEN_PIPE
from nngkit.cli.streams import notify
from nngkit.cli.streams.output import json_line, picked, utc
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import add_tls, tls_of
from nngkit.cli.tokens import joining
from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.cli.journal.decisions import Decisions
    from nngkit.journal.recorder import Recorder
    from nngkit.protocols import TLS, Socket
    from nngkit.recording import DocumentRecorder
    from nngkit.web.door import Route

EPILOG: Final = """\
A stream is 'NAME=PROTOCOL WORD ...', with NAME the topic of its records:
  weather=sub dial=tcp://host:7000 subscribe=weather. sequence
  jobs=pull listen=tcp://127.0.0.1:7001 batch
  orders=rep listen=tcp://127.0.0.1:7002     requests in the format of docs/journal.md
  words=rep listen=tcp://127.0.0.1:7003 plain  a record for each request
  notes=documents dial=tcp://host:4711 only=minutes/*
                                             a record for each edit of documents
  audit=trust                                a record for each peer of the streams: let in, or refused and why
Protocols: sub pull bus pair rep documents trust. Words: listen=URL dial=URL subscribe=TEXT (sub; default: all),
sequence (sub: count gaps), batch (sub, pull, bus, pair), plain (rep), join=URL discovery=URL only=PATTERN (documents;
as for `nngkit doc`). SIGUSR1 prints statistics. docs/journal.md has the guarantees."""
NAME: Final = "nngkit record"
LEASE: Final = 10.0  # seconds without a touch after which the lease lapses
STATS_BUFFER: Final = 1 << 20  # bytes of statistics queued for a slow reader
MOST_BUFFER: Final = 8192  # messages queued while the disk or the loop is busy: the most that a socket can hold
CLASSES: Final = {"sub": "Sub", "pull": "Pull", "bus": "Bus", "pair": "Pair0", "rep": "Rep"}
DOCUMENTS: Final = "documents"  # recorded by a document peer, not a socket
TRUST: Final = "trust"  # decisions of the program's own trust
PLACES: Final = {DOCUMENTS: ("listen", "dial", "join", "discovery"), TRUST: ()}


@dataclass(slots=True)
class StreamOptions:
    """A stream as given on the command line."""

    topic: str
    protocol: str
    listen: list[str] = field(default_factory=list)
    dial: list[str] = field(default_factory=list)
    join: list[str] = field(default_factory=list)
    discovery: list[str] = field(default_factory=list)
    subscribe: list[str] = field(default_factory=list)
    only: list[str] = field(default_factory=list)
    token: str | None = None
    flags: set[str] = field(default_factory=set)


def stream(text: str) -> StreamOptions:
    """Parse a `--stream`."""
    try:
        first, *words = shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a stream: {error}") from None
    topic, _, protocol = first.partition("=")
    if not topic or protocol not in (*CLASSES, DOCUMENTS, TRUST):
        known = ", ".join((*CLASSES, DOCUMENTS, TRUST))
        raise argparse.ArgumentTypeError(f"{text!r} does not begin with NAME=PROTOCOL, one of {known}")
    wanted = StreamOptions(topic, protocol)
    none = set[str]()
    flags = {"sub": {"sequence", "batch"}, "rep": {"plain"}, DOCUMENTS: none, TRUST: none}.get(protocol, {"batch"})
    places = PLACES.get(protocol, ("listen", "dial"))
    for word in words:
        name, equals, value = word.partition("=")
        if name in places and value:
            getattr(wanted, name).append(options.address(value))
        elif name == "subscribe" and equals and protocol == "sub":
            wanted.subscribe.append(value)
        elif name == "only" and value and protocol == DOCUMENTS:
            wanted.only.append(value)
        elif word in flags:
            wanted.flags.add(word)
        else:
            raise argparse.ArgumentTypeError(f"{text!r}: {word!r} is not a word of a {protocol} stream")
    if places and not any(getattr(wanted, name) for name in places):
        raise argparse.ArgumentTypeError(f"{text!r} neither listens nor dials")
    return wanted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("journal", metavar="JOURNAL", help="a folder, or a URI of shared storage; created if missing")
    text = "see below; may be repeated"
    options.add_value(parser, "--stream", "STREAM", text, type=stream, action="append", required=True)
    options.add_partition(parser, "partition, one for each recorder", 0)
    parser.add_argument("--spool", metavar="DIR", help="for shared storage: the folder of this recorder's logs")
    options.add_flag(parser, "--salvage", "continue after damage, and count the lost records")
    options.add_seconds(parser, "--keep-age", None, "delete older segments (default: never)")
    size = partial(options.add_whole, parser, least=1, most=1 << 60, metavar="BYTES")
    size("--keep-size", text="delete the oldest segments over this size (default: never)")
    size("--segment-size", text="seal a log over this size", default=64 << 20)
    options.add_seconds(parser, "--segment-age", 60.0, "seal a log over this age, if it is large enough")
    size("--segment-least", text="bytes that are large enough for --segment-age", default=1 << 20)
    text = "seal any log over this age (default: 900; with --spool that of --segment-age)"
    options.add_seconds(parser, "--segment-oldest", None, text)
    options.add_token(parser, "documents: the peers'")
    parser.add_argument("--lease", metavar="FILE", help="end when FILE has not been touched for 10 s, or is removed")
    options.add_seconds(parser, "--stats", None, "print statistics every S seconds")
    door.add_http(parser)
    options.add(parser, "max-size", "json", "shared-files")
    add_tls(parser)


def check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for arguments that do not go together."""
    if arguments.lease is not None and not os.path.exists(arguments.lease):
        raise ConfigError("--lease", f"{arguments.lease}: no such file; create it, and touch it every few seconds")
    from nngkit.protocols.own_host import check_guarded
    from nngkit.trust import chosen

    tls = tls_of(arguments, *_places(arguments))
    for wanted in arguments.stream:
        if wanted.protocol in CLASSES:
            check_guarded(wanted.listen, chosen(None, tls), tls)
    door.check_http(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Record until a signal; return the exit code."""
    import trio

    check(arguments)
    return trio.run(_record, arguments)


def _places(arguments: argparse.Namespace) -> list[str]:
    return [url for wanted in arguments.stream for url in wanted.listen + wanted.dial + wanted.join + wanted.discovery]


def _open(wanted: StreamOptions, arguments: argparse.Namespace, tls: TLS | None) -> Socket:
    from nngkit import protocols

    given: dict[str, Any] = {}
    if wanted.protocol == "sub":
        given["topics"] = wanted.subscribe or b""
        given["sequence"] = "sequence" in wanted.flags
    if wanted.protocol != "rep":
        given["batch"] = "batch" in wanted.flags
    socket: Socket = getattr(protocols, CLASSES[wanted.protocol])(
        listen=wanted.listen,
        dial=wanted.dial,
        recv_max_size=arguments.max_size,
        recv_buffer=MOST_BUFFER,
        tls=tls,
        **given,
    )
    return socket


def _decisions(wanted: StreamOptions, recorder: Recorder, tls: TLS | None) -> Decisions:
    from nngkit.cli.journal.decisions import Decisions
    from nngkit.trust import Trust, chosen

    trust = chosen(None, tls)
    if not isinstance(trust, Trust):
        raise ConfigError("--stream", f"{wanted.topic}={TRUST}: needs a pass: --trust, or NNGKIT_TRUST")
    return Decisions(trust, recorder, wanted.topic)


def _peer(
    wanted: StreamOptions, arguments: argparse.Namespace, recorder: Recorder, tls: TLS | None
) -> DocumentRecorder:
    """Return the peer that records documents. Raises ConfigError."""
    from nngkit.recording import DocumentRecorder

    wanted.token, join = joining(wanted.join, arguments.token, "--stream")
    return DocumentRecorder(
        recorder,
        wanted.topic,
        only=wanted.only,
        listen=wanted.listen,
        dial=wanted.dial,
        join=join,
        discovery=wanted.discovery,
        token=wanted.token,
        tls=tls,
    )


async def _record(arguments: argparse.Namespace) -> int:
    import trio

    from nngkit.cli.journal.decisions import Decisions
    from nngkit.cli.streams.line_writer import LineWriter, every
    from nngkit.journal.recorder import Recorder
    from nngkit.journal.writing.partition import Retention

    arguments.stream.sort(key=lambda wanted: wanted.protocol != TRUST)  # it hears of the peers of the others
    tls = tls_of(arguments, *_places(arguments))
    prints = LineWriter(1, STATS_BUFFER)
    recorder = Recorder(
        arguments.journal,
        partition=arguments.partition,
        spool=arguments.spool,
        salvage=arguments.salvage,
        retention=Retention(arguments.keep_age, arguments.keep_size),
        segment_bytes=arguments.segment_size,
        segment_seconds=arguments.segment_age,
        segment_least=arguments.segment_least,
        segment_oldest=arguments.segment_oldest,
    )
    started = time.monotonic()
    code = 0

    def show() -> None:
        fields = stats_fields(recorder, time.monotonic() - started, time.time())
        prints.put(json_line(fields) if arguments.json else stats_text(fields))

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGUSR1) as signals:
        async with trio.open_nursery() as helpers:
            async with recorder, trio.open_nursery() as working:

                async def printed() -> None:
                    nonlocal code
                    try:
                        await prints.write_all()
                    except OSError as error:
                        code = BROKEN_PIPE if isinstance(error, BrokenPipeError) else 1
                        if code == 1:
                            say(NAME, f"cannot write the output: {error.strerror or error}")
                    working.cancel_scope.cancel()

                async def handle_signals() -> None:
                    nonlocal code
                    async for number in signals:
                        if number == signal.SIGUSR1:
                            show()
                            continue
                        notify.stopping()
                        code = 128 + number
                        working.cancel_scope.cancel()

                async def watch_lease() -> None:
                    while _age(arguments.lease) < LEASE:  # noqa: ASYNC110 - a file has no event for a touch
                        await trio.sleep(0.5)
                    say(NAME, f"{arguments.lease}: the lease has lapsed")
                    working.cancel_scope.cancel()

                async with contextlib.AsyncExitStack() as opened:
                    sources: list[Socket | DocumentRecorder | Decisions] = []
                    for wanted in arguments.stream:
                        if wanted.protocol == DOCUMENTS:
                            peer = _peer(wanted, arguments, recorder, tls)
                            sources.append(await opened.enter_async_context(peer))
                        elif wanted.protocol == TRUST:
                            sources.append(opened.enter_context(_decisions(wanted, recorder, tls)))
                        else:
                            sources.append(opened.enter_context(_open(wanted, arguments, tls)))
                    say(NAME, where := _where(arguments, recorder, sources))
                    watch = [recorder, *(each for each in sources if not isinstance(each, Decisions))]
                    routes = partial(_routes, recorder, started)
                    ready = lambda: recorder.stats.failure  # noqa: E731
                    await opened.enter_async_context(door.opened(NAME, arguments, routes, watch=watch, ready=ready))
                    notify.ready(where)
                    async with trio.open_nursery() as streams:
                        for wanted, source in zip(arguments.stream, sources, strict=True):
                            if wanted.protocol in CLASSES:
                                streams.start_soon(_one, recorder, source, wanted.topic, "plain" in wanted.flags)
                        if any(wanted.protocol not in CLASSES for wanted in arguments.stream):
                            streams.start_soon(trio.sleep_forever)  # these run by themselves
                        helpers.start_soon(printed)
                        working.start_soon(handle_signals)
                        if arguments.lease is not None:
                            working.start_soon(watch_lease)
                        if arguments.stats is not None:
                            working.start_soon(every, arguments.stats, show)
            show()
            await prints.finish(1.0)
            helpers.cancel_scope.cancel()
    if (unstored := recorder.stats.log.unstored) and not code:
        code = 1
    if unstored:
        say(NAME, f"{unstored} records are lost: they could not be written before the end")
    return code


async def _one(recorder: Recorder, socket: Any, topic: str, plain: bool) -> None:
    await recorder.record(socket, topic, plain=plain)


def _age(path: str) -> float:
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return LEASE


def _where(
    arguments: argparse.Namespace, recorder: Recorder, sources: list[Socket | DocumentRecorder | Decisions]
) -> str:
    from nngkit.cli.journal.decisions import Decisions
    from nngkit.protocols import Socket

    stats = recorder.stats
    words = [f"{arguments.journal}, partition {stats.partition}, from offset {stats.end} on"]
    for wanted, source in zip(arguments.stream, sources, strict=True):
        if isinstance(source, Decisions):
            words.append(f"{wanted.topic} ({TRUST}) of {source.trust.name}")
            continue
        # with a token it is joined only
        ways = [] if wanted.token else [f"listens at {address}" for address in source.addresses]
        if not isinstance(source, Socket):
            ways += [f"is joined at {address}" for address in source.repair_addresses]
        ways += [f"dials {url}" for url in wanted.dial] + [f"joins {url.partition('#')[0]}" for url in wanted.join]
        ways += [f"queries {url}" for url in wanted.discovery]
        words.append(f"{wanted.topic} ({wanted.protocol}) {', '.join(ways)}")
    if stats.torn:
        words.append(f"{stats.torn} bytes of an incomplete record were discarded")
    if stats.salvaged:
        words.append(f"{stats.salvaged} records are lost to damage")
    return "; ".join(words)


def _routes(recorder: Recorder, started: float) -> dict[str, Route]:
    from nngkit.web.door import Value

    return {
        "v1/recorder": Value(
            "Statistics, as `nngkit record --json` prints them.",
            lambda: stats_fields(recorder, time.monotonic() - started, time.time()),
            door.line_schema("record"),
        )
    }


def stats_fields(recorder: Recorder, seconds: float, at: float) -> dict[str, Any]:
    """Return the statistics; docs/schemas/record.json."""
    stats = recorder.stats
    log, seal = stats.log, stats.seal
    return {
        "time": utc(at),
        "seconds": round(seconds, 3),
        **picked(stats, "partition start sealed end waiting"),
        **picked(log, "synced syncs refused unstored sync_failures write_failures"),
        "seal_failures": seal.failures,
        **picked(seal, "segments merged retired"),
        **picked(stats, "torn salvaged failure"),
        "streams": [
            picked(each, "topic protocol received size dropped refused bad lost unseen")
            for each in sorted(stats.streams, key=lambda stream: stream.topic)
        ],
    }


def stats_text(fields: dict[str, Any]) -> str:
    """Format the statistics as one line, without zero counts."""
    words = [f"{fields['seconds']:.1f} s, {fields['synced']} records on the disk, offsets below {fields['end']}"]
    for each in fields["streams"]:
        counted = [f"{name} {each[name]}" for name in ("dropped", "refused", "bad", "lost", "unseen") if each[name]]
        words.append(", ".join([f"{each['topic']} {each['received']}", *counted]))
    counters = "refused unstored sync_failures write_failures seal_failures retired torn salvaged"
    words += [f"{name.replace('_', ' ')} {fields[name]}" for name in counters.split() if fields[name]]
    if fields["failure"] is not None:
        words.append(fields["failure"])
    return "; ".join(words)
