"""`nngkit cat` and its shorthands as processes: messages, output, diagnostics, and every exit code."""

from __future__ import annotations

import base64
import fcntl
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import termios
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import pytest
import trustme

from nngkit.cli.main import main
from nngkit.errors import TimedOut
from nngkit.protocols import TLS, Bus, Pair1, Pub, Pull, Push, Rep, Req, Respondent, Sub, Surveyor
from nngkit.testing import Background, eventually
from tests.cli.commands import valid
from tests.cli.processes import ended, running

WAIT = 10
PIPE = subprocess.PIPE


@pytest.fixture
def here(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an address to listen at."""
    return f"ipc://{tmp_path_factory.mktemp('s')}/a"


def line(process: subprocess.Popen[bytes]) -> bytes:
    """Return the next line of output; the test's timeout bounds the wait."""
    assert process.stdout is not None
    return process.stdout.readline()


# ---- input -----------------------------------------------------------------------------------------------------------


def test_each_line_is_sent_as_soon_as_it_is_written(here: str) -> None:
    with Pull(listen=here) as pull, running("push", here, "--wait-peers", "1", stdin=PIPE) as process:
        assert process.stdin is not None
        for word in (b"one", b"two"):
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            assert pull.recv(timeout=WAIT) == word
        assert ended(process, b"\nlast") == (b"", "", 0)
        assert [pull.recv(timeout=WAIT), pull.recv(timeout=WAIT)] == [b"", b"last"]


def test_none_of_100_000_lines_is_lost(here: str) -> None:
    lines = [b"line %d" % number for number in range(100_000)]
    with Pull(listen=here) as pull, running("push", here, "--wait-peers", "1", stdin=PIPE) as process:
        assert process.stdin is not None

        def write(stdin: IO[bytes]) -> None:
            for begin in range(0, len(lines), 1000):  # in pieces, as from `tail -f`
                stdin.write(b"\n".join(lines[begin : begin + 1000]) + b"\n")
                stdin.flush()
            stdin.close()

        writer = threading.Thread(target=write, args=(process.stdin,))
        writer.start()
        process.stdin = None
        received: list[bytes] = []
        while len(received) < len(lines):
            received += pull.recv_many(4096, timeout=WAIT)
        writer.join(WAIT)
        assert received == lines
        assert ended(process) == (b"", "", 0)


@pytest.mark.slow
def test_every_published_message_is_received_or_counted_as_dropped() -> None:
    # 20 MB: more than the kernel buffers for a connection without a reader
    lines = b"".join(b"%0200d\n" % number for number in range(100_000))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT)
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with running("pub", address, "--wait-peers", "1", "--stats", "--json", stdin=PIPE) as process:
            subscriber, _ = server.accept()
            with subscriber:
                subscriber.sendall(b"\0SP\0\0\x21\0\0")  # the hello of a SUB, which then reads nothing until the end
                _, err, code = ended(process, lines)
                subscriber.settimeout(WAIT)
                received = arrived(subscriber)
        *said, last = err.splitlines()
        counted = valid(last, "cat-stats.json")
        assert (code, counted["sent"]) == (0, 100_000)
        assert received == counted["written"]
        assert received + counted["dropped"] + counted["broken"] == 100_000
        assert counted["dropped"] > 0
        assert said == losses("pub", counted)


@pytest.mark.slow
def test_every_bus_message_is_received_or_counted_as_dropped() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT)
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        options = ("--wait-peers", "2", "--lines", "--expect", "1", "--stats", "--json")
        with running("bus", address, address, *options, stdin=PIPE) as process:
            idler, reader = server.accept()[0], server.accept()[0]
            with idler, reader:
                for peer in (idler, reader):
                    peer.settimeout(WAIT)
                    peer.sendall(b"\0SP\0\0\x70\0\0")  # the hello of a BUS; the idler then reads nothing until the end
                reading = Background(arrived, reader)
                assert process.stdin is not None
                process.stdin.write(b"".join(b"%0200d\n" % number for number in range(100_000)))
                reader.sendall(b"\0\0\0\0\0\0\0\6enough")  # which may be while the last lines are being sent
                _, err, code = ended(process)
                received = [arrived(idler), reading.result()]
        *said, last = err.splitlines()
        counted = valid(last, "cat-stats.json")
        assert (code, counted["received"]) == (0, 1)
        assert counted["sent"] > 99_000
        assert counted["written"] == sum(received)
        assert counted["written"] + counted["dropped"] + counted["broken"] == 2 * counted["sent"]
        assert counted["dropped"] > 0
        assert said == losses("bus", counted)


