"""Notes of the ends in `outages.py`, and their evaluation: when a pair reads again, and what it has lost. Pure but
for the file.

Each process appends fixed records to a file of its own, so that they survive its SIGKILL. Times are CLOCK_MONOTONIC,
which the hosts of one machine share. A message is a run (of a sending process) and a number, from 1.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final

UP: Final = b"U"  # the end listens or dials
SENT: Final = b"S"
READ: Final = b"R"
REPORTED: Final = b"L"  # lost messages of which the reader was told; the number is how many
_RECORD: Final = Struct("=cHqqd")


@dataclass(frozen=True, slots=True)
class Record:
    """One record. `reader`: the file that it is from, which is a process."""

    kind: bytes
    pair: int
    run: int
    number: int
    time: float
    reader: str


class Notes:
    """File of one process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, kind: bytes, pair: int, run: int, number: int) -> None:
        """Append a record."""
        os.write(self._file, _RECORD.pack(kind, pair, run, number, time.monotonic()))


@dataclass(frozen=True, slots=True)
class Losses:
    """Messages `lost` between the first and the last that a reader has read of one run, and those `reported`.

    What was sent before it began to read, or after its last, is not counted.
    """

    lost: int
    reported: int


class Ledger:
    """Records of one pair: all of them counted, those since `mark` kept.

    `resumes`: the reader goes on after its restart where it was, so that all of its processes are one reader.
    """

    def __init__(self, *, resumes: bool) -> None:
        self._resumes = resumes
        self._reported = 0
        self._numbers: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._recent: list[Record] = []

    def add(self, record: Record) -> None:
        """Take in a record."""
        self._recent.append(record)
        if record.kind == READ:
            self._numbers["" if self._resumes else record.reader, record.run].add(record.number)
        elif record.kind == REPORTED:
            self._reported += record.number

    def mark(self) -> None:
        """Keep the records from here on."""
        self._recent.clear()

    def losses(self) -> Losses:
        """Return the losses so far."""
        spans = (max(each) - min(each) + 1 - len(each) for each in self._numbers.values())
        return Losses(sum(spans), self._reported)

    def back(self, healed: float) -> float | None:
        """Return the seconds from `healed` until a message is read that was sent after it; None if none is, yet.

        After a restart they count from the time at which both ends were up. `mark` was called before `healed`.
        """
        sent: dict[tuple[int, int], float] = {}
        ready = healed
        for record in self._recent:
            if record.kind == SENT:
                sent[record.run, record.number] = record.time
            elif record.kind == UP:
                ready = max(ready, record.time)
        reads = [
            record.time
            for record in self._recent
            if record.kind == READ and sent.get((record.run, record.number), 0.0) >= healed and record.time >= ready
        ]
        return min(reads) - ready if reads else None


class Files:
    """Files of all processes, read on."""

    def __init__(self, folder: Path, pairs: dict[int, Ledger]) -> None:
        self._folder = folder
        self._at: dict[Path, int] = defaultdict(int)
        self.pairs = pairs

    def read_on(self) -> None:
        """Take in what has been appended."""
        for path in sorted(self._folder.glob("*.notes")):
            with path.open("rb") as file:
                file.seek(self._at[path])
                data = file.read()
            whole = len(data) - len(data) % _RECORD.size
            self._at[path] += whole
            for kind, pair, run, number, at in _RECORD.iter_unpack(data[:whole]):
                self.pairs[pair].add(Record(kind, pair, run, number, at, path.stem))

    def mark(self) -> None:
        """Keep the records from here on: see `Ledger.mark`."""
        self.read_on()
        for ledger in self.pairs.values():
            ledger.mark()
