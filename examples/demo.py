"""The demonstration: services are found, called, killed and dropped, and a cluster's host dies; with real processes.

::

    python3 dev.py demo                in the project's .venv
    python3 examples/demo.py           anywhere that nngkit is installed

A daemon (`nngkit discoverd`), three providers of a service `answer` and a caller, each a process. Every 20 ms the
caller calls `answer` by its name; a call may try up to three providers and has one second. Then one provider is killed
(SIGKILL), one is frozen (SIGSTOP) and resumed (SIGCONT), a fourth starts late, and one leaves with a goodbye (SIGTERM).
In the second act three voters and a client form a cluster. Every 20 ms the client submits a job, every 50 ms it sends a
message to all. The host is killed: another voter becomes host, and the client does not notice.

Events are printed as they happen, and at the end each guarantee with its measurement and its bound.

The daemon records every round in a journal, and at the end Spark turns that journal into a page: which services were up
when, as seen by the daemon.

    --json       one object at the end, and nothing else
    --tries 1    shows the need for retries: it fails, as calls to a provider that has just frozen do
    --quick      without the journal and Spark, which take long to set up
    --report F   path of the page (default: nngkit-demo.html in the current folder)

Exit codes: 0 all checks hold, 1 one failed, 2 usage error, 130 and 143 interrupted. It ends by itself, after about 20
seconds, or 50 with Spark, and ends its processes; the page is the only file that it leaves.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import IO, Any

import trio

from _demo.board import DEADLINE, FIRST, FREEZES, INTERVAL, KILLED, LATE, LEAVES, TRIES, Board, State, verdict
from _demo.cluster_board import CLIENT, COMPLETE, VOTERS, Node
from _demo.screen import Nothing, Screen, best_screen

HERE = Path(__file__).resolve().parent
PATIENCE = 6.0  # seconds for any one event; after that a check fails, and nothing hangs
LIMIT = 28.0  # seconds for everything
SPARK_LIMIT = 60.0  # seconds for Spark; 12 on an idle machine, most of them to start
GRACE = 2.0  # seconds for a process to end when asked to
REDRAW = 0.1  # seconds between two updates of the screen
BUSY = 0.1  # seconds of scheduling delay above which it is reported
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

OURS = ("NNGKIT_", "DISCOVERY_", "SERVICE_", "BIND_HOST", "PORT", "DEADLINE", "INTERVAL")  # set here or not at all


_libc = ctypes.CDLL(None)


def die_with_us() -> None:
    """In a new process, before exec: have it killed when this process ends in any way."""
    if sys.platform == "linux":
        _libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Stage:
    """The processes, and what their output shows."""

    def __init__(self, board: Board, screen: Screen, tries: int) -> None:
        self.board = board
        self.screen = screen
        self.tries = tries
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.expected: set[str] = set()  # processes that may end now
        self.journal: Path | None = None  # the daemon's journal
        self.where: dict[str, str] = {}  # the daemon's addresses, for the other processes' environment
        self.voters: dict[str, str] = {}  # addresses of the cluster's voters by name
        self.story: list[tuple[float, str, str]] = []
        self.changed = trio.Event()

    def say(self, who: str, what: str, style: str = "") -> None:
        at = time.monotonic() - self.board.started
        self.story.append((at, who, what))
        self.screen.say(at, who, what, style)

    def start(
        self, label: str, *command: str | Path, stderr: int | None = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start a process in its own session: Ctrl-C reaches only us, and we end it. Its stderr is shown unchanged."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=HERE,
            env={**inherited, **self.where, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=die_with_us,  # noqa: PLW1509 - there are no threads here
        )
        self.processes[label] = process
        return process

    def signal(self, label: str, number: signal.Signals) -> None:
        self.processes[label].send_signal(number)

    def end_all(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)  # a stopped one cannot end
                process.terminate()
        deadline = time.monotonic() + GRACE
        for process in self.processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in filter(None, (process.stdout, process.stderr)):
                pipe.close()

    async def until(self, true: Callable[[], Any], timeout: float = PATIENCE) -> bool:
        """Wait for a condition; return False if it did not become true in time."""
        with trio.move_on_after(timeout):
            while not true():
                await self.changed.wait()
        return bool(true())

    def look(self) -> None:
        """Wake all waiters."""
        self.changed.set()
        self.changed = trio.Event()


async def lines(pipe: IO[bytes] | None) -> AsyncIterator[str]:
    """Yield the output of a process, line by line, until it ends."""
    assert pipe is not None
    async with trio.lowlevel.FdStream(os.dup(pipe.fileno())) as stream:
        rest = b""
        async for chunk in stream:
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace")


# ---- output of the processes -----------------------------------------------------------------------------------------


async def follow_provider(stage: Stage, label: str) -> None:
    """Read a provider's output: its first line is its address."""
    async for line in lines(stage.processes[label].stdout):
        if stage.board.rows[label].listening is None:
            stage.board.listening(label, line.split()[-1], time.monotonic())
            stage.say(label, f"serves {line}, pid {stage.board.rows[label].pid}")
            stage.look()
    await ended(stage, label)


