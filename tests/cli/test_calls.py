"""`nngkit serve` and `nngkit call`: programs as services, and calls by name from a shell."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit.blocking import Client, Server
from nngkit.cli.discovery.line_workers import LineWorkers, WorkerFailed
from nngkit.cli.shell import shell_environment
from nngkit.errors import RemoteError, TimedOut
from nngkit.portal import the_portal
from nngkit.protocols import Req
from tests.cli.commands import ROOT, WAIT, assert_fails, command, discoverd, environment, nngkit, valid
from tests.cli.processes import Running
from tests.preloaded import Popen, run


@pytest.fixture(scope="module", autouse=True)
def portal() -> None:
    """Start the portal's thread before a test compares threads: it lives as long as the process."""
    the_portal()


@contextmanager
def serving(*options: str) -> Iterator[tuple[Running, str]]:
    """Run `nngkit serve shout ...`; return it and its address. Its daemon does not exist, which is no error."""
    there = ("--discovery", "tcp://127.0.0.1:1", "--drain-timeout", "0.5")
    with Running("serve", "shout", *there, *options) as served:
        (address,) = served.addresses()
        yield served, address


def called(address: str, *options: str, stdin: str = "", name: str = "shout") -> subprocess.CompletedProcess[str]:
    return run(
        command("call", name, "--address", address, *options),
        cwd=ROOT,
        env=environment(),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WAIT,
    )


# ---- workers ---------------------------------------------------------------------------------------------------------


def workers(script: str, timeout: float = 10, limit: int = 100) -> LineWorkers:
    return LineWorkers(script, shell_environment(), timeout=timeout, limit=limit)


async def test_a_worker_answers_line_after_line() -> None:
    async with workers('n=0; while read -r x; do n=$((n+1)); echo "$n $x"; done') as pool:
        assert [await pool.run(line) for line in (b"a", b"", b"c\r")] == [b"1 a", b"2 ", b"3 c"]
        assert pool.started == 1


async def test_workers_run_at_once() -> None:
    replies: list[bytes] = []
    async with workers("while read -r x; do echo $$; done") as pool, trio.open_nursery() as nursery:

        async def one() -> None:
            replies.append(await pool.run(b""))

        for _ in range(3):
            nursery.start_soon(one)
    assert len(set(replies)) == pool.started == 3


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("exit 3", "exit code 3 instead of a line"),
        ("read x; kill -9 $$", "ended by signal 9 instead of a line"),
        ("sleep 9", "killed: it took too long"),
        ("read x; printf 'a\\nb\\n'; sleep 9", "killed: it wrote more than one line"),
        ("yes | tr -d '\\n'", "killed: its line is longer than 100 bytes"),
    ],
)
async def test_a_worker_that_fails_is_replaced(script: str, says: str, tmp_path: Path) -> None:
    mark = tmp_path / "first"
    async with workers(f"if mkdir {mark} 2>/dev/null; then {script}; else cat; fi", timeout=0.5) as pool:
        with pytest.raises(WorkerFailed, match=says):
            await pool.run(b"x")
        assert await pool.run(b"again") == b"again"
        assert pool.started == 2


async def test_lines_without_a_request_answer_no_call(tmp_path: Path) -> None:
    late = tmp_path / "late"
    os.mkfifo(late)
    script = f"read x; echo reply; cat {late}; echo done > {late}; cat"
    async with workers(script) as pool:
        assert await pool.run(b"x") == b"reply"
        await trio.to_thread.run_sync(late.write_text, "unasked\n")
        assert await trio.to_thread.run_sync(late.read_text) == "done\n"  # it has written the line
        late.unlink()
        assert await pool.run(b"y") == b"reply"  # of another worker
        assert pool.started == 2


async def test_a_cancelled_line_kills_its_worker() -> None:
    async with workers("sleep 9") as pool:
        with trio.move_on_after(0.05):
            await pool.run(b"x")
        with pytest.raises(WorkerFailed, match="several lines"):
            await pool.run(b"a\nb")


# ---- serve -----------------------------------------------------------------------------------------------------------


