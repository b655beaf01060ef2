"""Rooms under faults: the short form of `python3 dev.py bench faults`, and that its audits find what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_room_keeps_its_promise_in_a_fault(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "faults.py"), "--short", "--seeds", "1", "--jobs", "4", "--json"],
        capture_output=True,
        text=True,
        timeout=170,
        env=os.environ | {"NNGKIT_BENCH_RESULTS": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [row for group in json.loads(done.stdout)["groups"] for row in group["rows"]]
    assert len(rows) == 9, done.stderr
    assert all(row["records"] > 10 for row in rows)


AUDITED = """
import sys
from pathlib import Path
from _fault_audit import AUDITS, Audit
from _outage_records import Record

def audit(room, *notes):
    records = [Record(kind.encode(), channel, 1, number, float(at), "reader")
               for at, (kind, number, *rest) in enumerate(notes) for channel in rest or [0]]
    found = AUDITS[room](records, Path())
    return found.acknowledged, found.lost, found.doubled, found.repeated, len(found.wrong)

sent, kept, read, settled, ran, failed, told = "SKRANFL"
assert audit("outbox", (kept, 1), (read, 1)) == (1, 0, 0, 0, 0)
assert audit("outbox", (kept, 1), (kept, 2), (read, 2), (read, 2)) == (2, 1, 1, 0, 0)
assert audit("consumers", (kept, 1), (read, 1), (read, 1), (settled, 1)) == (1, 0, 0, 1, 0)
assert audit("consumers", (kept, 1), (read, 1), (settled, 1), (read, 1)) == (1, 0, 1, 0, 0)
assert audit("calls", (sent, 1, 1), (ran, 1, 2), (ran, 1, 3), (failed, 2, 0)) == (0, 1, 1, 0, 0)
assert audit("mesh", (read, 1), (read, 4), (told, 1)) == (3, 1, 0, 0, 0)
assert audit("numbered fan-out", (read, 1), (failed, 2), (read, 3), (read, 3)) == (3, 0, 1, 0, 0)
assert audit("discovery", (sent, 7, 0), (read, 7, 0), (read, 6, 1)) == (0, 0, 0, 0, 1)
assert audit("documents", (kept, 1, 2), (read, 1, 4)) == (1, 1, 0, 0, 1)
assert audit("cluster", (kept, 1), (ran, 1, 2), (ran, 1, 2), (read, 1)) == (1, 0, 0, 1, 0)
"""


def test_an_audit_finds_what_is_lost_doubled_and_wrong() -> None:
    words = [sys.executable, "-c", AUDITED]
    done = subprocess.run(words, cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stderr


FAILING = """
import os, sys
from _fault_syscalls import fail_writes
folder, trigger = sys.argv[1:]
fail_writes(folder, trigger)
inside, outside = (os.open(path, os.O_RDWR | os.O_CREAT) for path in (folder + "/file", trigger + ".other"))
os.write(inside, b"whole")
os.write(outside, b"EIO")
os.rename(trigger + ".other", trigger)
for call in (lambda: os.write(inside, b"x"), lambda: os.pwrite(inside, b"x", 0), lambda: os.fsync(inside)):
    try:
        call()
    except OSError as error:
        assert error.errno == 5
    else:
        raise AssertionError("written")
os.write(outside, b" ")
os.unlink(trigger)
os.fsync(inside)
assert os.pread(inside, 9, 0) == b"whole"
"""


@pytest.mark.skipif(sys.platform != "linux", reason="seccomp is Linux's")
def test_a_failing_disk_fails_the_writes_of_one_folder_while_its_trigger_is_there(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    words = [sys.executable, "-c", FAILING, str(tmp_path / "data"), str(tmp_path / "trigger")]
    done = subprocess.run(words, cwd=ROOT / "benchmarks", capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stderr