def test_a_push_reports_a_message_lost_with_its_connection(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(bytes(64 << 20))  # more than the kernel buffers for a connection
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WAIT)
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with running("push", address, "--file", str(big), "--stats", "--json") as process:
            puller, _ = server.accept()
            with puller:
                puller.settimeout(WAIT)
                puller.sendall(b"\0SP\0\0\x51\0\0")  # the hello of a PULL
                size = 0
                while size < 1 << 20:  # the message is partly sent
                    size += len(puller.recv(1 << 16))
                server.close()
            _, err, code = ended(process)
    *said, last = err.splitlines()
    counted = valid(last, "cat-stats.json")
    assert (code, counted["sent"], counted["written"], counted["broken"], counted["dropped"]) == (1, 1, 0, 1, 0)
    told = "1 messages were being sent when their connection ended, and may not have arrived"
    assert said == [f"nngkit push: {told}"]


def test_permissions_of_an_ipc_socket(here: str) -> None:
    with running("pull", "--listen", here, "--ipc-mode", "640", "--count", "1"), Push(dial=here) as push:
        push.wait_for_peers(1, WAIT)
        assert stat.S_IMODE(os.lstat(here.removeprefix("ipc://")).st_mode) == 0o640


def test_a_push_reports_a_message_too_large_for_the_puller(here: str) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(1000))
    with Pull(listen=here, recv_max_size=1000) as pull:
        with running("push", here, "--stats", "--json", stdin=PIPE) as process:
            reading = Background(lambda: [pull.recv(timeout=WAIT) for _ in range(2000)])
            # larger than the kernel's buffers, so that the push notices the lost connection
            _, err, code = ended(process, lines + bytes(8 << 20) + b"\n" + lines)
        assert len(reading.result()) == 2000
    *said, last = err.splitlines()
    counted = valid(last, "cat-stats.json")
    assert (code, counted["sent"], counted["written"], counted["broken"], counted["unwritten"]) == (1, 2001, 2000, 1, 0)
    assert said == losses("push", counted)[1:]


def test_a_push_counts_every_message_when_its_puller_is_replaced(here: str) -> None:
    lines = b"".join(b"%0200000d\n" % number for number in range(100))
    with running("push", here, "--stats", "--json", stdin=PIPE) as process:
        writing = Background(ended, process, lines)
        with Pull(listen=here, recv_buffer=1) as first:
            received = [first.recv(timeout=WAIT) for _ in range(20)]
            first.close(0.0)
        with Pull(listen=here) as second:
            while writing.is_alive():
                with suppress(TimedOut):
                    received.append(second.recv(timeout=0.05))
            with suppress(TimedOut):
                while True:
                    received.append(second.recv(timeout=0.05))
    _, err, code = writing.result()
    counted = valid(err.splitlines()[-1], "cat-stats.json")
    assert (code, counted["sent"], counted["unwritten"]) == (min(counted["broken"], 1), 100, 0)
    assert counted["written"] + counted["broken"] == 100
    assert len(received) <= counted["written"]


def losses(protocol: str, counted: dict[str, int]) -> list[str]:
    """Return the counts in the reports of lost messages."""
    said = [f"nngkit {protocol}: {counted['dropped']} messages were dropped: a receiver was too slow, or left"]
    if counted["broken"]:
        told = "messages were being sent when their connection ended, and may not have arrived"
        said.append(f"nngkit {protocol}: {counted['broken']} {told}")
    return said


def arrived(peer: socket.socket) -> int:
    """Count the lines of 200 bytes received until the end, each after 8 bytes of length."""
    size = -8  # the greeting
    while piece := peer.recv(1 << 16):
        size += len(piece)
    return size // 208


@pytest.mark.parametrize(
    ("options", "data"),
    [
        (["-0"], b"a\0b\n\0\0c"),
        (["--delimiter", r"\r\n"], b"a\r\nb\n\r\n\r\nc"),
        (["--delimiter=--", "--lines"], b"a--b\n----c"),
        (["--records"], b"\xc4\x01a\xa2b\n\xc5\x00\x00\xd9\x01c"),
    ],
)
def test_input_is_split_by_delimiters_or_records(here: str, options: list[str], data: bytes) -> None:
    with Pull(listen=here) as pull, running("push", here, *options, stdin=PIPE) as process:
        assert ended(process, data) == (b"", "", 0)
        assert [pull.recv(timeout=WAIT) for _ in range(4)] == [b"a", b"b\n", b"", b"c"]


