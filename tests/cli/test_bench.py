"""`nngkit bench` between real processes: its counts are exact."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import socket as sockets
import struct
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nngkit.cli.tools.bench import PROTOCOLS
from nngkit.cli.tools.bench_load import ENDS, boot
from nngkit.errors import TimedOut
from nngkit.protocols import Pub, Push, Rep
from nngkit.testing import Background
from tests.cli.certificates import issue
from tests.cli.commands import ROOT, SCHEMAS, assert_fails, command, environment, nngkit, valid
from tests.cli.processes import Running, unread

pytestmark = pytest.mark.slow  # programs of seconds; CI runs them

ANY = "tcp://127.0.0.1:0"
SHORT = ("--seconds", "0.2")
WAIT = 20.0


def bench(*arguments: str, code: int = 0) -> dict[str, Any]:
    done = nngkit("bench", *arguments, *SHORT, "--json")
    assert (done.returncode, done.stderr) == (code, "")
    return valid(done.stdout.strip(), "bench.json")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_both_ends_of_each_protocol_are_measured(protocol: str) -> None:
    found = bench(ANY, "--protocol", protocol, "--size", "64")
    assert (found["protocol"], found["role"], found["size"], found["interrupted"]) == (protocol, "both", 64, False)
    assert found["sent"] > 0
    assert found["received"] > 0
    assert found["dropped"] == found["sent"] - found["received"]
    if protocol not in ("pubsub", "bus"):
        assert found["dropped"] == 0
    assert found["per_second"] == pytest.approx(found["received"] / found["seconds"], rel=0.01)
    assert found["bytes_per_second"] == pytest.approx(found["per_second"] * 64, rel=0.01)
    times = found["latency"]
    assert 0 < times["min"] <= times["p50"] <= times["p90"] <= times["p99"] <= times["p999"] <= times["max"] < 10


def test_batches_lose_nothing_and_are_faster() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = bench(f"ipc://{folder}/s", "--protocol", "pipeline", "--batch", "512", "--size", "24")
    assert (found["batch"], found["dropped"]) == (512, 0)
    assert found["received"] > 1000


def test_many_requests_are_in_flight() -> None:
    found = bench(ANY, "--protocol", "reqrep", "--window", "64")
    assert (found["window"], found["dropped"]) == (64, 0)


def test_it_measures_over_tls(tmp_path: Path) -> None:
    certificate = issue(tmp_path / "c", "localhost")
    found = bench("tls+tcp://localhost:0", "--protocol", "pair", *certificate.options)
    assert (found["dropped"], found["address"][:10]) == (0, "tls+tcp://")


def test_the_ends_can_be_started_separately() -> None:
    with Running("bench", ANY, "--listen", "--protocol", "pipeline", "--json") as listening:
        (address,) = listening.addresses()
        dialed = bench(address, "--dial", "--protocol", "pipeline")
        assert (dialed["role"], dialed["received"], dialed["dropped"]) == ("dial", None, None)
        found = valid(listening.line(), "bench.json")
        assert listening.process.wait(WAIT) == 0
    assert (found["role"], found["sent"], found["received"], found["dropped"]) == (
        "listen",
        dialed["sent"],
        dialed["sent"],
        0,
    )


def test_drops_are_counted_and_latency_needs_a_common_clock() -> None:
    with Running("bench", ANY, "--listen", "--protocol", "pubsub", "--json") as listening:
        (address,) = listening.addresses()
        with Pub(dial=address) as pub:
            pub.wait_for_peers(1, WAIT)
            for number in range(0, 100, 2):  # every second message
                pub.send(struct.pack(">QQ", number, time.monotonic_ns()) + bytes(84))
            pub.send(struct.pack(">QQQ", (1 << 64) - 1, 100, boot() ^ 1))
            found = valid(listening.line(), "bench.json")
    assert (found["sent"], found["received"], found["dropped"], found["latency"]["p50"]) == (100, 50, 50, None)


def test_messages_of_a_killed_source_are_counted() -> None:
    with Running("bench", ANY, "--listen", "--protocol", "pipeline", "--json") as listening:
        (address,) = listening.addresses()
        with Push(dial=address) as push:
            push.wait_for_peers(1, WAIT)
            push.send(struct.pack(">QQ", 0, time.monotonic_ns()) + bytes(84))
        found = valid(listening.line(), "bench.json")
    assert (found["sent"], found["received"], found["dropped"]) == (None, 1, None)


def test_an_interrupt_prints_the_results_so_far() -> None:
    with Rep(listen=ANY) as rep:
        arguments = (rep.address, "--dial", "--protocol", "reqrep", "--seconds", "60", "--json")
        with Running("bench", *arguments) as running:
            for _ in range(3):
                rep.recv(WAIT).reply(b"x")
            rep.recv(WAIT)
            assert running.end(signal.SIGINT) == 130
            found = valid(running.rest()[0].strip(), "bench.json")
    assert (found["sent"], found["received"], found["interrupted"]) == (4, 3, True)


def test_an_interrupt_with_both_ends_leaves_no_process() -> None:
    with tempfile.TemporaryDirectory() as folder:
        address = Path(folder, "s")
        with Running("bench", f"ipc://{address}", "--protocol", "pipeline", "--seconds", "60") as running:
            deadline = time.monotonic() + WAIT
            while not address.exists():  # the other end is up
                assert time.monotonic() < deadline
            children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
            (child,) = children.read_text().split()
            assert running.end(signal.SIGINT) == 130
            assert not Path("/proc", child).exists()


def test_a_stalled_reader_does_not_delay_a_measurement() -> None:
    with unread() as (output, read), Rep(listen=ANY) as rep:
        arguments = (rep.address, "--dial", "--protocol", "reqrep", "--seconds", "0.2", "--json")
        with Running("bench", *arguments, stdout=output) as running:
            while not (rep.stats.left):
                with suppress(TimedOut):
                    rep.recv(0.1).reply(b"x")
            assert running.process.poll() is None  # it has finished, and waits for its reader
            found = valid(Background(read).result().decode().strip(), "bench.json")
            assert running.process.wait(WAIT) == 0
    assert found["received"] > 0


def test_a_stalled_reader_does_not_delay_any_of_the_six_protocols() -> None:
    with unread() as (output, read), Running("bench", ANY, *SHORT, "--json", stdout=output) as running:
        ended = Background(running.process.wait, WAIT)
        ended.join(4)  # six measurements of 0.2 s, each with a process
        lines = [json.loads(line) for line in Background(read).result().decode().splitlines()]
        assert ended.result() == 0
    assert [each["protocol"] for each in lines] == list(PROTOCOLS)


def test_results_are_printed_as_csv_and_text() -> None:
    done = nngkit("bench", ANY, "--protocol", "reqrep", *SHORT, "--csv")
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert (row["protocol"], row["dropped"]) == ("reqrep", "0")
    assert float(row["latency_p50"]) > 0
    done = nngkit("bench", ANY, "--protocol", "pipeline", *SHORT)
    assert done.stdout.startswith("pipeline: ")
    assert " sent, " in done.stdout
    assert "; one way p50 " in done.stdout


def test_all_six_protocols_are_measured_in_turn() -> None:
    done = nngkit("bench", ANY, *SHORT, "--json")
    assert [json.loads(line)["protocol"] for line in done.stdout.splitlines()] == list(PROTOCOLS)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "the following arguments are required: URL"),
        ([ANY, "--listen"], 2, "--protocol: is needed with --listen"),
        ([ANY, "--listen", "--dial"], 2, "not allowed with argument"),
        ([ANY, "--json", "--csv"], 2, "not allowed with argument"),
        ([ANY, "--protocol", "pgm"], 2, "argument --protocol: invalid choice"),
        ([ANY, "--protocol", "survey", "--batch", "3"], 2, "--batch: does not apply to survey"),
        ([ANY, "--size", "23"], 2, "argument --size: '23' is not a whole number from 24"),
        (["inproc://x"], 2, "URL: inproc does not reach"),
        (["pgm://x", "--dial", "--protocol", "bus"], 2, "URL: pgm://x: no transport"),
        ([ANY, "--dial", "--protocol", "bus"], 2, "URL: tcp://127.0.0.1:0: dial needs a port"),
        ([ANY, "--listen", "--protocol", "bus", "--timeout", "0.1"], 4, "no peer connected in 0.1 s"),
    ],
)
def test_an_invalid_combination_is_a_one_line_error(arguments: list[str], code: int, says: str) -> None:
    done = nngkit("bench", *arguments)
    if code == 4:
        assert (done.returncode, done.stderr.count("\n")) == (4, 2)
        assert says in done.stderr
    else:
        assert_fails(done, code, says)


def test_a_failure_to_listen_is_reported_once() -> None:
    with sockets.create_server(("127.0.0.1", 0)) as taken:
        done = nngkit("bench", f"tcp://127.0.0.1:{taken.getsockname()[1]}", "--protocol", "bus")
    assert done.returncode in (1, 3)
    assert done.stderr.count("\n") == 1
    assert "cannot listen: address in use" in done.stderr


def test_the_tables_of_protocols_agree() -> None:
    assert tuple(ENDS) == PROTOCOLS
    schema = json.loads((SCHEMAS / "bench.json").read_text())
    assert schema["properties"]["protocol"]["enum"] == list(PROTOCOLS)


@pytest.mark.parametrize(("terminal", "shows"), [("xterm", True), ("dumb", False)])
def test_a_terminal_shows_a_bar_and_the_output_has_none(terminal: str, shows: bool) -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            command("bench", ANY, "--protocol", "pipeline", "--seconds", "0.5", "--json"),
            cwd=ROOT,
            env=environment(TERM=terminal),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=WAIT,
        )
        os.close(theirs)
        seen = b""
        try:
            while more := os.read(ours, 65536):
                seen += more
        except OSError:  # a terminal at its end
            pass
    finally:
        os.close(ours)
    assert done.returncode == 0
    assert valid(done.stdout.decode().strip(), "bench.json")["protocol"] == "pipeline"
    assert (b"] pipeline 0." in seen, seen.endswith(b"\r\x1b[K")) == (shows, shows)
