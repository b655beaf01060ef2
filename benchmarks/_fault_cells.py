"""One cell of `faults.py`: a room's processes, a fault at one of them, the audit. ``_child.py _fault_cells:run TASK``.

A process that ends by itself is started again, as by a supervisor, and counted in ``ended``. ``by_hand``: it does not
work again within `BACK` seconds of the fault's end, a listener of it is deaf, or it has ended by itself although the
room's page does not say so.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from _fault_audit import AUDITS
from _fault_ends import DONE, KEPT, RAN
from _fault_kinds import listeners, make
from _fault_table import ROOMS, Room
from _outage_records import READ, SENT, UP, Files, Ledger, Record
from _restarted import ports

from _child import report
from _contenders import HERE

START: Final = 150.0  # seconds for all processes to start, and for messages to go all ways
BACK: Final = 30.0  # seconds from a fault's end, within which messages go all ways again
SETTLES: Final = 30.0  # seconds for all that is acknowledged to arrive, once senders have ended
STEADY: Final = 1.0  # seconds of messages before a fault, and after it
RESTART: Final = 0.5  # seconds from the end of a process to its next start
TURN: Final = 0.02


class Everything(Ledger):
    """All records of a cell. `brings`: kinds of notes that tell of a message's arrival."""

    def __init__(self, brings: tuple[bytes, ...]) -> None:
        super().__init__(resumes=False)
        self.records: list[Record] = []
        self.done: set[int] = set()
        self._brings = brings
        self._sent: dict[tuple[int, int], float] = {}
        self._arrived: list[Record] = []

    def add(self, record: Record) -> None:
        self.records.append(record)
        if record.kind == SENT:
            self._sent[record.run, record.number] = record.time
        elif record.kind in self._brings:
            self._arrived.append(record)
        elif record.kind == DONE:
            self.done.add(record.run)

    def forget(self) -> None:
        """Keep what has arrived from here on for `back`; called before what is sent after `since` arrives."""
        self._arrived.clear()

    def back(self, since: float, ways: Iterable[int] = (0,)) -> float | None:
        """Return when the last way brought its first message that was sent after `since`; None if one has not yet."""
        first: dict[int, float] = {}
        for each in self._arrived:
            if self._sent.get((each.run, each.number), 0.0) >= since:
                first[each.pair] = min(each.time, first.get(each.pair, float("inf")))
        return max(first[way] for way in ways) if first.keys() >= set(ways) else None


