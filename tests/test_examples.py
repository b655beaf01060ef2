"""The examples: each is run as its docstring says, and its output is compared with the docstring."""

import ast
import contextlib
import importlib
import io
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nngkit.protocols import Req
from tests import preloaded

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PATTERNS = {"pair", "reqrep", "pipeline", "bus", "pubsub", "survey"}  # each needs an example
SHORT = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem not in ("demo", "spark"))
FOLDER = EXAMPLES / "service_discovery"
NINE = EXAMPLES / "cluster_compose"
DEMO = EXAMPLES / "demo.py"
BOUND = 30  # seconds; the demo takes 20, the others one, or some for those with processes


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def promised_output(path: Path) -> str:
    """Return the indented block after `prints ...::`."""
    found = re.search(r"^prints[^\n]*::\n\n((?:    .*\n|\n)+)", docstring(path) + "\n", re.MULTILINE)
    assert found is not None, f"{path.name} does not say what it prints"
    return textwrap.dedent(found[1]).strip() + "\n"


def run_long(*arguments: str | Path, seconds: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return preloaded.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return preloaded.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND,
    )


@contextlib.contextmanager
def running(*arguments: str | Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, *arguments]
    with preloaded.Popen(command, env={**os.environ, **environment}, stdout=-1, stderr=-1, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


# ---- one file a pattern ----------------------------------------------------------------------------------------------


LONG = {  # over 2 s each: they start clusters and a realm, load Delta or FastAPI, or send a hundred thousand messages
    *("cluster", "chat", "render_farm", "lake_table", "batching", "shared_note", "web_fastapi", "trust", "camera"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in SHORT]
)
def test_prints_the_output_in_its_docstring(name: str) -> None:
    path = EXAMPLES / f"{name}.py"
    done = run(path)
    assert (done.stdout, done.stderr, done.returncode) == (promised_output(path), "", 0)


@pytest.mark.parametrize("name", SHORT)
def test_docstring_has_the_command_to_run_it(name: str) -> None:
    assert f"    python3 examples/{name}.py" in docstring(EXAMPLES / f"{name}.py")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_spark_example_prints_the_output_in_its_docstring() -> None:
    path = EXAMPLES / "spark.py"  # Java writes to stderr
    done = run_long(path, seconds=200)
    assert (done.stdout, done.returncode) == (promised_output(path), 0), done.stderr


@pytest.mark.slow
def test_render_farm_writes_a_png_file(tmp_path: Path) -> None:
    picture = tmp_path / "farm.png"
    done = run(EXAMPLES / "render_farm.py", "--points", "60", "--workers", "2", "--kills", "0", "--png", picture)
    assert (done.returncode, done.stderr) == (0, "")
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack("!II", data[16:24]) == (60, 40)
    body = data[data.index(b"IDAT") + 4 : data.index(b"IEND") - 8]
    assert len(zlib.decompress(body)) == 40 * (1 + 3 * 60)


def test_every_pattern_has_an_example() -> None:
    assert set(SHORT) >= PATTERNS


def test_docs_page_lists_every_example() -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    for name in [*SHORT, "spark", "demo"]:
        assert f"../examples/{name}.py" in page


def test_keyvalue_server_runs_until_interrupted() -> None:
    with running(EXAMPLES / "keyvalue.py", "--serve", "tcp://127.0.0.1:0") as server:
        address = next_line(server).removeprefix("serving on ")
        with Req(dial=address, recv_timeout=10) as client:
            assert json.loads(client.request(b'{"do": "set", "key": "a", "value": 1}')) == {"ok": True}
            for nonsense in (b"", b"[]", b"\xff", b"[" * 100_000, b'{"do": {"a": 1}}', b'{"do": "_"}', b'{"do": null}'):
                assert json.loads(client.request(nonsense))["ok"] is False
            assert json.loads(client.request(b'{"do": "get", "key": "a"}')) == {"ok": True, "value": 1}
        server.send_signal(signal.SIGINT)
        assert server.communicate(timeout=10) == ("", "")
        assert server.returncode == 0


def test_canvas_writes_an_svg_file(tmp_path: Path) -> None:
    done = run(EXAMPLES / "canvas.py", "--svg", tmp_path / "house.svg")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "house.svg").read_text() in done.stdout


