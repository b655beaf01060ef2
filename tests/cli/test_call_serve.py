"""`nngkit call` and `nngkit serve`: bodies, lines, codecs, streams, errors, exit codes, and the end of commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from nngkit.blocking import Client, Daemon, Server
from nngkit.cli.main import main
from nngkit.discovery import DaemonSettings
from nngkit.errors import RemoteError, ServiceNotFound, TimedOut
from nngkit.protocols import Req
from nngkit.testing import eventually
from tests.cli.certificates import issue
from tests.cli.commands import ROOT, assert_fails, command, environment, nngkit, valid
from tests.cli.processes import Running
from tests.preloaded import Popen

ANY = "tcp://127.0.0.1:0"
WAIT = 15.0
SETTINGS = DaemonSettings(listen=(ANY,), deadline=5.0, interval=1000)


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon(SETTINGS) as daemon:
        yield daemon


class Call(Protocol):
    """`nngkit call` with these arguments and standard input: exit code, output and diagnostics."""

    def __call__(self, *arguments: str, lines: bytes = b"") -> tuple[int, str, str]: ...


@pytest.fixture
def call(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Call:
    """Run `nngkit call` in this process: it reads and writes descriptors, not sys.stdin and sys.stdout."""

    def call(*arguments: str, lines: bytes = b"") -> tuple[int, str, str]:
        (tmp_path / "stdin").write_bytes(lines)
        before = os.dup(0)
        with (tmp_path / "stdin").open("rb") as stdin:
            os.dup2(stdin.fileno(), 0)
        try:
            code = main(["call", *arguments])
        finally:
            os.dup2(before, 0)
            os.close(before)
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


# ---- call ------------------------------------------------------------------------------------------------------------


def test_one_call_and_a_call_for_each_line_in_order(daemon: Daemon, call: Call, tmp_path: Path) -> None:
    def upper(body: bytes) -> bytes:
        return body.upper()

    with Server("answer", upper, discovery=daemon.addresses) as server:
        there = ["answer", "--daemon", daemon.query_addresses[0]]
        assert call(*there, "-D", "hi") == (0, "HI\n", "")
        lines = b"".join(b"line %d\r\n" % n for n in range(100))
        assert call(*there, lines=lines) == (0, lines.decode().upper().replace("\r", ""), "")
        (tmp_path / "body").write_bytes(b"a\nb")
        assert call("answer", "--address", server.address, "-F", str(tmp_path / "body")) == (0, "A\nB\n", "")
        assert call(*there, "-F", "-", lines=b"x\ny") == (0, "X\nY\n", "")
        code, out, _ = call(*there, "-D", "hi", "--json")
        assert (code, valid(out, "call.json")) == (0, {"ok": True, "reply": "HI", "encoding": "utf-8"})


def test_values_methods_streams_and_errors_with_a_codec(call: Call) -> None:
    server = Server("calc", codec="cbor")

    @server.method
    def add(body: dict[str, int]) -> Any:
        return {"sum": body["a"] + body["b"], "raw": b"\0"}

    @server.method
    def count(body: int) -> Iterator[int]:
        yield from range(body)

    @server.method
    def refuse(body: Any) -> None:
        raise RemoteError("no money", kind="declined", data=[1])

    with server:
        there = ["calc", "--address", server.address, "--codec", "cbor", "--method"]
        code, out, _ = call(*there, "add", "-D", '{"a": 1, "b": 2}')
        assert (code, json.loads(out)) == (0, {"sum": 3, "raw": "AA=="})
        assert call(*there, "count", "--stream", "-D", "3") == (0, "0\n1\n2\n", "")
        assert call(*there, "refuse", "-D", "1") == (1, "", f"nngkit call: {server.address}: declined: no money\n")
        code, out, _ = call(*there, "refuse", "-D", "1", "--json")
        told = valid(out, "call.json")
        assert (code, told["kind"], told["data"]) == (1, "declined", [1])
        code, out, err = call(*there, "add", lines=b'{"a": 1, "b": 2}\n{}\n{"a": 2, "b": 2}\n')
        assert (code, [json.loads(line)["sum"] for line in out.splitlines()]) == (1, [3, 4])
        assert "KeyError" in err


def test_a_method_after_a_slash_is_checked_by_the_types_of_its_handler(call: Call) -> None:
    server = Server("pay/calc", discovery=(), codec="cbor")

    @server.method
    def add(body: dict[str, int]) -> int:
        return sum(body.values())

    with server:
        there = ["--address", server.address]
        assert call("pay/calc/add", *there, "-D", '{"a": 2, "b": 3}') == (0, "5\n", "")
        code, out, err = call("pay/calc/add", *there, "-D", '{"a": "2"}')
        assert (code, out) == (1, "")
        assert "bad request: add: field [...]: expected int, got str" in err
        code, out, _ = call("pay/calc", "--method", "", *there, "--info")
        assert json.loads(out)["schemas"]["add"]["reply"] == {"type": "integer"}


def test_every_failure_has_its_exit_code(daemon: Daemon, call: Call) -> None:
    query = daemon.query_addresses[0]
    assert call("absent", "--daemon", query, "--timeout", "0.1", "-D", "x") == (
        1,
        "",
        "nngkit call: service not found: absent\n",
    )
    code, _, err = call("answer", "--address", "tcp://127.0.0.1:1", "--timeout", "0.1", "-D", "x")
    assert (code, "is not connected after 0.1 s" in err) == (4, True)
    code, _, err = call("answer", "--daemon", "tcp://127.0.0.1:1", "--timeout", "0.1", "-D", "x")
    silent = "nngkit call: tcp://127.0.0.1:1: no discovery daemon answered within 0.1 s; no listener at 127.0.0.1:1: "
    assert (code, err.startswith(silent), err.count("\n")) == (3, True, 1)
    for wrong in (["--stream"], ["--method", "m"], ["--address", query, "--daemon", query]):
        code, _, err = call("answer", *wrong, "-D", "x")
        assert code == 2, err
    code, _, err = call("answer", "--address", query, "--codec", "json", "-D", "{")
    assert (code, "not JSON" in err) == (2, True)
    large = str(1 << 70)
    code, _, err = call("answer", "--address", query, "--codec", "cbor", "-D", large)
    assert code == 2, err


def test_bytes_that_are_not_text_are_base64_in_json(call: Call, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"one\xff")
    with Server("answer", lambda body: body) as server:
        _, out, _ = call("answer", "--address", server.address, "--json", "-F", str(tmp_path / "body"))
        assert valid(out, "call.json") == {"ok": True, "reply": "b25l/w==", "encoding": "base64"}


@pytest.mark.slow
def test_a_call_prefers_zones_and_asks_for_tags(daemon: Daemon, call: Call) -> None:
    def server(reply: bytes, **record: Any) -> Server:
        return Server("answer", lambda body: reply, discovery=daemon.addresses, **record)

    with server(b"ny", zone="ny", tags=("big",)) as one, server(b"london", zone="london", priority=1) as other:
        for each in (one, other):
            each.wait_for_daemons(timeout=WAIT)
        there = ["answer", "-D", "?", "--daemon", daemon.query_addresses[0]]
        eventually(lambda: len(nngkit("discover", "--daemon", there[-1]).stdout.splitlines()) == 3)
        assert call(*there)[1] == "london\n"
        assert call(*there, "--prefer", "ny,london")[1] == "ny\n"
        assert call(*there, "--tag", "big")[1] == "ny\n"
        assert call(*there, "--tag", "none", "--timeout", "0.2")[0] == 1


@pytest.mark.parametrize(("leaves", "code"), [(False, 130), (True, 141)])
def test_an_interrupted_call_and_a_reader_that_left_have_their_exit_codes(leaves: bool, code: int) -> None:
    with Server("answer", lambda body: body) as server:
        calls = command("call", "answer", "--address", server.address)
        with Popen(calls, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as calling:
            assert calling.stdin is not None
            assert calling.stdout is not None
            calling.stdin.write(b"1\n")
            calling.stdin.flush()
            assert calling.stdout.readline() == b"1\n"
            if leaves:
                calling.stdout.close()
                calling.stdin.write(b"2\n")
                calling.stdin.flush()
            else:
                calling.send_signal(signal.SIGINT)
            assert calling.wait(WAIT) == code


# ---- serve -----------------------------------------------------------------------------------------------------------


class Serving:
    """`nngkit serve` as a process, and a client of it."""

    def __init__(self, daemon: Daemon, *arguments: str, **options: Any) -> None:
        self.process = Running("serve", "answer", "--discovery", daemon.addresses[0], *arguments)
        self.client = Client("answer", daemons=daemon.query_addresses, timeout=WAIT, **options)

    def __enter__(self) -> Client:
        self.process.__enter__()
        assert "answer at tcp://127.0.0.1:" in self.process.says()
        client = self.client.__enter__()
        client.wait_for_providers(timeout=WAIT)
        return client

    def __exit__(self, *_: object) -> None:
        self.client.close()
        try:
            assert self.process.end(signal.SIGTERM) == 143
        finally:
            self.process.__exit__(None, None, None)


def test_a_command_answers_each_request(daemon: Daemon) -> None:
    serving = Serving(daemon, "--json", "--exec", "tr a-z A-Z; printf $NNGKIT_SERVICE")
    with serving as answer:
        assert [answer.request(body) for body in (b"a\nb", b"", b"\0\xff")] == [
            b"A\nBanswer",
            b"answer",
            b"\0\xffanswer",
        ]
        large = bytes(200_000)
        assert answer.request(large) == large + b"answer"
        logged = [valid(serving.process.line(), "serve.json") for _ in range(4)]
        assert all(each["ok"] and each["peer"].startswith("tcp://127.0.0.1:") for each in logged)


def test_a_failing_command_is_an_error_with_a_codec(daemon: Daemon) -> None:
    script = 'read -r text; case "$text" in *7*) exit 7;; *8*) echo "{";; *9*) yes;; *) echo "[$text]";; esac'
    with Serving(daemon, "--codec", "json", "--max-size", "10000", "--exec", script, codec="json") as answer:
        assert answer.request({"a": 1}) == [{"a": 1}]
        with pytest.raises(RemoteError, match="exit code 7") as told:
            answer.request(7)
        assert told.value.data == {"code": 7}
        with pytest.raises(RemoteError, match="not JSON"):
            answer.request(8)
        with pytest.raises(RemoteError, match="over 10000 bytes"):
            answer.request(9)


def test_commands_that_stay_answer_line_by_line(daemon: Daemon) -> None:
    script = 'while read -r line; do [ "$line" = end ] && exit; echo "$$ $line"; done'
    with Serving(daemon, "--lines", "--codec", "cbor", "--exec", script, codec="cbor") as answer:
        del answer
    with Serving(daemon, "--lines", "--concurrency", "1", "--exec", script) as answer:
        first, second = (answer.request(b"x").split() for _ in range(2))
        assert first == second
        with pytest.raises(TimedOut):
            answer.request(b"end", timeout=0.3)
        assert answer.request(b"y").split()[0] != first[0]


def test_a_deadline_ends_the_command_with_its_children(daemon: Daemon, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {mark}; wait"
    with Serving(daemon, "--codec", "cbor", "--exec", script, codec="cbor") as answer:
        with pytest.raises(TimedOut):
            answer.request(1, timeout=0.5)
        child = int(mark.read_text())
        eventually(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text())


def test_any_req_is_answered_and_a_failure_is_a_line(daemon: Daemon) -> None:
    script = 'test "$(cat)" != bad && echo yes || { echo why >&2; exit 3; }'
    with Running("serve", "answer", "--discovery", daemon.addresses[0], "--exec", script) as served:
        address = served.says().split(" at ")[1].split(",")[0]
        with Req(dial=address) as req:
            assert req.request(b"\xff", timeout=WAIT) == b"yes\n"
            with pytest.raises(TimedOut):
                req.request(b"bad", timeout=0.3)
        assert [served.says(), served.says()] == [
            "why",
            f"nngkit serve: --exec: {script}: exit code 3: why, no reply sent",
        ]
        assert served.end(signal.SIGINT) == 130


def test_methods_are_named_to_the_command(daemon: Daemon) -> None:
    options = ("--codec", "cbor", "--method", "add", "--exec", 'printf \'"%s"\' "$NNGKIT_METHOD"')
    with Serving(daemon, *options, codec="cbor") as answer:
        assert [answer.request(b"\xff"), answer.request(None, method="add")] == ["", "add"]
        with pytest.raises(RemoteError, match="no method 'other'"):
            answer.request(None, method="other")


@pytest.mark.slow
def test_an_unhealthy_command_gets_no_calls(daemon: Daemon, tmp_path: Path) -> None:
    sick = tmp_path / "sick"
    serving = Serving(daemon, "--codec", "json", "--exec", "cat", "--healthy", f"test ! -e {sick}", codec="json")
    with serving as answer:
        assert answer.request(1) == 1
        sick.touch()
        assert "not healthy, calls are refused" in serving.process.says()
        with pytest.raises((RemoteError, TimedOut, ServiceNotFound)):
            answer.request(2, timeout=0.2)
        sick.unlink()
        assert answer.request(3) == 3


def test_lines_are_refused_bodies_of_several_lines(daemon: Daemon) -> None:
    serving = Serving(daemon, "--lines", "--exec", "cat")
    with serving as answer:
        with pytest.raises(TimedOut):
            answer.request(b"a\nb", timeout=0.3)
        assert "the body has a line end" in serving.process.says()
        assert answer.request(b"a") == b"a"


def test_calls_over_tls(daemon: Daemon, call: Call, tmp_path: Path) -> None:
    certificate = issue(tmp_path / "pem", "127.0.0.1")
    options = ["--listen", "tls+tcp://127.0.0.1:0", "--exec", "cat", *certificate.options]
    with Running("serve", "answer", "--discovery", daemon.addresses[0], *options) as served:
        address = served.says().split(" at ")[1].split(",")[0]
        assert address.startswith("tls+tcp://")
        there = ["answer", "-D", "hi", *certificate.options]
        assert call(*there, "--address", address) == (0, "hi\n", "")
        assert call(*there, "--daemon", daemon.query_addresses[0]) == (0, "hi\n", "")


def test_an_address_in_use_or_of_another_host_is_exit_code_3(daemon: Daemon) -> None:
    for address in (daemon.query_addresses[0], "tcp://192.0.2.1:1"):
        assert_fails(nngkit("serve", "answer", "--exec", "cat", "--listen", address), 3, address)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["serve", "a"], "the following arguments are required: --exec"),
        (["serve", "a|b", "--exec", "x"], "NAME: name has a '|'"),
        (["serve", "a", "--exec", "x", "--method", "m"], "--method: needs --codec"),
        (["serve", "a", "--exec", "x", "--cert", "c"], "--cert: is for tls+tcp:// and wss:// addresses"),
        (["serve", "a", "--exec", "x", "--priority", "17"], "argument --priority"),
        (["call", "a|b"], "NAME: name has a '|'"),
        (["call", "a", "-F", "/nowhere/x", "--address", "tcp://127.0.0.1:1"], "--file: /nowhere/x: No such file"),
    ],
)
def test_a_wrong_option_is_one_line(options: list[str], says: str) -> None:
    assert_fails(nngkit(*options), 2, says)