class Crew:
    """The processes of a cell, by role. `ended`: exit codes of those that ended by themselves."""

    def __init__(self, folder: Path, roles: dict[str, str], hit: str, fault: Any) -> None:
        self.folder, self.hit, self.fault = folder, hit, fault
        self.ports = ports(6)
        self.ended: list[int] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._killed: set[int] = set()
        self._due: dict[str, float] = {}
        self.roles = roles
        self.started = 0.0  # when the process that is hit was started last

    @property
    def pid(self) -> int | None:
        """The process that is hit; None if it does not run."""
        process = self.processes[self.hit]
        return process.pid if process.poll() is None else None

    def start(self, role: str, function: str) -> None:
        if ours := role == self.hit:
            self.started = time.monotonic()
        task = {
            "role": role,
            "function": function,
            "ports": self.ports,
            "folder": str(self.folder),
            "trigger": self.fault.trigger if ours else None,
        }
        words = [sys.executable, str(HERE / "_child.py"), "_fault_ends:run", json.dumps(task)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NNGKIT_")}
        environment |= self.fault.environment if ours else {}
        with (self.folder / f"{role}.log").open("ab") as log:
            self.processes[role] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    def kill(self, role: str) -> None:
        process = self.processes[role]
        self._killed.add(process.pid)
        process.kill()
        process.wait(10.0)

    def tend(self) -> None:
        """Start again what has ended, a moment later."""
        now = time.monotonic()
        for role, process in self.processes.items():
            if process.poll() is None or role in self._due:
                continue
            if process.pid not in self._killed:
                self.ended.append(process.returncode)
            self._due[role] = now + RESTART
        for role in [role for role, due in self._due.items() if due <= now]:
            del self._due[role]
            self.start(role, self.roles[role])

    def stop(self) -> None:
        """Kill all that run, for good."""
        for role in list(self.processes):
            self.kill(role)
            del self.processes[role]


class Cell:
    """A room under one fault. `figures` are those of `faults.py`."""

    def __init__(self, room: Room, fault: str, seed: int, folder: Path) -> None:
        hit = room.hits(fault, seed)
        assert hit is not None
        self.room, self.seed, self.folder = room, seed, folder
        self.chance = random.Random(f"{room.name} {fault} {seed}")
        for role in room.roles:
            (folder / "data" / role).mkdir(parents=True)
        self.fault = make(fault, folder, hit)
        self.crew = Crew(folder, room.roles, hit, self.fault)
        self.notes = Everything((KEPT,) if room.name == "journal" else (READ, RAN))
        self._files = Files(folder, Everywhere(self.notes))

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for a condition on the notes, while processes are tended; return False if it takes too long."""
        end = time.monotonic() + seconds
        while True:
            self.crew.tend()
            self._files.read_on()
            if condition():
                return True
            if time.monotonic() > end:
                return False
            time.sleep(5 * TURN)

    def back(self, since: float) -> float | None:
        return self.notes.back(since, self.room.ways)

    def run(self) -> dict[str, Any]:
        """Bring the fault about, and return the figures."""
        crew, room = self.crew, self.room
        for role, function in room.roles.items():
            crew.start(role, function)
        if not self.until(lambda: self.back(1.0) is not None, START):
            raise RuntimeError("messages do not go all ways before the fault")
        if crew.ended:
            raise RuntimeError(f"a process ended before the fault, with exit code {crew.ended}")
        self.until(lambda: False, STEADY + self.chance.random())
        self.notes.forget()
        wrong = self._strike()
        since = time.monotonic()
        self.until(self._is_up, START)  # one that was started again on a busy machine
        works = self.until(lambda: self.back(since) is not None, BACK)
        ups = [each.time for each in self.notes.records if each.kind == UP and each.time > since]
        back = max(0.0, (self.back(since) or since + BACK) - max([since, *ups]))
        self.until(lambda: False, STEADY)
        (self.folder / "stop").touch()
        self.until(self._settled, SETTLES)
        ended = list(crew.ended)
        crew.stop()
        self._reopen()
        self._files.read_on()
        audit = AUDITS[room.name](self.notes.records, self.folder)
        surprising = bool(ended) and self.fault.name not in room.ends
        return {
            "records": audit.acknowledged,
            "lost": audit.lost,
            "doubled": audit.doubled,
            "repeated": audit.repeated,
            "wrong": len(audit.wrong),
            "ended": len(ended),
            "by_hand": int(not works or bool(wrong) or surprising),
            "back_s": back,
            "told": [*wrong, *audit.wrong, *(["does not work again"] if not works else [])],
            "exits": ended,
        }

    def _strike(self) -> list[str]:
        crew, fault = self.crew, self.fault
        pid = crew.pid
        assert pid is not None
        if fault.name == "SIGKILL":
            crew.kill(crew.hit)
            self.until(lambda: crew.pid is not None, 10.0)
            return []
        fault.begin(pid)
        if fault.name == "out of descriptors" and not listeners(pid):  # its peers end, and come back: it dials again
            for role in set(self.room.roles) - {crew.hit}:
                crew.kill(role)
        end = time.monotonic() + fault.lasts
        while time.monotonic() < end:
            if fault.name != "SIGSTOP 30 s":
                crew.tend()
            if crew.pid == pid:
                with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                    fault.hold(pid)
            time.sleep(TURN)
        if fault.name.startswith("clock") and self.seed % 3 == 0:
            crew.kill(crew.hit)
        self.until(lambda: crew.pid is not None, 10.0)
        return fault.end(crew.pid or 0)

    def _is_up(self) -> bool:
        hit, started = self.crew.hit, self.crew.started
        return any(
            each.kind == UP and each.reader.startswith(f"{hit}-") and each.time > started for each in self.notes.records
        )

    def _settled(self) -> bool:
        newest = self._newest()
        if (
            not {each.run for each in self.notes.records if each.kind == SENT and each.reader in newest}
            <= self.notes.done
        ):
            return False
        audit = AUDITS[self.room.name](self.notes.records, self.folder)
        return not audit.lost and not audit.wrong

    def _newest(self) -> set[str]:
        """Return the names of the notes of the processes that run."""
        return {
            max((path.stem for path in self.folder.glob(f"{role}-*.notes")), default="") for role in self.room.roles
        }

    def _reopen(self) -> None:
        """Note what stores have, each opened alone."""
        for role, function in self.room.reopened.items():
            before = len(self.notes.done)
            self.crew.start(role, function)
            if not self.until(lambda before=before: len(self.notes.done) > before, START):
                raise RuntimeError(f"the store of {role} cannot be opened")
            self.crew.stop()

    def close(self) -> None:
        self.crew.stop()
        self.fault.close()


class Everywhere(dict[int, Ledger]):
    """The same ledger for all channels."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __missing__(self, channel: int) -> Ledger:
        return self._ledger


def run(task: dict[str, Any]) -> None:
    """Run the cell of a room, a fault and a seed; report its figures. Keep its folder if it is not as promised."""
    room = next(each for each in ROOMS if each.name == task["room"])
    folder = Path(tempfile.mkdtemp(prefix="faults"))
    cell = Cell(room, task["fault"], task["seed"], folder)
    try:
        figures = cell.run()
    except RuntimeError as error:
        figures = {"failed": str(error)}
    finally:
        cell.close()
    if (
        figures.get("failed")
        or any(figures[key] for key in ("lost", "doubled", "wrong", "by_hand"))
        or os.environ.get("KEEP")
    ):
        sys.stderr.write(f"{room.name}, {task['fault']}, seed {task['seed']}: {figures}; kept in {folder}\n")
    else:
        shutil.rmtree(folder)
    report(**figures)