async def follow_caller(stage: Stage) -> None:
    """Read the caller's output: a line for each call."""
    async for line in lines(stage.processes["caller"].stdout):
        call = json.loads(line)
        stage.board.call(call)
        if not call["ok"]:
            tried = ", ".join(f"{stage.board.label_of(each['to'])} for {ms(each['seconds'])}" for each in call["tries"])
            stage.say("caller", f"a call failed, tried: {tried or 'none'}", "bold red")
        stage.look()
    await ended(stage, "caller")


async def follow_daemon(stage: Stage) -> None:
    """Read the daemon's output: a line for each change of a provider's state."""
    async for line in lines(stage.processes["daemon"].stdout):
        event = json.loads(line)
        stage.say("daemon", f"{stage.board.label_of(event['address'])} is {event['state']} ({event['reason']})", "dim")
    await ended(stage, "daemon")


async def follow_daemon_words(stage: Stage) -> None:
    """Read the daemon's stderr: first its survey and query addresses."""
    async for line in lines(stage.processes["daemon"].stderr):
        if not stage.where and "surveys at" in line:
            survey, query = re.findall(r"\w+://[^\s,]+", line)
            stage.where = {"NNGKIT_DISCOVERY": survey, "NNGKIT_QUERY": query}
            stage.look()
        else:
            stage.say("daemon", line, "yellow")


async def follow_node(stage: Stage, label: str) -> None:
    """Read the output of a node of the cluster."""
    async for line in lines(stage.processes[label].stdout):
        stage.board.cluster.report(label, json.loads(line))
        stage.look()
    await ended(stage, label)


async def ended(stage: Stage, label: str) -> None:
    """Record the end of a process, after that of its output; it is early unless expected."""
    while (code := stage.processes[label].poll()) is None:  # noqa: ASYNC110 - a moment, and worth no thread
        await trio.sleep(0.01)
    if label not in stage.expected:
        stage.board.ended_early += 1
        stage.say(label, f"ended by itself, exit code {code}", "bold red")
    stage.look()


# ---- the story -------------------------------------------------------------------------------------------------------


async def start_daemon(stage: Stage, nursery: trio.Nursery) -> bool:
    options = ["--listen", "tcp://127.0.0.1:0", "--deadline", str(DEADLINE), "--interval", str(INTERVAL)]
    if stage.journal is not None:
        options += ["--journal", str(stage.journal)]
    daemon = stage.start("daemon", "-m", "nngkit", "discoverd", "--json", *options, stderr=subprocess.PIPE)
    nursery.start_soon(follow_daemon, stage)
    nursery.start_soon(follow_daemon_words, stage)
    if not await stage.until(lambda: stage.where or daemon.poll() is not None) or not stage.where:
        return False
    stage.say("daemon", f"surveys at {stage.where['NNGKIT_DISCOVERY']}, a round every {INTERVAL:g} s", "cyan")
    return True


def start_provider(stage: Stage, nursery: trio.Nursery, label: str) -> None:
    process = stage.start(label, HERE / "service_discovery" / "answer.py", SERVICE_NAME="answer", SERVICE_PORT="0")
    stage.board.launched(label, process.pid, time.monotonic())
    nursery.start_soon(follow_provider, stage, label)


def start_caller(stage: Stage, nursery: trio.Nursery) -> None:
    stage.start("caller", "-m", "_demo.caller", "--tries", str(stage.tries))
    nursery.start_soon(follow_caller, stage)