# ---- service_discovery: the programs ---------------------------------------------------------------------------------


def test_service_is_found_and_says_goodbye() -> None:
    with running(FOLDER / "daemon.py", NNGKIT_LISTEN="tcp://127.0.0.1:0", INTERVAL="200", DEADLINE="500") as daemon:
        found = re.fullmatch(r"surveys at tcp://127.0.0.1:(\d+), answers at (\S+)", next_line(daemon))
        assert found is not None
        port, query = found.groups()
        with running(FOLDER / "answer.py", DISCOVERY_PORT=port, SERVICE_PORT="0") as service:
            place = next_line(service)
            assert re.fullmatch(r"answer at tcp://127.0.0.1:\d+", place)
            assert next_line(daemon) == f"{place}: up (answered)"

            asked = run(FOLDER / "client.py", NNGKIT_QUERY=query)
            promised = promised_output(FOLDER / "client.py").strip()
            assert asked.stdout.strip() == promised.replace("tcp://127.0.0.1:9000", place.split()[-1])

            service.send_signal(signal.SIGTERM)
            assert next_line(daemon) == f"{place}: draining (bye)"
            assert service.communicate(timeout=10) == ("", "")
            assert service.returncode == 0
        assert next_line(daemon) == f"{place}: down (bye)"
        daemon.send_signal(signal.SIGTERM)
        assert daemon.communicate(timeout=10) == ("", "")
        assert daemon.returncode == 0


WRONG = {
    "daemon.py": {"NNGKIT_LISTEN": "tcp://127.0.0.1:0", "DEADLINE": "soon"},
    "answer.py": {"DISCOVERY_PORT": "soon"},
    "client.py": {"DISCOVERY_PORT": "soon"},
}


@pytest.mark.parametrize("program", WRONG)
def test_invalid_setting_is_reported_in_one_line(program: str) -> None:
    done = run(FOLDER / program, **WRONG[program])
    assert (done.stdout, done.returncode) == ("", 1)
    assert re.fullmatch(rf"{re.escape(program)}: \w+: 'soon' is not a whole number.*\n", done.stderr)


# ---- service_discovery: the containers -------------------------------------------------------------------------------


def test_dockerfile_copies_existing_files_and_starts_copied_programs() -> None:
    stages = re.split(r"(?m)^FROM ", (FOLDER / "Dockerfile").read_text())[1:]
    names = [re.match(r"\S+ AS (\S+)", stage) for stage in stages]
    assert [name[1] for name in names if name] == ["nngkit", "daemon", "service", "client"]
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text().split()
    for stage in stages:
        copied = [source for line in re.findall(r"(?m)^COPY (.*)", stage) for source in line.split()[:-1]]
        for source in copied:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored or f"!{Path(source).parent}/*.py" in ignored, f"{source} is kept out"
        for command in re.findall(r"(?m)^CMD (.*)", stage):
            program = json.loads(command)  # exec form, so that signals reach the program
            assert program[0] == "python"
            assert program[1] in {Path(source).name for source in copied}
    # setuptools needs all files named in pyproject.toml
    assert all(f"!{name}" in ignored for name in ("pyproject.toml", "README.md", "LICENSE", "nngkit", "protocols"))
    assert "USER" in stages[0]


