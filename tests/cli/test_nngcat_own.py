"""The requirements of nngcat's ten test scripts (nng/src/tools/nngcat/*_test.sh), for the stand-in at both ends.

Each test is named after its script. They are to hold however busy the machine is::

    python3 dev.py test tests/cli/test_nngcat_own.py --times 20 --busy 4
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nngkit.testing import eventually
from tests.cli.commands import ROOT, command, environment, nngkit
from tests.cli.processes import listens

pytestmark = pytest.mark.slow  # programs of seconds; CI runs them

WAIT = 30


@pytest.fixture
def path() -> Iterator[str]:
    """Return a folder for sockets."""
    with tempfile.TemporaryDirectory(prefix="nngkit") as folder:
        yield f"{folder}/a"


def nngcat(*arguments: str) -> subprocess.CompletedProcess[str]:
    return nngkit("nngcat", *arguments)


@contextmanager
def listening(path: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run nngcat with a listener, which is up when the block begins."""
    with subprocess.Popen(
        [*command("nngcat", "--listen", f"ipc://{path}"), *arguments],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            eventually(lambda: listens(path), WAIT)
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes, int]:
    out, err = process.communicate(timeout=WAIT)
    return out, err, process.returncode


def test_ambiguous() -> None:
    done = nngcat("--re", "--dial=tcp://127.0.0.1:27272")
    assert (done.returncode, done.stderr) == (1, "Option --re is ambiguous (specify in full).\n")


def test_async(path: str) -> None:
    # the dialer starts first, and sends once there is a listener
    dials = command("nngcat", "--async", "--connect", f"ipc://{path}", "--pub0", "--data", "abc", "--interval", "1")
    with subprocess.Popen(dials, cwd=ROOT, env=environment(), stderr=subprocess.PIPE) as dialer:
        try:
            with listening(path, "--sub0", "--quoted", "--count", "2", "--recv-timeout", "30") as listener:
                assert ended(listener) == (b'"abc"\n"abc"\n', b"", 0)
            assert dialer.poll() is None
        finally:
            dialer.kill()


def test_dup_proto() -> None:
    done = nngcat("--pub0", "--sub0", "--dial=tcp://127.0.0.1:8989")
    assert (done.returncode, done.stderr) == (1, "Only one protocol may be specified.\n")


def test_help() -> None:
    done = nngcat("--help")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("Usage: nngcat")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--req0", "--subscribe=oops"], "Protocol does not support --subscribe."),
        (["--interval", "1", "--pull"], "Protocol does not support --interval."),
        (["--compat", "--pair1"], "Protocol does not support --compat."),
        (["--compat", "--count=1", "--pair0"], "Options --count and --compat are incompatible."),
        (["--count=xyz", "--pair0"], "Integer argument expected."),
        (
            ["--async", "--file=/nosuchfilehere", "--push0"],
            "Cannot open file /nosuchfilehere: No such file or directory",
        ),
    ],
    ids=" ".join,
)
def test_incompat(path: str, arguments: list[str], says: str) -> None:
    with listening(path, "--pull0", "--ascii") as there:
        done = nngcat(*arguments, "--connect", f"ipc://{path}")
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{says}\n")
        there.terminate()
        assert ended(there) == (b"", b"", 143)  # nothing was sent


def test_need_proto() -> None:
    done = nngcat("--dial=tcp://127.0.0.1:27272")
    assert (done.returncode, done.stderr) == (1, "No protocol specified.\n")


def test_pubsub(path: str) -> None:
    topics = ("--subscribe=one", "--subscribe=two")
    with listening(path, "--sub0", *topics, "--count=3", "--recv-timeout=20", "--quoted") as sub:
        for body in ("xyz", "none swam", "one flew", "twofer test", "one more"):
            done = nngcat("-d", "1", "--connect", f"ipc://{path}", "--pub0", "--data", body)
            assert (done.returncode, done.stderr) == (0, "")
        assert ended(sub) == (b'"one flew"\n"twofer test"\n"one more"\n', b"", 0)


def test_recvmaxsz(path: str) -> None:
    with listening(path, "--pull0", "--count=3", "--recv-maxsz=5", "--quoted") as pull:
        for body in ("one", "55555", "666666", "7777777", "88888"):
            assert nngcat("--connect", f"ipc://{path}", "--push0", "--data", body).returncode == 0
        assert ended(pull) == (b'"one"\n"55555"\n"88888"\n', b"", 0)


def test_stdin_pipe(path: str) -> None:
    with listening(path, "--pull0", "--count=1", "--quoted") as pull:
        pushes = command("nngcat", "--push0", "--connect", f"ipc://{path}", "--file", "-")
        done = subprocess.run(pushes, cwd=ROOT, env=environment(), input=b"hello world", timeout=WAIT)
        assert done.returncode == 0
        assert ended(pull) == (b'"hello world"\n', b"", 0)


def test_unlimited(path: str, tmp_path: Path) -> None:
    body = bytes(range(256)) * 8192  # 2 MiB
    (tmp_path / "body").write_bytes(body)
    with listening(path, "--pull0", "--count=1", "--recv-maxsz=0", "--raw") as pull:
        assert nngcat("--connect", f"ipc://{path}", "--push0", "--file", str(tmp_path / "body")).returncode == 0
        assert ended(pull) == (body, b"", 0)