async def story(stage: Stage) -> None:
    """Run all steps in order. A step that does not succeed fails its check, and the rest goes on."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(redraw, stage)
        if not await start_daemon(stage, nursery):  # nothing works without it
            nursery.cancel_scope.cancel()
            return
        for label in FIRST:
            start_provider(stage, nursery, label)
        stage.say("demo", f"{len(FIRST)} providers of `answer` started, and a caller", "cyan")
        start_caller(stage, nursery)
        for label in FIRST:
            await found(stage, label)

        voters = iter(VOTERS)  # started one by one, as a start takes a processor for a moment
        start_node(stage, nursery, next(voters))
        await trio.sleep(1.5)
        stage.expected.add(KILLED)
        do(stage, KILLED, signal.SIGKILL, State.KILLED, "killed: SIGKILL", "bold red")
        start_node(stage, nursery, next(voters))
        await trio.sleep(1.5)
        gone(stage, KILLED, State.KILLED)

        do(stage, FREEZES, signal.SIGSTOP, State.FROZEN, "frozen: SIGSTOP", "bold yellow")
        start_node(stage, nursery, next(voters))
        await trio.sleep(2.5)
        gone(stage, FREEZES, State.FROZEN)

        start_provider(stage, nursery, LATE)
        stage.say(LATE, "started late", "cyan")
        await found(stage, LATE)
        await trio.sleep(1)

        do(stage, FREEZES, signal.SIGCONT, State.UP, "resumed: SIGCONT", "bold green")
        await found(stage, FREEZES, again=True)
        await trio.sleep(1)

        stage.expected.add(LEAVES)
        do(stage, LEAVES, signal.SIGTERM, State.LEAVING, "asked to leave: SIGTERM", "bold magenta")
        await trio.sleep(1)
        gone(stage, LEAVES, State.LEAVING)

        stage.expected |= stage.processes.keys()
        stage.signal("caller", signal.SIGTERM)  # it ends the calls in progress first
        await stage.until(lambda: stage.processes["caller"].poll() is not None, GRACE)
        for label in ("daemon", FREEZES, LATE):
            stage.signal(label, signal.SIGTERM)  # the second act needs none of them
        await second_act(stage, nursery)
        nursery.cancel_scope.cancel()


async def second_act(stage: Stage, nursery: trio.Nursery) -> None:
    """Form a cluster, kill its host, and count what its client has noticed."""
    cluster = stage.board.cluster
    cluster.launched = time.monotonic()
    start_node(stage, nursery, CLIENT)
    stage.say("demo", f"{', '.join(VOTERS)} are the voters of a cluster; a client joins them", "cyan")
    if not await stage.until(lambda: cluster.complete is not None, COMPLETE):
        stage.say(CLIENT, f"no cluster after {COMPLETE:.0f} s", "bold red")
        return
    stage.say(CLIENT, "submits a job every 20 ms", "green")
    await trio.sleep(1.5)

    if (host := cluster.host) is not None:
        stage.expected.add(host)
        killed = time.monotonic()
        stage.signal(host, signal.SIGKILL)
        cluster.kill(host, killed)
        stage.say(host, "the host, killed: SIGKILL", "bold red")
        if await stage.until(lambda: cluster.new_host() is not None):
            at, term, name = cluster.new_host() or (0.0, 0, "")
            stage.say(name, f"host of term {term}, {ms(at - killed)} after", "green")
        else:
            stage.say("demo", f"no new host in {PATIENCE:.0f} s", "bold red")
    await trio.sleep(2)

    stage.expected |= stage.processes.keys()
    stage.signal(CLIENT, signal.SIGTERM)  # it waits for its results
    await stage.until(lambda: cluster.submitted is not None)
    await stage.until(cluster.all_heard, GRACE)
    stage.say(CLIENT, f"{len(cluster.answers)} jobs done, the slowest in {ms(cluster.slowest)}", "green")


def start_node(stage: Stage, nursery: trio.Nursery, name: str) -> None:
    """Start a node of the cluster."""
    if not stage.voters:
        stage.voters = dict(zip(VOTERS, free_addresses(len(VOTERS)), strict=True))
    process = stage.start(name, "-m", "_demo.node", name, json.dumps(stage.voters))
    if name != CLIENT:
        stage.board.cluster.nodes[name] = Node(name, process.pid)
    nursery.start_soon(follow_node, stage, name)


def free_addresses(count: int) -> list[str]:
    """Return addresses that no program listens at now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [f"tcp://127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    finally:
        for each in sockets:
            each.close()


def do(stage: Stage, label: str, number: signal.Signals, state: State, what: str, style: str) -> None:
    """Signal a provider, and record its new state after that."""
    stage.signal(label, number)
    stage.board.became(label, state, time.monotonic())
    stage.say(label, what, style)


async def found(stage: Stage, label: str, again: bool = False) -> None:
    """Wait until a call to it was answered (again), and report how long that took."""
    row = stage.board.rows[label]
    after = row.found_again_after if again else row.found_after
    if await stage.until(lambda: after() is not None):
        stage.say(label, f"found{' again' if again else ''}: first answer {ms(after())} after it was up", "green")
    else:
        stage.say(label, f"not found{' again' if again else ''} in {PATIENCE:.0f} s", "bold red")


def gone(stage: Stage, label: str, state: State) -> None:
    after = stage.board.rows[label].last_call_after(state)
    stage.say(
        label, f"dropped: last call to it {ms(after)} after" if after else "dropped: no further call to it", "green"
    )


def ms(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds * 1000:.0f} ms"


async def redraw(stage: Stage) -> None:
    """Redraw the screen, and measure the scheduling delay of this process, which affects all of them."""
    while True:
        stage.screen.refresh(time.monotonic())
        due = time.monotonic() + REDRAW
        await trio.sleep(REDRAW)
        stage.board.held_up = max(stage.board.held_up, time.monotonic() - due)


# ---- the end ---------------------------------------------------------------------------------------------------------


async def spark_report(stage: Stage, page: Path) -> None:
    """Have Spark make the page from the daemon's journal; checks cover the result."""
    assert stage.journal is not None
    board, began = stage.board, time.monotonic()
    stage.say("spark", f"makes a page of the journal: {page}", "cyan")
    words = stage.journal.with_name("spark.log")
    with open(words, "wb") as said:  # noqa: ASYNC230 - a small file of our own
        options = ["--small", "--journal", stage.journal, "--output", page]
        process = stage.start("spark", "-m", "nngkit", "spark", "run", "report", *options, stderr=said.fileno())
    with trio.move_on_after(SPARK_LIMIT):
        while process.poll() is None:  # noqa: ASYNC110 - a plain process, looked at now and then
            await trio.sleep(0.05)
    if process.poll() == 0:
        text = page.read_text()  # noqa: ASYNC240
        board.reported = sum(row.address in text for row in board.rows.values())
        board.report_seconds = time.monotonic() - began
        stage.say("spark", f"done after {ms(board.report_seconds)}", "green")
    else:
        last = words.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        stage.say("spark", f"no page: {last[-1]}", "bold red")


async def perform(stage: Stage, what: Callable[[Stage], Awaitable[None]], seconds: float) -> int:
    """Run `what` with a time limit; return the signal that ended it, or 0."""
    interrupted = 0

    async def heed(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        nonlocal interrupted
        interrupted = await anext(signals)
        scope.cancel()

    with trio.open_signal_receiver(*ENDINGS) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(heed, signals, nursery.cancel_scope)
            with trio.move_on_after(seconds) as limit:
                await what(stage)
            if limit.cancelled_caught:
                stage.board.ended_early += 1
                stage.say("demo", f"not over after {seconds:.0f} s", "bold red")
            nursery.cancel_scope.cancel()
    return interrupted


def run(stage: Stage, what: Callable[[Stage], Awaitable[None]], seconds: float) -> int:
    """Run `what`, and end all processes."""
    for number in ENDINGS:  # for the moments outside `perform`; SIG_IGN would be inherited
        signal.signal(number, lambda *_: None)
    try:
        return trio.run(perform, stage, what, seconds)
    finally:
        stage.end_all()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Services found, called, killed and dropped. Exit code 0: all checks hold."
    )
    parser.add_argument("--json", action="store_true", help="print one object at the end, and nothing else")
    parser.add_argument("--quick", action="store_true", help="without the journal and Spark")
    parser.add_argument(
        "--report", type=Path, default=Path("nngkit-demo.html"), metavar="F", help="path of the page (%(default)s)"
    )
    parser.add_argument("--tries", type=int, default=TRIES, metavar="N", help=f"providers a call may try ({TRIES})")
    options = parser.parse_args(arguments)
    if options.tries < 1:
        parser.error("--tries: at least 1")

    board = Board(time.monotonic())
    screen: Screen = Nothing() if options.json else best_screen(board)
    try:
        stage = Stage(board, screen, options.tries)
        with tempfile.TemporaryDirectory(prefix="nngkit-demo-", ignore_cleanup_errors=True) as folder:
            board.reports = not options.quick
            stage.journal = None if options.quick else Path(folder, "journal")
            if interrupted := run(stage, story, LIMIT):
                return 128 + interrupted
            page = options.report.absolute()
            if stage.journal is not None and (
                interrupted := run(stage, lambda each: spark_report(each, page), SPARK_LIMIT + GRACE)
            ):
                return 128 + interrupted
        seconds = time.monotonic() - board.started
        checks = verdict(board)
        screen.finish(checks, seconds)
        if board.held_up > BUSY and not all(check.ok for check in checks):
            print(
                f"(This machine was busy: it delayed the demo itself by up to {ms(board.held_up)}.)",
                file=sys.stderr,
            )
    finally:
        screen.close()
    good = all(check.ok for check in checks)
    if options.json:
        result = {
            "ok": good,
            "seconds": round(seconds, 2),
            "calls": board.calls,
            "held_up": round(board.held_up, 3),
            "checks": [check.as_dict() for check in checks],
            "report": None if board.reported is None else str(options.report.absolute()),
            "events": [{"at": round(at, 3), "who": who, "what": what} for at, who, what in stage.story],
        }
        print(json.dumps(result))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
