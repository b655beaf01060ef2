"""Networks that go away: the seconds from the network's return until each pair of peers reads again, and what was lost.

    python3 dev.py bench outages [--seconds S ...] [--only TEXT ...] [--faults TEXT ...] [--json]

Two hosts, which are network namespaces (root; ip and iptables), are joined by one link, and all pairs of all rooms run
across it at once: one process on each host, and the same again as on a kernel without TCP_RTO_MAX_MS (before Linux
6.15). Each sends 20 numbered messages a second (a document 5). Then the link is cut for --seconds:

both ways     packets are dropped in both directions        link down      both interfaces lose their carrier
to the far    only those to the host "far" are dropped      address gone   "near" loses its address, and has it again
to the near   only those to the host "near"
near's power  packets are dropped, all processes of "near" get SIGKILL; they are started again when the network returns
far's power   the same at "far"

A figure is the time from the network's return, for power from the time at which both ends are up again, until a message
is read that was sent after it. It must be under 5 s. ``lost`` are messages that were not read, between the first and
the last that a reader has read from a sender; ``unreported``, which must be 0, those that the reader was not told of,
where the pattern promises that: gaps of Pub (sequence=True), Publisher and Mesh, failed calls and jobs; nothing may be
lost at all with Rep, ConsumerServer, Outbox and DocumentPeer. The first named of a pair is at "near".
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from _outage_pairs import PAIRS
from _outage_records import Files, Ledger

import _contenders
import _measuring as bench
from _contenders import HERE, RESULTS

SECONDS: Final = (3, 12, 18, 25, 60)
MOST: Final = 5.0  # seconds until a pair reads again
GIVEN_UP: Final = 30.0
STEADY: Final = 30.0  # seconds for all pairs to read before a cut
SETTLED: Final = 2.0  # seconds for what is still on its way
KINDS: Final = {"": False, bench.OLDER: True}
MEMORY: Final = "/dev/shm" if os.path.isdir("/dev/shm") else None  # for journals: a slow disk is not measured here
FAULTS: Final = ("both ways", "to the far", "to the near", "link down", "address gone", "near's power", "far's power")


@dataclass
class Side:
    """The process of one host and kind."""

    host: Any
    task: dict[str, Any]
    process: subprocess.Popen[str] = field(init=False)

    def start(self) -> None:
        words = [sys.executable, str(HERE / "_child.py"), "_outage_pairs:run", json.dumps(self.task)]
        self.process = self.host.popen(words, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


@dataclass
class Network:
    """The two hosts, their processes and what these note."""

    hosts: Any
    sides: list[Side]
    files: Files
    chosen: list[int]  # of PAIRS

    @property
    def pairs(self) -> list[int]:
        return list(self.files.pairs)

    def cut(self, fault: str) -> None:
        match fault:
            case "link down":
                self.hosts.cut("near", "far", how="unplugged")
            case "address gone":
                self.hosts.cut("near", "far", how="address gone")
            case "to the far":
                self.hosts.cut("near", "far", how="dropped one way")
            case "to the near":
                self.hosts.cut("far", "near", how="dropped one way")
            case _:
                self.hosts.cut("near", "far")
        for side in self._powerless(fault):
            side.kill()

    def heal(self, fault: str) -> float:
        self.hosts.heal("near", "far")
        healed = time.monotonic()
        for side in self._powerless(fault):
            side.start()
        return healed

    def _powerless(self, fault: str) -> list[Side]:
        return [side for side in self.sides if fault == f"{side.host.name}'s power"]

    def wait_until_back(self, since: float, limit: float) -> dict[int, float | None]:
        """Return the seconds of each pair, None for one that does not read within `limit` seconds."""
        while True:
            self.files.read_on()
            found = {pair: self.files.pairs[pair].back(since) for pair in self.pairs}
            if None not in found.values() or time.monotonic() > since + limit:
                return found
            time.sleep(0.1)


def name_of(pair: int) -> str:
    return PAIRS[pair % len(PAIRS)].name


def outage(network: Network, fault: str, seconds: float) -> dict[int, dict[str, float]]:
    """Cut the link for `seconds`; return the figures of each pair."""
    network.files.mark()
    before = network.wait_until_back(time.monotonic(), STEADY)
    if slow := [name_of(pair) for pair, found in before.items() if found is None]:
        sys.stderr.write(f"not reading before the cut: {', '.join(slow)}\n")
    lost = {pair: network.files.pairs[pair].losses() for pair in network.pairs}
    network.cut(fault)
    time.sleep(seconds)
    network.files.mark()
    healed = network.heal(fault)
    again = network.wait_until_back(healed, GIVEN_UP)
    time.sleep(SETTLED)
    network.files.read_on()
    figures = {}
    for pair, found in again.items():
        now, was = network.files.pairs[pair].losses(), lost[pair]
        told = PAIRS[pair % len(PAIRS)].tells
        missing = now.lost - was.lost
        figures[pair] = {
            f"after_{seconds:g}": GIVEN_UP if found is None else found,
            "lost": missing,
            **({"unreported": max(0, missing - (now.reported - was.reported))} if told else {}),
        }
    return figures


def measure(network: Network, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all faults and durations; write each fault's results when it is done."""
    load, groups = os.getloadavg()[0], []
    for fault in given.faults:
        rows: dict[int, dict[str, Any]] = {pair: {} for pair in network.pairs}
        for seconds in given.seconds:
            for pair, figures in outage(network, fault, seconds).items():
                row = rows[pair]
                for key, value in figures.items():
                    row[key] = value if key.startswith("after_") else row.get(key, 0) + value
        for old, kind in enumerate(KINDS):
            mine = [rows[number + len(PAIRS) * old] for number in network.chosen]
            sitting = {"machine": _contenders.machine(), "load": load, "rounds": 1, "seconds": max(given.seconds)}
            named = [
                {"way": PAIRS[number].name, "sitting": sitting, **row}
                for number, row in zip(network.chosen, mine, strict=True)
            ]
            group = {"group": f"{fault}{kind}", "rows": named, "promises": promises(named)}
            bench.keep(RESULTS / "outages.json", group)
            groups.append(group)
            if not given.json:
                bench.show(group["group"], named, group["promises"])
    return groups


