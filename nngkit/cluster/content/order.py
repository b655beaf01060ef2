"""SharedOrder: the content of a shared object at one node, changed in the order of the cluster's host. Pure.

::

    position    of the content; changed by `begin` and `append` at the host, by `take` and `load` elsewhere
    table       writer (node, epoch) -> its last change; part of the content, so a full state has it beside the object's
    log         the last changes, for nodes that are behind: `after`
    held        changes ahead of missing ones, by the position before them

    order at (3, 7, 4)      take (3, 7, 6)        held: 5 is missing
                            take (3, 7, 5)        applied, and 6 after it
                            after((3, 7, 4))      [5, 6]; None for a position that the log does not follow

Of the invariants of `replica.py` it keeps the first: only the change after the present position is applied, and a
change for which the object raises counts as applied at every node. For the second it keeps the table, by which the host
numbers a change once. Knows no time, no host and no request: `SharedReplica` requests missing changes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from nngkit import envelope
from nngkit.cluster.containing import contained, describe
from nngkit.cluster.content.messages import (
    FRAGMENT_LIMIT,
    MOST_ENTRIES,
    START,
    Entry,
    Position,
    Run,
)
from nngkit.cluster.content.writer import ENTRY, RUN_BYTES
from nngkit.cluster.frames import as_bytes
from nngkit.errors import BadMessage

LOG_BYTES, LOG_CHANGES = 4 << 20, 4096  # kept for nodes that are behind; as in a document's log
HELD_BYTES, HELD_CHANGES = 4 << 20, 4096  # ahead of missing ones; beyond, they are requested again
WRITERS: Final = 4096  # writers whose last number is remembered; the one that wrote least recently goes first
_WHAT: Final = "shared object"


class SharedObject(Protocol):
    """Interface of a program's object. `update` must do the same at every node."""

    def update(self, fragment: bytes) -> object: ...
    def full_state(self) -> bytes: ...
    def load(self, full: bytes) -> object: ...