def test_compose_file_matches_the_dockerfile_and_the_programs() -> None:
    text = (FOLDER / "compose.yaml").read_text()
    assert "\t" not in text
    dockerfile = (FOLDER / "Dockerfile").read_text()
    targets = re.findall(r"target: (\S+)", text)
    assert sorted(targets) == ["client", "daemon", "service"]
    assert all(f" AS {target}\n" in dockerfile for target in targets)
    assert (ROOT / re.findall(r"dockerfile: (\S+)", text)[0]).samefile(FOLDER / "Dockerfile")
    assert (FOLDER / re.findall(r"context: (\S+)", text)[0]).samefile(ROOT)

    services = re.findall(r"(?m)^  ([a-z0-9-]+):$", text.partition("\nservices:\n")[2])
    assert services == ["daemon", "answer-1", "answer-2", "client"]
    for listed in re.findall(r"depends_on: \[(.*)\]", text):
        assert set(listed.split(", ")) <= set(services)
    for host in re.findall(r"(?:DISCOVERY|SERVICE)_HOST: (\S+)", text):
        assert host in services
    anchors, uses = set(re.findall(r"&(\S+)", text)), set(re.findall(r"\*(\S+)", text))
    assert anchors == uses

    known = (FOLDER / "README.md").read_text()
    for name in re.findall(r"(?m)^ +([A-Z_]+):", text):
        assert f"`{name}`" in known, f"README.md does not say what {name} is"
    ports = {port for port in re.findall(r'"(\d+)"', text) if int(port) in (5555, 9000)}
    exposed = re.findall(r"(?m)^EXPOSE (.*)", dockerfile)
    assert ports <= {port for line in exposed for port in line.split()}


# ---- cluster_compose -------------------------------------------------------------------------------------------------


def test_dockerfile_of_the_cluster_copies_existing_files() -> None:
    dockerfile = (NINE / "Dockerfile").read_text()
    ignored = (NINE / "Dockerfile.dockerignore").read_text().split()
    copied = [source for line in re.findall(r"(?m)^COPY (.*)", dockerfile) for source in line.split()[:-1]]
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored or f"!{Path(source).parent}/*.py" in ignored, f"{source} is kept out"
    (command,) = re.findall(r"(?m)^CMD (.*)", dockerfile)
    assert json.loads(command) == ["python", "node.py"]
    assert "examples/cluster_compose/node.py" in copied
    assert "USER" in dockerfile


def test_compose_file_of_the_cluster_has_three_voters_and_six_members() -> None:
    text = (NINE / "compose.yaml").read_text()
    assert "\t" not in text
    assert (ROOT / re.findall(r"dockerfile: (\S+)", text)[0]).samefile(NINE / "Dockerfile")
    assert (NINE / re.findall(r"context: (\S+)", text)[0]).samefile(ROOT)
    services, _, volumes = text.partition("\nservices:\n")[2].partition("\nvolumes:\n")
    names = re.findall(r"(?m)^  ([a-z0-9-]+):$", services)
    voters = [name for name in names if name.startswith("voter")]
    assert (len(voters), len(names)) == (3, 9)
    (line,) = re.findall(r"(?m)^ +VOTERS: (.*)", text)
    assert line.split() == [f"{name}=tcp://{name}:7000" for name in voters]
    assert re.findall(r"NODE_ID: (\S+)", services) == names
    assert re.findall(r"volumes: \[(\S+):/store\]", services) == re.findall(r"(?m)^  (\S+):$", volumes)
    for listed in re.findall(r"depends_on: \[(.*)\]", text):
        assert set(listed.split(", ")) <= set(names)
    assert set(re.findall(r"&(\S+)", text)) == set(re.findall(r"\*(\S+)", text))
    known = (NINE / "README.md").read_text()
    for name in re.findall(r"(?m)^ +([A-Z_]+):", text):
        assert f"`{name}`" in known, f"README.md does not say what {name} is"


