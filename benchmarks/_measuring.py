"""Side-by-side measurements: ways to do the same work, each in processes of its own, in turn, compared by round.

A ``Way`` names a function of a contender (``_nngkit:receive_many``, ``_pynng:...``, ``_zmq:...``) or a mode of the C
program (``_floor``) that is measured, and the one at the other end. Each runs in a process started for one measurement
(``_child.py``). The ways of a group take turns, round after round, so that changes of the machine's speed affect all
alike; a ratio is the median of the rounds' ratios, not the ratio of medians. ``_contenders.py`` provides what
contenders need; a way whose contender is missing is left out, and stderr says why.

A measured process prints a line of JSON with some of the figures in `HEADS`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import _contenders
from _contenders import BOUND, HERE, RESULTS

HEADS = {  # figures of a measured process, as the columns of tables
    "per_second": "per second",
    "still_per_second": "before it, per second",
    "joins": "joins a second",
    "cpu_us": "CPU, us",  # of the measured process, all its threads, for each unit
    "other_us": "CPU of the other end, us",
    "all_us": "CPU of both, us",
    "device_us": "CPU of the device, us",  # of the device between them, a unit
    "idle_us": "CPU a second, us",  # of all processes
    "p50_us": "p50, us",
    "p99_us": "p99, us",
    "more_us": "more at p50, us",  # beyond that of another way that the same processes do in turns
    "rss_mib": "memory, MiB",  # peak of the measured process
    "now_mib": "resident, MiB",
    "idle_kib": "an idle connection, KiB",
    "part": "part",  # of the messages received
    "p50_ms": "p50, ms",
    "p95_ms": "p95, ms",
    "p99_ms": "p99, ms",
    "batch_ms": "a batch, ms",
    "seconds": "all of it, s",
    "with_start": "with Spark's start, s",
    "cold_seconds": "cold, s",
    "base_seconds": "Parquet's reader, s",
    "base_part": "of its rate, x",  # times its rate
    "whole_seconds": "all rows, s",
    "of_whole": "part of it",
    "shuffle_mib": "shuffled, MiB",
    "again_seconds": "again, s",
    "again_cold": "again, cold, s",
    "again_part": "again, x",
    "again_times": "again, documents",
    "times": "times",
    "passes": "passes",
    "wire_kib": "wire, KiB",  # of messages, to all connections
    "bytes": "bytes",  # of one reply
    "beyond_mib": "beyond it, MiB",  # read beside the requested data
    "grown_mib": "grown by, MiB",
    "calls": "calls",
    "failed": "failed",
    "over_1_s": "over 1 s",  # calls
    "across": "across",
    "max_ms": "longest, ms",
    "late_back_ms": "back late by, ms",
    "balanced_ms": "balanced, ms",  # these to `unequal`: a cluster's, after kills and cuts
    "healed_ms": "one again, ms",
    "jobs": "jobs",
    "over": "x ideal",
    "off": "off",
    "spread": "apart",
    "hosts": "hosts",
    "minority": "minority",
    "unsent": "unsent",
    "unbalanced": "unbalanced",
    "unequal": "unequal",
    "found_ms": "found after, ms",
    "cut_ms": "cut after, ms",
    "drawn_ms": "drawing, p95, ms",
    "typed_ms": "a key in the filter, p95, ms",
    "scrolled_ms": "a frame of scrolling, p95, ms",
    "long_ms": "longest task, ms",
    "open_ms": "opening, ms",
    "false_downs": "false downs",
    "suspects": "suspects",
    "late": "late",
    "rounds": "rounds",
    "copies": "copies",
    "inputs": "inputs",  # read by fuzzing, refused by an error of nngkit, by any other
    "refused": "refused",
    "escaped": "escaped",
    "cpu_s": "CPU of the daemon, s",
    "kills": "kills",
    "midway": "midway",  # kills with work unfinished
    "records": "records",  # these and the next: counts of an audit after kills or faults
    "repeated": "repeated",
    "lost": "lost",
    "cut": "cut off",  # clients that never read
    **{f"after_{seconds}": f"after {seconds} s, s" for seconds in (3, 12, 18, 25, 60)},
    "unreported": "unreported",
    "doubled": "doubled",
    "wrong": "wrong",
    "ended": "ended",  # processes that ended by themselves
    "by_hand": "by hand",  # faults after which one has to be restarted
    "back_s": "back after, s",  # from a fault's end until messages go all ways
    "descriptors": "descriptors",  # open at the end
    "more_descriptors": "more of them",
    "fires_s": "alert fires after, s",
    "quiet_s": "rests after, s",
}
BUSY = ", beside a busy process"  # ends the name of a busy group
OLDER = ", without TCP_RTO_MAX_MS"  # ends the name of a group as on an earlier kernel
MORE_IS_BETTER = ("per_second", "part", "base_part", "kills")

THEIRS = {
    "_bare",
    "_celery_jobs",
    "_dask_jobs",
    "_floor",
    "_iceoryx2",
    "_nats",
    "_pynng",
    "_python_nng",
    "_redis",
    "_ywebsocket",
    "_zenoh",
    "_zmq",
}

Figures = dict[str, float]


@dataclass(frozen=True)
class Way:
    """One way to do the work. ``listens``: the end that listens, "measured" or "other". ``before``: with the earlier
    nngkit, as of `_contenders.BEFORE`, at both ends.

    If cost is measured by size, ``at`` has the sizes, and ``of`` the unit: 100 of "peer", or 1, 2, 3 million of
    "message". The measured process reports figures for each of ``at``, and each has a row.
    """

    name: str
    measured: str
    other: str = ""
    listens: str = "measured"
    task: dict[str, Any] = field(default_factory=dict)
    at: tuple[int, ...] = ()
    of: str = ""
    before: bool = False

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the first columns of its rows."""
        if not self.at:
            return [{"way": self.name}]
        names = (f"{self.name}, {at:,} {self.of}{'s' if at > 1 else ''}" for at in self.at)
        return [
            {"way": name, "line": self.name, "at": at, "of": self.of} for name, at in zip(names, self.at, strict=True)
        ]


