"""`nngkit submit CLUSTER --kind KIND PAYLOAD`: submit a job, or one for each line of standard input; print the results.

::

    $ nngkit submit render --dial tcp://a:7000 --kind shout hello
    HELLO
    $ seq 1000 | nngkit submit render --dial tcp://a:7000 --kind double --lines > doubled
    [########            ] 412 of 1000 done

Results are printed in the order of the lines, up to `--in-flight` jobs at a time. Each accepted job ends, even if the
host dies; a failed one is a line on stderr, and the others go on.
"""

from __future__ import annotations

import argparse
import base64
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli import options
from nngkit.cli.cluster.node_options import add_cluster, add_join_timeout, joining_settings, renamed
from nngkit.cli.streams.log_lines import log_to_stderr
from nngkit.cli.streams.output import as_text, json_line
from nngkit.cli.streams.stderr import say
from nngkit.errors import ConfigError, JobFailed, NngkitError, TimedOut

if TYPE_CHECKING:  # --help loads no event loop
    from nngkit.cluster import Job, Member

NAME: Final = "nngkit submit"
EPILOG: Final = """\
The result of one job is written as it is; with --lines each is a line. An interrupt, or the end of --timeout, cancels
the jobs that have not ended. A job that was started --tries times is dead: a failure. With --lines, --key K gives each
line the key K:NUMBER, so that a second run of the same input gets the results of the first, and does what it cancelled.
Exit codes: 0 all jobs have results (--detach: are accepted), 1 a job failed, or not wanted in the cluster, 2 usage,
4 no host found, or no result, in time."""
WIDTH: Final = 20  # of the bar, as that of nngkit bench
TELL: Final = 1.0  # seconds between two lines of --progress where there is no terminal
ALONE: Final = 2.0  # seconds without a result after which it is said if no node lists such jobs
FAREWELL: Final = 1.0  # seconds for the host to confirm cancellations


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    if isinstance(parser, options.Parser):
        parser.intermixed = True  # CLUSTER --dial URL PAYLOAD
    add_cluster(parser)
    parser.add_argument("payload", metavar="PAYLOAD", nargs="?", help="payload of one job; - reads standard input")
    parser.add_argument("--kind", metavar="KIND", required=True, help="kind of the jobs: some node does it")
    options.add_flag(parser, "--lines", "a job for each line of standard input")
    parser.add_argument(
        "--key", dest="job_key", metavar="KEY", help="idempotency key: jobs of a kind with one key are done once"
    )
    options.add_whole(parser, "--priority", 0, 15, "0 to 15, higher ones first", default=0)
    options.add_whole(parser, "--tries", 1, 1000, "starts of a job at most", default=3)
    options.add_seconds(parser, "--visibility", 30.0, "seconds without a sign of its worker, then another gets a job")
    options.add_seconds(
        parser,
        "--run-timeout",
        None,
        "seconds that a job may run, then it is stopped and tried again (default: for ever)",
    )
    options.add_seconds(parser, "--deadline", None, "a job fails after S seconds (default: never)")
    options.add_seconds(parser, "--delay", 0.0, "seconds until a job may start", zero=True)
    options.add_flag(parser, "--detach", "print the ids of the jobs, once accepted; wait for none")
    options.add_flag(parser, "--progress", "show what is done on standard error")
    options.add_whole(parser, "--in-flight", 1, 100_000, "--lines: jobs at a time", default=1000)
    options.add_seconds(parser, "--timeout", None, "seconds for all results (default: none)")
    add_join_timeout(parser)
    options.add(parser, "json", "cacert", "server-name", "insecure", "tls12", "trust")
    parser.add_argument("--cert", metavar="FILE", help="TLS: own certificate (PEM)")
    parser.add_argument("--cert-key", dest="key", metavar="FILE", help="TLS: key of the certificate (PEM)")


def run(arguments: argparse.Namespace) -> int:
    """Submit the jobs and print the results; return the exit code."""
    import trio

    if arguments.lines == (arguments.payload is not None):
        raise ConfigError("PAYLOAD", "give either PAYLOAD, which may be - for standard input, or --lines")
    for one, other in (("cert", "key"), ("key", "cert")):
        if getattr(arguments, one) and not getattr(arguments, other):
            flags = {"cert": "--cert", "key": "--cert-key"}
            raise ConfigError(flags[one], f"requires {flags[other]}")
    log_to_stderr(NAME, "nngkit.cluster", logging.ERROR)  # its node lives for a moment: the error that ends it says all
    with renamed():
        return trio.run(_run, arguments)


