"""After the last recorder: what its logs hold, and where the next record goes. Reads; changes nothing.

Any log may have a torn end: its process was killed while it wrote. What is whole is kept; what follows the last whole
record was never acknowledged. Damage is something else, and told apart in three ways: whole records behind it, a head
that says that more was synced, an offset that no log has. Damage stops a recorder, unless it is told to `salvage`: then
the records that are gone are counted as lost, in the manifest, and everything else is kept.
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

__all__ = ["OldLog", "Recovered", "recover"]


@dataclass(frozen=True, slots=True)
class OldLog:
    """A log of before, with the offsets in it that count: `first` to `end` - 1.

    `damaged`: it is to be kept when it has been sealed, as somebody may want to look at it.
    """

    path: Path
    first: int
    end: int
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Recovered:
    """`end`: the next record's offset. `logs`: those not sealed, in order. `done`: those sealed already.

    `useless`: logs with no record in them that can be read. `lost`: what damage took. `torn`: bytes behind the last
    whole record, which are none.
    """

    end: int
    logs: tuple[OldLog, ...] = ()
    done: tuple[Path, ...] = ()
    useless: tuple[Path, ...] = ()
    lost: tuple[Lost, ...] = ()
    torn: int = 0


class _Findings:
    """What has been found so far. Damage is raised here, or, with `salvage`, becomes a loss."""

    def __init__(self, sealed: int, known: Sequence[Lost], salvage: bool) -> None:
        self.next = sealed
        self.sealed = sealed
        self.known = sorted(known, key=lambda each: each.first)
        self.salvage = salvage
        self.logs: list[OldLog] = []
        self.lost: list[Lost] = []

    def step_over(self) -> None:
        """Continue behind records that are known to be lost."""
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
    """Look at all logs of a partition whose segments end at `sealed`. Raises Damaged, OSError.

    `known`: what the manifest counts as lost; it is no damage again. `given`: offsets below it were given to records.
    """
    found = logs_in(folder)
    head = read_head(folder)
    synced = max(sealed, given, 0 if head is None else head.end)
    here = _Findings(sealed, known, salvage)
    torn = 0
    done: list[Path] = []
    useless: list[Path] = []
    for number, (first, path) in enumerate(found):
        border = found[number + 1][0] if number + 1 < len(found) else None
        needed = synced if border is None else border
        if path.stat().st_size < LogHeader.size and needed <= first:
            useless.append(path)  # killed between its first byte and its header: nothing can be in it
            continue
        here.step_over()
        if first > here.next:
            why = f"it begins with offset {first}, and the log that begins with {here.next} is missing"
            here.lose(Damaged(str(path), why, offset=here.next, advice=ADVICE), [(here.next, first)])
            here.next = first
        try:
            seen = scan(path, partition=partition)
        except Damaged as damage:  # the first bytes, without which the rest cannot be checked
            here.lose(damage, [(first, needed)])
            useless.append(path)
            here.next = max(here.next, needed)
            continue
        end = seen.end if border is None else min(seen.end, border)
        damaged = end < needed or (border is None and seen.behind is not None)
        if damaged:
            why = seen.fault or f"it ends here, and offsets up to {needed - 1} were in it"
            broken = Damaged(str(path), why, position=seen.position, offset=seen.end, advice=ADVICE)
            gaps, end = _gaps(path, needed, border)
            here.lose(broken, gaps)
        if border is None and not damaged:
            torn = seen.torn
        if end <= sealed or end == first:
            (done if end > first else useless).append(path)
        else:
            here.logs.append(OldLog(path, max(first, here.next), end, damaged))
            here.next = end
    here.step_over()
    if here.next < synced:
        name = str(found[-1][1] if found else folder)
        why = f"offsets up to {synced - 1} were on the disk"
        here.lose(Damaged(name, why, offset=here.next, advice=ADVICE), [(here.next, synced)])
        here.next = synced
    lost = tuple(sorted(here.lost, key=lambda each: each.first))
    return Recovered(here.next, tuple(here.logs), tuple(done), tuple(useless), lost, torn)


def _gaps(path: Path, needed: int, border: int | None) -> tuple[list[tuple[int, int]], int]:
    """What is missing in a damaged log, and the offset behind the last that it has or should have."""
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
