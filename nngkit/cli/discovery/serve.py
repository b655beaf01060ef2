"""`nngkit serve NAME --exec CMD`: a shell command as a provider of a service.

::

    $ nngkit serve upper --exec 'tr a-z A-Z'                  a process for each request: body in, reply out
    $ nngkit serve upper --exec 'sed -u s/a/b/' --lines       processes that stay: a line in, a line out
    $ nngkit serve add --exec 'jq .a+.b' --codec json         bodies and replies are JSON values

A command that fails is an error for its caller: with a codec a RemoteError, without one no reply. A caller's deadline
or cancellation ends the command, with its children.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.output import json_line, out, utc
from nngkit.cli.stderr import say
from nngkit.cli.tls import add_tls, tls_or_variables
from nngkit.errors import RemoteError

if TYPE_CHECKING:  # --help loads no event loop
    import trio

    from nngkit.calls import Calling

__all__ = ["EPILOG", "add_arguments", "run"]

NAME: Final = "nngkit serve"
EPILOG: Final = """\
The command has NNGKIT_SERVICE, NNGKIT_METHOD and NNGKIT_PEER in its environment; its standard error is this one's.
Exit codes: 2 usage, 3 cannot listen, 130 or 143 after a signal: calls in progress end first."""
CHUNK: Final = 64 * 1024  # bytes read from a command at once


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    url: dict[str, Any] = {"type": options.address, "metavar": "URL"}
    parser.add_argument("name", metavar="NAME", help="the service")
    parser.add_argument("--exec", metavar="CMD", required=True, help="shell command that answers a request")
    parser.add_argument("--lines", action="store_true", help="keep commands running: a line in, a line out")
    parser.add_argument(
        "--concurrency",
        type=lambda text: options.whole(text, 1, 4096),
        default=16,
        metavar="N",
        help="commands at a time (default: 16)",
    )
    parser.add_argument(
        "--codec", choices=("cbor", "json"), help="bodies are JSON for the command, CBOR or JSON outside"
    )
    parser.add_argument("--listen", **url, help="listen here (default: a free port, where the daemons can reach it)")
    parser.add_argument("--address", **url, help="say this address to callers instead")
    parser.add_argument(
        "--discovery",
        action="append",
        **url,
        help="survey address of a daemon, repeatable (default: NNGKIT_DISCOVERY, or DISCOVERY_HOST and DISCOVERY_PORT)",
    )  # fmt: skip
    parser.add_argument("--zone", metavar="ZONE", help="location (default: NNGKIT_ZONE)")
    parser.add_argument(
        "--priority", type=lambda text: options.whole(text, 1, 16), metavar="N", help="1 to 16, 1 is tried first"
    )
    parser.add_argument(
        "--tag", metavar="TAG", action="append", default=[], help="for callers that ask for it; repeatable"
    )
    options.add(parser, "json", "max-size")
    add_tls(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal arrives."""
    import trio

    return trio.run(_run, arguments)


async def _run(arguments: argparse.Namespace) -> int:
    import trio

    from nngkit.calls import Server
    from nngkit.cli.signals import until_signal
    from nngkit.discovery.settings import ServiceSettings

    settings = ServiceSettings.from_environment({**os.environ, "NNGKIT_SERVICE_NAME": arguments.name})
    daemons = tuple(arguments.discovery or settings.discovery)
    tls = tls_or_variables(arguments, settings.certificates, "listen", arguments.listen or "tcp://127.0.0.1:0")
    commands = _Commands(arguments)

    async def work() -> None:
        async with (
            commands.open(),
            Server(
                arguments.name,
                commands.handler(),
                discovery=daemons,
                domain=settings.domain,
                listen=arguments.listen,
                address=arguments.address,
                codec=arguments.codec,
                concurrency=arguments.concurrency,
                recv_max_size=arguments.max_size or 1 << 30,
                zone=settings.zone if arguments.zone is None else arguments.zone,
                priority=settings.priority if arguments.priority is None else arguments.priority,
                tags=arguments.tag,
                tls=tls,
                sigterm=False,
            ) as server,
        ):
            say(NAME, f"{arguments.name} at {server.address}, announced to {' '.join(daemons)}")
            await trio.sleep_forever()

    return await until_signal(work)


