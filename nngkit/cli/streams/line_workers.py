"""Worker processes that answer lines: a line in, a line out, one at a time each; as many as calls run at once.

A worker is started when all others are busy, and kept. It is killed, and replaced at the next call, if it takes too
long, is cancelled in the middle of a line, or writes without a request: its later lines would answer other calls.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from types import TracebackType
from typing import NamedTuple, Self

import trio

from nngkit.cli.streams.shell import kill_group
from nngkit.cli.streams.tether import Tether
from nngkit.errors import NngkitError

CHUNK = 65_536


class WorkerFailed(NngkitError):
    """A worker gave no reply to a line."""


class _Worker(NamedTuple):
    process: trio.Process
    tether: Tether


class LineWorkers:
    """Workers that run `script`. Use it with `async with`: they are killed at its end.

    timeout   seconds for a line; limit: bytes of the longest reply. `started` counts the processes.
    """

    def __init__(self, script: str, environment: Mapping[str, str], *, timeout: float, limit: int) -> None:
        self._script = script
        self._environment = environment
        self._timeout = timeout
        self._limit = limit
        self._idle: list[_Worker] = []
        self.started = 0

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        while self._idle:
            await _end(self._idle.pop())

    async def run(self, line: bytes) -> bytes:
        """Return the reply to `line`, without line ends. If cancelled, the worker is killed. Raises WorkerFailed."""
        if b"\n" in line:
            raise WorkerFailed("a request of several lines")
        worker = await self._take()
        done = False
        try:
            with trio.fail_after(self._timeout):
                reply = await self._ask(worker.process, line)
            done = True
        except trio.TooSlowError:
            raise WorkerFailed("killed: it took too long") from None
        finally:
            if done:
                self._idle.append(worker)
            else:
                await _end(worker)
        return reply

    async def _take(self) -> _Worker:
        while self._idle:
            worker = self._idle.pop()  # the one used last: its memory is warm, and others may stay swapped out
            if _is_quiet(worker.process):
                return worker
            await _end(worker)
        self.started += 1
        tether = Tether(self._script)
        try:
            process = await trio.lowlevel.open_process(
                tether.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
                pass_fds=tether.pass_fds,
            )
        except BaseException:
            tether.end()
            raise
        tether.started(process.pid)
        return _Worker(process, tether)

    async def _ask(self, worker: trio.Process, line: bytes) -> bytes:
        assert worker.stdin is not None
        assert worker.stdout is not None
        reply = bytearray()
        try:
            await worker.stdin.send_all(line + b"\n")
            while b"\n" not in reply:
                some = await worker.stdout.receive_some(CHUNK)
                if not some:
                    raise trio.BrokenResourceError
                reply += some
                if len(reply) > self._limit + 2:
                    raise WorkerFailed(f"killed: its line is longer than {self._limit} bytes")
        except trio.BrokenResourceError:
            code = await worker.wait()
            how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
            raise WorkerFailed(f"{how} instead of a line") from None
        if not reply.endswith(b"\n") or reply.count(b"\n") > 1:
            raise WorkerFailed("killed: it wrote more than one line")
        return bytes(reply).removesuffix(b"\n").removesuffix(b"\r")


def _is_quiet(worker: trio.Process) -> bool:
    """Return True if the worker runs and has written nothing since its last reply."""
    assert worker.stdout is not None
    stdout: trio.lowlevel.FdStream = worker.stdout  # type: ignore[assignment]
    try:
        os.read(stdout.fileno(), 1)
    except BlockingIOError:
        return worker.returncode is None
    return False


async def _end(worker: _Worker) -> None:
    process = worker.process
    with trio.CancelScope(shield=True):  # a killed process ends at once
        await kill_group(process)
        await process.wait()
        worker.tether.end()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                await stream.aclose()
