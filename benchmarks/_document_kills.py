"""`nngkit spark run documents` killed while it writes a generation of snapshots. See kills.py.

More edits of a hundred documents are recorded before each run. A run is killed with its Java and its workers, some time
after it has begun to write. After the last kill a run completes the snapshots, which must have each document once, with
all its edits.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _spark import Entry, journal
from _spark_documents import applied, differences, entries, newest

from _child import fail, report
from nngkit.journal import open_journal

sys.path.insert(0, str(Path(__file__).parent.parent))  # kills of a session are the tests'
from tests.spark.sessions import kill_session

ROOT = Path(__file__).parent.parent
DOCUMENTS = 100
UPDATES = 40  # of each document, over all runs
EACH = 100  # edits recorded before each run
TRIES = 2  # as many runs as kills, at most: one may end before its kill
LONGEST = 2.0  # seconds from the first file of a generation to the kill: about as long as it takes
WAIT = 120.0  # seconds of a run


def run_until_killed(data: Path, out: Path, seconds: float | None) -> bool:
    """Run the job; kill it so many seconds after its first file, unless None; return False if it had ended."""
    words = ["spark", "run", "documents", "--small", "--journal", str(data), "--output", str(out)]
    begun = time.time_ns()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NNGKIT_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "nngkit", *words],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE if seconds is None else subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        if seconds is None:
            _, said = process.communicate(timeout=WAIT)
            if process.returncode:
                fail(f"the job failed: {said.decode(errors='replace')[-2000:]}")
            return False
        end = time.monotonic() + WAIT
        while process.poll() is None and not _begun(out, begun):
            if time.monotonic() > end:
                fail(f"the job has written nothing after {WAIT:g} s")
            time.sleep(0.01)
        time.sleep(seconds)
        killed = process.poll() is None
    finally:
        kill_session(process.pid)
        code = process.wait(WAIT)
    if not killed and code:
        fail(f"the job failed by itself, with exit code {code}")
    return killed


def _begun(out: Path, since: int) -> bool:
    return any(os.stat(path).st_mtime_ns >= since for path in out.glob("snapshots/generation=*"))


def complete(out: Path) -> list[int]:
    """Return the generations that have ended, in order."""
    return sorted(int(path.parent.name.partition("=")[2]) for path in out.glob("progress/generation=*/*.json"))


def documents(task: dict[str, Any]) -> None:
    """Kill so many runs, complete the snapshots, and compare them with the edits applied in order."""
    folder = Path(tempfile.mkdtemp(prefix="kills"))
    data, out, chance = folder / "journal", folder / "out", random.Random(task["seed"])
    coming: Iterator[Entry] = entries(DOCUMENTS, UPDATES)
    kills = midway = records = 0
    for _ in range(TRIES * task["kills"]):
        if kills == task["kills"]:
            break
        records += journal(data, itertools.islice(coming, EACH))
        before = len(complete(out))
        if run_until_killed(data, out, chance.random() * LONGEST):
            kills, midway = kills + 1, midway + (len(complete(out)) == before)
    records += journal(data, itertools.islice(coming, EACH))
    run_until_killed(data, out, None)

    wrong = []
    made = complete(out)
    docs = applied(open_journal(data).read_batches(0, columns=["key", "value"]), {})
    doubled = 0
    try:
        found = newest(out, made)
    except AssertionError as error:
        sys.stderr.write(f"{error}\n")
        found, doubled = {}, 1
    wrong += differences(found, docs)
    lost = {key.decode() for key in docs} - found.keys()
    last = next((out / "progress" / f"generation={made[-1]}").glob("*.json")).read_text().splitlines()
    if {json.loads(line)["offset"] for line in last} != {records}:
        wrong.append(f"the snapshots are not those of {records} records: {last}")
    if wrong or lost or doubled:
        sys.stderr.write(f"wrong: {wrong[:5]}, lost: {sorted(lost)[:5]}; all is kept in {folder}\n")
    else:
        shutil.rmtree(folder)
    report(kills=kills, midway=midway, records=records, lost=len(lost), doubled=doubled, wrong=len(wrong))
