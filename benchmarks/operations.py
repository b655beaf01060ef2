"""Everything as processes under load and churn: what an operator sees of it, and of a fault for each alert.

    python3 dev.py bench operations [--seconds S] [--fault TEXT ...] [--divide N] [--json]

Two discovery daemons, providers of six services, a cluster of three voters with workers and one with a single host, two
recorders, a server of consumers and a consumer, three devices, documents, the gateway, a load (`_operations_load`) and
Prometheus, which scrapes each /metrics and has the rules of deploy/prometheus. A provider or a worker is killed, or
ended by SIGTERM in turns, and started again every --churn seconds; each second a client comes, does one thing and goes.

For --seconds, two hours by default, each process's anonymous memory and descriptors are read every 10 s, more often in
a short run, and Prometheus is asked for its alerts. A floor is the least of a quarter of that time. ``grown_mib`` is
the last quarter's floor beyond the second quarter's, and may be 2 MiB or 5 % of it, whichever is more.
``more_descriptors`` is the same of descriptors, or that of the most in a quarter if it is less, as clients come and go;
it must be 0. Processes that are restarted on purpose have no row. No alert
may fire.

Then come the faults of `_operations_faults`, one for each alert, at processes of their own and all at once. Each is
mended as soon as its alert fires with the labels of what is broken, and the alert has to rest then. ``fires_s``: from
the fault to the alert; ``quiet_s``: from its mending until the alert rests. A process that falls silent may bring other
alerts, which `_operations_faults` names; any further one is counted. The shipped rules wait up to 20 minutes;
--divide N divides their durations, `for` and ranges, by N: such a run says nothing of these, but that the right alert
comes of the fault.

The exit code is 1 if anything grew, fired, ended or rested otherwise. Its folder is kept then.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from _fault_kinds import can_mount
from _operations_faults import Fault, Labels, faults
from _operations_fleet import Fleet

import _contenders
import _measuring as bench
from _contenders import RESULTS

HOURS: Final = 7200.0  # seconds
EVERY: Final = 10.0  # seconds between samples
SAMPLES: Final = 40  # at least: ten in a quarter
CHURNED: Final = ("shout-2", "worker-1", "shout-3")
READY: Final = 90.0  # seconds for all to start
SETTLED: Final = 30.0  # seconds of load before the first sample: caches and pools are filled
LONGEST: Final = (
    2400.0  # seconds for an alert to fire, or to rest, by the shipped rules: 10 minutes beyond a range of 10
)
OWN: Final = ("prometheus", *CHURNED)  # not judged: not ours, or restarted
MIB, PART = 2.0, 0.05
INSIDE: Final = "NNGKIT_OPERATIONS_INSIDE"  # set in the mount namespace


class Churn:
    """Restarts of processes in turn, every few seconds; SIGKILL and SIGTERM in turns."""

    def __init__(self, fleet: Fleet, names: tuple[str, ...], every: float) -> None:
        self._fleet, self._every = fleet, every
        self._turns = zip(
            itertools.cycle(names), itertools.cycle((signal.SIGKILL,) * len(names) + (signal.SIGTERM,) * len(names))
        )
        self._next = time.monotonic() + every

    def turn(self) -> None:
        """Restart the next one, if it is time."""
        if time.monotonic() < self._next:
            return
        name, number = next(self._turns)
        self._fleet[name].end(number)
        self._fleet[name].start()
        self._next = time.monotonic() + self._every


def compared(samples: list[tuple[float, int]]) -> dict[str, Any]:
    """Return the floors of the last quarter, and how much more they are than those of the second."""
    quarter = len(samples) // 4
    (memory, opened), (memory_after, opened_after) = (
        list(zip(*part, strict=True)) for part in (samples[quarter : 2 * quarter], samples[-quarter:])
    )
    return {
        "now_mib": min(memory_after),
        "grown_mib": min(memory_after) - min(memory),
        "descriptors": min(opened_after),
        "more_descriptors": min(min(opened_after) - min(opened), max(opened_after) - max(opened)),
    }


def quiet(fleet: Fleet, given: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Labels]]:
    """Sample for `--seconds`; return a row for each process, and the alerts that fired."""
    every = min(EVERY, given.seconds / SAMPLES)
    churn = Churn(fleet, CHURNED, given.churn)
    judged = [name for name, each in fleet.members.items() if each.process is not None and name not in OWN]
    taken: dict[str, list[tuple[float, int]]] = {name: [] for name in judged}
    fired: dict[str, Labels] = {}
    settled = time.monotonic() + min(SETTLED, given.seconds)
    end, at = settled + given.seconds, settled
    while time.monotonic() < end:
        churn.turn()
        if time.monotonic() >= at:
            at += every
            for name, samples in taken.items():
                if (used := fleet[name].usage()) is not None:
                    samples.append(used)
        for labels in fleet.firing() if time.monotonic() > settled else ():
            if json.dumps(labels) not in fired:
                sys.stderr.write(f"fires while all is well: {labels}\n")
            fired[json.dumps(labels)] = labels
        time.sleep(min(1.0, every))
    rows = []
    for name, samples in taken.items():
        if len(samples) < 4:
            continue
        rows.append({"way": name, **compared(samples)})
    (fleet.folder / "samples.json").write_text(json.dumps(taken))
    return rows, list(fired.values())


def suffer(fleet: Fleet, chosen: list[Fault], given: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Labels]]:
    """Begin all faults; mend each when its alert fires. Return a row for each, and the alerts that none explains."""
    churn = Churn(fleet, CHURNED[:2], given.churn)
    limit = 60.0 + LONGEST / given.divide
    begun: dict[str, float] = {}
    fired: dict[str, float] = {}
    mended: dict[str, float] = {}
    rested: dict[str, float] = {}
    others: dict[str, Labels] = {}
    for fault in chosen:
        begun[fault.name] = time.monotonic()
        fault.begin()
    since = time.monotonic()
    while len(rested) < len(chosen) and time.monotonic() < since + 2 * limit:
        churn.turn()
        firing = fleet.firing()
        now = time.monotonic()
        for fault in chosen:
            name = fault.name
            if name not in mended and (fault.fires(firing) or now > begun[name] + limit):
                if fault.fires(firing):
                    fired[name] = now - begun[name]
                    sys.stderr.write(f"{fault.alert['alertname']}: fires after {fired[name]:.0f} s\n")
                fault.mend()
                mended[name] = time.monotonic()
            elif name in mended and name not in rested and not fault.fires(firing):
                rested[name] = now - mended[name]
        for labels in firing:
            if not any(fault.explains(labels) for fault in chosen):
                if json.dumps(labels) not in others:
                    sys.stderr.write(f"fires besides: {labels}\n")
                others[json.dumps(labels)] = labels
        time.sleep(min(1.0, fleet.scrape))
    rows = []
    for fault in chosen:
        row: dict[str, Any] = {"way": f"{fault.alert['alertname']}: {fault.name}", "times": int(fault.name in fired)}
        row |= {
            key: found[fault.name] for key, found in (("fires_s", fired), ("quiet_s", rested)) if fault.name in found
        }
        rows.append(row)
    return rows, list(others.values())


def promise(what: str, count: int) -> dict[str, Any]:
    """Return a count that must be 0, as a promise."""
    return {
        "what": what,
        "ratio": count,
        "least": 0,
        "aim": 0,
        "spread": [count, count],
        "unit": "",
        "bound": "at most",
        "verdict": "MISSED" if count else "aim",
    }


def grew(row: dict[str, Any]) -> bool:
    """Return True if the memory of a process grew by more than it may."""
    return bool(row["grown_mib"] > max(MIB, PART * (row["now_mib"] - row["grown_mib"])))


def run(given: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Run all of it; keep the results of each part when it is done."""
    sitting = {"machine": _contenders.machine(), "load": os.getloadavg()[0], "rounds": 1, "seconds": given.seconds}
    groups: list[dict[str, Any]] = []

    def keep(name: str, rows: list[dict[str, Any]], promises: list[dict[str, Any]]) -> None:
        name += f", rules divided by {given.divide:g}" if given.divide != 1 else ""
        groups.append({"group": name, "rows": [{**row, "sitting": sitting} for row in rows], "promises": promises})
        bench.keep(RESULTS / "operations.json", groups[-1])
        if not given.json:
            bench.show(name, rows, promises)

    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(folder, divide=given.divide, rate=given.rate))
        fleet.ready(READY)
        before = fleet.done()  # the gateway and others began after the load
        rows, fired = quiet(fleet, given)
        done = {kind: count - before[kind] for kind, count in fleet.done().items()}
        ended = fleet.ended()
        for name, code in ended.items():
            sys.stderr.write(f"{name} has ended: exit code {code}\n")
        keep(
            "memory and descriptors under load and churn",
            rows,
            [
                promise("processes whose memory grew", sum(map(grew, rows))),
                promise("processes whose descriptors grew", sum(row["more_descriptors"] > 0 for row in rows)),
                promise("processes that ended by themselves", len(ended)),
                promise("alerts that fired", len(fired)),
            ],
        )
        kinds = [kind for kind in done if not kind.endswith(" failed")]
        loads = [{"way": kind, "times": done[kind], "failed": done[f"{kind} failed"]} for kind in kinds]
        keep("the load meanwhile", loads, [promise("failed", sum(row["failed"] for row in loads))])
        chosen = []
        for fault in faults(fleet, stack):
            if given.fault and not any(text in f"{fault.alert['alertname']} {fault.name}" for text in given.fault):
                continue
            if fault.cannot:
                sys.stderr.write(f"{fault.name}: left out, {fault.cannot}\n")
            else:
                chosen.append(fault)
        rows, others = suffer(fleet, chosen, given)
        keep(
            "a fault for each alert",
            rows,
            [
                promise("alerts that did not fire", sum("fires_s" not in row for row in rows)),
                promise("alerts that did not rest", sum("quiet_s" not in row for row in rows)),
                promise("alerts that no fault explains", len(others)),
            ],
        )
    return groups


def main() -> int:
    """Run the benchmark; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=HOURS, help="before the faults (default %(default)g)")
    parser.add_argument("--churn", type=float, default=5.0, help="seconds between restarts (default %(default)g)")
    parser.add_argument(
        "--rate", type=float, default=20.0, help="calls, messages, records a second (default %(default)g)"
    )
    parser.add_argument("--fault", action="append", metavar="TEXT", help="faults and alerts with TEXT in their name")
    parser.add_argument(
        "--divide", type=float, default=1.0, help="durations of the rules by this (default: as shipped)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the tables")
    given = parser.parse_args()
    if shutil.which("prometheus") is None:
        parser.error("needs Debian's prometheus")
    if can_mount() and INSIDE not in os.environ:  # what it mounts goes with it
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
    folder = Path(tempfile.mkdtemp(prefix="operations"))
    groups = run(given, folder)
    missed = any(one["verdict"] == "MISSED" for group in groups for one in group["promises"])
    if missed:
        sys.stderr.write(f"logs: {folder}\n")
    else:
        shutil.rmtree(folder)
    if given.json:
        sys.stdout.write(json.dumps({"groups": groups}) + "\n")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
