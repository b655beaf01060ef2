"""`nngkit serve NAME --exec CMD`: a provider of a service made of any program.

::

    $ nngkit serve shout --exec 'tr a-z A-Z'                            # a process for each call
    $ nngkit serve double --lines --exec 'jq --unbuffered ".*2"'        # workers that live on: a line in, a line out
    $ nngkit call shout -D hello
    HELLO

A body is standard input, standard output the reply. With a codec both are JSON, and a program that fails is an error at
the caller; without one, no reply can say so, and the caller's timeout passes.
"""

from __future__ import annotations

import argparse
import base64
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import door, options
from nngkit.cli.option_errors import named
from nngkit.cli.streams import notify
from nngkit.cli.streams.output import json_line, provider_fields, utc
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import add_tls, tls_or_variables
from nngkit.errors import ConfigError, NngkitError, RemoteError

if TYPE_CHECKING:  # --help loads no event loop
    from nngkit.calls import Calling, Server
    from nngkit.cli.config.reloading import Reload
    from nngkit.discovery.settings import ServiceSettings
    from nngkit.protocols import TLS
    from nngkit.web.door import Route

NAME: Final = "nngkit serve"
EPILOG: Final = """\
The command has NNGKIT_SERVICE (NAME), NNGKIT_METHOD and NNGKIT_PEER (the caller's address) in its environment; with
--lines only the first. SIGINT and SIGTERM drain: calls in progress end, within --drain-timeout.
Exit codes: 2 usage, 3 cannot listen, 130 interrupted (SIGINT), 143 terminated (SIGTERM)."""
QUEUE: Final = 16 << 20  # bytes of the lines of --json queued for a slow reader; further ones are dropped
SAID_EVERY: Final = 1.0  # seconds between two lines about failures: a flood of bad calls is no flood of lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("name", metavar="NAME", help="the service")
    parser.add_argument("--exec", metavar="CMD", required=True, help="shell command that makes the reply")
    options.add_flag(parser, "--lines", "keep the processes: each reads lines and replies by lines")
    parser.add_argument("--codec", choices=("cbor", "json"), help="input and output of CMD are JSON; errors are told")
    options.add_many(parser, "--method", "M", "serve this method too; needs --codec; may be repeated")
    options.add_whole(parser, "--concurrency", 1, 4096, "processes at once", default=16)
    text = "--codec: calls that wait for a process; further ones are refused"
    options.add_whole(parser, "--queue", 0, 1_000_000, text, default=1024)
    options.add_seconds(parser, "--exec-timeout", 60.0, "seconds for a reply, after which the process is killed")
    options.add_seconds(parser, "--drain-timeout", 10.0, "seconds that calls in progress may take at the end")
    parser.add_argument("--healthy", metavar="CMD", help="run every second; while it fails, calls are refused")
    text = (
        "survey address of a daemon, may be repeated (default: NNGKIT_DISCOVERY, or DISCOVERY_HOST and "
        "DISCOVERY_PORT, or tcp://127.0.0.1:5555)"
    )
    names = "NNGKIT_DISCOVERY", "NNGKIT_DISCOVERY_HOST", "NNGKIT_DISCOVERY_PORT"
    options.add_address(parser, "--discovery", text, *names, action="append")
    options.add_address(parser, "--listen", "listen here (default: a free port that the daemons' hosts can reach)")
    options.add_address(parser, "--address", "address that callers dial, if it is not that of --listen")
    options.add_value(parser, "--zone", "ZONE", "own zone (default: NNGKIT_ZONE)", "NNGKIT_ZONE")
    text = "1 to 16, the lowest is tried first (default: NNGKIT_PRIORITY, or 8)"
    options.add_whole(parser, "--priority", 1, 16, text, variables=("NNGKIT_PRIORITY",))
    options.add_whole(parser, "--weight", 0, 65535, "share among equals", default=100)
    parser.add_argument("--service-version", metavar="TEXT", default="", help="version of the service")
    options.add_many(parser, "--tag", "TAG", "tag of the provider; may be repeated")
    door.add_http(parser)
    options.add(parser, "json", "max-size")
    add_tls(parser, variables=True)