@pytest.mark.slow
def test_nodes_of_the_compose_file_run_as_processes(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    settings = {"VOTERS": f"voter-a={address}", "TOKEN": "s3cret"}
    store = str(tmp_path / "voter")
    with running(NINE / "node.py", NODE_ID="voter-a", LISTEN=address, STORE=store, **settings) as voter:
        assert re.match(r"voter-a: ", next_line(voter))
        member = {"NODE_ID": "member-1", "LISTEN": "tcp://127.0.0.1:0", "SUBMIT": "yes"}
        with running(NINE / "node.py", **member, **settings) as node:
            lines = iter(lambda: next_line(node), "")
            assert next(line for line in lines if "squared" in line) == "member-1: 0 squared is 0"
            node.send_signal(signal.SIGTERM)
            _, errors = node.communicate(timeout=10)
            assert (node.returncode, errors) == (0, "")
        voter.send_signal(signal.SIGTERM)
        _, errors = voter.communicate(timeout=10)
        assert (voter.returncode, errors) == (0, "")
    done = run(NINE / "node.py", NODE_ID="a", VOTERS="a")
    assert (done.returncode, done.stderr[:9]) == (1, "node.py: ")


# ---- the demo: its verdict -------------------------------------------------------------------------------------------


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("_demo.board")


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("_demo.screen")


def call(at: float, *tries: tuple[str, bool], seconds: float = 0.001, ok: bool = True) -> dict[str, Any]:
    told = [{"to": to, "at": at, "seconds": seconds, "ok": good} for to, good in tries]
    return {"at": at, "seconds": seconds * len(tries), "ok": ok, "wrong": False, "tries": told}


def good_demo(board: ModuleType) -> Any:
    """A successful demo: 3 s answer-1 killed, 5 to 8 s answer-2 frozen, 7 s answer-4 starts, 9 s answer-3 leaves."""
    seen, state = board.Board(0.0), board.State
    for number in (1, 2, 3):
        seen.launched(f"answer-{number}", number, 0.1)
        seen.listening(f"answer-{number}", f"tcp://{number}", 0.5)
    seen.launched("answer-4", 4, 6.5)
    seen.listening("answer-4", "tcp://4", 7.0)
    seen.became("answer-1", state.KILLED, 3.0)
    seen.became("answer-2", state.FROZEN, 5.0)
    seen.became("answer-2", state.UP, 8.0)
    seen.became("answer-3", state.LEAVING, 9.0)
    for step in range(50, 500):
        at = step / 50
        there = {1: at < 3, 2: at < 5 or at > 8.1, 3: at < 9, 4: at > 7.1}
        up = [number for number, is_there in there.items() if is_there]
        seen.call(call(at, (f"tcp://{up[step % len(up)]}", True)))
    seen.call(call(5.5, ("tcp://2", False), ("tcp://3", True), seconds=0.3))
    good_second_act(board, seen.cluster)
    return seen


def good_second_act(board: ModuleType, seen: Any) -> None:
    """A host that is killed at 14 s, and another at 14.6 s; 200 jobs and 80 messages."""
    parts = importlib.import_module("_demo.cluster_board")
    seen.launched = 10.0
    for name in parts.VOTERS:
        seen.nodes[name] = parts.Node(name, 1)
        seen.report(name, {"at": 12.0, "role": "member", "term": 1, "host": "ann"})
    seen.report("ann", {"at": 12.0, "role": "host", "term": 1, "host": "ann"})
    seen.report("client", {"at": 12.5, "complete": True})
    for number in range(200):
        at = 12.5 + number / 50
        seen.report("ben", {"at": at, "done": number})
        seen.report("client", {"at": at + 0.02, "job": number, "seconds": 0.02, "ok": True, "wrong": False})
    seen.kill("ann", 14.0)
    seen.report("ben", {"at": 14.6, "role": "host", "term": 2, "host": "ben"})
    for name in ("ben", "cat"):
        seen.report(name, {"at": 17.0, "heard": 80})
    seen.report("client", {"at": 17.0, "submitted": 200, "sent": 80})


def failed(board: ModuleType, seen: Any) -> set[str]:
    return {check.name for check in board.verdict(seen) if not check.ok}


def test_all_checks_of_a_successful_demo_hold(board: ModuleType) -> None:
    seen = good_demo(board)
    assert failed(board, seen) == set()
    figures = {check.name: check.measured for check in board.verdict(seen)}
    assert figures["last call to the killed one after"] == 0
    assert figures["last call to the frozen one after"] == pytest.approx(0.5)
    assert figures["resumed one found after"] == pytest.approx(0.12, abs=0.1)
    assert figures["most providers tried by a call"] == 2


def forget(label: str) -> Callable[[Any], object]:
    def spoil(seen: Any) -> None:
        seen.rows[label].tries[:] = []

    return spoil


def few_jobs(seen: Any) -> None:
    del seen.cluster.answers[1:60]
    seen.cluster.submitted -= 59


SPOILED: dict[str, tuple[Callable[[Any], object], str]] = {
    "one never found": (forget("answer-1"), "first providers found after"),
    "the late one never found": (forget("answer-4"), "late one found after"),
    "the resumed one never found": (
        lambda seen: setattr(
            seen.rows["answer-2"], "tries", [each for each in seen.rows["answer-2"].tries if each.at < 8]
        ),
        "resumed one found after",
    ),
    "the killed one called": (
        lambda seen: seen.call(call(4.0, ("tcp://1", False), ("tcp://2", True))),
        "last call to the killed one after",
    ),
    "the frozen one called": (
        lambda seen: seen.call(call(7.0, ("tcp://2", False), ("tcp://3", True))),
        "last call to the frozen one after",
    ),
    "one that left called": (
        lambda seen: seen.call(call(9.8, ("tcp://3", False), ("tcp://4", True))),
        "last call after a goodbye",
    ),
    "a failed call": (lambda seen: seen.call(call(6.0, ("tcp://3", False), ok=False)), "failed calls"),
    "a wrong answer": (lambda seen: setattr(seen, "wrong", 1), "wrong answers"),
    "a slow call": (lambda seen: seen.call(call(6.0, ("tcp://3", True), seconds=1.1)), "slowest call"),
    "four tries": (lambda seen: seen.call(call(6.0, *[("tcp://3", True)] * 4)), "most providers tried by a call"),
    "too few calls": (lambda seen: setattr(seen, "calls", 300), "calls made, of those due"),
    "no cluster": (lambda seen: setattr(seen.cluster, "complete", None), "cluster complete after"),
    "no new host": (lambda seen: seen.cluster.hosts.pop(), "new host after"),
    "a lost job": (lambda seen: setattr(seen.cluster, "submitted", 201), "jobs lost"),
    "a failed job": (lambda seen: setattr(seen.cluster, "failed", 1), "jobs lost"),
    "a wrong result": (lambda seen: setattr(seen.cluster, "wrong", 1), "wrong results"),
    "a slow job": (lambda seen: setattr(seen.cluster, "slowest", 3.1), "longest wait for a job"),
    "a missed message": (lambda seen: setattr(seen.cluster, "sent", 81), "messages missed by a survivor"),
    "too few jobs": (few_jobs, "jobs done, of those due"),
    "a process that died": (lambda seen: setattr(seen, "ended_early", 1), "processes that ended early"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_each_violated_guarantee_fails_its_check(board: ModuleType, how: str) -> None:
    seen = good_demo(board)
    spoil, name = SPOILED[how]
    spoil(seen)
    assert failed(board, seen) == {name}


def test_checks_fail_for_a_demo_in_which_nothing_happened(board: ModuleType) -> None:
    checks = board.verdict(board.Board(0.0))
    counts = {"failed calls", "wrong answers", "processes that ended early"}
    assert failed(board, board.Board(0.0)) == {check.name for check in checks} - counts


def test_docs_page_lists_every_check(board: ModuleType) -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    for check in board.verdict(board.Board(0.0)):
        bound = f"at least {check.bound} %" if check.least else f"{check.bound:g} {check.unit}".strip()
        assert f"| {check.name} | {bound} |" in page


# ---- the demo: its output --------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "term", "rich", "kind"),
    [
        (Terminal(), "xterm", True, "Pretty"),
        (Terminal(), "xterm", False, "Plain"),
        (Terminal(), "dumb", True, "Plain"),
        (io.StringIO(), "xterm", True, "Plain"),
    ],
    ids=["terminal", "without rich", "dumb", "pipe"],
)
def test_live_board_is_used_where_the_terminal_supports_it(
    board: ModuleType,
    screen: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    terminal: Any,
    term: str,
    rich: bool,
    kind: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stdout", terminal)
    if not rich:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    shown = screen.best_screen(board.Board(0.0))
    shown.close()
    assert type(shown).__name__ == kind
    assert ("pip install 'nngkit[pretty]'" in capsys.readouterr().err) is not rich


def on_a_terminal(seconds: float, **environment: str) -> str:
    """Return what the demo writes to a terminal before it is interrupted."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", **environment}
    process = preloaded.Popen([sys.executable, DEMO], stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    written, interrupted = b"", False
    try:
        until = time.monotonic() + seconds
        with contextlib.suppress(OSError):  # EIO: the other end was closed
            while chunk := os.read(ours, 65536):
                written += chunk
                if b"first answer" in written and time.monotonic() > until and not interrupted:
                    process.send_signal(signal.SIGINT)
                    interrupted = True
        assert process.wait(10) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return written.decode()


@pytest.mark.slow
def test_output_on_a_terminal_is_a_board_in_colour() -> None:
    written = on_a_terminal(2)
    assert "╭" in written
    assert "calls by name" in written
    assert re.search(r"\x1b\[[0-9;]*3[0-9]m", written)
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")  # the cursor is visible again


@pytest.mark.slow
def test_no_color_is_honoured() -> None:
    written = on_a_terminal(2, NO_COLOR="1")
    assert "calls by name" in written
    assert not re.search(r"\x1b\[[0-9;]*[34][0-9]m", written)


# ---- the demo: whole runs -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_interrupted_demo_leaves_no_process_running() -> None:
    with running(DEMO, "--quick") as demo:
        pids: list[int] = []
        while len(pids) < 3:
            line = next_line(demo)
            assert line, "it ended"
            pids += [int(pid) for pid in re.findall(r"pid (\d+)$", line)]
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate(timeout=10)
        assert (demo.returncode, errors) == (130, "")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_usage_errors_are_reported() -> None:
    assert run(DEMO, "--tries", "0").returncode == 2
    assert run(DEMO, "--nonsense").returncode == 2


@pytest.mark.slow
@pytest.mark.alone
def test_demo_passes_and_prints_plain_lines_in_a_pipe() -> None:
    started = time.monotonic()
    done = run(DEMO, "--quick")
    assert time.monotonic() - started < BOUND
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    assert len(re.findall(r"(?m)^ok ", done.stdout)) == 19
    assert re.search(r"\nall 19 checks hold, \d+\.\d s\n$", done.stdout)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.timeout(150)
def test_demo_ends_with_sparks_page_of_its_journal(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run_long(DEMO, "--json", "--report", page, seconds=90)  # the whole demo, set-up included
    result = json.loads(done.stdout)
    assert (done.returncode, result["ok"], result["report"]) == (0, True, str(page)), done.stdout
    assert "<svg" in page.read_text()


@pytest.mark.slow
@pytest.mark.alone
def test_demo_prints_the_same_as_json() -> None:
    done = run(DEMO, "--json", "--quick")
    result = json.loads(done.stdout)
    assert (done.returncode, result["ok"]) == (0, True), done.stdout
    assert result["calls"] > 400
    assert {"name", "ok", "measured", "unit"} <= set(result["checks"][0])
    assert all(check["ok"] for check in result["checks"])
    told = [event["what"] for event in result["events"]]
    assert [what for what in told if "SIG" in what] == [
        "killed: SIGKILL",
        "frozen: SIGSTOP",
        "resumed: SIGCONT",
        "asked to leave: SIGTERM",
        "the host, killed: SIGKILL",
    ]


@pytest.mark.slow
@pytest.mark.alone
def test_demo_with_a_single_try_fails_the_expected_checks() -> None:
    done = run(DEMO, "--tries", "1", "--quick")
    assert done.returncode == 1
    assert re.search(r"(?m)^FAIL  failed calls +[1-9]", done.stdout)
    assert re.search(r"\n\d+ of 19 checks failed, ", done.stdout)