class _Commands:
    """Runs the command, and keeps those of `--lines`."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._script: str = arguments.exec
        self._lines: bool = arguments.lines
        self._logs: bool = arguments.json
        self._name: str = arguments.name
        self._decoded = arguments.codec is not None
        self._most: int = arguments.max_size or 1 << 30
        self._idle: list[_Worker] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """End the commands that are left, at the end of the block."""
        try:
            yield
        finally:
            for worker in self._idle:
                worker.kill()

    def handler(self) -> Callable[[Any, Calling], Awaitable[Any]]:
        """Return the handler; with `--json` it prints a line for each request."""
        handle = self.line if self._lines else self.once
        if not self._logs:
            return handle

        async def logged(body: Any, calling: Calling) -> Any:
            import trio

            began, ok, error = time.time(), False, None
            started = trio.current_time()
            try:
                reply = await handle(body, calling)
                ok = True
                return reply
            except RemoteError as failed:
                error = failed.message
                raise
            finally:
                fields = {"time": utc(began), "method": calling.method, "peer": _peer(calling)}
                seconds = round(trio.current_time() - started, 6)
                out(json_line({**fields, "seconds": seconds, "ok": ok, "error": error}))

        return logged

    async def _start(self, calling: Calling) -> trio.Process:
        import subprocess

        import trio

        more = {
            "NNGKIT_SERVICE": self._name,
            "NNGKIT_METHOD": calling.method,
            "NNGKIT_PEER": _peer(calling),
        }
        return await trio.lowlevel.open_process(
            ["/bin/sh", "-c", self._script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **more},
            start_new_session=True,  # a group of its own, to end its children too
        )

    def _text(self, body: Any) -> bytes:
        return json.dumps(body, ensure_ascii=False).encode() if self._decoded else body

    def _value(self, output: bytes) -> Any:
        if not self._decoded:
            return output
        try:
            return json.loads(output)
        except ValueError as error:
            raise RemoteError(f"the command's output is not JSON: {error}", error="ValueError") from error

    async def once(self, body: Any, calling: Calling) -> Any:
        """Handle a request by a command of its own."""
        import trio

        process = await self._start(calling)
        assert process.stdin is not None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_feed, process.stdin, self._text(body))
                output = await self._read(process)
                nursery.cancel_scope.cancel()  # a command need not read all of its input
            code = await process.wait()
        finally:
            _kill(process)
        if code:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise RemoteError(f"{self._script}: {how}", data={"code": code} if self._decoded else None)
        return self._value(output)

    async def _read(self, process: trio.Process) -> bytes:
        assert process.stdout is not None
        output = bytearray()
        while chunk := await process.stdout.receive_some(CHUNK):
            output += chunk
            if len(output) > self._most:
                raise RemoteError(f"the command's output is over {self._most} bytes", kind="too large")
        return bytes(output)

    async def line(self, body: Any, calling: Calling) -> Any:
        """Handle a request by a line to a command that stays."""
        text = self._text(body)
        if b"\n" in text:
            raise RemoteError("the body has a line end, and the service takes lines", kind="bad request", ran=False)
        worker = self._idle.pop() if self._idle else _Worker(await self._start(calling))
        try:
            reply = await worker.ask(text, self._most)
        except BaseException:
            worker.kill()  # it may still be busy with this line
            raise
        self._idle.append(worker)
        return self._value(reply)


class _Worker:
    """A command that stays."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._read = bytearray()

    async def ask(self, text: bytes, most: int) -> bytes:
        """Write a line; return the next line. Raises RemoteError if the command has ended."""
        import trio

        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            await self._process.stdin.send_all(text + b"\n")
            while (end := self._read.find(b"\n")) < 0:
                chunk = await self._process.stdout.receive_some(CHUNK)
                if not chunk:
                    raise RemoteError("the command has ended without a reply")
                self._read += chunk
                if len(self._read) > most:
                    raise RemoteError(f"the command's line is over {most} bytes", kind="too large")
        except trio.BrokenResourceError:
            raise RemoteError("the command has ended") from None
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        return line.removesuffix(b"\r")

    def kill(self) -> None:
        """End the command."""
        _kill(self._process)


def _peer(calling: Calling) -> str:
    return "" if calling.peer is None else calling.peer.address


async def _feed(stdin: Any, body: bytes) -> None:
    import trio

    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await stdin.send_all(body)
        await stdin.aclose()


def _kill(process: trio.Process) -> None:
    """Kill the command with its children, and reap it."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process._proc.wait()  # at once, after SIGKILL
    pipes: tuple[Any, ...] = (process.stdin, process.stdout)
    for pipe in pipes:
        if pipe is not None:
            pipe.close()