def with_before(ways: Iterable[Way]) -> Iterator[Way]:
    """Yield each way, followed by the same way with the earlier nngkit, its name with ", before"."""
    for way in ways:
        yield way
        yield replace(way, name=before(way.name), before=True)


def before(name: str) -> str:
    """Return the name of a way measured with the earlier nngkit."""
    return f"{name}, before"


@dataclass(frozen=True)
class Promise:
    """Target for ``way`` over ``base`` in ``figure``: ``least`` is required, ``aim`` the goal; for times, at most.

    Without a base, the target is for the figure itself. ``over``: the figure of the base, if it is another one. With
    None as ``least`` it is a comparison without a target.
    """

    what: str
    way: str
    base: str | None
    least: float | None = None
    aim: float | None = None
    figure: str = "per_second"
    over: str = ""


@dataclass(frozen=True)
class Group:
    """Ways that do the same work. ``once``: measured in one round, however many the others have. ``busy``: measured
    beside a busy process.
    """

    name: str
    ways: tuple[Way, ...]
    promises: tuple[Promise, ...] = ()
    once: bool = False
    busy: bool = False


def beside_busy(group: Group) -> Group:
    """Return the group as measured beside a process that computes without pause."""
    return replace(group, name=group.name + BUSY, busy=True)


# ---- one measurement -------------------------------------------------------------------------------------------------


def _start(function: str, task: dict[str, Any], before: bool) -> subprocess.Popen[str]:
    if function.startswith("_floor:"):
        mode = function.partition(":")[2]
        program = _contenders.floor()
        assert program is not None
        words = [program, mode, *(str(task[key]) for key in ("url", "size", "seconds", "processes"))]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    words = [sys.executable, HERE / "_child.py", function, json.dumps(task)]
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env=_contenders.environment_before() if before else None
    )


@contextmanager
def _watching(seconds: float) -> Iterator[list[subprocess.Popen[str]]]:
    """Collect processes; kill all of them if one fails or they take too long, as the others would wait for it."""
    processes: list[subprocess.Popen[str]] = []
    over = threading.Event()

    def watch() -> None:
        end = time.monotonic() + BOUND + seconds
        while not over.wait(0.1):
            if time.monotonic() > end or any(process.poll() for process in tuple(processes)):
                for process in tuple(processes):
                    process.kill()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield processes
    finally:
        over.set()
        watcher.join()


def _line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise SystemExit(f"{process.args}: ended early with exit code {process.wait(BOUND)}")
    said: dict[str, Any] = json.loads(line)
    return said


@contextmanager
def _running(function: str, task: dict[str, Any], *, before: bool, listens: bool) -> Iterator[subprocess.Popen[str]]:
    process = _start(function, task | {"listens": listens}, before)
    with open(task["processes"], "a") as listed:
        listed.write(f"{process.pid}\n")
    try:
        yield process
    finally:
        process.kill()
        process.wait(BOUND)
        assert process.stdout is not None
        process.stdout.close()


def address(transport: str, directory: str) -> str:
    """Return the address to listen at."""
    here = {
        "tcp": "tcp://127.0.0.1:0",
        "tls": "tls+tcp://127.0.0.1:0",
        "pass": "tls+tcp://127.0.0.1:0",
        "curve": "tcp://127.0.0.1:0",
        "ws": "ws://127.0.0.1:0/bench",
        "ipc": f"ipc://{directory}/s",
        "shm": f"shm://{directory}/s",
        "inproc": "inproc://bench",
    }
    return here[transport]


