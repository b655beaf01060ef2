"""`nngkit top` with real publishers, buses, pushers and a daemon."""

from __future__ import annotations

import os
import pty
import select
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nngkit.protocols import Bus, Pub, Pull, Push
from nngkit.testing import Background, eventually
from tests.cli.commands import assert_fails, discoverd, nngkit, valid
from tests.cli.processes import Running, unread
from tests.discovery.peers import program

pytestmark = pytest.mark.slow  # programs of seconds; CI runs them

ANY = "tcp://127.0.0.1:0"
WAIT = 20.0
QUICK = ("--interval", "0.1")


@contextmanager
def saying(socket: Any, *messages: bytes) -> Iterator[Any]:
    """Send the messages on the socket repeatedly until the block ends."""
    over = threading.Event()

    def say() -> None:
        while not over.wait(0.005):
            for message in messages:
                socket.send(message)

    thread = threading.Thread(target=say)
    thread.start()
    try:
        yield socket
    finally:
        over.set()
        thread.join()
        socket.close(0.0)


def until(running: Running, true: Any) -> dict[str, Any]:
    """Return the first line that fulfils the condition; the test's timeout bounds the wait."""
    while not true(found := valid(running.line(), "top.json")):
        pass
    return found


def test_topics_of_a_publisher_are_counted() -> None:
    with (
        saying(Pub(listen=ANY), b"weather.oslo 3", b"weather.rome 19", b"news") as pub,
        Running("top", "--sub", pub.address, "--words", "--json", *QUICK) as top,
    ):
        found = until(top, lambda fields: len(fields["rows"]) == 3 and fields["rows"][2]["per_second"])
        assert {row["topic"] for row in found["rows"]} == {"weather.oslo", "weather.rome", "news"}
        assert {row["peer"] for row in found["rows"]} == {pub.address}
        assert (found["kind"], found["peers"], found["lost"]) == ("sub", 1, None)
        assert found["messages"] == sum(row["messages"] for row in found["rows"])
        news = next(row for row in found["rows"] if row["topic"] == "news")
        assert (news["smallest"], news["largest"], news["bytes"]) == (4, 4, 4 * news["messages"])
        assert isinstance(found["dropped"], int)
        assert top.end() == 130


def test_selected_topics_and_gaps_are_counted() -> None:
    with (
        saying(Pub(listen=ANY, sequence=True), b"a1", b"b1") as pub,
        Running("top", "--sub", pub.address, "--topic", "a", "--sequence", "--json", *QUICK) as top,
    ):
        found = until(top, lambda fields: fields["messages"] > 5)
        assert [row["topic"] for row in found["rows"]] == ["a"]
        # numbering is by the publisher's topic=, which these two share: each b is a gap
        assert found["lost"] > 0
        assert found["dropped"] == 0  # what is of other topics was never wanted


def test_a_bus_and_dialing_peers_are_shown() -> None:
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/s"
        with (
            Running("top", "--bus", address, "--listen", "--json", *QUICK) as top,
            saying(Bus(dial=address), b"x"),
            saying(Bus(dial=address), b"xyz"),
        ):
            found = until(top, lambda fields: fields["rows"] and fields["rows"][0]["largest"] == 3)
            assert (found["kind"], found["peers"], found["joined"]) == ("bus", 2, 2)
            assert top.end(signal.SIGTERM) == 143


def test_pulling_takes_and_batches_are_unpacked() -> None:
    with (
        saying(Push(listen=ANY, batch=True), b"12345") as push,
        Running("top", "--pull", push.address, "--batch", "--json", *QUICK) as top,
    ):
        found = until(top, lambda fields: fields["messages"] > 3)
        assert (found["kind"], found["rows"][0]["largest"], found["dropped"]) == ("pull", 5, None)


def test_once_prints_one_table_and_no_message_is_exit_code_4() -> None:
    with saying(Pub(listen=ANY), b"hello") as pub:
        done = nngkit("top", "--sub", pub.address, "--once", "--interval", "1")
        assert (done.returncode, done.stderr) == (0, "")
        head, names, row = done.stdout.splitlines()
        assert "1 peers" in head
        assert names.split() == ["PEER", "TOPIC", "MESSAGES", "RATE", "BYTES", "SIZES", "QUIET"]
        assert row.split()[:2] == [pub.address, "-"]
        assert "5-5" in row
    with Pub(listen=ANY) as pub:
        done = nngkit("top", "--sub", pub.address, "--once", "--interval", "0.2")
        assert (done.returncode, done.stderr) == (4, "")


