"""A crashed worker of a parallel run: its last words are shown, and its other tests run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DIES = """
import os

def test_before(): pass

def test_dies():
    os.write(2, b"panic: out of luck\\n")
    os.abort()

def test_after(): pass
"""

BEHIND = """
def pytest_runtest_logreport(report):
    if hasattr(report, "node") and "test_before" in report.nodeid:
        sleep(0.5)

def pytest_report_from_serializable(data):
    if "test_dies" in data["nodeid"]:
        sleep(3)
"""

LATE = """
import os, time

time.sleep({"gw2": 3, "gw3": 6}.get(os.environ["PYTEST_XDIST_WORKER"], 0))
"""


@pytest.mark.slow  # three interpreters that load pytest's plugins
@pytest.mark.timeout(120)
@pytest.mark.parametrize("behind", [False, True])
def test_a_crash_is_one_failure_that_shows_what_was_written(tmp_path: Path, *, behind: bool) -> None:
    """With ``behind`` the threads that send and receive are so late that a dead worker is given more tests."""
    (tmp_path / "test_a.py").write_text(DIES)
    done = _run(tmp_path, "bcd", workers=1, conftest=BEHIND * behind)
    assert "1 failed, 8 passed" in done.stdout
    assert "crashed while running 'test_a.py::test_dies'" in done.stdout
    assert "gw0 crashed; it had written:\npanic: out of luck\n" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_workers_that_crash_together_are_replaced(tmp_path: Path) -> None:
    """Of the two that come for them, one is still starting when the other is given tests."""
    for share in "ab":
        (tmp_path / f"test_{share}.py").write_text(DIES)
    (tmp_path / "test_i.py").write_text(LATE)
    assert "2 failed, 16 passed" in _run(tmp_path, "cdefgh", workers=2).stdout


def _run(folder: Path, shares: str, workers: int, conftest: str = "") -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text() + conftest)
    for share in shares:
        (folder / f"test_{share}.py").write_text("def test_one(): pass\ndef test_two(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-p", "no:cacheprovider", str(folder)]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=100)