def promises(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the slowest pair's time and the unreported losses beside what is promised."""
    times = [value for row in rows for key, value in row.items() if key.startswith("after_")]
    silent = [row["unreported"] for row in rows if "unreported" in row]
    return [
        _promise("reads again, the slowest", max(times), [min(times), max(times)], MOST, "s"),
        *([_promise("unreported", sum(silent), [min(silent), max(silent)], 0, "unreported")] if silent else []),
    ]


def _promise(what: str, value: float, spread: list[float], most: float, unit: str) -> dict[str, Any]:
    verdict = "aim" if value <= most else "MISSED"
    return {
        "what": what,
        "ratio": value,
        "least": most,
        "aim": most,
        "spread": spread,
        "unit": f" {unit}",
        "bound": "at most",
        "verdict": verdict,
    }


def run(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Make the hosts and start all ends, measure, and end them."""
    sys.path.append(str(HERE.parent))
    from tests.hosts import Hosts, unavailable

    if (why := unavailable()) is not None:
        raise SystemExit(f"no hosts: {why}")
    wanted = given.only or [""]
    chosen = [number for number, pair in enumerate(PAIRS) if any(text in pair.name for text in wanted)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outages", dir=MEMORY)))
        hosts = Hosts()
        stack.callback(hosts.close)
        near, far = hosts.add("near"), hosts.add("far")
        hosts.link("near", "far")
        certificates = _contenders.certificates(str(folder))
        sides = []
        for old in range(len(KINDS)):
            for mine, other in ((near, far), (far, near)):
                task = {
                    "near": mine is near,
                    "here": mine.address,
                    "there": other.address,
                    "pairs": chosen,
                    "old": bool(old),
                    "port": 20_000 + 1_000 * old,
                    "offset": len(PAIRS) * old,
                    "name": f"{mine.name}-{old}",
                    "folder": str(folder),
                    "certificates": certificates,
                }
                sides.append(Side(mine, task))
        for side in sides:
            side.start()
        try:
            numbers = [number + len(PAIRS) * old for old in range(len(KINDS)) for number in chosen]
            ledgers = {number: Ledger(resumes=PAIRS[number % len(PAIRS)].resumes) for number in numbers}
            return measure(Network(hosts, sides, Files(folder, ledgers), chosen), given)
        finally:
            if given.logs:
                for path in sorted(folder.glob("*.log")):
                    sys.stderr.write(f"---- {path.name}\n{path.read_text()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", action="append", type=float, help="of a cut; default: 3, 12, 18, 25 and 60")
    parser.add_argument("--only", action="append", metavar="TEXT", help="pairs with TEXT in their name")
    parser.add_argument("--faults", action="append", metavar="FAULT", choices=FAULTS, help=f"of: {', '.join(FAULTS)}")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the tables")
    parser.add_argument("--logs", action="store_true", help="print the logs of all ends at the end")
    given = parser.parse_args()
    given.seconds = given.seconds or list(SECONDS)
    given.faults = given.faults or list(FAULTS)
    groups = run(given)
    if given.json:
        sys.stdout.write(json.dumps({"groups": groups}) + "\n")


if __name__ == "__main__":
    main()