def test_a_program_is_a_service_for_any_req() -> None:
    script = 'test "$(cat)" != bad && echo "$NNGKIT_SERVED:$NNGKIT_METHOD" || { echo why >&2; exit 3; }'
    with serving("--exec", script) as (served, address):
        with Req(dial=address) as req:
            assert req.request(b"\xff", timeout=WAIT) == b"shout:\n"
            with pytest.raises(TimedOut):
                req.request(b"bad", timeout=0.3)
        assert served.says() == f"nngkit serve: --exec: {script}: exit code 3: why, no reply sent"
        assert served.end(15) == 143


def test_with_a_codec_input_and_output_are_json_and_errors_are_told() -> None:
    script = "case $NNGKIT_METHOD in fail) echo why >&2; exit 3;; text) echo no;; *) cat;; esac"
    options = ("--exec", script, "--codec", "cbor", "--method", "fail", "--method", "text")
    with serving(*options) as (served, address), Client("shout", addresses=address, codec="cbor") as client:
        assert client.request({"a": [1, "größe"]}) == {"a": [1, "größe"]}
        assert client.request(b"\xff") == "/w=="
        with pytest.raises(RemoteError, match="exit code 3: why") as failed:
            client.request(None, method="fail")
        assert failed.value.data == {"exit": 3, "stderr": "why"}
        with pytest.raises(RemoteError, match="its output is not JSON"):
            client.request(None, method="text")
        assert "exit code 3: why" in served.says()
        done = called(address, "--codec", "cbor", "--method", "fail", "-D", "1")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == f"nngkit call: {address}: exit code 3: why\n"


def test_a_deadline_kills_the_program(tmp_path: Path) -> None:
    script = f"sleep 30 & echo $! > {tmp_path}/pid; wait"
    with serving("--exec", script, "--codec", "json") as (_, address):
        with Client("shout", addresses=address, codec="json") as client, pytest.raises(TimedOut):
            client.request(None, timeout=0.3)
        until_ended(int((tmp_path / "pid").read_text()))


def until_ended(pid: int) -> None:
    """Wait until the process is gone, or a zombie that waits to be reaped."""
    stat = Path(f"/proc/{pid}/stat")
    for _ in range(500):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except FileNotFoundError:
            return
        trio.run(trio.sleep, 0.01)
    raise AssertionError("it still runs")


def test_workers_answer_lines_in_order_of_the_calls() -> None:
    script = 'while read -r x; do echo "<$x>"; done'
    with serving("--lines", "--exec", script, "--concurrency", "3") as (served, address):
        lines = [str(number) for number in range(50)]
        done = called(address, stdin="\n".join(lines))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [f"<{line}>" for line in lines]
        assert served.end() == 130


def test_an_unhealthy_program_gets_no_calls(tmp_path: Path) -> None:
    sick = tmp_path / "sick"
    sick.touch()
    with serving("--exec", "cat", "--codec", "json", "--healthy", f"test ! -e {sick}") as (served, address):
        assert "not healthy, calls are refused" in served.says()
        done = called(address, "--codec", "json", "-D", "1", "--timeout", "0.3")
        assert done.returncode in (1, 4)
        sick.unlink()
        assert called(address, "--codec", "json", "-D", "1").stdout == "1\n"


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["serve", "a"], 2, "the following arguments are required: --exec"),
        (["serve", "a|b", "--exec", "x"], 2, "NAME: name has a '|'"),
        (["serve", "a", "--exec", "x", "--method", "m"], 2, "--method: needs --codec"),
        (["serve", "a", "--exec", "x", "--listen", "tcp://192.0.2.1:1"], 2, "--listen: tcp://192.0.2.1:1: "),
        (["serve", "a", "--exec", "x", "--cert", "c"], 2, "--cert: is for tls+tcp:// and wss:// addresses"),
        (["serve", "a", "--exec", "x", "--priority", "17"], 2, "argument --priority"),
        (["call", "a|b"], 2, "NAME: name has a '|'"),
        (["call", "a", "--method", "m"], 2, "--method: needs --codec"),
        (["call", "a", "--stream"], 2, "--stream: needs --codec"),
        (["call", "a", "-F", "/nowhere/x", "--address", "tcp://127.0.0.1:1"], 2, "--file: /nowhere/x: No such file"),
        (["call", "a", "-D", "{", "--codec", "json", "--address", "tcp://127.0.0.1:1"], 2, "input: not JSON"),
        (
            ["call", "a", "-D", "x", "--timeout", "0.1", "--address", "tcp://127.0.0.1:1"],
            4,
            "is not connected after 0.1 s",
        ),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(options: list[str], code: int, says: str) -> None:
    assert_fails(nngkit(*options), code, says)


