"""The rules of conftest.py: each is broken on purpose, in a pytest run of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HEADER = "import sys, threading, time, pytest\nfrom subprocess import Popen\n"


@pytest.fixture
def house(tmp_path: Path) -> Path:
    shutil.copy(HERE.parent / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    shutil.copy(HERE / "conftest.py", tmp_path / "tests")
    return tmp_path


def pytest_output(house: Path, test: str, *arguments: str, ci: bool = False) -> str:
    (house / "tests" / "test_it.py").write_text(HEADER + test)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COVERAGE", "PYTEST"))}
    environment["NNGKIT_CI"] = "1" if ci else "0"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=house, env=environment, capture_output=True, text=True, timeout=50)
    return done.stdout


SKIPPED = {
    "skip": "def test_it(): pytest.skip('no reason')",
    "skip of a module": "pytest.skip('no reason', allow_module_level=True)",
    "skipif": "@pytest.mark.skipif(True, reason='no reason')\ndef test_it(): pass",
    "xfail": "@pytest.mark.xfail(reason='no reason')\ndef test_it(): assert False",
    "missing program": "@pytest.mark.needs_program('no reason')\ndef test_it(): pass",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", SKIPPED)
def test_in_ci_a_skipped_test_fails_with_its_reason(house: Path, how: str) -> None:
    assert " failed" not in (elsewhere := pytest_output(house, SKIPPED[how]))
    assert "no reason" in elsewhere
    in_ci = pytest_output(house, SKIPPED[how], ci=True)
    assert "NNGKIT_CI=1 allows no skips" in in_ci
    assert "no reason" in in_ci
    assert "1 failed" in in_ci or "1 error" in in_ci
    assert "skipped" not in in_ci.splitlines()[-1]


@pytest.mark.slow
def test_slow_tests_run_on_request(house: Path) -> None:
    test = "@pytest.mark.slow\ndef test_it(): pass"
    assert "1 deselected" in pytest_output(house, test)
    for arguments in (["--slow"], ["-m", "slow"], ["tests/test_it.py::test_it"]):
        assert "1 passed" in pytest_output(house, test, *arguments)


@pytest.mark.slow
def test_times_and_busy_repeat_tests_beside_busy_processes(house: Path) -> None:
    test = (
        "import os, pathlib\n"
        "@pytest.mark.parametrize('letter', 'ab')\n"
        "def test_it(letter):\n"
        "    children = pathlib.Path(f'/proc/self/task/{os.getpid()}/children').read_text()\n"
        "    assert len(children.split()) == 2\n"
    )
    said = pytest_output(house, test, "--times", "3", "--busy", "2", "-v")
    assert "6 passed" in said
    names = [line.partition("::")[2].partition(" PASSED")[0] for line in said.splitlines() if " PASSED" in line]
    assert names == [f"test_it[{each}-run {number} of 3]" for number in (1, 2, 3) for each in "ab"]


LEFT_RUNNING = {
    "thread": "def test_it(): threading.Thread(target=time.sleep, args=(5,), name='lost', daemon=True).start()",
    # Reading waits until it runs: just after the exec it has no command line yet.
    "process": (
        "KEPT = []\n"
        "def test_it():\n"
        "    KEPT.append(Popen([sys.executable, '-c', 'print(flush=True); lost=input()'], stdin=-1, stdout=-1))\n"
        "    KEPT[0].stdout.readline()\n"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", LEFT_RUNNING)
def test_a_thread_or_process_left_running_is_an_error(house: Path, what: str) -> None:
    said = pytest_output(house, LEFT_RUNNING[what])
    assert f"left running: {what}" in said
    assert "lost" in said
    assert "1 error" in said


@pytest.mark.slow
def test_a_test_beyond_its_time_ends_the_run_and_shows_where_it_was(house: Path) -> None:
    said = pytest_output(house, "@pytest.mark.timeout(1)\ndef test_it(): time.sleep(30)")
    assert "Timeout" in said
    assert "time.sleep(30)" in said
