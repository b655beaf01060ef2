"""`nngkit ping` with real repliers, and without any."""

from __future__ import annotations

import os
import pty
import re
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nngkit.protocols import Pull, Rep, Respondent
from nngkit.testing import Background, eventually
from tests.cli.commands import assert_fails, nngkit, valid
from tests.cli.processes import Running, unread
from tests.protocols.programs import Program, needed, place

pytestmark = pytest.mark.slow  # programs of seconds; CI runs them

ANY = "tcp://127.0.0.1:0"
WAIT = 20.0


@contextmanager
def answering(socket: Any, reply: bytes = b"pong") -> Iterator[Any]:
    """Reply to every request on the socket until the block ends."""

    def answer() -> None:
        for question in socket:
            question.reply(reply)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield socket
    finally:
        socket.close(0.0)
        thread.join()


def ping(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    done = nngkit("ping", *arguments, "--json", "--interval", "0")
    assert (done.returncode, done.stderr) == (code, "")
    return [valid(line, "ping.json") for line in done.stdout.splitlines()]


def test_a_stalled_reader_does_not_delay_requests() -> None:
    asking = ("--interval", "0", "--count", "300", "--json")
    with (
        answering(Rep(listen=ANY)) as rep,
        unread() as (output, read),
        Running("ping", rep.address, *asking, stdout=output) as running,
    ):
        eventually(lambda: rep.stats.sent == 300)
        lines = [valid(line, "ping.json") for line in Background(read).result().decode().splitlines()]
        assert running.process.wait(WAIT) == 0
    assert [each["event"] for each in lines] == ["reply"] * 300 + ["summary"]


def test_round_trips_to_a_rep_are_measured() -> None:
    with answering(Rep(listen=ANY)) as rep:
        *replies, summary = ping(rep.address, "--count", "50")
    assert [each["number"] for each in replies] == list(range(1, 51))
    assert all(each["event"] == "reply" and 0 < each["seconds"] < 2 and each["size"] == 4 for each in replies)
    assert (summary["mode"], summary["asked"], summary["answered"], summary["replies"]) == ("req", 50, 50, 50)
    times = sorted(each["seconds"] for each in replies)
    assert (summary["min"], summary["max"]) == (times[0], times[-1])
    assert summary["p50"] == pytest.approx(times[24], rel=0.011)
    assert summary["min"] <= summary["p50"] <= summary["p90"] <= summary["p99"] <= summary["max"]


def test_a_survey_measures_each_respondent() -> None:
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/s"
        with (
            answering(Respondent(dial=address)),
            answering(Respondent(dial=address)),
            Running("ping", address, "--listen", "--survey", "--interval", "0.05", "--json") as running,
        ):
            found = [valid(running.line(), "ping.json") for _ in range(6)]
            assert {each["event"] for each in found} == {"reply"}
            numbers = [each["number"] for each in found]
            assert max(numbers.count(number) for number in numbers) == 2  # both respond to one survey
            running.end()
            *_, last = running.rest()[0].splitlines()
            summary = valid(last, "ping.json")
            assert (summary["mode"], summary["replies"] > summary["answered"]) == ("survey", True)


@pytest.mark.parametrize("name", [pytest.param(name, marks=needed(name)) for name in ("nngcat", "nanocat")])
def test_nngcat_and_nanocat_reply_to_a_ping(name: str, tmp_path: Any) -> None:
    with (
        place("tcp", tmp_path) as address,
        Program(name, "--rep", "--bind", address, "--data", "42", "--quoted") as program,
    ):
        *_, summary = ping(address, "--count", "2", "--data", "are you there", "--timeout", "10")
        assert summary["answered"] == 2
        assert program.line() == '"are you there"'


def test_data_and_size_set_the_request() -> None:
    with Rep(listen=ANY) as rep, Running("ping", rep.address, "--size", "1000") as running:
        request = rep.recv(WAIT)
        assert request.body == bytes(1000)
        request.reply(b"x" * 2_000_000)
        assert re.fullmatch(r"reply 1: [0-9.]+ ms, 2000000 bytes", running.line())


@pytest.mark.parametrize("answers", [True, False])
def test_no_reply_is_exit_code_4(answers: bool) -> None:
    with (Rep if answers else Pull)(listen=ANY) as listener:
        *lost, summary = ping(listener.address, "--count", "2", "--timeout", "0.2", code=4)
    assert [each["event"] for each in lost] == ["lost", "lost"]
    assert [each["why"] for each in lost] == ["no reply" if answers else "no peer connected"] * 2
    assert (summary["asked"], summary["answered"], summary["min"]) == (2, 0, None)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_prints_the_results_so_far(number: int, code: int) -> None:
    with answering(Rep(listen=ANY)) as rep, Running("ping", rep.address, "--interval", "0.01") as running:
        assert running.line().startswith("reply 1: ")
        assert running.line().startswith("reply 2: ")
        assert running.end(number) == code
        *_, last = running.rest()[0].splitlines()
        assert re.fullmatch(r"\d+ asked, \d+ answered: min [\d.]+, avg .*, max [\d.]+ ms", last)


def test_a_terminal_shows_one_updated_line() -> None:
    ours, theirs = pty.openpty()
    try:
        with (
            answering(Rep(listen=ANY)) as rep,
            Running("ping", rep.address, "--interval", "0.01", "--count", "5", stdout=theirs) as running,
        ):
            assert running.process.wait(WAIT) == 0
            os.close(theirs)
            theirs = -1
            text = b""
            deadline = time.monotonic() + WAIT
            while b"5 asked" not in text or not text.endswith(b"\n"):
                assert time.monotonic() < deadline
                text += os.read(ours, 4096)
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    assert text.count(b"\n") == 1
    assert text.count(b"\r") == 6  # one each, and the terminal's own before the newline


def test_a_reader_that_closes_late_ends_it() -> None:
    reading, writing = os.pipe()
    with answering(Rep(listen=ANY)) as rep, Running("ping", rep.address, "--interval", "0", stdout=writing) as running:
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        assert running.process.wait(WAIT) == 141
        assert running.rest()[1] == ""


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "the following arguments are required: URL"),
        (["tcp://127.0.0.1:0"], 2, "URL: tcp://127.0.0.1:0: dial needs a port"),
        (["pgm://a:1"], 2, "URL: pgm://a:1: no transport 'pgm'"),
        ([ANY, "--count", "0"], 2, "argument --count: '0' is not a whole number"),
        ([ANY, "--data", "x", "--size", "3"], 2, "--size: conflicts with --data"),
        (["tls+tcp://a:1"], 2, "--cacert: a dialer over TLS needs it, or --insecure"),
    ],
)
def test_wrong_usage_is_a_one_line_error(arguments: list[str], code: int, says: str) -> None:
    assert_fails(nngkit("ping", *arguments), code, says)