# ---- call ------------------------------------------------------------------------------------------------------------


def answer(body: Any) -> Any:
    if body == "fail":
        raise RemoteError("no", kind="refused", data={"why": 1})
    return body


def count(body: int) -> Iterator[int]:
    yield from range(body)


@contextmanager
def values() -> Iterator[str]:
    """Run a server of values in this process; return its address."""
    server = Server("values", answer, codec="cbor")
    server.method(count)
    with server:
        yield server.address


def test_lines_in_are_lines_out() -> None:
    with values() as address:
        done = called(address, "--codec", "cbor", stdin='1\n"fail"\n{"a": "größe"}', name="values")
        assert (done.returncode, done.stdout) == (1, '1\n{"a": "größe"}\n')
        assert done.stderr == f"nngkit call: {address}: refused: no\n"
        done = called(address, "--codec", "cbor", "--json", stdin='1\n"fail"\n[2]\n', name="values")
        lines = [valid(line, "call.json") for line in done.stdout.splitlines()]
        assert lines[0] == {"ok": True, "reply": 1}
        assert (lines[1]["kind"], lines[1]["data"]) == ("refused", {"why": 1})
        assert lines[2] == {"ok": True, "reply": [2]}
        streamed = called(address, "--codec", "cbor", "--stream", "--method", "count", stdin="3\n2", name="values")
        assert streamed.stdout.split() == ["0", "1", "2", "0", "1"]


def test_a_file_is_one_call_and_bytes_are_base64_in_json(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"one\ntwo\xff")
    with Server("bytes", lambda body: body[::-1]) as server:
        options = ("--json", "-F", str(tmp_path / "body"))
        found = valid(called(server.address, *options, name="bytes").stdout, "call.json")
        assert found == {"ok": True, "reply": "/293dAplbm8=", "encoding": "base64"}
        assert called(server.address, "-F", "-", stdin="a\nb", name="bytes").stdout == "b\na\n"


def test_a_call_finds_its_provider_by_name_zone_and_tag() -> None:
    with discoverd("--json") as daemon:

        def server(reply: bytes, **record: Any) -> Server:
            return Server("answer", lambda body: reply, discovery=daemon.surveys, **record)

        with server(b"ny", zone="ny", tags=("big",)), server(b"london", zone="london", priority=1):
            for _ in range(2):
                while daemon.change()["state"] != "up":
                    pass
            there = ["call", "answer", "-D", "?", "--daemon", daemon.answers]
            assert nngkit(*there).stdout == "london\n"
            assert nngkit(*there, "--prefer", "ny,london").stdout == "ny\n"
            assert nngkit(*there, "--tag", "big").stdout == "ny\n"
            assert_fails(nngkit(*there, "--tag", "none", "--timeout", "0.2"), 1, "answer")


def test_an_interrupted_call_and_a_reader_that_left_have_their_exit_codes() -> None:
    with values() as address:
        calls = command("call", "values", "--address", address, "--codec", "cbor")
        for leave, code in ((False, 130), (True, 141)):
            with Popen(calls, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as calling:
                assert calling.stdin is not None
                assert calling.stdout is not None
                calling.stdin.write(b"1\n")
                calling.stdin.flush()
                assert calling.stdout.readline() == b"1\n"
                if leave:
                    calling.stdout.close()
                    calling.stdin.write(b"2\n")
                    calling.stdin.flush()
                else:
                    calling.send_signal(2)
                assert calling.wait(WAIT) == code