def test_records_reads_the_output_of_msgpack(here: str, tmp_path: Path) -> None:
    bodies = [b"", b"\n\0", bytes(range(256)), b"x" * 70_000]
    file = tmp_path / "records"
    with Push(listen=here) as push, running("pull", here, "--msgpack", "--expect", "4") as process:
        push.send_many(bodies)
        out, err, code = ended(process)
        assert (err, code) == ("", 0)
        file.write_bytes(out)
    with Pull(listen=here) as pull, running("push", here, "--records", "--file", str(file)) as process:
        assert ended(process) == (b"", "", 0)
        assert [pull.recv(timeout=WAIT) for _ in bodies] == bodies


def test_a_whole_file_is_one_message_and_an_interval_has_a_unit(here: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"one\ntwo\n")
    with Pull(listen=here) as pull:
        with running("push", here, "--file", str(file), "--interval", "20ms", "--count", "3") as process:
            assert ended(process) == (b"", "", 0)
        assert [pull.recv(timeout=WAIT) for _ in range(3)] == [b"one\ntwo\n"] * 3


# ---- output ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], b"w.x 1\n\xff\n"),
        (["-0"], b"w.x 1\0\xff\0"),
        (["--delimiter", r"\x1e--"], b"w.x 1\x1e--\xff\x1e--"),
        (["--raw"], b"w.x 1\xff"),
        (["-A"], b"w.x 1\n.\n"),
        (["--quoted"], b'"w.x 1"\n"\\xff"\n'),
        (["--format=hex"], b'"\\x77\\x2e\\x78\\x20\\x31"\n"\\xff"\n'),
        (["--format", "no"], b""),
        (["--format-string", r"{size}\t{{{body:ascii}}}\x21\n"], b"5\t{w.x 1}!\n1\t{.}!\n"),
    ],
)
def test_each_format_prints_as_documented(here: str, options: list[str], expected: bytes) -> None:
    with Push(listen=here) as push, running("pull", here, "--expect", "2", *options) as process:
        push.send_many([b"w.x 1", b"\xff"])
        assert ended(process) == (expected, "", 0)


def test_json_output_matches_the_schema() -> None:
    with (
        Pub(listen="tcp://127.0.0.1:0") as pub,
        running("sub", pub.address, "--subscribe", "w", "--subscribe", "w.x", "--json", "--expect=2") as process,
    ):
        pub.wait_for_peers(1, WAIT)
        pub.send_many([b"other", b"w.x 1", b"w\xff"])
        out, err, code = ended(process)
        assert (err, code) == ("", 0)
        first, second = (valid(each, "cat.json") for each in out.decode().splitlines())
        assert (first["topic"], first["body"], first["encoding"], first["size"]) == ("w.x", "w.x 1", "utf-8", 5)
        assert (second["topic"], base64.b64decode(second["body"]), second["encoding"]) == ("w", b"w\xff", "base64")
        assert first["peer"].startswith("tcp://127.0.0.1:")


def test_a_pattern_selects_messages_beside_a_prefix() -> None:
    with (
        Pub(listen="tcp://127.0.0.1:0") as pub,
        running("sub", pub.address, "--pattern", "orders.*.eu", "--subscribe", "news", "--expect=2") as process,
    ):
        pub.wait_for_peers(1, WAIT)
        pub.send_many([b"orders.1.us", b"orders.2.eu 5", b"orders.eu", b"news!"])
        assert process.communicate(timeout=WAIT)[0] == b"orders.2.eu 5\nnews!\n"


def test_a_format_string_has_topic_peer_and_time() -> None:
    text = r"{time} {peer} {topic:hex} {body}\n"
    with (
        Pub(listen="tcp://127.0.0.1:0") as pub,
        running("sub", pub.address, "--subscribe", "w.", "--format-string", text, "--expect=1") as process,
    ):
        pub.wait_for_peers(1, WAIT)
        pub.send(b"w.x")
        out, _, code = ended(process)
        assert code == 0
        stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
        assert re.fullmatch(stamp + r' tcp://127\.0\.0\.1:\d+ "\\x77\\x2e" w\.x\n', out.decode())


