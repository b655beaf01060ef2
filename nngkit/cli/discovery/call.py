"""`nngkit call NAME`: call a service by its name, once or for each line of standard input; print the replies.

::

    $ nngkit call answer -D '?'
    42
    $ seq 3 | nngkit call calc --method double --codec json
    2
    4
    6
    $ nngkit call calc/add -D '{"a": 2, "b": 3}'
    5

Lines are read as fast as calls are answered, up to `--in-flight` at a time; replies are printed in the order of the
lines. With a codec, input is JSON and so is output; bytes of CBOR are printed as base64.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.refused import explained
from nngkit.cli.streams.output import as_json, as_text, json_line
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import add_tls, tls_or_variables
from nngkit.errors import BadMessage, ConfigError, NngkitError, RemoteError, ServiceNotFound, TimedOut, Unreachable

if TYPE_CHECKING:  # --help loads no event loop
    from nngkit.calls import Client
    from nngkit.discovery.resolver import Resolver

NAME: Final = "nngkit call"
EPILOG: Final = """\
Exit codes: 0 every call was answered, 1 no such service, or a call failed, 2 usage, 3 no daemon answers, 4 no reply
in time; with several calls, that of the first failure."""

DAEMONS: Final = 1.0  # seconds for the first daemon, before the calls begin: theirs wait on
SETTLE: Final = 0.1
"""Seconds for connections, once: a round trip across an ocean, and no long wait for a provider that is unreachable."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    text = "the service; a method needs a codec, by default CBOR"
    parser.add_argument("name", metavar="NAME[/METHOD]", help=text)
    body = parser.add_mutually_exclusive_group()
    body.add_argument("-D", "--data", metavar="DATA", help="body of one call (default: a call for each line of stdin)")
    body.add_argument("-F", "--file", metavar="FILE", help="file with the body of one call; - is stdin")
    text = "print what a provider tells of itself: methods, and JSON Schemas of their bodies and replies"
    options.add_flag(body, "--info", text)
    parser.add_argument("--method", metavar="M", help="method to call; NAME is the service then, also with a /")
    text = "input and output are JSON values, sent as CBOR or JSON"
    parser.add_argument("--codec", choices=("cbor", "json"), help=text)
    options.add_flag(parser, "--stream", "print each part of a reply on a line; needs a codec")
    options.add_flag(parser, "--idempotent", "running a call twice is harmless: retry any failure")
    options.add_seconds(parser, "--hedge", None, "ask a second provider after S seconds", zero=True)
    options.add_whole(parser, "--in-flight", 1, 10_000, "calls at a time", default=16)
    options.add_address(parser, "--address", "call this address, without discovery; repeatable", action="append")
    options.add(parser, "prefer", "tag", "daemon", "json", "max-size")
    options.add_seconds(parser, "--timeout", 5.0, "seconds of a call")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make the calls and print the replies; return the exit code."""
    import trio

    arguments.codec = arguments.codec or ("cbor" if arguments.info else None)
    if arguments.method is None:
        service, _, arguments.method = arguments.name.rpartition("/")
        arguments.name = service or arguments.name
        if not service:
            arguments.method = ""
        elif not arguments.codec:
            arguments.codec = "cbor"
    if (arguments.method or arguments.stream) and not arguments.codec:
        raise ConfigError("--stream" if arguments.stream else "--method", "needs --codec")
    if arguments.address and arguments.daemon:
        raise ConfigError("--address", "takes the place of --daemon; give one of them")
    from nngkit.cli.discovery.watch import check_service

    check_service(arguments.name)
    return trio.run(_run, arguments)


async def _run(arguments: argparse.Namespace) -> int:
    from nngkit.calls import Client
    from nngkit.cli.discovery.daemons import settings_of
    from nngkit.cli.streams.signals import until_signal
    from nngkit.discovery.resolver import Resolver

    settings = settings_of(arguments)
    prefer = settings.prefer if arguments.prefer is None else options.zones(arguments.prefer)
    there = list(arguments.address or settings.daemons)
    if not arguments.address and (arguments.cacert or arguments.insecure or settings.certificates.cacert):
        there.append("tls+tcp://provider")  # perhaps: discovery will tell
    tls = tls_or_variables(arguments, settings.certificates, "dial", *there)
    resolver: Resolver | None = None
    async with AsyncExitStack() as opened:
        if not arguments.address:
            timeout = min(arguments.timeout, DAEMONS)
            resolver = Resolver(settings.daemons, timeout=timeout, domain=settings.domain, tls=tls)
            await opened.enter_async_context(resolver)
        client = Client(
            arguments.name,
            discovery=resolver,
            addresses=arguments.address,
            prefer=prefer,
            tags=arguments.tag,
            codec=arguments.codec,
            timeout=arguments.timeout,
            idempotent=arguments.idempotent,
            recv_max_size=arguments.max_size,
            tls=tls,
        )
        await opened.enter_async_context(client)
        calls = _Calls(client, resolver, arguments)
        await _connected(client, min(arguments.timeout, SETTLE))
        return await until_signal(calls.run) or calls.code


async def _connected(client: Client, seconds: float) -> None:
    """Wait until all known providers are connected: a first call would go to the first one, whatever is preferred."""
    import trio

    with trio.move_on_after(seconds), suppress(TimedOut):
        await client.wait_for_providers(1)
        while not all(each.connected for each in client.stats.providers.values()):  # noqa: ASYNC110 (polls counters)
            await trio.sleep(0.005)


class _Calls:
    """Calls in progress; their results are printed in the order of their lines."""

    def __init__(self, client: Client, resolver: Resolver | None, arguments: argparse.Namespace) -> None:
        import trio

        self.code = 0
        self._client = client
        self._resolver = resolver
        self._arguments = arguments
        self._slots = trio.Semaphore(arguments.in_flight)
        self._last: trio.Event | None = None  # set when everything of the previous call is printed
        self._unwritten: OSError | None = None

    async def run(self) -> None:
        """Make a call for each body. Raises OSError if the output cannot be written."""
        import trio

        unreadable: ConfigError | None = None
        async with trio.open_nursery() as nursery:
            self._stop = nursery.cancel_scope.cancel
            try:
                async with aclosing(self._bodies()) as bodies:
                    async for body in bodies:
                        await self._slots.acquire()
                        before, self._last = self._last, trio.Event()
                        nursery.start_soon(self._one, body, before, self._last)
            except ConfigError as error:
                unreadable = error
        if unreadable is not None or self._unwritten is not None:
            raise unreadable or self._unwritten  # type: ignore[misc]

    async def _bodies(self) -> AsyncGenerator[bytes, None]:
        import trio

        from nngkit.cli.streams.stdin import chunks, lines_of

        given = self._arguments
        if given.info:
            yield b"null"
        elif given.data is not None:
            yield given.data.encode("utf-8", "surrogateescape")
        elif given.file is not None and given.file != "-":
            try:
                yield await trio.Path(given.file).read_bytes()
            except OSError as error:
                raise ConfigError("--file", f"{given.file}: {error.strerror}", given.file) from error
        elif given.file is not None:
            yield b"".join([some async for some in chunks()])
        else:
            async with aclosing(lines_of(chunks())) as lines:
                async for line in lines:
                    yield line

    async def _one(self, body: bytes, before: Any, printed: Any) -> None:
        try:
            try:
                await self._call(body, before)
            except (NngkitError, TypeError, ValueError) as wrong:  # TypeError, ValueError: the codec does not carry it
                error = wrong if isinstance(wrong, NngkitError) else ConfigError("input", str(wrong))
                if before is not None:
                    await before.wait()
                await self._failed(await self._explained(error))
        finally:
            printed.set()
            self._slots.release()

    async def _explained(self, error: NngkitError) -> NngkitError:
        """Return the error, or its likely cause: no daemon answers, or the provider has another codec."""
        resolver = self._resolver
        if isinstance(error, BadMessage) and (codec := self._arguments.codec):
            return BadMessage(error.what, f"{error.why}; is {codec} its codec, or has it another or none?", error.peer)
        if not isinstance(error, ServiceNotFound) or resolver is None or resolver.fresh:
            return error
        seconds = f"{self._arguments.timeout:g} s"
        from nngkit.cli.silence import with_cause

        silent = Unreachable(", ".join(resolver.daemons), f"no discovery daemon answered within {seconds}")
        return await with_cause(silent, resolver.daemons)

    async def _call(self, body: bytes, before: Any) -> None:
        given = self._arguments
        value = _value(body) if given.codec else body
        if given.info:
            await self._print(await self._client.info())
            return
        if given.stream:
            async with self._client.stream(value, method=given.method) as parts:
                if before is not None:
                    await before.wait()
                async for part in parts:
                    await self._print(part)
            return
        reply = await self._client.request(value, method=given.method, hedge=given.hedge)
        if before is not None:
            await before.wait()
        await self._print(reply)

    async def _print(self, reply: Any) -> None:
        if self._arguments.json:
            line = json_line({"ok": True, **_shown(reply, bool(self._arguments.codec))}).encode()
        elif self._arguments.codec:
            line = json.dumps(as_json(reply), ensure_ascii=False).encode()
        else:
            line = reply
        await self._write(line + b"\n")

    async def _write(self, data: bytes) -> None:
        """Write by a thread, so that a stalled reader delays only the output."""
        from nngkit.cli.streams.stdin import write_all

        try:
            await write_all(data)
        except OSError as error:
            self._unwritten = error
            self._stop()

    async def _failed(self, error: NngkitError) -> None:
        from nngkit.cli.exit_codes import exit_code

        self.code = self.code or exit_code(error)
        if self._arguments.json:
            fields: dict[str, Any] = {"ok": False, "error": explained(error), "kind": type(error).__name__}
            if isinstance(error, RemoteError):
                fields |= {"kind": error.kind, "data": as_json(error.data)}
            await self._write(json_line(fields).encode("utf-8", "backslashreplace") + b"\n")
        else:
            say(NAME, explained(error))


def _value(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ConfigError("input", f"not JSON: {error}", body) from error


def _shown(reply: Any, decoded: bool) -> dict[str, Any]:
    if decoded:
        return {"reply": as_json(reply)}
    text, encoding = as_text(reply)
    return {"reply": text, "encoding": encoding}
