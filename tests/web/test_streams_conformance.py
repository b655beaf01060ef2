"""The conformance suite of the Durable Streams Protocol passes against `nngkit gateway --streams`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.processes import Running

SUITE = Path(__file__).parent / "durable_streams"
LONG_POLL = 1  # seconds; the suite waits for the end of some long polls


def installed() -> Path:
    """Return the program that runs the suite, after installing what package-lock.json pins if that has changed."""
    lock, stamp = SUITE / "package-lock.json", SUITE / "node_modules" / "installed-lock.json"
    if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
        argv = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(argv, cwd=SUITE, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        stamp.write_bytes(lock.read_bytes())
    return SUITE / "node_modules" / ".bin" / "vitest"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.needs_program("node", package="nodejs")
@pytest.mark.needs_program("npm", package="npm")
def test_the_conformance_suite_passes(tmp_path: Path) -> None:
    vitest, report = installed(), tmp_path / "report.json"
    # it appends 10 MB in one request, and pages of any site ask
    options = ("--max-body", str(16 << 20), "--allow-origin", "*", "--long-poll", str(LONG_POLL))
    argv = ("gateway", "--http", "127.0.0.1:0", "--daemon", "tcp://127.0.0.1:1", "--streams", str(tmp_path / "journal"))
    with Running(*argv, *options) as gateway:
        url = gateway.line().rstrip("/")
        environment = os.environ | {"STREAMS_URL": f"{url}/streams", "STREAMS_LONG_POLL_MS": str(1000 * LONG_POLL)}
        run = [str(vitest), "run", "--reporter=json", f"--outputFile={report}"]
        done = subprocess.run(run, cwd=SUITE, env=environment, capture_output=True, text=True, timeout=170)
    said = json.loads(report.read_text())
    tests = [test for file in said["testResults"] for test in file["assertionResults"]]
    assert [test["fullName"] for test in tests if test["status"] == "failed"] == [], done.stdout + done.stderr
    left_out = [test["ancestorTitles"] for test in tests if test["status"] not in ("passed", "failed")]
    assert all(titles[-1] == "Reserved subscription APIs" for titles in left_out)  # the suite leaves these out itself
    assert said["numPassedTests"] >= 332
    assert done.returncode == 0