def test_timestamp_begins_each_line_with_a_time(here: str) -> None:
    with Push(listen=here) as push, running("pull", here, "--timestamp", "--expect=1") as process:
        push.send(b"work")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z work\n", ended(process)[0].decode())


# ---- requests and replies --------------------------------------------------------------------------------------------


def test_a_command_makes_the_reply(here: str) -> None:
    script = 'printf "%s " "$NNGKIT_PROTOCOL"; tr a-z A-Z'
    with running("rep", "--listen", here, "--exec", script) as process, Req(dial=here) as req:
        assert req.request(b"hello", timeout=WAIT) == b"rep HELLO"
        assert line(process) == b"hello\n"


def test_a_failed_command_is_reported_without_a_reply(here: str) -> None:
    script = 'read word; test "$word" = good && echo yes'
    with (
        running("respond", "--listen", here, "--exec", script, "--expect", "2") as process,
        Surveyor(dial=here) as asks,
    ):
        asks.wait_for_peers(1, WAIT)
        assert asks.survey(b"bad\n", timeout=0.5).replies == ()
        assert [each.body for each in asks.survey(b"good\n", timeout=WAIT, early=True).replies] == [b"yes\n"]
        _, err, code = ended(process)
        assert (err, code) == (f"nngkit respond: --exec: {script}: exit code 1, no reply sent\n", 0)


