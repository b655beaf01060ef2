"""What the authors of a concurrent trace saw when they typed: documents that have exactly a transaction's parents.

::

    drafted = draft(trace, order=(0, 1))
    drafted.updates[7]          # what transaction 7 changed, as an update
    drafted.text                # what all of them make together

An author's changes follow each other, so there is one document for each author, which is brought to a transaction's
parents before it is typed there. Where a history does not hold to that (branches of one author), a branch gets a
document of its own, as if somebody else had written it.

`order` says whose text comes first where two wrote at the same place at once: a CRDT decides that by its ids, which
are random in life, and another one may do so in another way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from nngkit.cli.doc.arguments import BODY
from nngkit.cli.doc.trace import Trace, checked
from nngkit.documents.engine.interface import EngineDocument, EngineText, load_engine

__all__ = ["Drafted", "draft", "orders"]

LANES: Final = 64  # documents held at once, those used last; one that comes back later is filled again
SPREAD: Final = 1 << 20  # ids between two authors: of their branches
FEW: Final = 32  # updates that are applied as one
START: Final = 1  # the id of what was there before


@dataclass(frozen=True, slots=True)
class Drafted:
    """`start`: an update with what was there before, b"" for nothing. `updates`: of each transaction, b"" for none."""

    start: bytes
    updates: Sequence[bytes]
    text: str


class _Lane:
    """One line of transactions that follow each other, and the document in which they were typed."""

    def __init__(self, number: int, client: int) -> None:
        self.number = number
        self.document: EngineDocument = load_engine().new(client)
        self.body: EngineText = self.document.root(BODY, "text")
        self.has: dict[int, int] = {}  # of each lane, how many of its transactions
        self.update = b""
        self.document.observe(self._observed)

    def _observed(self, update: bytes, origin: object) -> None:
        self.update = update


def draft(trace: Trace, order: Sequence[int]) -> Drafted:
    """Type it all. `order`: the agents, who comes first foremost. Raises BadTrace: a patch beyond its text."""
    return _Drafting(trace, order).run()


class _Drafting:
    def __init__(self, trace: Trace, order: Sequence[int]) -> None:
        self._trace = trace
        self._rank = {agent: rank for rank, agent in enumerate(order)}
        self._lanes: OrderedDict[int, _Lane] = OrderedDict()
        self._lengths: list[list[int]] = []  # of each lane: the numbers of its transactions
        self._lane_of: list[int] = []  # of each transaction
        self._last: dict[int, list[int]] = {}  # of each agent: its lanes, the newest first
        self._after: list[dict[int, int]] = []  # what there is after each transaction: of each lane, how many
        self._updates: list[bytes] = []
        self._start = b""

    def run(self) -> Drafted:
        if self._trace.start:
            first = load_engine().new(START)
            body = first.root(BODY, "text")
            with first.transaction():
                body.insert(0, self._trace.start)
            self._start = first.changes_since(None)
        for number, txn in enumerate(self._trace.txns):
            before = self._before(txn.parents)
            lane = self._lane(txn.agent, before)
            self._bring(lane, before)
            lane.update = b""
            length = len(lane.body)
            with lane.document.transaction():
                for at, patch in enumerate(txn.patches):
                    length = checked(patch, length, number, at)
                    position, deleted, inserted = patch
                    if deleted:
                        lane.body.delete(position, position + deleted)
                    if inserted:
                        lane.body.insert(position, inserted)
            self._updates.append(lane.update)
            self._lengths[lane.number].append(number)
            self._lane_of.append(lane.number)
            before = {**before, lane.number: len(self._lengths[lane.number])}
            lane.has = before
            self._after.append(before)
        return Drafted(self._start, self._updates, self._together())

    def _before(self, parents: Sequence[int]) -> dict[int, int]:
        if len(parents) == 1:
            return self._after[parents[0]]
        found: dict[int, int] = {}
        for parent in parents:
            for lane, count in self._after[parent].items():
                found[lane] = max(count, found.get(lane, 0))
        return found

    def _lane(self, agent: int, before: dict[int, int]) -> _Lane:
        """One of the agent's whose document has nothing but what is in `before`; else a new one."""
        for number in self._last.setdefault(agent, []):
            lane = self._lanes.get(number)
            if lane is not None and before.get(number, 0) == len(self._lengths[number]):
                self._lanes.move_to_end(number)
                return lane
        number = len(self._lengths)
        mine = self._last[agent]
        lane = _Lane(number, START + 1 + self._rank[agent] * SPREAD + len(mine))
        if self._start:
            lane.document.apply(self._start)
        mine.insert(0, number)
        self._lengths.append([])
        self._lanes[number] = lane
        if len(self._lanes) > LANES:
            self._lanes.popitem(last=False)
        return lane

    def _bring(self, lane: _Lane, before: dict[int, int]) -> None:
        """Give a lane what it lacks, in the order of the file, in which parents come first."""
        lacking: list[int] = []
        for number, count in before.items():
            if count > (have := lane.has.get(number, 0)):
                lacking += self._lengths[number][have:count]
        self._give(lane.document, sorted(lacking))
        lane.has = before

    def _give(self, document: EngineDocument, numbers: Sequence[int]) -> None:
        updates = [self._updates[number] for number in numbers if self._updates[number]]
        for at in range(0, len(updates), FEW):  # merging many costs more than proportionally
            some = updates[at : at + FEW]
            document.apply(load_engine().merge(some) if len(some) > 1 else some[0])

    def _together(self) -> str:
        document = load_engine().new(0)
        if self._start:
            document.apply(self._start)
        body: EngineText = document.root(BODY, "text")
        self._give(document, range(len(self._updates)))
        return str(body)


def orders(agents: int) -> list[tuple[int, ...]]:
    """Orders to be tried: all of up to three agents, of more those from either end."""
    if agents <= 3:
        return list(permutations(range(agents)))
    forward = tuple(range(agents))
    return [forward, forward[::-1]]
