"""`nngkit nngcat` and `nngkit nanocat`: output and errors equal the originals', byte for byte."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nngkit.cli.cat.formats import FORMATTERS
from nngkit.cli.main import main
from nngkit.errors import TimedOut
from nngkit.protocols import Pair0, Pair1, Pub, Pull, Push, Rep, Req, Respondent, Surveyor
from tests.cli.cases import COMMANDS, PAYLOADS, RECORDED, SPELLINGS, digest, printed, recorded, said
from tests.cli.commands import ROOT, command, environment, nngkit
from tests.cli.processes import listens
from tests.protocols.programs import needed

WAIT = 20
OUTCOMES, FORMS = recorded(RECORDED, "commands"), recorded(RECORDED, "formats")
ORIGINALS = [pytest.param(program, marks=needed(program)) for program in ("nngcat", "nanocat")]


@pytest.fixture
def here() -> Iterator[str]:
    """Return an address to listen at."""
    with tempfile.TemporaryDirectory(prefix="nngkit") as folder:
        yield f"ipc://{folder}/a"


def takes_a_second(line: str) -> bool:
    return re.search(r"timeout.1\b|-i 1 -L|surveyor", line) is not None


# ---- options, error texts, exit codes --------------------------------------------------------------------------------

CASES = [
    pytest.param(program, line, id=f"{program} {line}", marks=[pytest.mark.slow] if takes_a_second(line) else [])
    for program, line in COMMANDS
]


@pytest.mark.parametrize(("program", "line"), CASES)
def test_output_equals_the_recorded_one(
    program: str, line: str, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    expected = OUTCOMES[f"{program} {line}"]
    code = main([program, *shlex.split(line)])
    out, err = capsysbinary.readouterr()
    if "-h" in line.split():
        assert (out.startswith(b"Usage: "), err, code) == (True, b"", expected["code"])
    else:
        assert (out.decode(), err.decode(), code) == (expected["stdout"], expected["stderr"], expected["code"])


@pytest.mark.slow
@pytest.mark.parametrize("program", ORIGINALS)
def test_the_record_equals_the_originals_output(program: str) -> None:
    for name, line in COMMANDS:
        if name == program:
            assert said([program], line) == OUTCOMES[f"{name} {line}"], line


def test_the_help_is_on_stdout_and_nngcats_exit_code_is_1() -> None:
    for name, code in (("nngcat", 1), ("nanocat", 0)):
        for option in ("--help", "-h", "--hel"):
            done = nngkit(name, option, "--bogus")
            assert (done.returncode, done.stderr) == (code, "")
            assert done.stdout.startswith(f"Usage: {name} ")


@pytest.mark.parametrize("program", ORIGINALS)
@pytest.mark.slow
def test_the_help_has_every_option_of_the_original(program: str) -> None:
    original = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=WAIT).stdout
    for option in set(re.findall(r"--[a-z0-9-]+", original)):
        assert re.search(rf"{option}\b", nngkit(program, "--help").stdout), option


def test_a_link_named_as_a_stand_in_runs_it(tmp_path: Path) -> None:
    ours = Path(sys.executable).with_name("nngkit")
    for name, says in (("nngcat", "No address specified.\n"), ("nn_push", "nn_push: Option nn_push (executable) req")):
        (tmp_path / name).symlink_to(ours)
        done = subprocess.run([tmp_path / name], env=environment(), capture_output=True, text=True, timeout=WAIT)
        assert done.returncode == 1
        assert done.stderr.startswith(says)


@pytest.mark.parametrize("name", ["push", "pull", "pub", "sub", "req", "rep", "surveyor", "respondent", "bus", "pair"])
def test_the_links_of_nanocat_imply_the_protocol(name: str) -> None:
    done = nngkit(f"nn_{name}", f"--{name}")
    assert done.returncode == 1
    assert done.stderr == f"nn_{name}: Option --{name} conflicts with the following options:\n    --{name} \n"


# ---- formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["nngcat", "nanocat"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_formats_equal_the_recorded_ones(program: str, spelling: str) -> None:
    short = {"": "no", "-A": "ascii", "-Q": "quoted"}
    form = FORMATTERS[program][short.get(spelling, re.sub(r"^--(format )?", "", spelling))]
    found = [digest(form(payload)) for payload in PAYLOADS.values()]
    assert found == FORMS[f"{program} {spelling}"]["payloads"]


@pytest.mark.slow
@pytest.mark.parametrize("program", ORIGINALS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_formats_equal_the_originals(program: str, spelling: str) -> None:
    theirs, ours = printed([program], spelling), printed(command(program), spelling)
    assert dict(zip(PAYLOADS, ours, strict=True)) == dict(zip(PAYLOADS, theirs, strict=True))


# ---- behaviour tested by nngcat's own tests --------------------------------------------------------------------------


def start(*arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command(*arguments), cwd=ROOT, env=environment(), stdin=stdin, stdout=pipe, stderr=pipe)


def ended(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes, int]:
    out, err = process.communicate(timeout=WAIT)
    return out, err, process.returncode


def test_async_dials_before_the_listener_exists(here: str) -> None:
    with start("nngcat", "--async", "--dial", here, "--push", "--data", "abc") as process:
        try:
            with Pull(listen=here) as pull:
                assert pull.recv(timeout=WAIT) == b"abc"
                assert ended(process) == (b"", b"", 0)
        finally:
            process.kill()


def test_without_async_dialing_fails_without_a_listener(here: str) -> None:
    done = nngkit("nngcat", "--dial", here, "--pull")
    assert (done.returncode, done.stderr) == (1, f"Unable to dial on {here}: Connection refused\n")


def test_compat_dials_before_the_listener_exists_and_has_pair_version_0(here: str) -> None:
    with start("nngcat", "--compat", "--dial", here, "--pair", "--data", "abc") as process:
        try:
            with Pair0(listen=here) as pair:
                assert pair.recv(timeout=WAIT) == b"abc"
        finally:
            process.kill()


def test_pair_is_version_1(here: str) -> None:
    with start("nngcat", "--listen", here, "--pair", "--data", "abc") as process:
        try:
            with Pair1(dial=here) as pair:
                assert pair.recv(timeout=WAIT) == b"abc"
        finally:
            process.kill()


def test_a_message_over_the_limit_ends_the_connection_and_the_next_is_used(here: str) -> None:
    with start("nngcat", "--listen", here, "--pull", "--ascii", "-Z", "5", "-C", "2") as process:
        try:
            with Push(dial=here, send_buffer=0) as push:
                push.wait_for_peers(1, WAIT)
                push.send(b"abcde", timeout=WAIT)
                cut = threading.Event()
                push.on_peer(lambda event: cut.set() if event.kind == "left" else None)
                push.send(b"x" * 1_100_000, timeout=WAIT)
                assert cut.wait(WAIT)
                push.send(b"fghij", timeout=WAIT)
                assert ended(process) == (b"abcdefghij", b"", 0)
        finally:
            process.kill()


def test_a_size_limit_of_0_is_unlimited(here: str) -> None:
    with start("nngcat", "--listen", here, "--pull", "--ascii", "--recv-maxsz=0", "-C", "1") as process:
        try:
            with Push(dial=here) as push:
                push.send(b"y" * 1_100_000)
                assert ended(process) == (b"y" * 1_100_000, b"", 0)
        finally:
            process.kill()


def test_standard_input_may_be_the_data(here: str) -> None:
    with (
        Pull(listen=here) as pull,
        start("nngcat", "--push", "--dial", here, "--file", "-", stdin=subprocess.PIPE) as it,
    ):
        assert it.communicate(b"line\nline\n\0", timeout=WAIT) == (b"", b"")
        assert pull.recv(timeout=WAIT) == b"line\nline\n\0"


def test_several_topics_and_a_count(here: str) -> None:
    with Pub(listen=here) as pub:
        topics = ("--subscribe", "one", "--subscribe", "three")
        with start("nngcat", "--sub", "--dial", here, *topics, "--quoted", "--count=2", "--recv-timeout=20") as process:
            try:
                pub.wait_for_peers(1, WAIT)
                for body in (b"one", b"two", b"three", b"one more"):
                    pub.send(body)
                assert ended(process) == (b'"one"\n"three"\n', b"", 0)
            finally:
                process.kill()


@pytest.mark.slow
def test_verbose_prints_addresses() -> None:
    done = nngkit("nngcat", "--pull", "-v", "--listen", "tcp://127.0.0.1:0", "--recv-timeout", "1")
    assert re.fullmatch(r"Listening at: tcp://127.0.0.1:\d+\n", done.stdout)


def test_a_request_gets_a_reply_and_both_print(here: str) -> None:
    with start("nngcat", "--rep", "--listen", here, "--data", "yes", "-Q", "-C", "2") as rep:
        try:
            with start("nngcat", "--req", "--async", "--dial", here, "--data", "x", "-C", "2", "-A") as req:
                assert ended(req) == (b"yesyes", b"", 0)
            assert ended(rep) == (b'"x"\n"x"\n', b"", 0)
        finally:
            rep.kill()


def test_nanocat_repeats_a_survey_and_prints_every_response(here: str) -> None:
    with (
        Respondent(listen=here) as respondent,
        start("nanocat", "--surveyor", "--connect", here, "-Dx", "-i0.1", "-Q") as it,
    ):
        try:
            assert it.stdout is not None
            for number in range(3):
                respondent.recv(timeout=WAIT).reply(b"%d" % number)
            assert [it.stdout.readline() for _ in range(3)] == [b'"0"\n', b'"1"\n', b'"2"\n']
        finally:
            it.kill()


def test_nanocat_responds_to_surveys(here: str) -> None:
    with start("nanocat", "--respondent", "--bind", here, "-Dhere", "-A") as process:
        try:
            with Surveyor(dial=here) as surveyor:
                surveyor.wait_for_peers(1, WAIT)
                assert [each.body for each in surveyor.survey(b"who?", WAIT, early=True).replies] == [b"here"]
            assert process.stdout is not None
            assert process.stdout.readline() == b"who?\n"
        finally:
            process.kill()


def test_nanocat_accepts_two_addresses_where_the_original_crashes() -> None:
    done = nngkit("nanocat", "--pull", "-l1", "-l2", "--recv-timeout", "0.1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_received_messages_printed(here: str, number: int, code: int) -> None:
    with start("nanocat", "--pull", "--bind", here, "-Q") as process:
        try:
            with Push(dial=here) as push:
                push.wait_for_peers(1, WAIT)
                push.send(b"work")
                push.drain(WAIT)
                assert process.stdout is not None
                assert process.stdout.readline() == b'"work"\n'
                process.send_signal(number)
                assert ended(process) == (b"", b"", code)
        finally:
            process.kill()


@pytest.mark.slow
def test_a_signal_just_before_a_wait_ends_it(here: str) -> None:
    """A wait begins as the first message is printed: 9 of 100 once missed the signal, and kept waiting."""
    for number in range(40):
        there = f"{here}{number}"
        with start("nanocat", "--pull", "--bind", there, "-Q") as process, Push(dial=there) as push:
            try:
                push.wait_for_peers(1, WAIT)
                push.send(b"work")
                assert process.stdout is not None
                assert process.stdout.readline() == b'"work"\n'
                process.send_signal(signal.SIGTERM)
                assert ended(process) == (b"", b"", 143)
            finally:
                process.kill()


def test_a_closed_reader_ends_it_silently(here: str) -> None:
    with start("nanocat", "--rep", "--bind", here, "-Q", "-Dok") as process:
        try:
            assert process.stdout is not None
            process.stdout.close()
            with Req(dial=here, linger=0.0) as req:
                req.wait_for_peers(1, WAIT)
                with pytest.raises(TimedOut):
                    req.request(b"x", timeout=0.3)
            assert process.wait(WAIT) == 141
            assert process.stderr is not None
            assert process.stderr.read() == b""
        finally:
            process.kill()


def test_a_closed_standard_output_is_harmless(here: str) -> None:
    script = f"exec {shlex.join(command('nanocat', '--rep', '--bind', here, '-Q', '-Dok'))} >&-"
    with subprocess.Popen(["/bin/sh", "-c", script], cwd=ROOT, env=dict(os.environ), stderr=subprocess.PIPE) as process:
        try:
            with Req(dial=here) as req:
                assert req.request(b"x", timeout=WAIT) == b"ok"
        finally:
            process.kill()


def test_nanocat_requests_from_an_nngkit_rep(here: str) -> None:
    with Rep(listen=here) as rep, start("nanocat", "--req", "--connect", here, "-Dx", "--hex") as process:
        try:
            rep.recv(timeout=WAIT).reply(b"\x01")
            assert ended(process) == (b'"\\x01"\n', b"", 0)
        finally:
            process.kill()


@pytest.mark.slow
def test_a_listener_is_up_within_a_second_on_a_loaded_machine() -> None:
    """Twice as many busy processes as CPUs; the median of five starts.

    The second is one of a machine that does nothing else, so the busy processes are its clock: in a second each of them
    gets its share of the CPUs, or less on a busier machine, where the listener gets less too.
    """
    cpus = os.cpu_count() or 1
    second = cpus / (2 * cpus + 1)  # of CPU, for each of them and for the listener
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * cpus)]
    took = []
    seconds = []
    try:
        for _ in range(5):
            with tempfile.TemporaryDirectory(prefix="nngkit") as folder:
                begun, ran = time.monotonic(), _ran(load)
                process = subprocess.Popen(command("nngcat", "--pull0", "--listen", f"ipc://{folder}/a"), cwd=ROOT)
                try:
                    while not listens(f"{folder}/a"):
                        assert time.monotonic() - begun < WAIT
                        time.sleep(0.005)
                    took.append((_ran(load) - ran) / second)
                    seconds.append(time.monotonic() - begun)
                finally:
                    process.kill()
                    process.wait()
    finally:
        for each in load:
            each.kill()
            each.wait()
    print("listening after", [f"{one:.2f} ({two:.2f}) s" for one, two in zip(took, seconds, strict=True)])  # noqa: T201
    assert sorted(took)[2] < 1.0


def _ran(load: list[subprocess.Popen[bytes]]) -> float:
    """Return the average CPU seconds of the processes in ``load``."""
    return sum(int(Path(f"/proc/{each.pid}/schedstat").read_text().split()[0]) for each in load) / len(load) / 1e9