def test_each_line_is_a_request_and_its_reply_a_line(here: str) -> None:
    with Rep(listen=here) as rep, running("req", here, stdin=PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.close()
        process.stdin = None
        for _ in range(2):
            request = rep.recv(timeout=WAIT)
            request.reply(request.body.upper())
        assert ended(process) == (b"ONE\nTWO\n", "", 0)


def test_a_survey_ends_with_the_expected_responses(here: str) -> None:
    options = ("--data", "who?", "--wait-peers", "2", "--expect", "2", "--recv-timeout", "30")
    with running("survey", "--listen", here, *options) as process:
        with Respondent(dial=here) as one, Respondent(dial=here) as two:
            one.recv(timeout=WAIT).reply(b"one")
            two.recv(timeout=WAIT).reply(b"two")
            out, err, code = ended(process)
        assert (sorted(out.split()), err, code) == ([b"one", b"two"], "", 0)


def test_a_pair_sends_lines_and_prints_received_messages(here: str) -> None:
    with Pair1(listen=here) as pair, running("pair", here, "--lines", stdin=PIPE) as process:
        assert process.stdin is not None
        for word in (b"one", b"two"):
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            assert pair.recv(timeout=WAIT) == word
            pair.send(word.upper())
            assert line(process) == word.upper() + b"\n"


def test_a_bus_sends_its_data_once_a_peer_is_connected(here: str) -> None:
    with Bus(listen=here) as bus, running("bus", here, "--data", "x", "--wait-peers=1", "--expect=1") as process:
        assert bus.recv(timeout=WAIT) == b"x"
        bus.send(b"y")
        assert ended(process) == (b"y\n", "", 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pub", "bus", "survey"])
def test_a_dialing_sender_waits_for_its_first_peer(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    peer: Any = {"pub": partial(Sub, topics=b""), "bus": Bus, "survey": Respondent}[name]
    for _ in range(5):
        there = f"ipc://{tmp_path_factory.mktemp('s')}/a"
        options = ["--recv-timeout", "50ms"] if name != "pub" else []
        with peer(listen=there) as listener, running(name, there, "--data", "said", *options) as process:
            heard = listener.recv(timeout=WAIT)
            assert (heard if isinstance(heard, bytes) else heard.body) == b"said"
            ended(process)


def test_a_dialing_sender_waits_for_a_late_listener(here: str) -> None:
    with running("pub", here, "--data", "said", "-v") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"nngkit pub: dials {here}\n".encode()
        with Sub(listen=here, topics=b"") as sub:
            assert sub.recv(timeout=WAIT) == b"said"
            assert ended(process) == (b"", "", 0)


def test_each_data_is_a_message(here: str) -> None:
    with Pull(listen=here) as pull:
        with running("push", here, "-D", "1", "-D", "2") as process:
            assert ended(process) == (b"", "", 0)
        with running("push", here, "-D1", "-D2", "--count", "3") as process:
            assert ended(process) == (b"", "", 0)
        assert [pull.recv(timeout=WAIT) for _ in range(5)] == [b"1", b"2", b"1", b"2", b"1"]
    with Pair1(listen=f"{here}2") as pair, running("pair", f"{here}2", "-D1", "-D2", "--expect", "1") as process:
        assert [pair.recv(timeout=WAIT) for _ in range(2)] == [b"1", b"2"]
        pair.send(b"x")
        assert ended(process) == (b"x\n", "", 0)


@pytest.mark.slow
@pytest.mark.parametrize("answer", [["--data", "yes"], ["--exec", "echo yes"]])
@pytest.mark.parametrize("name", ["rep", "respond"])
def test_a_timeout_after_a_reply_is_success(name: str, answer: list[str], here: str) -> None:
    with (
        running(name, "--listen", here, *answer, "--recv-timeout", "1") as process,
        Req(dial=here) if name == "rep" else Surveyor(dial=here) as requester,
    ):
        if isinstance(requester, Req):
            assert requester.request(b"well?", timeout=WAIT).strip() == b"yes"
        else:
            requester.wait_for_peers(1, WAIT)
            assert [reply.body.strip() for reply in requester.survey_iter(b"well?", WAIT, early=True)] == [b"yes"]
        assert ended(process) == (b"well?\n", "", 0)


def test_it_talks_tls(authority: trustme.CA, tmp_path: Path) -> None:
    certificate = authority.issue_cert("localhost")
    ca, pem = tmp_path / "ca.pem", tmp_path / "own.pem"
    authority.cert_pem.write_to_path(str(ca))
    certificate.private_key_and_cert_chain_pem.write_to_path(str(pem))
    own = TLS(cert=certificate.cert_chain_pems[0].bytes(), key=certificate.private_key_pem.bytes())
    with (
        Push(listen="tls+tcp://127.0.0.1:0", tls=own) as push,
        running("pull", push.address, "--cacert", str(ca), "--tls-name", "localhost", "--expect", "1") as process,
    ):
        push.send(b"secret")
        assert ended(process) == (b"secret\n", "", 0)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


# ---- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["pull", "-qL0", "--recv-timeout", "50ms"], 3, "no peer connected"),
        (["req", "tcp://127.0.0.1:1", "--data", "x", "--recv-timeout", "50ms"], 3, "no peer connected"),
        (["push", "tcp://127.0.0.1:1", "--data", "x", "--send-timeout", "50ms"], 3, "50 ms|0.05 s"),
        (["sub", "tcp://127.0.0.1:1", "--wait-peers", "1", "--wait-timeout", "50ms"], 3, "0 of 1 peers"),
        *(
            ([name, "tcp://127.0.0.1:1", "--data", "x", "--wait-timeout", "50ms"], 3, "0 of 1 peers")
            for name in ("pub", "bus", "survey")
        ),
        (["pub", "-qL0", "--data", "x"], 3, "no peer connected"),
        (["rep", "-qL0", "--data", "x", "--recv-timeout", "50ms"], 3, "no peer connected"),
        (["pull", "--listen", "tcp://1.2.3.4:5"], 3, "tcp://1.2.3.4:5: cannot listen: not an address of this host"),
        (["pull", "--listen", "ipc:///nonexistent/x"], 3, "ipc:///nonexistent/x: cannot listen"),
    ],
)
def test_each_failure_has_its_exit_code(
    arguments: list[str], code: int, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(rf"nngkit {arguments[0]}: [^\n]*\n", err)
    assert re.search(says, err)


@pytest.mark.slow
def test_fewer_messages_than_expected_is_1_and_none_is_4(here: str) -> None:
    with Push(listen=here) as push:
        with running("pull", here, "--expect", "2", "--recv-timeout", "1") as process:
            push.send(b"one")
            assert ended(process) == (b"one\n", "nngkit pull: 1 of 2 messages received\n", 1)
        with running("pull", here, "--expect", "2", "--wait-peers=1", "--recv-timeout", "50ms") as process:
            assert ended(process) == (b"", "nngkit pull: 0 of 2 messages received\n", 4)


def test_an_interrupt_prints_received_messages_and_counters(here: str) -> None:
    with Push(listen=here) as push, running("pull", here, "--stats") as process:
        push.send_many([b"one", b"two"])
        assert [line(process), line(process)] == [b"one\n", b"two\n"]
        process.send_signal(signal.SIGINT)
        out, err, code = ended(process)
        assert (out, code) == (b"", 130)
        assert err.startswith("nngkit pull: printed 2, sent 0, received 2,")


def test_the_address_of_a_listener_on_port_0_is_printed() -> None:
    with running("pull", "--listen", "tcp://127.0.0.1:0", "--expect", "1") as process:
        assert process.stderr is not None
        said = re.fullmatch(r"nngkit pull: listens at (tcp://127.0.0.1:[1-9]\d*)\n", process.stderr.readline().decode())
        assert said is not None
        with Push(dial=said[1]) as push:
            push.send(b"x")
            assert ended(process) == (b"x\n", "", 0)


@pytest.mark.parametrize("command_line", ["ping tcp://127.0.0.1:0 --listen", "top --pull tcp://127.0.0.1:0 --listen"])
def test_ping_and_top_print_the_address_of_a_listener_on_port_0(command_line: str) -> None:
    with running(*command_line.split()) as process:
        assert process.stderr is not None
        assert re.match(rb"nngkit (ping|top): listens at tcp://127.0.0.1:[1-9]", process.stderr.readline())


def test_a_second_interrupt_ends_it_at_once(here: str) -> None:
    # the first signal lingers for a second, for a peer that never connects
    with running("push", "--listen", here, "--lines", "-v", stdin=PIPE) as process:
        assert process.stderr is not None
        assert process.stdin is not None
        assert process.stderr.readline() == f"nngkit push: listens at {here}\n".encode()
        for _ in range(2):  # reading a line proves that the one before it is queued
            process.stdin.write(b"unheard\n")
            process.stdin.flush()
            eventually(lambda: unread(process.stdin) == 0)
        process.send_signal(signal.SIGINT)
        eventually(lambda: not catches_interrupts(process.pid))  # otherwise the kernel may merge the two
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT) == -signal.SIGINT
        assert process.stderr.read() == b""


@pytest.mark.slow
def test_messages_unsent_at_the_end_are_reported(here: str) -> None:
    with running("push", "--listen", here, "--lines", "-v", "--stats", "--json", stdin=PIPE) as process:
        assert process.stderr is not None
        assert process.stdin is not None
        assert process.stderr.readline() == f"nngkit push: listens at {here}\n".encode()
        process.stdin.write(b"unheard\n")
        process.stdin.close()
        time.sleep(0.2)  # for the line to be read, which it does not report
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT) == 130
        said, last = process.stderr.read().decode().splitlines()
    assert said == "nngkit push: 1 messages were dropped: no peer took them"
    assert valid(last, "cat-stats.json")["dropped"] == 1


