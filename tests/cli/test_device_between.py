"""Two devices in a row between nngcat and nanocat, and devices killed while messages pass."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from nngkit.protocols import Pull, Push, Rep, Req
from tests.cli.processes import Running
from tests.protocols.programs import needed

pytestmark = pytest.mark.slow  # programs of seconds; CI runs them

ANY = "tcp://127.0.0.1:0"
WAIT = 20.0
MESSAGES = 10_000
BODY = "message with \\ ' and spaces"
PATTERNS = {  # kind: options of the end at the front, of the end at the back, seconds between nanocat's messages
    "streamer": ("--push", "--pull", "0.00001"),
    "pair0": ("--pair0", "--pair0", "0.00001"),
    "forwarder": ("--pub", "--sub", "0.00001"),
    "bus": ("--bus", "--bus", "0.00001"),
    "queue": ("--req", "--rep", "0.016"),  # it drops a reply that comes after its next request
    "survey": ("--surveyor", "--respondent", "0.016"),
}
ASKING = 16  # nanocats that ask at a time, since each asks only once in its interval
NANOCAT = {"--pair0": "--pair"}


@contextlib.contextmanager
def two_devices(kind: str) -> Iterator[tuple[str, str, list[Running]]]:
    """Run two devices in a row; yield the address of the first's front and of the second's back, and both."""
    with Running("device", kind, "--front-listen", ANY, "--back-listen", ANY, "--json") as second:
        middle, back = second.addresses()
        with Running("device", kind, "--front-listen", ANY, "--back-dial", middle, "--json") as first:
            (front,) = first.addresses()
            yield front, back, [first, second]


def run(program: str, *arguments: str, output: Path) -> subprocess.Popen[bytes]:
    with output.open("wb") as file:
        return subprocess.Popen([program, *arguments], stdin=subprocess.DEVNULL, stdout=file, stderr=file)


def wait_for(condition: object, seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


@needed("nngcat")
@needed("nanocat")
@pytest.mark.parametrize(
    ("kind", "sender"),
    # nngcat repeats without a pause, or once a second: not where a message may be dropped, or is a question
    [("streamer", "nngcat"), *((kind, "nanocat") for kind in PATTERNS)],
)
def test_10000_messages_pass_two_devices_between_nngcat_and_nanocat(kind: str, sender: str, tmp_path: Path) -> None:
    sends, receives, interval = PATTERNS[kind]
    receiver = "nanocat" if sender == "nngcat" else "nngcat"
    asks = kind in ("queue", "survey")

    def words(program: str, option: str, *, prints: bool) -> list[str]:
        return [program, NANOCAT.get(option, option) if program == "nanocat" else option, *["--raw"] * prints]

    with two_devices(kind) as (front, back, _):
        got = tmp_path / "got"
        sent = [tmp_path / f"sent-{number}" for number in range(ASKING if asks else 1)]
        answering = ["--data", BODY] if asks else ["--subscribe", ""] if kind == "forwarder" else []
        receiving = run(*words(receiver, receives, prints=True), "--connect", back, *answering, output=got)
        pace = ["--interval", "0", "--count", str(MESSAGES)] if sender == "nngcat" else ["--interval", interval]
        time.sleep(0.5)  # neither program tells when it is connected
        told = words(sender, sends, prints=kind not in ("streamer", "forwarder"))
        sending = [run(*told, "--connect", front, "--data", BODY, *pace, output=output) for output in sent]
        try:
            due = len(BODY) * MESSAGES
            wait_for(lambda: got.stat().st_size >= due)
            if asks:
                wait_for(lambda: sum(output.stat().st_size for output in sent) >= due)
        finally:
            for process in (*sending, receiving):
                process.kill()
                process.wait(WAIT)
        for output in (got, *sent) if asks else (got,):
            whole = output.read_text()
            assert set(whole[: len(whole) // len(BODY) * len(BODY)].split(BODY)) == {""}


# ---- killed ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def restarted(kind: str) -> Iterator[tuple[str, str, list[Running]]]:
    """Run a device at fixed ipc addresses; the block may kill the last of the list and append the next."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        front, back = f"ipc://{directory}/front", f"ipc://{directory}/back"
        running = [Running("device", kind, "--front-listen", front, "--back-listen", back)]
        try:
            running[0].says()
            yield front, back, running
        finally:
            for each in running:
                each.__exit__()


def kill_and_restart(kind: str, front: str, back: str, running: list[Running]) -> None:
    running[-1].process.send_signal(signal.SIGKILL)
    running[-1].process.wait(WAIT)
    running.append(Running("device", kind, "--front-listen", front, "--back-listen", back))
    running[-1].says()


def test_no_request_is_lost_when_a_queue_is_killed_and_restarted() -> None:
    with restarted("queue") as (front, back, running), Rep(dial=back) as rep, Req(dial=front) as req:
        answered: list[bytes] = []

        def answer() -> None:
            for request in rep:
                request.reply(request.body.upper())

        def ask(part: int) -> None:
            for number in range(150):
                body = b"%d question %d" % (part, number)
                assert req.request(body, timeout=WAIT) == body.upper()
                answered.append(body)

        threads = [threading.Thread(target=answer), *(threading.Thread(target=ask, args=(part,)) for part in range(4))]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(answered) > 100)
        kill_and_restart("queue", front, back, running)
        for thread in threads[1:]:
            thread.join(WAIT)
        assert len(answered) == len(set(answered)) == 600
        assert req.stats.joined == rep.stats.joined == 2
        rep.close(0.0)
        threads[0].join(WAIT)


def test_losses_of_a_killed_streamer_are_what_it_held() -> None:
    count = 300_000
    with restarted("streamer") as (front, back, running), Push(dial=front) as push, Pull(dial=back) as pull:
        pushing = threading.Thread(target=push.send_many, args=([b"%064d" % number for number in range(count)],))
        pushing.start()
        got = [int(pull.recv(WAIT)) for _ in range(2000)]
        kill_and_restart("streamer", front, back, running)
        while got[-1] < count - 1:
            got += map(int, pull.recv_many(1024, WAIT))
        pushing.join(WAIT)
        # in order, nothing twice, and one gap: the messages that the device and its connections held
        assert got == sorted(set(got))
        gaps = [first for first, second in pairwise(got) if second != first + 1]
        assert len(gaps) <= 1
        assert push.stats.sent == count
        assert push.stats.joined == pull.stats.joined == 2