async def _run(arguments: argparse.Namespace) -> int:
    from nngkit.cli.streams.signals import until_signal
    from nngkit.cluster import Member

    try:
        settings = joining_settings(arguments)
    except ConfigError as error:
        if error.what == "--key":  # of the certificate
            raise ConfigError("--cert-key", error.why, error.value) from error
        raise
    member = Member(arguments.cluster, slots=0, **settings)
    submission = _Submission(member, arguments)
    code = await until_signal(submission.run)
    return code or submission.code


def bar(done: int, submitted: int, failed: int, at_end: bool) -> str:
    """Return the bar of `--lines`; the number of lines is not known before the end of the input."""
    filled = WIDTH * done // submitted if submitted else 0
    fails = f", {failed} failed" if failed else ""
    return f"[{'#' * filled:<{WIDTH}}] {done} of {submitted}{'' if at_end else '+'} done{fails}"


class _Submission:
    """Jobs in progress; their results are printed in the order of their payloads."""

    def __init__(self, node: Member, arguments: argparse.Namespace) -> None:
        import trio

        self.code = 0
        self._node = node
        self._arguments = arguments
        self._slots = trio.Semaphore(arguments.in_flight)
        self._jobs: set[Job] = set()
        self._submitted = self._done = self._failed = 0
        self._at_end = False
        self._unwritten: OSError | None = None
        self._unreadable: NngkitError | None = None

    async def run(self) -> None:
        """Join, submit, wait and print. Raises NngkitError; OSError if the output cannot be written."""
        import trio

        given = self._arguments
        async with self._node as node:
            await node.joined(given.join_timeout)
            try:
                with trio.move_on_after(float("inf") if given.timeout is None else given.timeout) as limit:
                    async with self._shown(), self._workers_awaited():
                        await self._all()
            finally:
                await self._cancel()
        if self._unwritten is not None or self._unreadable is not None:
            raise self._unwritten or self._unreadable  # type: ignore[misc]
        if limit.cancelled_caught:
            rest = self._submitted - self._done
            raise TimedOut(f"{rest} of {self._submitted} jobs have not ended in {given.timeout:g} s", given.timeout)

    async def _all(self) -> None:
        import trio

        last: Any = None
        async with trio.open_nursery() as nursery:
            self._stop = nursery.cancel_scope.cancel
            async with aclosing(self._payloads()) as payloads:
                async for payload in payloads:
                    await self._slots.acquire()
                    self._submitted += 1
                    before, last = last, trio.Event()
                    nursery.start_soon(self._one, self._submitted, payload, before, last)
            self._at_end = True

    async def _payloads(self) -> AsyncGenerator[bytes, None]:
        from nngkit.cli.streams.stdin import chunks, lines_of

        if self._arguments.lines:
            async with aclosing(lines_of(chunks())) as lines:
                async for line in lines:
                    yield line
        elif self._arguments.payload == "-":
            yield b"".join([some async for some in chunks()])
        else:
            yield self._arguments.payload.encode("utf-8", "surrogateescape")

    async def _one(self, number: int, payload: bytes, before: Any, printed: Any) -> None:
        """Submit a job, and print its result after those before it."""
        job: Job | None = None
        try:
            error, result = None, b""
            try:
                job = await self._submit(number, payload)
                if not self._arguments.detach:
                    result = await job.result()
            except JobFailed as failed:
                error = failed
            if job is not None:
                self._jobs.discard(job)  # not if this task is cancelled: then the job is, too
            self._done += 1
            self._failed += error is not None
            if before is not None:
                await before.wait()
            await self._print(number, job, result, error)
            printed.set()
            self._slots.release()
        except NngkitError as error:  # an unusable value, a payload that is too large, a cluster that ended
            self._unreadable = self._unreadable or error
            self._stop()
        except OSError as error:
            self._unwritten = error
            self._stop()

    async def _submit(self, number: int, payload: bytes) -> Job:
        given = self._arguments
        job = await self._node.submit(
            given.kind,
            payload,
            key=self._key(number),
            priority=given.priority,
            tries=given.tries,
            visibility=given.visibility,
            deadline=given.deadline,
            delay=given.delay,
            timeout=given.run_timeout,
        )
        if not given.detach:
            self._jobs.add(job)
        return job

    def _key(self, number: int) -> bytes | None:
        if self._arguments.job_key is None:
            return None
        key: bytes = self._arguments.job_key.encode("utf-8", "surrogateescape")
        return b"%b:%d" % (key, number) if self._arguments.lines else key

    async def _print(self, number: int, job: Job | None, result: bytes, error: JobFailed | None) -> None:
        from nngkit.cli.streams.stdin import write_all

        if error is not None:
            self.code = self.code or 1
        if self._arguments.json:
            line = json_line(self._fields(number, job, result, error)).encode("utf-8", "backslashreplace")
            await write_all(line + b"\n")
        elif error is not None:
            say(NAME, f"line {number}: {error}" if self._arguments.lines else str(error))
        elif self._arguments.detach and job is not None:
            await write_all(b"%d\n" % job.id)
        else:
            await write_all(self._raw(result))

    def _raw(self, result: bytes) -> bytes:
        """Return the output for a result: a line of `--lines`, else its bytes; a terminal gets a line end."""
        if self._arguments.lines:
            return result.removesuffix(b"\n") + b"\n"
        ends = not result or result.endswith(b"\n") or sys.stdout is None or not sys.stdout.isatty()
        return result if ends else result + b"\n"

    def _fields(self, number: int, job: Job | None, result: bytes, error: JobFailed | None) -> dict[str, Any]:
        """Return the end of a job; docs/schemas/submit.json."""
        key = self._key(number)
        outcome = error.outcome if error is not None else "accepted" if self._arguments.detach else "result"
        text, encoding = as_text(result) if outcome == "result" else (None, None)
        return {
            "id": (job.id if job is not None else error.job if error is not None else 0) or None,
            "number": number,
            "kind": self._arguments.kind,
            "key": None if key is None else base64.b64encode(key).decode(),
            "outcome": outcome,
            "tries": None if error is None else error.tries or None,
            "worker": None if error is None else error.worker or None,
            "result": text,
            "encoding": encoding,
            "error": None if error is None else error.message,
        }

    async def _cancel(self) -> None:
        """Cancel the jobs that have not ended, and wait until the host has confirmed it."""
        import trio

        if not self._jobs:
            return
        with trio.move_on_after(FAREWELL, shield=True):
            jobs = list(self._jobs)
            for job in jobs:
                job.cancel()
            for job in jobs:
                try:
                    await job.result()
                except NngkitError:
                    continue

    # ---- progress

    @asynccontextmanager
    async def _workers_awaited(self) -> AsyncIterator[None]:
        """Say while the block runs if no node lists jobs of this kind: a typing error, or its workers come later."""
        import trio

        kind = self._arguments.kind

        async def look() -> None:
            await trio.sleep(ALONE)
            if self._done:
                return
            with suppress(NngkitError):  # without a host for a moment
                tree = await self._node.tree(ALONE)
                if not any(kind in member.kinds for member in tree.members):
                    # a node with very many kinds does not list them all
                    say(NAME, f"no node is known to do jobs of the kind {kind!r}: they wait")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            yield
            nursery.cancel_scope.cancel()

    def _text(self) -> str:
        if self._arguments.lines:
            return bar(self._done, self._submitted, self._failed, self._at_end)
        fraction = max((job.progress for job in self._jobs), default=0.0)
        return f"[{'#' * int(WIDTH * fraction):<{WIDTH}}] {self._arguments.kind} {fraction:.0%}"

    @asynccontextmanager
    async def _shown(self) -> AsyncIterator[None]:
        """Show progress while the block runs: as one line on a terminal, elsewhere as lines if `--progress` says so."""
        import trio

        from nngkit.cli.streams.progress import drawn

        terminal = sys.stderr is not None and sys.stderr.isatty()
        if terminal and (self._arguments.lines or self._arguments.progress):
            async with drawn(self._text):
                yield
            return
        if not self._arguments.progress:
            yield
            return

        async def tell() -> None:
            said = ""
            while True:
                await trio.sleep(TELL)
                if (text := self._text()) != said:
                    say(NAME, text)
                said = text

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell)
            yield
            nursery.cancel_scope.cancel()