class SharedOrder:
    """Ordered content at the node `node`. `confirm(n)` is called with the last own change that is in it.

    `report(node, why)` is called for exceptions of the object; `limit` is the most bytes of a full state.

    Attributes:
        position: Position of the content.
        known: The latest position heard of.
        changed: True if the content has changed; its reader sets it back.
        applied: Changes applied here.
        loads: Full states loaded.
        failures: Exceptions of the object.
    """

    def __init__(
        self,
        name: str,
        node: str,
        epoch: int,
        obj: SharedObject,
        *,
        confirm: Callable[[int], None],
        report: Callable[[str, str], None],
        limit: int,
    ) -> None:
        self.position = self.known = START
        self.changed = False
        self.applied = self.loads = self.failures = 0
        self._name = name
        self._node = node
        self._writer = node, epoch
        self._obj = obj
        self._confirm = confirm
        self._report = report
        self._limit = limit
        self._table: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._log: deque[tuple[Position, Position, Entry | None]] = deque()  # position, the one before, change
        self._log_bytes = 0
        self._held: dict[Position, tuple[Position, Entry | None]] = {}  # by the position before
        self._held_bytes = 0

    # ------------------------------------------------------------------ at the host

    def begin(self, first: Position) -> Position:
        """Begin the reign whose position 0 is `first`; return its base, the present position."""
        base = self.position
        if base >= first:
            self._report(self._node, f"{self._name}: its copy is of term {base.term}, after term {first.term}")
            base = START
        self._held.clear()
        self._held_bytes = 0
        self._apply(first, base, None)
        self.known = self.position
        return base

    def append(self, entry: Entry) -> None:
        """Apply a change at the next position."""
        self._apply(self.next, self.position, entry)
        self.known = self.position

    @property
    def next(self) -> Position:
        """Position of the next change of this reign."""
        return self.position.at(self.position.number + 1)

    def last(self, node: str, epoch: int) -> int | None:
        """Return the number of a writer's last change in the content; None if it is not remembered."""
        return self._table.get((node, epoch))

    # ------------------------------------------------------------------ elsewhere

    @property
    def behind(self) -> bool:
        """True while changes are missing, as far as known."""
        return self.position == START or self.position < self.known

    def hear(self, position: Position) -> None:
        """Take a position of the host."""
        self.known = max(self.known, position)

    def take(self, message: Run) -> None:
        """Take changes in the host's order: apply those that follow, hold those ahead of missing ones."""
        position = message.first
        before = message.base
        if before is None:
            before = position.at(position.number - 1)
        else:
            self._take(position, before, None)
            before, position = position, position.at(1)
        for entry in message.entries:
            self._take(position, before, entry)
            before, position = position, position.at(position.number + 1)

    def _take(self, position: Position, before: Position, entry: Entry | None) -> None:
        if position <= self.position:
            return
        self.known = max(self.known, position)
        if before != self.position or before == START:
            size = _size(entry)
            if len(self._held) < HELD_CHANGES and self._held_bytes + size <= HELD_BYTES and before not in self._held:
                self._held[before] = position, entry
                self._held_bytes += size
            return
        self._apply(position, before, entry)
        self._release()

    def _release(self) -> None:
        while self.position != START and (found := self._held.pop(self.position, None)) is not None:
            self._held_bytes -= _size(found[1])
            self._apply(found[0], self.position, found[1])

    def _apply(self, position: Position, before: Position, entry: Entry | None) -> None:
        """Apply the next change."""
        self.position = position
        self._log.append((position, before, entry))
        self._log_bytes += ENTRY
        self.changed = True
        if entry is not None:
            self.applied += 1
            self._log_bytes += len(entry.data)
            writer = entry.origin, entry.epoch
            self._table[writer] = entry.n
            self._table.move_to_end(writer)
            if len(self._table) > WRITERS:
                self._table.popitem(last=False)  # the same one at every node
            try:
                self._obj.update(entry.data)
            except BaseException as error:  # the program's; the same at every node, so the order goes on
                self.failed(entry.origin, "update", error)
            if writer == self._writer:
                self._confirm(entry.n)
        while len(self._log) > LOG_CHANGES or self._log_bytes > LOG_BYTES:
            _, _, gone = self._log.popleft()
            self._log_bytes -= _size(gone)

    # ------------------------------------------------------------------ catching up

    def after(self, position: Position) -> list[Run] | None:
        """Return the kept changes after `position`, up to 256 KiB; None if they do not follow it."""
        if position == self.position:
            return []
        start = next((index for index, (_, before, _) in enumerate(self._log) if before == position), None)
        if position == START or start is None:
            return None
        runs: list[Run] = []
        entries: list[Entry] = []
        size, first, base = 0, START, None
        for index in range(start, len(self._log)):
            at, before, entry = self._log[index]
            if entry is None:
                runs += runs_of(self._name, first, base, entries)
                entries, first, base = [], at, before
                size += ENTRY
                continue
            size += len(entry.data) + ENTRY
            if size > RUN_BYTES and index > start:
                break
            if not entries and base is None:
                first = at
            entries.append(entry)
        return [*runs, *runs_of(self._name, first, base, entries)]

    def full_state(self) -> bytes:
        """Return the table of writers and the object's state, for `load`. Raises what the object raises."""
        table = [[origin, epoch, n] for (origin, epoch), n in self._table.items()]
        return envelope.encode([table, as_bytes("a full state", self._obj.full_state())])

    def load(self, node: str, position: Position, body: bytes) -> bool:
        """Replace the content by the full state of `node`; False if the object raises. Raises BadMessage, TooLarge."""
        value = envelope.decode(body, what=_WHAT, limit=self._limit, peer=node)
        table, full = _full_from(value, node)
        try:
            self._obj.load(full)
        except BaseException as error:  # the program's
            self.failed(node, "load", error)
            return False
        self.loads += 1
        self.changed = True
        self.position = position
        self.known = max(self.known, position)
        self._table = table
        self._log.clear()
        self._log_bytes = 0
        for key in [one for one, (at, _) in self._held.items() if at <= position]:
            _, entry = self._held.pop(key)
            self._held_bytes -= _size(entry)
        self._confirm(table.get(self._writer, 0))
        self._release()
        return True

    def failed(self, node: str, call: str, error: BaseException) -> None:
        """Count and report an exception of the object, with the node that the input came from. Raises Ctrl-C again."""
        failure = contained(error)
        self.failures += 1
        self._report(node, f"{self._name}: {call} raised {describe(failure)}")


def _size(entry: Entry | None) -> int:
    return ENTRY + (0 if entry is None else len(entry.data))


def runs_of(name: str, first: Position, base: Position | None, entries: Iterable[Entry]) -> list[Run]:
    """Return changes as messages of at most 256 KiB and 1,024 changes."""
    runs: list[Run] = []
    at = first
    group: list[Entry] = []
    size = 0
    for entry in entries:
        size += len(entry.data) + ENTRY
        if group and (size > FRAGMENT_LIMIT or len(group) == MOST_ENTRIES):
            runs.append(Run(name, at, base, tuple(group)))
            at = at.at(at.number + len(group) + (at.number == 0))
            base, group, size = None, [], len(entry.data) + ENTRY
        group.append(entry)
    if group or base is not None:
        runs.append(Run(name, at, base, tuple(group)))
    return runs


def _full_from(value: object, node: str) -> tuple[OrderedDict[tuple[str, int], int], bytes]:
    """Read the table of writers and the state of an object. Raises BadMessage."""
    if type(value) is not list or len(value) != 2 or type(value[0]) is not list or type(value[1]) is not bytes:
        raise BadMessage(_WHAT, "a full state must be a table and bytes", node)
    table: OrderedDict[tuple[str, int], int] = OrderedDict()
    if len(value[0]) > WRITERS:
        raise BadMessage(_WHAT, f"{len(value[0])} writers, over the limit of {WRITERS}", node)
    for row in value[0]:
        if type(row) is not list or [type(one) for one in row] != [str, int, int]:
            raise BadMessage(_WHAT, "a writer must be an id, an epoch and a number", node)
        table[row[0], row[1]] = row[2]
    return table, value[1]