def unread(pipe: IO[bytes] | None) -> int:
    """Return the number of unread bytes."""
    assert pipe is not None
    return int.from_bytes(fcntl.ioctl(pipe.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


def catches_interrupts(pid: int) -> bool:
    """Return True if the process has a handler for SIGINT."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[1], 16)  # type: ignore[index]
    return bool(caught >> (signal.SIGINT - 1) & 1)


def test_a_closed_output_ends_it_silently(here: str) -> None:
    with Push(listen=here) as push, running("pull", here) as process:
        assert process.stdout is not None
        process.stdout.close()
        push.send(b"x")
        assert process.wait(WAIT) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


# ---- bad input: one line that names the option, exit code 2, nothing sent --------------------------------------------

U = "tcp://127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["cat"], "protocol: none given"),
        (["cat", "--push"], "address: none given"),
        (["cat", U], "protocol: none given"),
        (["cat", "--push", "--pull", U], "--pull: the protocol is push already"),
        (["sub", "--pub", U], "--pub: the protocol is sub already"),
        (["sub", U, "--pattern", "a.b*"], "--pattern: b'a.b*' has the token b'b*': '*' stands for one whole token"),
        (["cat", "--bus", "--bus", U], "--bus: the protocol is bus already"),
        (["cat", "--bus", "--bus0", U], "--bus0: the protocol is bus already"),
        (["cat", "-D1", "-D2", "--rep", U], "-D: is given twice, and a request has one reply"),
        (["pull", "--count", "1", "-C2", U], "-C: is given twice"),
        (["push", "--file", "a", "--file", "b", U], "--file: is given twice"),
        (["cat", "--pu", U], "--pu: may be --pub, --pub0, --pull, --pull0, --push, --push0"),
        (["cat", "--bogus"], "--bogus: no such option"),
        (["cat", "-vY"], "-Y: no such option"),
        (["pull", "--raw=1", U], "--raw: takes no value"),
        (["pull", "--count"], "--count: needs a value"),
        (["pull", "-C"], "-C: needs a value"),
        (["pull", "-C0", U], "-C: '0' is not a whole number"),
        (["pull", "--count=many", U], "--count: 'many' is not a whole number"),
        (["pull", "--recv-timeout", "5x", U], "--recv-timeout: '5x' is not a time"),
        (["pull", "--recv-timeout=-1", U], "--recv-timeout: '-1' is not a time"),
        (["pull", "--delay", "nan", U], "--delay: 'nan' is not a time"),
        (["pull", "-Z", "2G", U], "-Z: '2G' is not a size"),
        (["pull", "--listen", "ipc:///x", "--ipc-mode", "9"], "--ipc-mode: '9' is not permissions in octal, like 600"),
        (["pull", U, "--ipc-mode", "600"], "--ipc-mode: needs an ipc:// address to listen at"),
        (["pull", "-L", "70000"], "-L: '70000' is not a port"),
        (["pull", "here"], "URL: 'here' is not an address"),
        (["pull", "--dial", "here"], "--dial: 'here' is not an address"),
        (["pull", "--data", "x", U], "--data: does not apply to pull"),
        (["pull", "--interval", "1", U], "--interval: does not apply to pull"),
        (["push", "--subscribe", "x", U], "--subscribe: does not apply to push"),
        (["push", "--hex", U], "--hex: does not apply to push"),
        (["req", "--exec", "x", U], "--exec: does not apply to req"),
        (["pull", "--raw", "--hex", U], "--hex: conflicts with --raw"),
        (["pull", "--format", "xml", U], "--format: 'xml' is not one of no, raw, ascii"),
        (["pull", "--format-string", "{key}", U], "--format-string: {key} is not one of {body}, {topic}"),
        (["pull", "--format-string", "{body:xml}", U], "--format-string: {body:xml}: 'xml' is not a format"),
        (["pull", "--format-string", "{", U], "--format-string: a single {"),
        (["pull", "--format-string", r"\q", U], r"--format-string: '\\q' is not one of \n"),
        (["pull", "--delimiter", r"\q", U], r"--delimiter: '\\q' is not one of \n"),
        (["pull", "--delimiter", "", U], "--delimiter: is empty"),
        (["pull", "--timestamp", "--json", U], "--timestamp: conflicts with --json"),
        (["push", "--data", "x", "--file", "y", U], "--file: conflicts with --data"),
        (["push", "--data", "x", "--lines", U], "--lines: conflicts with --data"),
        (["push", "--records", "-0", U], "-0: conflicts with --records"),
        (["push", "--file", "/nonexistent", U], "--file: /nonexistent: No such file or directory"),
        (["push", "--file", "/nonexistent", "--lines", U], "--file: /nonexistent: No such file or directory"),
        (["rep", "--file", "/tmp", U], "--file: /tmp: Is a directory"),
        (["bus", "--interval", "1", U], "--interval: there is nothing to send"),
        (["pull", "--insecure", U], "--insecure: is for tls+tcp:// and wss://"),
        (["pull", "--cacert", "/nonexistent", "tls+tcp://a:1"], "--cacert: /nonexistent: No such file"),
        (["pull", "--cacert", "/etc/passwd", "tls+tcp://a:1"], "--cacert: /etc/passwd: not PEM text"),
        (["pull", "tls+tcp://a:1"], "--cacert: a dialer over TLS needs it, or --insecure"),
        (["pull", "pgm://a:1"], "no transport 'pgm'"),
        (["pull", "tcp://127.0.0.1:99999"], "dial needs a port"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_bad_input_is_a_one_line_error_that_names_the_option(
    arguments: list[str], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(rf"nngkit {arguments[0]}: [^\n]*\n", err)
    assert says in err


def test_malformed_records_are_reported(here: str) -> None:
    with Pull(listen=here) as pull, running("push", here, "--records", stdin=PIPE) as process:
        out, err, code = ended(process, b"\xc4\x01a\xc4\x05b")
        assert (out, err, code) == (b"", "nngkit push: standard input: ends inside the record at byte 3\n", 2)
        assert pull.recv(timeout=WAIT) == b"a"
