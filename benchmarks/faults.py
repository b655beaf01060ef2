"""Every room under every fault: is anything lost, doubled, or to be restarted by hand?

    python3 dev.py bench faults [--seeds N] [--only ROOM ...] [--fault FAULT ...] [--jobs N] [--short] [--json]

Rooms: discovery, calls, numbered fan-out, consumers, outbox, mesh, documents, cluster, journal. Faults: SIGKILL, 30 s
of SIGSTOP, ENOSPC, EIO, the clock a day ahead or back, out of descriptors, a memory limit; see `_fault_kinds`. A cell
is one room's processes on one host, numbered messages, 20 a second and more, and one fault at one of the processes, at
a random moment. Once the fault is over, messages must go all ways again within 30 s. A process that has ended is
started again half a second later, as by a supervisor. Then senders end, what was acknowledged has 30 s to arrive, and
all notes of senders and receivers are compared, documents and journals with what is on disk.

``records``: acknowledged, or, without acknowledgements, delivered or reported. ``lost``: acknowledged and not there;
idempotent calls and lookups that failed; messages of which no gap was reported. ``doubled``: against the room's
promise; ``repeated``: within it. ``wrong``: see `_fault_audit`. ``ended``: processes that ended by themselves.
``by_hand``: a room that did not work again, a deaf listener, or a process that ended although its page does not say so.
Lost, doubled, wrong and by_hand must be 0; the exit code is 1 otherwise, and folders of these cells are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from _fault_kinds import can_mount, missing
from _fault_table import FAULTS, ROOMS, Room, reason

import _contenders
import _measuring as bench
from _contenders import HERE, RESULTS

LONGEST: Final = 400.0  # seconds of a cell
ZERO: Final = ("lost", "doubled", "wrong", "by_hand")
SUMMED: Final = ("records", "repeated", "ended", *ZERO)

Figures = dict[str, float]


def measured(room: str, fault: str, seed: int) -> Figures | None:
    """Return the figures of a cell; None, and a line on stderr, if its processes did not work before the fault."""
    words = [sys.executable, str(HERE / "_child.py"), "_fault_cells:run"]
    task = json.dumps({"room": room, "fault": fault, "seed": seed})
    if can_mount():
        words = ["unshare", "--mount", *words]  # of its own: what it mounts goes with it
    done = subprocess.run([*words, task], check=False, stdout=subprocess.PIPE, text=True, timeout=LONGEST)
    told = json.loads(done.stdout) if done.returncode == 0 else {"failed": f"exit code {done.returncode}"}
    if failed := told.get("failed"):
        sys.stderr.write(f"{room}, {fault}, seed {seed}: not measured, {failed}\n")
        return None
    return {key: told[key] for key in (*SUMMED, "back_s")}


def diagonal() -> list[tuple[Room, str]]:
    """Return each room with another fault, none of which takes half a minute: the short form, for CI."""
    found = []
    for number, room in enumerate(ROOMS):
        able = [fault for fault in FAULTS if reason(room, fault) is None and not fault.startswith("SIGSTOP")]
        found.append((room, able[number % len(able)]))
    return found


def promises(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the sums that must be 0, as promises."""
    made = []
    for figure in ZERO:
        each = [row[figure] for row in rows]
        made.append(
            {
                "what": bench.HEADS[figure],
                "ratio": sum(each),
                "least": 0,
                "aim": 0,
                "spread": [min(each), max(each)],
                "unit": "",
                "bound": "at most",
                "verdict": "MISSED" if sum(each) else "aim",
            }
        )
    return made


def run(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure all cells, and keep the results of each fault."""
    rooms = [room for room in ROOMS if not given.only or any(text in room.name for text in given.only)]
    faults = [fault for fault in FAULTS if not given.fault or any(text in fault for text in given.fault)]
    for fault in faults:
        if why := missing(fault):
            sys.stderr.write(f"{fault}: left out, {why}\n")
    faults = [fault for fault in faults if not missing(fault)]
    able = [(room, fault) for fault in faults for room in rooms if reason(room, fault) is None]
    if given.short:
        able = [each for each in able if each in diagonal()]
    load = os.getloadavg()[0]
    sitting = {"machine": _contenders.machine(), "load": load, "rounds": 1, "seconds": 0.0}
    seeds = range(1, given.seeds + 1)
    groups = []
    with ThreadPoolExecutor(given.jobs) as pool:
        coming = {
            (room.name, fault): [pool.submit(measured, room.name, fault, seed) for seed in seeds]
            for room, fault in able
        }
        for fault in faults:
            rows = []
            for (name, under), cells in coming.items():
                each = [found for cell in cells if under == fault and (found := cell.result()) is not None]
                if each:
                    sums = {key: sum(one[key] for one in each) for key in SUMMED}
                    back = max(one["back_s"] for one in each)
                    rows.append({"way": name, "sitting": sitting, "times": len(each), **sums, "back_s": back})
            if rows:
                groups.append({"group": fault, "rows": rows, "promises": promises(rows)})
                kept = bench.keep(RESULTS / "faults.json", groups[-1])
                bench.keep(RESULTS / "faults.json", kept | {"promises": promises(kept["rows"])})  # of all rooms there
                if not given.json:
                    bench.show(fault, rows, groups[-1]["promises"])
    return groups


def main() -> int:
    """Run the benchmark; return its exit code: 1 if anything is lost, doubled, wrong, or to be restarted by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="of each cell (default %(default)s)")
    parser.add_argument("--only", action="append", metavar="ROOM", help="rooms with ROOM in their name")
    parser.add_argument("--fault", action="append", metavar="FAULT", help="faults with FAULT in their name")
    parser.add_argument("--jobs", type=int, default=3, help="cells at a time (default %(default)s)")
    parser.add_argument("--short", action="store_true", help="each room with one fault only")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the tables")
    given = parser.parse_args()
    groups = run(given)
    if not groups:
        parser.error("no cells of these names can be measured here")
    if given.json:
        sys.stdout.write(json.dumps({"groups": groups}) + "\n")
    return int(any(one["verdict"] == "MISSED" for group in groups for one in group["promises"]))


if __name__ == "__main__":
    sys.exit(main())
