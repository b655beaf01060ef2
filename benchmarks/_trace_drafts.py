"""Updates of a concurrent trace: each transaction typed into a document that has exactly its parents.

::

    drafted = draft(trace, order=(0, 1))
    drafted.updates[7]          # the update of transaction 7
    drafted.text                # the text of all updates together

Each author has one document, which is brought to a transaction's parents before it is typed. Branches of one author get
a document each, like further authors.

`order` decides whose text comes first for concurrent insertions at one place: a CRDT orders them by ids, which are
random outside of this program, and other CRDTs order them otherwise.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from _trace import Trace, checked

from nngkit.documents.engine.interface import EngineDocument, EngineText, load_engine

__all__ = ["Drafted", "draft", "orders"]

BODY: Final = "body"
LANES: Final = 64  # documents in memory, the last used; an author returning later gets a new one
SPREAD: Final = 1 << 20  # client ids between two authors, for their branches
FEW: Final = 32  # updates that are applied as one
START: Final = 1  # client id of the text at the start


@dataclass(frozen=True, slots=True)
class Drafted:
    """The update of the text at the start and those of the transactions (b"" if empty), and the text at the end."""

    start: bytes
    updates: Sequence[bytes]
    text: str


class _Lane:
    """A sequence of transactions, each after the one before, and the document in which they are typed."""

    def __init__(self, number: int, client: int) -> None:
        self.number = number
        self.document: EngineDocument = load_engine().new(client)
        self.body: EngineText = self.document.root(BODY, "text")
        self.has: dict[int, int] = {}  # number of transactions, by lane
        self.update = b""
        self.document.observe(self._observed)

    def _observed(self, update: bytes, origin: object) -> None:
        self.update = update


def draft(trace: Trace, order: Sequence[int]) -> Drafted:
    """Type all transactions; `order` is that of the agents. Raises BadTrace for a patch beyond its text."""
    return _Drafting(trace, order).run()


class _Drafting:
    def __init__(self, trace: Trace, order: Sequence[int]) -> None:
        self._trace = trace
        self._rank = {agent: rank for rank, agent in enumerate(order)}
        self._lanes: OrderedDict[int, _Lane] = OrderedDict()
        self._lengths: list[list[int]] = []  # numbers of the transactions, by lane
        self._lane_of: list[int] = []  # by transaction
        self._last: dict[int, list[int]] = {}  # lanes of each agent, the newest first
        self._after: list[dict[int, int]] = []  # after each transaction: number of transactions, by lane
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
        """Return a lane of the agent whose document has nothing beyond `before`, or a new one."""
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
        """Apply the updates that a lane lacks, in file order: parents come first."""
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
    """Return the orders to try: all for up to three agents, for more forwards and backwards."""
    if agents <= 3:
        return list(permutations(range(agents)))
    forward = tuple(range(agents))
    return [forward, forward[::-1]]
