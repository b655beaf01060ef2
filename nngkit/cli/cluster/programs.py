"""Jobs done by a program: a process for each, or workers that live on and answer lines.

The payload is standard input, standard output the result. Its environment has NNGKIT_JOB_ID (the job's number in the
cluster), NNGKIT_JOB_KIND, NNGKIT_JOB_TRY, NNGKIT_JOB_FENCE (term.number) and NNGKIT_JOB_PROGRESS, a file: each line
written to it is the job's progress, from 0 to 1. That of a line worker, which does many jobs, has none of them.

==================  ==================================================
end of the program  the job
==================  ==================================================
exit code 0         is done; the output is its result
exit code 65        has failed, and is not tried again (EX_DATAERR)
anything else       is tried again, at this node or another
==================  ==================================================

A job that is cancelled, or whose timeout has passed, kills the program's process group; so does the end of this
process.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from typing import Any, Final

import trio

from nngkit.cli.cluster.node_lines import NodeLines
from nngkit.cli.streams.line_workers import LineWorkers, WorkerFailed
from nngkit.cli.streams.shell import Ran, run_shell, shell_environment
from nngkit.cluster import JobRun
from nngkit.errors import JobFailed, NngkitError

HOPELESS: Final = 65  # EX_DATAERR of sysexits.h: "the input data was incorrect in some way"
LINE: Final = 64  # bytes of a line with progress
TAIL: Final = 1000  # characters of a program's diagnostics in the failure: a traceback's end


class ProgramFailed(NngkitError):
    """The program of a job has failed: the job is tried again."""


class Programs:
    """Function for jobs that runs the command of `--exec`. Use it with `async with`: its end kills line workers."""

    def __init__(self, arguments: argparse.Namespace, lines: NodeLines) -> None:
        self._script: str = arguments.exec
        self._timeout: float = arguments.exec_timeout
        self._most = arguments.max_size // 2
        self._lines = lines
        self._workers: LineWorkers | None = None
        if arguments.lines:
            environment = shell_environment()
            self._workers = LineWorkers(self._script, environment, timeout=self._timeout, limit=self._most)

    async def __aenter__(self) -> Programs:
        if self._workers is not None:
            await self._workers.__aenter__()
        return self

    async def __aexit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if self._workers is not None:
            await self._workers.__aexit__(kind, value, traceback)

    async def do(self, job: JobRun) -> bytes:
        """Return the program's result for a job. Raises JobFailed, ProgramFailed."""
        with self._lines.job(job):
            if self._workers is not None:
                return await self._by_line(self._workers, job.payload)
            ran = await self._run(job)
            failure, hopeless = why(ran), ran.code == HOPELESS
            if failure and not hopeless:
                raise ProgramFailed(failure)  # which is logged, with the end of its standard error
            if ran.stderr and sys.stderr is not None:
                sys.stderr.write(ran.stderr.decode(errors="replace"))
                sys.stderr.flush()
            if hopeless:
                raise JobFailed(failure)
            return ran.stdout

    async def _run(self, job: JobRun) -> Ran:
        """Run the program for one job, and report the progress that it writes."""
        reading, writing = os.pipe()
        environment = job_environment(job) | {"NNGKIT_JOB_PROGRESS": f"/dev/fd/{writing}"}
        async with trio.lowlevel.FdStream(reading) as stream, trio.open_nursery() as nursery:
            try:
                nursery.start_soon(_report, stream, job)
                return await run_shell(
                    self._script, job.payload, environment, self._timeout, most=self._most, pass_fds=(writing,)
                )
            finally:
                os.close(writing)
                nursery.cancel_scope.cancel()

    async def _by_line(self, workers: LineWorkers, payload: bytes) -> bytes:
        if b"\n" in payload:
            raise JobFailed("the payload has a line end, and the program takes lines")
        try:
            return await workers.run(payload)
        except WorkerFailed as error:
            raise ProgramFailed(str(error)) from error


async def _report(stream: trio.abc.ReceiveStream, job: JobRun) -> None:
    """Report each line of a stream as the job's progress; other lines are ignored."""
    rest = b""
    async for some in stream:
        *lines, rest = (rest + some).split(b"\n")
        rest = rest[-LINE:]
        for line in lines:
            with suppress(ValueError):  # no number, or not from 0 to 1
                job.progress(float(line))


def job_environment(job: JobRun) -> dict[str, str]:
    """Return this process's environment with the variables of a job."""
    term, number = job.fence
    return shell_environment(
        NNGKIT_JOB_ID=str(job.id),
        NNGKIT_JOB_KIND=job.kind,
        NNGKIT_JOB_TRY=str(job.try_number),
        NNGKIT_JOB_FENCE=f"{term}.{number}",
    )


def why(ran: Ran) -> str:
    """Say how a program failed, with the end of its diagnostics; empty if it did not."""
    failure = ran.failure()
    said = ran.stderr.decode(errors="replace").strip()[-TAIL:]
    return f"{failure}: {said}" if failure and said else failure
