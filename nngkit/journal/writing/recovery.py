"""Recovery after the previous recorder: the content of its logs, and the next offset. Reads only.

Any log may have a torn end, if its process was killed during a write. Intact records are kept; bytes after the last
one were never acknowledged. Damage is recognised in three ways: intact records behind it, a head that claims more
synced records, or an offset that no log has. Damage stops a recorder unless `salvage` is set. Then the missing
records are listed as lost in the manifest, and everything else is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nngkit.errors import Damaged
from nngkit.journal.files import logs_in
from nngkit.journal.logfile import ADVICE, open_log, read_head, scan
from nngkit.journal.manifest import Lost
from nngkit.journal.record import LogHeader


@dataclass(frozen=True, slots=True)
class OldLog:
    """Log of a previous recorder, with the offsets in it that count: `first` to `end` - 1.

    `damaged`: keep the file after sealing, for inspection.
    """

    path: Path
    first: int
    end: int
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Recovered:
    """Result: `end`, the next offset; `logs` to be sealed, in order; `done`, the logs already sealed.

    `blank`: logs in which nothing was written yet. `useless`: logs without a readable record. `lost`: ranges taken by
    damage. `torn`: bytes after the last intact record.
    """

    end: int
    logs: tuple[OldLog, ...] = ()
    done: tuple[Path, ...] = ()
    blank: tuple[Path, ...] = ()
    useless: tuple[Path, ...] = ()
    lost: tuple[Lost, ...] = ()
    torn: int = 0


class _Findings:
    """Findings so far. Damage is raised here, or with `salvage` recorded as a loss."""

    def __init__(self, sealed: int, known: Sequence[Lost], salvage: bool) -> None:
        self.next = sealed
        self.sealed = sealed
        self.known = sorted(known, key=lambda each: each.first)
        self.salvage = salvage
        self.logs: list[OldLog] = []
        self.lost: list[Lost] = []

    def step_over(self) -> None:
        """Skip records known to be lost."""
        for lost in self.known:
            if lost.first <= self.next < lost.end:
                self.next = lost.end

    def lose(self, damage: Damaged, gaps: list[tuple[int, int]]) -> None:
        new = [gap for gap in gaps if not any(each.first <= gap[0] and gap[1] <= each.end for each in self.known)]
        if gaps and not new:
            return
        if not self.salvage:
            raise damage
        gaps = new
        self.lost += [Lost(max(first, self.sealed), end, damage.why) for first, end in gaps if end > self.sealed]


def recover(
    folder: Path, partition: int, sealed: int, *, known: Sequence[Lost] = (), given: int = 0, salvage: bool = False
) -> Recovered:
    """Inspect all logs of a partition whose segments end at `sealed`. Raises Damaged, OSError.

    `known`: losses already in the manifest, not reported again. `given`: offsets below it have been assigned.
    """
    found = logs_in(folder)
    head = read_head(folder)
    synced = max(sealed, given, 0 if head is None else head.end)
    here = _Findings(sealed, known, salvage)
    torn = 0
    done: list[Path] = []
    blank: list[Path] = []
    useless: list[Path] = []
    for number, (first, path) in enumerate(found):
        border = found[number + 1][0] if number + 1 < len(found) else None
        needed = synced if border is None else border
        if path.stat().st_size < LogHeader.size and needed <= first:
            blank.append(path)  # killed before its header was written: it holds no record
            continue
        here.step_over()
        if first > here.next:
            why = f"it begins at offset {first}, and the log that begins at {here.next} is missing"
            here.lose(Damaged(str(path), why, offset=here.next, advice=ADVICE), [(here.next, first)])
            here.next = first
        try:
            seen = scan(path, partition=partition)
        except Damaged as damage:  # without the header, the records cannot be checked
            here.lose(damage, [(first, needed)])
            useless.append(path)
            here.next = max(here.next, needed)
            continue
        end = seen.end if border is None else min(seen.end, border)
        damaged = end < needed or (border is None and seen.behind is not None)
        if damaged:
            why = seen.fault or f"it ends here, but had offsets up to {needed - 1}"
            broken = Damaged(str(path), why, position=seen.position, offset=seen.end, advice=ADVICE)
            gaps, end = _gaps(path, needed, border)
            here.lose(broken, gaps)
        if border is None and not damaged:
            torn = seen.torn
        if end <= sealed or end == first:
            is_blank = end == first and not damaged and not seen.torn
            (done if end > first else blank if is_blank else useless).append(path)
        else:
            here.logs.append(OldLog(path, max(first, here.next), end, damaged))
            here.next = end
    here.step_over()
    if here.next < synced:
        name = str(found[-1][1] if found else folder)
        why = f"offsets up to {synced - 1} had been synced"
        here.lose(Damaged(name, why, offset=here.next, advice=ADVICE), [(here.next, synced)])
        here.next = synced
    lost = tuple(sorted(here.lost, key=lambda each: each.first))
    return Recovered(here.next, tuple(here.logs), tuple(done), tuple(blank), tuple(useless), lost, torn)


def _gaps(path: Path, needed: int, border: int | None) -> tuple[list[tuple[int, int]], int]:
    """Return the missing ranges of a damaged log, and the offset behind the last that it has or should have."""
    gaps: list[tuple[int, int]] = []
    with open_log(path) as log:
        expected = log.header.first
        for rows in log.chunks(expected, 1 << 62 if border is None else border, skip=True):
            if rows[0][0] > expected:
                gaps.append((expected, rows[0][0]))
            expected = rows[-1][0] + 1
    if expected < needed:
        gaps.append((expected, needed))
    return gaps, max(expected, needed)