def check(arguments: argparse.Namespace) -> tuple[ServiceSettings, tuple[str, ...]]:
    """Return the settings and the daemons. Raises ConfigError for arguments that do not go together."""
    from nngkit.cli.discovery.watch import check_service
    from nngkit.discovery.settings import ServiceSettings

    check_service(arguments.name)
    if arguments.method and not arguments.codec:
        raise ConfigError("--method", "needs --codec")
    settings = ServiceSettings.from_environment()
    daemons = tuple(dict.fromkeys(arguments.discovery or settings.discovery))
    _tls_of(arguments, settings, daemons)
    door.check_http(arguments)
    return settings, daemons


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal."""
    import trio

    settings, daemons = check(arguments)
    try:
        return trio.run(_serve, arguments, settings, daemons)
    except ConfigError as error:
        raise named(error, "--listen") from error


def _tls_of(
    arguments: argparse.Namespace, settings: ServiceSettings, daemons: tuple[str, ...]
) -> tuple[TLS | None, TLS | None]:
    """Return the TLS settings of the own socket, and towards the daemons."""
    listen = (arguments.listen,) if arguments.listen else ()
    secure = [each for each in (*listen, *daemons) if each.startswith(("tls+", "wss"))]
    if not secure:
        tls_or_variables(
            arguments, settings.certificates, "dial", *listen, *daemons
        )  # an option without use is an error
        return None, None
    own = outward = None
    if listen and listen[0] in secure:
        own = tls_or_variables(arguments, settings.certificates, "listen", *listen)
    if any(each in secure for each in daemons):
        outward = tls_or_variables(arguments, settings.certificates, "dial", *daemons)
    return own, outward


async def _serve(arguments: argparse.Namespace, settings: ServiceSettings, daemons: tuple[str, ...]) -> int:
    import trio

    from nngkit.background import Background
    from nngkit.calls import Server
    from nngkit.cli.streams.line_workers import LineWorkers
    from nngkit.cli.streams.line_writer import printed, to_stdout
    from nngkit.cli.streams.shell import run_shell, shell_environment
    from nngkit.cli.streams.signals import until_signal
    from nngkit.protocols.own_host import is_everywhere, own_host

    environment = shell_environment(NNGKIT_SERVICE=arguments.name)
    tls, daemon_tls = _tls_of(arguments, settings, daemons)
    chooses = arguments.listen is None or (arguments.address is None and is_everywhere(arguments.listen))
    # it may wait for the daemons' names: signals end that wait, and the server then finds the same
    if chooses and (code := await until_signal(partial(own_host, daemons, listen=arguments.listen))):
        return code

    async def healthy() -> bool:
        ran = await run_shell(arguments.healthy, b"", environment, arguments.exec_timeout, most=1 << 16)
        if failure := ran.failure():
            raise NngkitError(f"{arguments.healthy}: {failure}")
        return True

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with AsyncExitStack() as opened:
            lines = to_stdout(QUEUE)
            await opened.enter_async_context(printed(lines))
            if arguments.lines:
                workers = LineWorkers(
                    arguments.exec, environment, timeout=arguments.exec_timeout, limit=arguments.max_size or 1 << 30
                )
                await opened.enter_async_context(workers)
                program = _Program(arguments, partial(_by_line, workers), lines.put)
            else:
                program = _Program(arguments, partial(_by_process, arguments), lines.put)
            server = Server(
                arguments.name,
                program.handle,
                discovery=daemons,
                listen=arguments.listen,
                address=arguments.address,
                codec=arguments.codec,
                concurrency=arguments.concurrency,
                queue=arguments.queue,
                healthy=healthy if arguments.healthy is not None else None,
                drain_timeout=arguments.drain_timeout,
                version=arguments.service_version,
                zone=settings.zone if arguments.zone is None else arguments.zone,
                priority=settings.priority if arguments.priority is None else arguments.priority,
                weight=arguments.weight,
                tags=arguments.tag,
                tls=tls,
                daemon_tls=daemon_tls,
                domain=settings.domain,
                recv_max_size=arguments.max_size,
                sigterm=False,
            )
            for method in arguments.method:
                server.method(method)(program.handle)
            await opened.enter_async_context(server)
            _change_on_reload(arguments.reload, server, settings)
            where = f"{arguments.name} at {server.address}, announces itself to {' '.join(daemons)}"
            say(NAME, where)
            routes, ready = partial(_routes, server), partial(_unready, server)
            await opened.enter_async_context(door.opened(NAME, arguments, routes, watch=[server], ready=ready))
            notify.ready(where)
            tasks = await opened.enter_async_context(Background())
            tasks.start(_hint, server, daemons)
            async for number in signals:
                notify.stopping()
                return 128 + number
    raise AssertionError("the signals have ended")


async def _hint(server: Server, daemons: Sequence[str]) -> None:
    from nngkit.background import Background
    from nngkit.cli.silence import hint_if

    connected = False

    async def meet() -> None:
        nonlocal connected
        await server.wait_for_daemons()
        connected = True

    async with Background() as tasks:
        tasks.start(meet)
        await hint_if(lambda: not connected, NAME, daemons, "respondent", True)


def _change_on_reload(reload: Reload, server: Server, settings: ServiceSettings) -> None:
    reload.in_trio("zone", lambda zone: server.update(zone=settings.zone if zone is None else zone))
    reload.in_trio("priority", lambda number: server.update(priority=number or settings.priority))
    reload.in_trio("weight", lambda weight: server.update(weight=weight))
    reload.in_trio("service_version", lambda version: server.update(version=version))
    reload.in_trio("tag", lambda tags: server.update(tags=tags))


def _unready(server: Server) -> str | None:
    return "calls are refused: it is draining, or not healthy" if server.provider.draining else None


def _routes(server: Server) -> dict[str, Route]:
    from nngkit.calls import ServerStats
    from nngkit.web.door import Value

    def state() -> dict[str, Any]:
        stats = asdict(server.stats)
        del stats["times"]
        return {**provider_fields(server.provider), **stats}

    counters, known = door.state_schema(ServerStats, "times"), door.line_schema("discover")["properties"]
    provider = {name: known[name] for name in provider_fields(server.provider)}
    properties = provider | counters["properties"]
    return {
        "v1/service": Value(
            "The service as it is announced, and counters of its calls.",
            state,
            {**counters, "properties": properties, "required": list(properties)},
        )
    }


Runs = Callable[[bytes, "Calling"], Awaitable[bytes]]


async def _by_process(arguments: argparse.Namespace, body: bytes, calling: Calling) -> bytes:
    """Run the command for one call; return its output. Raises RemoteError."""
    from nngkit.cli.streams.shell import run_shell, shell_environment

    environment = shell_environment(
        NNGKIT_SERVICE=arguments.name, NNGKIT_METHOD=calling.method, NNGKIT_PEER=_peer(calling)
    )
    ran = await run_shell(arguments.exec, body, environment, arguments.exec_timeout, most=arguments.max_size or 1 << 30)
    if ran.stderr and sys.stderr is not None:
        sys.stderr.write(ran.stderr.decode(errors="replace"))
        sys.stderr.flush()
    if ran.too_large:
        raise RemoteError(f"killed: its output is over {arguments.max_size} bytes", kind="too large")
    if failure := ran.failure():
        said = ran.stderr.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(said) if line.strip()), "")
        raise RemoteError(f"{failure}: {last}" if last else failure, data={"code": ran.code})
    return ran.stdout


def _peer(calling: Calling) -> str:
    return "" if calling.peer is None else calling.peer.address


async def _by_line(workers: Any, body: bytes, calling: Calling) -> bytes:
    """Have a worker answer one line. Raises RemoteError."""
    from nngkit.cli.streams.line_workers import WorkerFailed

    try:
        if b"\n" in body:
            raise RemoteError("the body has a line end, and the service takes lines", kind="bad request")
        reply: bytes = await workers.run(body)
    except WorkerFailed as error:
        raise RemoteError(str(error)) from error
    return reply


class _Program:
    """The handler: codes the bodies, and says failures on stderr, at most one line in SAID_EVERY."""

    def __init__(self, arguments: argparse.Namespace, runs: Runs, log: Callable[[str], None]) -> None:
        self._given = arguments
        self._log = log
        self._runs = runs
        self._unsaid = 0
        self._said = -SAID_EVERY

    async def handle(self, body: Any, calling: Calling) -> Any:
        """Return the program's reply; with `--json` print a line. Raises RemoteError."""
        if not self._given.json:
            return await self._handle(body, calling)
        began, started = time.time(), time.monotonic()
        ok, error = False, None
        try:
            reply = await self._handle(body, calling)
            ok = True
            return reply
        except RemoteError as failed:
            error = failed.message
            raise
        finally:
            fields = {"time": utc(began), "method": calling.method, "peer": _peer(calling)}
            seconds = round(time.monotonic() - started, 6)
            self._log(json_line({**fields, "seconds": seconds, "ok": ok, "error": error}))

    async def _handle(self, body: Any, calling: Calling) -> Any:
        try:
            if not self._given.codec:
                return await self._runs(body, calling)
            output = await self._runs(_as_json(body), calling)
            try:
                return json.loads(output)
            except ValueError as error:
                raise RemoteError(f"its output is not JSON: {error}") from error
        except RemoteError as error:
            self._failed(error.message)
            raise

    def _failed(self, message: str) -> None:
        now = time.monotonic()
        if now - self._said < SAID_EVERY:
            self._unsaid += 1
            return
        more = f" (and {self._unsaid} more failures before)" if self._unsaid else ""
        reply = "" if self._given.codec else ", no reply sent"
        say(NAME, f"--exec: {self._given.exec}: {message}{reply}{more}")
        self._said, self._unsaid = now, 0


def _as_json(body: Any) -> bytes:
    """Return a value as one line of JSON; bytes of CBOR as base64, as `nngkit call` prints them."""
    return json.dumps(body, ensure_ascii=False, default=_base64).encode("utf-8", "replace")


def _base64(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise RemoteError(f"a {type(value).__name__} is not possible in JSON", kind="bad request")
