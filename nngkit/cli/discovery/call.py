"""`nngkit call NAME`: call a service by its name, once or for each line of standard input; print the replies.

::

    $ nngkit call answer -D '?'
    42
    $ seq 3 | nngkit call calc --method double --codec json
    2
    4
    6

Lines are read as fast as calls are answered, up to `--in-flight` at a time; replies are printed in the order of the
lines. With a codec, input is JSON and so is output; bytes of CBOR are printed as base64.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.output import json_line
from nngkit.cli.stderr import say
from nngkit.cli.tls import add_tls, tls_or_variables
from nngkit.errors import ConfigError, NngkitError, RemoteError

if TYPE_CHECKING:  # --help loads no event loop
    from nngkit.calls import Client

__all__ = ["EPILOG", "add_arguments", "run"]

NAME: Final = "nngkit call"
EPILOG: Final = """\
Exit codes: 0 every call was answered, 1 no such service, or a call failed, 2 usage, 3 no provider can be reached, 4 no
reply in time; with several calls, that of the first failure."""
MOST_LINE: Final = 1 << 30  # bytes of one line: as the largest message


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("name", metavar="NAME", help="the service")
    body = parser.add_mutually_exclusive_group()
    body.add_argument("-D", "--data", metavar="DATA", help="body of one call (default: a call for each line of stdin)")
    body.add_argument("-F", "--file", metavar="FILE", help="file with the body of one call; - is stdin")
    parser.add_argument("--method", metavar="M", default="", help="method to call; needs a codec")
    parser.add_argument(
        "--codec", choices=("cbor", "json"), help="input and output are JSON values, sent as CBOR or JSON"
    )
    parser.add_argument("--stream", action="store_true", help="print each part of a reply on a line; needs a codec")
    parser.add_argument("--idempotent", action="store_true", help="running a call twice is harmless: retry any failure")
    parser.add_argument("--hedge", type=options.seconds, metavar="S", help="ask a second provider after S seconds")
    parser.add_argument(
        "--in-flight", type=lambda text: options.whole(text, 1, 10_000), default=16, metavar="N",
        help="calls at a time (default: 16)",
    )  # fmt: skip
    parser.add_argument("--address", type=options.address, action="append", metavar="URL", help="call this address, "
                        "without discovery; repeatable")  # fmt: skip
    parser.add_argument(
        "--prefer", metavar="ZONE,ZONE", help="zones in order of preference (default: NNGKIT_PREFER, or NNGKIT_ZONE)"
    )
    parser.add_argument("--tag", metavar="TAG", action="append", default=[], help="only providers with this tag")
    options.add(parser, "daemon", "json", "max-size")
    options.add_seconds(parser, "--timeout", 5.0, "seconds of a call")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Make the calls and print the replies; return the exit code."""
    import trio

    if (arguments.method or arguments.stream) and not arguments.codec:
        raise ConfigError("--stream" if arguments.stream else "--method", "needs --codec")
    if arguments.address and arguments.daemon:
        raise ConfigError("--address", "takes the place of --daemon; give one of them")
    try:
        return trio.run(_run, arguments)
    except BrokenPipeError:
        from nngkit.cli.exit_codes import BROKEN_PIPE

        return BROKEN_PIPE


async def _run(arguments: argparse.Namespace) -> int:
    import trio

    from nngkit.calls import Client
    from nngkit.cli.discovery.daemons import settings_of

    settings = settings_of(arguments)
    prefer = settings.prefer if arguments.prefer is None else tuple(arguments.prefer.split(","))
    there = arguments.address or settings.daemons
    tls = tls_or_variables(arguments, settings.certificates, "dial", *there)
    where: dict[str, Any] = {"daemons": settings.daemons, "domain": settings.domain, "daemon_tls": tls}
    if arguments.address:
        where = {"addresses": arguments.address}
    async with Client(
        arguments.name,
        **where,
        prefer=prefer,
        tags=arguments.tag,
        codec=arguments.codec,
        timeout=arguments.timeout,
        idempotent=arguments.idempotent,
        recv_max_size=arguments.max_size,
        tls=tls,
    ) as client:
        calls = _Calls(client, arguments)
        async with trio.open_nursery() as nursery:
            await calls.run(nursery)
        return calls.code


class _Calls:
    """Calls in progress; their results are printed in the order of their lines."""

    def __init__(self, client: Client, arguments: argparse.Namespace) -> None:
        import trio

        self.code = 0
        self._client = client
        self._arguments = arguments
        self._slots = trio.Semaphore(arguments.in_flight)
        self._last: trio.Event | None = None  # set when everything of the previous call is printed

    async def run(self, nursery: Any) -> None:
        """Start a call for each body."""
        import trio

        async for body in self._bodies():
            await self._slots.acquire()
            before, self._last = self._last, trio.Event()
            nursery.start_soon(self._one, body, before, self._last)

    async def _bodies(self) -> AsyncIterator[bytes]:
        import trio

        given = self._arguments
        if given.data is not None:
            yield given.data.encode("utf-8", "surrogateescape")
        elif given.file is not None and given.file != "-":
            try:
                yield await trio.Path(given.file).read_bytes()
            except OSError as error:
                raise ConfigError("--file", f"{given.file}: {error.strerror}", given.file) from error
        elif given.file is not None:
            yield await trio.to_thread.run_sync(sys.stdin.buffer.read)
        else:
            while line := await trio.to_thread.run_sync(sys.stdin.buffer.readline, MOST_LINE, abandon_on_cancel=True):
                yield line.removesuffix(b"\n").removesuffix(b"\r")

    async def _one(self, body: bytes, before: Any, printed: Any) -> None:
        try:
            try:
                await self._call(body, before)
            except NngkitError as error:
                if before is not None:
                    await before.wait()
                self._failed(error)
        finally:
            printed.set()
            self._slots.release()

    async def _call(self, body: bytes, before: Any) -> None:
        given = self._arguments
        value = _value(body) if given.codec else body
        if given.stream:
            async with self._client.stream(value, method=given.method) as parts:
                if before is not None:
                    await before.wait()
                async for part in parts:
                    self._print(part)
            return
        reply = await self._client.request(value, method=given.method, hedge=given.hedge)
        if before is not None:
            await before.wait()
        self._print(reply)

    def _print(self, reply: Any) -> None:
        if self._arguments.json:
            line = json_line({"ok": True, **_shown(reply, bool(self._arguments.codec))}).encode()
        elif self._arguments.codec:
            line = json.dumps(_as_json(reply), ensure_ascii=False).encode()
        else:
            line = reply
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()

    def _failed(self, error: NngkitError) -> None:
        from nngkit.cli.exit_codes import exit_code

        self.code = self.code or exit_code(error)
        if self._arguments.json:
            fields: dict[str, Any] = {"ok": False, "error": str(error), "kind": type(error).__name__}
            if isinstance(error, RemoteError):
                fields |= {"kind": error.kind, "data": _as_json(error.data)}
            sys.stdout.buffer.write(json_line(fields).encode() + b"\n")
            sys.stdout.buffer.flush()
        else:
            say(NAME, str(error))


def _value(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise ConfigError("input", f"not JSON: {error}", body) from error


def _shown(reply: Any, decoded: bool) -> dict[str, Any]:
    if decoded:
        return {"reply": _as_json(reply)}
    try:
        return {"reply": reply.decode(), "encoding": "utf-8"}
    except UnicodeDecodeError:
        return {"reply": base64.b64encode(reply).decode(), "encoding": "base64"}


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
