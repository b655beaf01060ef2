"""`nngkit call` and `nngkit serve`: bodies, lines, codecs, streams, errors, exit codes, and the end of commands."""

from __future__ import annotations

import io
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nngkit.blocking import Client, Daemon, Server
from nngkit.cli.main import main
from nngkit.discovery import DaemonSettings
from nngkit.errors import RemoteError, TimedOut
from nngkit.portal import the_portal
from nngkit.testing import eventually
from tests.cli.commands import valid
from tests.cli.processes import Running

ANY = "tcp://127.0.0.1:0"
WAIT = 15.0
SETTINGS = DaemonSettings(listen=(ANY,), deadline=5.0, interval=1000)


@pytest.fixture(scope="module", autouse=True)
def portal() -> None:
    """Start the portal's thread before a test compares threads: it lives as long as the process."""
    the_portal()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon(SETTINGS) as daemon:
        yield daemon


class Calls:
    """`nngkit call` in this process."""

    def __init__(self, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
        self._captured = capsysbinary
        self._patch = monkeypatch

    def __call__(self, *arguments: str, lines: bytes = b"") -> tuple[int, str, str]:
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
        code = main(["call", *arguments])
        out, err = self._captured.readouterr()
        return code, out.decode(), err.decode()


@pytest.fixture
def call(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(capsysbinary, monkeypatch)


# ---- call ------------------------------------------------------------------------------------------------------------


def test_one_call_and_a_call_for_each_line_in_order(daemon: Daemon, call: Calls, tmp_path: Path) -> None:
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


def test_values_methods_streams_and_errors_with_a_codec(call: Calls) -> None:
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


def test_every_failure_has_its_exit_code(daemon: Daemon, call: Calls) -> None:
    query = daemon.query_addresses[0]
    assert call("absent", "--daemon", query, "--timeout", "0.1", "-D", "x") == (
        1,
        "",
        "nngkit call: service not found: absent\n",
    )
    code, _, err = call("answer", "--address", "tcp://127.0.0.1:1", "--timeout", "0.1", "-D", "x")
    assert (code, "is not connected after 0.1 s" in err) == (4, True)
    for wrong in (["--stream"], ["--method", "m"], ["--address", query, "--daemon", query]):
        code, _, err = call("answer", *wrong, "-D", "x")
        assert code == 2, err
    code, _, err = call("answer", "--address", query, "--codec", "json", "-D", "{")
    assert (code, "not JSON" in err) == (2, True)


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
