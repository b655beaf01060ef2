"""`nngkit discoverd` as a process: its output, its end, the services found, and the programs of the article."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from nngkit.discovery import State
from tests.cli.commands import WAIT, assert_fails, command, discoverd, environment, nngkit, valid
from tests.discovery.peers import PROGRAMS, ROOT, program
from tests.protocols.raw_peer import REQ, RESPONDENT, RawPeer

LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)  (\S+)  (\S+)  (\w+) \(([\w ]+)\)\n")


WRITE = {"x86_64": "1", "aarch64": "64"}.get(platform.machine(), "1")  # the system call


def port_of(address: str) -> str:
    return address.rpartition(":")[2]


def test_it_prints_services_found_and_lost() -> None:
    with discoverd() as daemon, program("provider", "answer", "tcp://10.0.0.1:9000", daemon.surveys) as provider:
        found = LINE.fullmatch(daemon.line())
        assert found is not None
        assert found.groups()[1:-1] == ("answer", "tcp://10.0.0.1:9000", "up")
        assert found[5] in ("answered", "late reply")  # late for its survey, on a busy machine
        assert abs(time.time() - time.mktime(time.strptime(found[1][:19], "%Y-%m-%dT%H:%M:%S")) + time.timezone) < WAIT
        provider.kill()
        lost = LINE.fullmatch(daemon.line())
        assert lost is not None
        assert lost.groups()[1:] == ("answer", "tcp://10.0.0.1:9000", "down", "pipe lost")


def test_json_lines_match_the_schema_and_sigterm_is_a_bye() -> None:
    with (
        discoverd("--json") as daemon,
        program("provider", "answer", "tcp://10.0.0.1:9000", daemon.surveys) as provider,
    ):
        up = daemon.change()
        assert (up["name"], up["address"]) == ("answer", "tcp://10.0.0.1:9000")
        assert (up["was"], up["state"]) == ("joining", "up")
        provider.terminate()
        assert [(line["state"], line["reason"]) for line in (daemon.change(), daemon.change())] == [
            ("draining", "bye"),
            ("down", "bye"),
        ]


@pytest.mark.slow
def test_a_stopped_service_becomes_suspect_and_recovers() -> None:
    with (
        discoverd("--json", NNGKIT_DEADLINE="200") as daemon,
        program("provider", "answer", "tcp://10.0.0.1:9000", daemon.surveys) as provider,
        program("provider", "answer", "tcp://10.0.0.2:9000", daemon.surveys),
    ):
        assert {daemon.change()["state"], daemon.change()["state"]} == {"up"}
        provider.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        change = daemon.change()
        assert (change["address"], change["state"], change["reason"]) == (
            "tcp://10.0.0.1:9000",
            "suspect",
            "missed",
        )
        assert time.monotonic() - stopped < 0.1 + 2 * 0.2 + 0.5
        change = daemon.change()
        assert (change["state"], change["reason"]) == ("down", "missed")
        provider.send_signal(signal.SIGCONT)
        assert daemon.change()["state"] == "up"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_end_it_cleanly(number: signal.Signals, code: int) -> None:
    with discoverd() as daemon:
        daemon.process.send_signal(number)
        out, err = daemon.process.communicate(timeout=WAIT)
        assert (daemon.process.returncode, out, err) == (code, "", "")


def test_signals_end_it_with_a_stalled_reader() -> None:
    with discoverd("--json") as daemon, program("fleet", "crowd", "300", port_of(daemon.surveys)):
        wait_until_blocked(daemon.process.pid)  # 300 lines exceed the capacity of a pipe
        assert nngkit("discover", "crowd", "--daemon", daemon.answers).returncode == 0  # the surveys go on
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(WAIT) == 143


def wait_until_blocked(pid: int) -> None:
    """Wait until a thread of the process blocks on its pipe."""
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/syscall") as call:
                if call.read().split()[:2] == [WRITE, "0x1"]:
                    return
        time.sleep(0.02)
    raise AssertionError("it does not wait for anybody to read")


def test_a_closed_output_ends_it_silently() -> None:
    with discoverd("--json") as daemon:
        assert daemon.process.stdout is not None
        daemon.process.stdout.close()
        with program("provider", "answer", "tcp://10.0.0.1:9000", daemon.surveys):
            assert daemon.process.wait(WAIT) == 141
        assert daemon.process.stderr is not None
        assert daemon.process.stderr.read() == ""


def test_a_full_disk_is_a_one_line_error() -> None:
    with (
        open("/dev/full", "w") as full,
        discoverd(stdout=full.fileno()) as daemon,
        program("provider", "answer", "tcp://10.0.0.1:9000", daemon.surveys),
    ):
        assert daemon.process.wait(WAIT) == 1
        assert daemon.process.stderr is not None
        assert daemon.process.stderr.read() == "nngkit discoverd: cannot write the output: No space left on device\n"


def test_garbage_from_a_peer_prints_nothing() -> None:
    with discoverd() as daemon:
        with socket.create_connection(("127.0.0.1", int(port_of(daemon.surveys))), WAIT) as peer:
            peer.sendall(b"\0SP\0" + struct.pack(">HHQ", 99, 0, 2**64 - 40))
            while peer.recv(65536):  # until the daemon closes the connection
                pass
        with program("provider", "answer", "tcp://10.0.0.1:9000", daemon.surveys):
            assert "  answer  " in daemon.line()
        daemon.process.send_signal(signal.SIGTERM)
        _, err = daemon.process.communicate(timeout=WAIT)
        assert (daemon.process.returncode, err) == (143, "")


# ---- settings --------------------------------------------------------------------------------------------------------


def test_a_port_in_use_is_a_one_line_error_and_exit_code_3() -> None:
    with discoverd() as daemon:
        assert_fails(nngkit("discoverd", "--listen", daemon.surveys), 3, daemon.surveys, "in use")
        again = nngkit("discoverd", "--listen", "tcp://127.0.0.1:0", "--query", daemon.answers)
        assert_fails(again, 3, daemon.answers, "in use")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--listen", "foo://bar"], "listen: foo://bar: no transport 'foo'"),
        (["--listen", "tcp://127.0.0.1:99999"], "listen: tcp://127.0.0.1:99999: "),
        (["--listen", "tcp://127.0.0.1:65535"], "NNGKIT_QUERY: has to be set"),
        (["--listen", "tcp://127.0.0.1:0", "--query", "foo://bar"], "listen: foo://bar: no transport 'foo'"),
        (["--deadline", "0"], "argument --deadline: '0' is not a number of seconds over 0"),
        (["--deadline", "inf"], "argument --deadline: 'inf' is not a number of seconds"),
    ],
)
def test_an_invalid_option_is_a_one_line_error(arguments: list[str], says: str) -> None:
    assert_fails(nngkit("discoverd", *arguments), 2, f"nngkit discoverd: {says}")


def test_port_alone_is_open_to_every_interface_and_warns_once() -> None:
    with discoverd(NNGKIT_LISTEN="", PORT="0") as daemon:
        assert daemon.surveys.startswith("tcp://0.0.0.0:")
        assert daemon.answers.startswith("tcp://0.0.0.0:")
        (warning,) = daemon.warnings
        assert warning.startswith("nngkit discoverd: warning: PORT=0 alone")
    for variables in ({"NNGKIT_PORT": "0"}, {"PORT": "0", "NNGKIT_HOST": "127.0.0.1"}):
        with discoverd(stdout=subprocess.PIPE, NNGKIT_LISTEN="", **variables) as daemon:
            assert daemon.surveys.startswith("tcp://127.0.0.1:")
            assert daemon.warnings == []


def test_options_override_the_environment() -> None:
    with (
        discoverd(
            "--listen", "tcp://127.0.0.1:0", "--listen", "tcp://127.0.0.1:0", "--no-text", PORT="1", NNGKIT_LISTEN=""
        ) as daemon,
        program("article_service", DISCOVERY_HOST="127.0.0.1", DISCOVERY_PORT=port_of(daemon.surveys)),
        program("provider", "answer", "tcp://10.0.0.1:9000", daemon.surveys),
    ):
        assert daemon.warnings == []
        assert "  answer  " in daemon.line()  # and not the article's: it is not asked in text


def test_no_more_peers_than_max_pipes_are_let_in() -> None:
    with discoverd("--max-pipes", "1") as daemon, RawPeer(daemon.surveys, RESPONDENT) as first:
        assert first.recv()  # a survey: it is in
        for address, protocol in ((daemon.surveys, RESPONDENT), (daemon.answers, REQ)):
            with RawPeer(address, protocol) as late:
                assert late.closed()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["options", "environment"])
def test_deadline_and_interval_are_kept(how: str) -> None:
    options = ["--deadline", "0.3", "--interval", "0.2"] if how == "options" else []
    variables = {} if options else {"NNGKIT_DEADLINE": "", "NNGKIT_INTERVAL": "", "DEADLINE": "300", "INTERVAL": "200"}
    with discoverd(*options, stdout=subprocess.PIPE, **variables) as daemon:
        with socket.create_connection(("127.0.0.1", int(port_of(daemon.surveys))), WAIT) as peer:
            peer.sendall(b"\0SP\0" + struct.pack(">HH", 99, 0))  # a service that never answers
            heard = b""
            while heard.count(b"service query") < 3:
                heard += (more := peer.recv(65536))
                assert more
            line = nngkit("discover", "--rounds", "--json", "--daemon", daemon.answers, "--timeout", "15").stdout
        rounds = valid(line, "discover-rounds.json")["rounds"]
        assert all(0.29 < each["took"] < 5 for each in rounds if each["asked"])  # 5 s is the default


def test_an_ipc_address_has_its_query_address() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path: a socket's path is short
        url = f"ipc://{folder}/d"
        for _ in range(2):  # and no file is left behind
            with discoverd("--listen", url) as daemon:
                assert (daemon.surveys, daemon.answers) == (url, f"{url}.query")
                assert nngkit("discover", NNGKIT_QUERY=daemon.answers).returncode == 0
                daemon.process.send_signal(signal.SIGTERM)
                assert daemon.process.wait(WAIT) == 143


@pytest.mark.parametrize(
    ("variables", "colour"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_only_a_terminal_gets_colour(variables: dict[str, str], colour: bool) -> None:
    ours, theirs = pty.openpty()
    try:
        with (
            discoverd(stdout=theirs, **variables) as daemon,
            program("provider", "answer", "tcp://10.0.0.1:9000", daemon.surveys),
        ):
            assert select.select([ours], [], [], WAIT)[0]
            line = os.read(ours, 4096)
            assert b"answer" in line
            assert (b"\033[32mup\033[0m" in line, b"\033" in line) == (colour, colour)
    finally:
        os.close(ours)
        os.close(theirs)


# ---- the article's programs ------------------------------------------------------------------------------------------


def test_a_service_written_for_the_articles_daemon_is_found() -> None:
    with discoverd("--json") as daemon:
        variables = {
            "DISCOVERY_HOST": "127.0.0.1",
            "DISCOVERY_PORT": port_of(daemon.surveys),
            "SERVICE_NAME": "answer",
            "SERVICE_HOST": "web-1",
            "SERVICE_PORT": "9001",
            "SERVICE_PROTOCOL": "tcp",
        }
        with program("article_service", **variables) as service:
            change = daemon.change()
            assert (change["name"], change["address"], change["state"]) == ("answer", "tcp://web-1:9001", "up")
            assert change["id"] == ""
            found = nngkit("resolve", "answer", "--daemon", daemon.answers)
            assert (found.returncode, found.stdout) == (0, "tcp://web-1:9001\n")
            service.kill()
            assert daemon.change()["reason"] == "pipe lost"


def test_an_nngkit_service_is_found_by_the_articles_surveyor() -> None:
    arguments = [sys.executable, str(PROGRAMS / "article_surveyor.py"), "0", "0.3", "2"]
    with subprocess.Popen(arguments, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as surveyor:
        assert surveyor.stdout is not None
        address = f"tcp://127.0.0.1:{surveyor.stdout.readline().strip()}"
        with program("provider", "answer", "tcp://10.0.0.1:9000", address):
            rounds = surveyor.stdout.read().splitlines()
    assert rounds == ["answer|tcp://10.0.0.1:9000"] * 2


@pytest.mark.needs_program("nngcat", package="nng-utils")
def test_nngcat_can_be_a_service() -> None:
    with discoverd("--json", NNGKIT_INTERVAL="50") as daemon:
        service = ["nngcat", "--respondent", "--dial", daemon.surveys, "--data", "answer|tcp://10.0.0.7:9000"]
        with subprocess.Popen(service, stdout=subprocess.DEVNULL) as process:
            try:
                change = daemon.change()
                assert (change["name"], change["address"], change["state"]) == ("answer", "tcp://10.0.0.7:9000", "up")
            finally:
                process.kill()


@pytest.mark.slow
@pytest.mark.needs_program("nngcat", package="nng-utils")
def test_nngcat_can_be_the_daemon() -> None:
    with contextlib.ExitStack() as stack:
        with socket.create_server(("127.0.0.1", 0)) as free:
            free.settimeout(WAIT)
            address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
            provider = stack.enter_context(program("provider", "answer", "tcp://10.0.0.8:9000", address))
            free.accept()[0].close()  # it has started, and dials again
        survey = ["nngcat", "--surveyor", "--listen", address, "--data", "service query", "--recv-timeout", "2"]
        done = subprocess.run(
            [*survey, "--delay", "2", "--ascii"], capture_output=True, text=True, timeout=WAIT, stdin=subprocess.DEVNULL
        )
        assert "answer|tcp://10.0.0.8:9000" in done.stdout
        assert provider.poll() is None


def test_discover_since_prints_what_the_daemon_has_kept(tmp_path: Path) -> None:
    file, changes = tmp_path / "history.sqlite", []
    for provider in ("tcp://10.0.0.1:9000", "tcp://10.0.0.2:9000"):  # the daemon starts twice
        with discoverd("--json", "--history", str(file)) as daemon:
            with program("provider", "answer", provider, daemon.surveys):
                assert daemon.change()["state"] == "up"
            while daemon.change()["state"] != "down":
                pass
            until_kept(daemon.answers, provider)
            lines = nngkit("discover", "--since", "1h", "answer", "--json", "--daemon", daemon.answers).stdout
            changes = [valid(line, "discover-since.json") for line in lines.splitlines()]
            text = nngkit("discover", "--since", "1h", "--daemon", daemon.answers).stdout
            assert [LINE.fullmatch(line)[3] for line in text.splitlines(True)] == [  # type: ignore[index]
                each["address"] for each in changes
            ]
            assert nngkit("discover", "--since", "1h", "other", "--daemon", daemon.answers).stdout == ""
    assert [each["state"] for each in changes if each["state"] != "draining"] == ["up", "down"] * 2


def until_kept(answers: str, address: str) -> None:
    end = time.monotonic() + WAIT
    while f"{address}  down" not in nngkit("discover", "--since", "60s", "--daemon", answers).stdout:
        assert time.monotonic() < end


def test_the_history_is_in_the_state_folder_and_off_where_that_cannot_be(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = "--listen", f"tcp://127.0.0.1:{port}", "--query", "tcp://127.0.0.1:0"
    with discoverd(*where, XDG_STATE_HOME=str(tmp_path)):
        assert (tmp_path / "nngkit" / f"discoverd-{port}.sqlite").exists()
    with discoverd("--no-history", *where, XDG_STATE_HOME=str(tmp_path / "none")) as daemon:
        assert daemon.warnings == []
        done = nngkit("discover", "--since", "1h", "--daemon", daemon.answers)
        assert_fails(done, 1, "this daemon keeps no history")
    (tmp_path / "file").touch()
    with discoverd(*where, XDG_STATE_HOME=str(tmp_path / "file")) as daemon:
        assert len(daemon.warnings) == 1
        assert "no history is kept" in daemon.warnings[0]
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("age", ["", "h", "-1h", "1w", "0", "nan"])
def test_an_age_that_is_none_is_refused(age: str) -> None:
    done = nngkit("discover", f"--since={age}")
    assert done.returncode == 2
    assert "is not a length of time, as 90s, 15m, 1h or 2d" in done.stderr


def test_the_schemas_list_every_state() -> None:
    schema = json.loads((ROOT / "docs" / "schemas" / "discoverd.json").read_text())
    assert set(schema["properties"]["was"]["enum"]) == {state.value for state in State}
    assert command("discoverd")[-1] == "discoverd"