def measure(way: Way, seconds: float) -> list[Figures]:
    """Measure a way once; return the figures of each of its rows."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench"))
        processes = Path(directory, "processes")  # ids, one a line, in order of their start
        task: dict[str, Any] = {"size": 16, "transport": "tcp", "seconds": seconds, **way.task}
        task |= {"url": address(task["transport"], directory), "processes": str(processes)}
        if task["transport"] == "tls":
            task |= _contenders.certificates(directory)
        if task["transport"] == "pass":
            task |= _contenders.passes(directory)
        if way.measured.startswith("_nats:"):
            task["url"], pid = stack.enter_context(_contenders.nats(directory))
            processes.write_text(f"{pid}\n")

        watched = stack.enter_context(_watching(task["seconds"]))

        def running(function: str, listens: bool) -> subprocess.Popen[str]:
            process = stack.enter_context(_running(function, task, before=way.before, listens=listens))
            watched.append(process)
            stack.callback(stop)
            return process

        def stop() -> None:  # all before any is gone: the last of others that are still measuring may ask for its CPU
            for process in watched:
                process.kill()

        if not way.other or task["transport"] == "inproc":
            return _figures(running(way.measured, True), len(way.rows))
        first, second = (way.measured, way.other) if way.listens == "measured" else (way.other, way.measured)
        listener = running(first, True)
        task |= _line(listener)
        others = [running(second, False) for _ in range(task.get("others", 1))]
        return _figures(listener if way.listens == "measured" else others[0], len(way.rows))


@contextmanager
def _busy_process() -> Iterator[None]:
    """Run a process that computes without pause on the last of the cores, and ends with this one."""
    program = f"import os\nwhile os.getppid() == {os.getpid()}:\n    sum(range(100_000))"
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
        try:
            yield
        finally:
            process.kill()


def _figures(process: subprocess.Popen[str], lines: int) -> list[Figures]:
    told: list[Figures] = []
    while len(told) < lines:
        if "url" not in (said := _line(process)):
            told.append({name: float(value) for name, value in said.items()})
    return told


# ---- all ways --------------------------------------------------------------------------------------------------------


def options(description: str | None, *, rounds: int, seconds: float) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help="rounds over all ways (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=seconds, help="of one measurement (default %(default)s)")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="ways and groups with TEXT in them")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the tables")
    parser.add_argument("--beside", metavar="COMMIT", help="nngkit's ways alone, each beside the same way of COMMIT")
    return parser


def chosen(groups: Sequence[Group], wanted: Sequence[str]) -> list[Group]:
    """Return the groups, and of each the ways, whose names have one of the texts; all without any."""
    if not wanted:
        return list(groups)
    found = []
    for group in groups:
        ways = group.ways if any(text in group.name for text in wanted) else ()
        ways = ways or tuple(
            way for way in group.ways if any(text in row["way"] for text in wanted for row in way.rows)
        )
        if ways:
            found.append(replace(group, ways=ways))
    return found


def beside(groups: Iterable[Group]) -> Iterator[Group]:
    """Yield the groups with nngkit's ways alone, each followed by the same one of the earlier nngkit, and ratios.

    Those that are measured once have counts of faults, not speed.
    """
    for group in (each for each in groups if not each.once):
        ours = [way for way in group.ways if not way.before and way.measured.partition(":")[0] not in THEIRS]
        promises = [
            Promise(f"{HEADS[figure]} of {way.name} vs before", way.name, before(way.name), least, 1.0, figure)
            for way in ours
            if not way.at
            for figure, least in (("per_second", 0.95), ("all_us", 1.05), ("p50_us", 1.05))
        ]
        yield replace(group, ways=tuple(with_before(ours)), promises=tuple(promises))


def run(name: str, groups: Iterable[Group], given: argparse.Namespace) -> dict[str, Any]:
    """Measure all ways, print the results, write them to RESULTS/NAME.json, and return them.

    Earlier results in that file stay, unless measured again: each row has the conditions of its measurement. Results
    beside a commit are written to RESULTS/beside/NAME.json.
    """
    if given.beside:
        _contenders.BEFORE = _contenders.commit(given.beside)
        name, groups = f"beside/{name}", beside(groups)
    groups = chosen(tuple(groups), given.only)
    missing: dict[str, None] = {}
    for index, group in enumerate(groups):
        reasons = [_contenders.missing(way.measured, way.other, before=way.before) for way in group.ways]
        missing |= dict.fromkeys(filter(None, reasons))
        able = tuple(way for way, reason in zip(group.ways, reasons, strict=True) if reason is None)
        groups[index] = replace(group, ways=able)
    sys.stderr.writelines(f"{reason}\n" for reason in missing)
    rounds = {group.name: 1 if group.once else given.rounds for group in groups}
    total = sum(rounds[group.name] * len(group.ways) for group in groups)
    load = os.getloadavg()[0]
    sitting = {"machine": _contenders.machine(), "load": load, "rounds": given.rounds, "seconds": given.seconds}
    done, begun = 0, time.monotonic()
    measured: list[dict[str, Any]] = []
    for group in groups:
        heads = [row for way in group.ways for row in way.rows]
        figures: dict[str, list[Figures]] = {row["way"]: [] for row in heads}
        with _busy_process() if group.busy else nullcontext():
            for _ in range(rounds[group.name]):
                for way in group.ways:
                    _progress(f"{group.name}: {way.rows[0]['way']}", done, total, begun)
                    for row, one in zip(way.rows, measure(way, given.seconds), strict=True):
                        figures[row["way"]].append(one)
                    done += 1
        rows = [
            {
                **row,
                "sitting": {**sitting, "rounds": rounds[group.name]},
                **{key: statistics.median(one[key] for one in each) for key in each[0]},
            }
            for row, each in zip(heads, figures.values(), strict=True)
        ]
        known = [
            each
            for each in group.promises
            if {each.way, each.base or each.way} <= figures.keys() and each.figure in figures[each.way][0]
        ]
        promises = [_kept(promise, figures) for promise in known]
        measured.append({"group": group.name, "rows": rows, "promises": promises})
        # after each group, so that an interrupted run keeps its results
        keep(RESULTS / f"{name}.json", measured[-1])
        if not given.json:
            _progress("", 0, 0, 0)
            show(group.name, rows, promises)
    _progress("", 0, 0, 0)
    if given.json:
        sys.stdout.write(json.dumps({**sitting, "groups": measured}) + "\n")
    else:
        sys.stdout.write(
            f"\n{given.rounds} rounds of {given.seconds:g} s, load average {load:.2f} when it began,"
            f" {time.monotonic() - begun:.0f} s in all\n"
        )
    return {**sitting, "groups": measured}


def keep(path: Path, group: dict[str, Any]) -> dict[str, Any]:
    """Write a group to the file; replace rows and promises of the same name, append the others. Return it."""
    groups: list[dict[str, Any]] = json.loads(path.read_text())["groups"] if path.exists() else []
    before = next((each for each in groups if each["group"] == group["group"]), None)
    if before is None:
        groups.append(group)
    else:
        for part, key in (("rows", "way"), ("promises", "what")):
            new = {each[key]: each for each in group[part]}
            before[part] = [new.pop(each[key], each) for each in before[part]] + list(new.values())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"groups": groups}, indent=1) + "\n")
    return before or group


def _kept(promise: Promise, figures: dict[str, list[Figures]]) -> dict[str, Any]:
    faster = promise.figure in MORE_IS_BETTER
    ratios = [way[promise.figure] for way in figures[promise.way]]
    if promise.base is not None:
        over = promise.over or promise.figure
        ratios = [way / base[over] for way, base in zip(ratios, figures[promise.base], strict=True)]
    ratio = statistics.median(ratios)
    good, best = (
        bound is None or (ratio >= bound if faster else ratio <= bound) for bound in (promise.least, promise.aim)
    )
    return {
        "what": promise.what,
        "ratio": ratio,
        "least": promise.least,
        "aim": promise.aim,
        "spread": [min(ratios), max(ratios)],
        "unit": "x" if promise.base else f" {HEADS[promise.figure].rpartition(', ')[2]}",
        "bound": "at least" if faster else "at most",
        "verdict": "" if promise.least is None else "aim" if best else "kept" if good else "MISSED",
    }


def show(name: str, rows: list[dict[str, Any]], promises: list[dict[str, Any]]) -> None:
    out = sys.stdout.write
    out(f"\n{name}\n")
    width = max(len(row["way"]) for row in rows) + 2
    for row in rows:
        cells = (f"{_number(row[key]):>11} {unit:<7}" for key, unit in HEADS.items() if key in row)
        out(f"  {row['way']:<{width}}{''.join(cells)}\n")
    for promise in promises:
        low, high = promise["spread"]
        target = f", {promise['bound']} {promise['least']:g}, aim {promise['aim']:g}" if promise["verdict"] else ""
        out(
            f"    {promise['verdict']:>6}  {promise['what']}: {promise['ratio']:,.2f}{promise['unit']}"
            f" ({low:,.2f} to {high:,.2f}){target}\n"
        )
    sys.stdout.flush()


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _progress(what: str, done: int, total: int, begun: float) -> None:
    if not sys.stderr.isatty():
        return
    if not total:
        sys.stderr.write("\r\x1b[K")
        return
    left = (time.monotonic() - begun) / done * (total - done) if done else 0.0
    bar = "#" * (20 * done // total)
    sys.stderr.write(f"\r\x1b[K[{bar:<20}] {done + 1}/{total} {left:4.0f} s left  {what}")
    sys.stderr.flush()