def test_the_services_of_a_daemon_are_shown() -> None:
    with discoverd() as daemon, program("provider", "answer", "tcp://10.0.0.1:9000", daemon.surveys):
        assert daemon.line()
        addresses = ("--daemon", daemon.answers, "--daemon", "tcp://127.0.0.1:1", "--timeout", "1")
        done = nngkit("top", *addresses, "--once", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        found = valid(done.stdout.strip(), "top.json")
        (service,) = found["services"]
        assert (service["name"], service["address"], service["state"]) == ("answer", "tcp://10.0.0.1:9000", "up")
        assert [each["answers"] for each in found["daemons"]] == [True, False]
        text = nngkit("top", *addresses, "--once").stdout
        assert "tcp://127.0.0.1:1  no reply" in text
        assert "answer  tcp://10.0.0.1:9000  up" in text
    assert_fails(nngkit("top", "--daemon", "tcp://127.0.0.1:1", "--once", "--timeout", "0.2"), 3, "no discovery daemon")


def test_the_domain_is_that_of_the_environment() -> None:
    with discoverd(NNGKIT_DOMAIN="staging") as daemon:
        asking = ("top", "--daemon", daemon.answers, "--once", "--json")
        assert nngkit(*asking, NNGKIT_DOMAIN="staging").returncode == 0
        assert_fails(nngkit(*asking), 1, "staging")


def test_a_terminal_redraws_the_table() -> None:
    ours, theirs = pty.openpty()
    try:
        with (
            saying(Pub(listen=ANY), b"hello") as pub,
            Running("top", "--sub", pub.address, *QUICK, stdout=theirs, TERM="xterm") as top,
        ):
            text = b""
            while text.count(b"\033[H\033[J") < 3:
                assert select.select([ours], [], [], WAIT)[0]
                text += os.read(ours, 4096)
            assert top.end() == 130
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"PEER" in text


def test_a_stalled_reader_does_not_delay_updates() -> None:
    with (
        unread() as (output, read),
        saying(Pub(listen=ANY), b"hello") as pub,
        Running("top", "--sub", pub.address, "--json", "--interval", "0.05", stdout=output) as top,
    ):
        eventually(lambda: pub.stats.joined == 1)
        before = pub.stats.sent
        eventually(lambda: pub.stats.sent > before + 100)  # at least half a second without reading
        read_all = Background(read)
        assert top.end() == 130
        top.process.wait(WAIT)
        looks = [valid(line, "top.json") for line in read_all.result().decode().splitlines()]
        assert top.rest()[1] == ""
    assert len(looks) > 5
    assert looks[-1]["messages"] > 50
    assert [each["seconds"] for each in looks] == pytest.approx([0.05 * n for n in range(1, len(looks) + 1)], abs=0.5)


def test_a_stalled_reader_does_not_prevent_the_end() -> None:
    with (
        unread() as (output, _),
        saying(Pub(listen=ANY), b"hello") as pub,
        Running("top", "--sub", pub.address, *QUICK, stdout=output) as top,
    ):
        eventually(lambda: pub.stats.joined == 1)
        assert top.end() == 130


def test_a_closed_output_ends_it() -> None:
    reading, writing = os.pipe()
    with saying(Pub(listen=ANY), b"x") as pub, Running("top", "--sub", pub.address, *QUICK, stdout=writing) as top:
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        assert top.process.wait(WAIT) == 141
        assert top.rest()[1] == ""


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "--sub: one of --sub, --bus, --pull and --daemon is required"),
        (["--sub", ANY, "--bus", ANY], 2, "--bus: one of --sub"),
        (["--bus", ANY, "--topic", "x"], 2, "--topic: conflicts with --bus"),
        (["--daemon", ANY, "--words"], 2, "--words: conflicts with --daemon"),
        (["--sub", "here"], 2, "argument --sub: 'here' is not an address"),
        (["--sub", ANY], 2, "--sub: tcp://127.0.0.1:0: dial needs a port"),
        (["--sub", ANY, "--rows", "0"], 2, "argument --rows: '0' is not"),
    ],
)
def test_wrong_usage_is_a_one_line_error(arguments: list[str], code: int, says: str) -> None:
    assert_fails(nngkit("top", *arguments), code, says)


def test_an_address_in_use_is_exit_code_3() -> None:
    with Pull(listen=ANY) as pull:
        assert_fails(nngkit("top", "--pull", pull.address, "--listen"), 3, "cannot listen: address in use")
