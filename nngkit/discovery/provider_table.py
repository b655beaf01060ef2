"""The registry's table: a row for each provider, the pipes that carry it, and the views. Pure; knows no rounds.

The registry decides; the table keeps rows, pipes, indexes, caps, the list of the dead and the cached views in step, and
notes an Event for every move. Nothing here is public: the registry is the door.

 * `row.pipes` and `pipe.rows` say the same thing from both sides, always: `attach` and `detach` change them together.
 * Who is down is in `_down`, in the order in which they went down; nobody else is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from nngkit.discovery.liveness import Limits, shortlists
from nngkit.discovery.messages import Reply
from nngkit.discovery.provider import Event, Key, Provider, Reason, State, Status

__all__ = ["TEXT", "Pipe", "Row", "Table"]

TEXT: Final = ""
"""The sender of a text row; a CBOR sender's id is never empty."""
_LEFT_KEPT: Final = 4_096  # pipes remembered as gone, against replies that cross with their loss


@dataclass(slots=True, eq=False)
class Row:
    """One provider, and what is known of it.

    `heard`: the number of the newest round when it last gave a sign of life. `counted`: the same when its silence was
    last counted. `leaving`: it has said bye.
    """

    provider: Provider
    key: Key
    state: State = State.JOINING
    reason: Reason = Reason.ANSWERED
    since: float = 0.0
    misses: int = 0
    heard: int = 0
    counted: int = 0
    last_reply: float | None = None
    rtt: float | None = None
    stale: bool = False
    leaving: bool = False
    round: int = 0
    pipes: set[int] = field(default_factory=set)

    def status(self) -> Status:
        """The row for people."""
        return Status(
            provider=self.provider,
            state=self.state,
            reason=self.reason,
            since=self.since,
            misses=self.misses,
            last_reply=self.last_reply,
            rtt=self.rtt,
            stale=self.stale,
            pipes=tuple(sorted(self.pipes)),
            round=self.round,
        )


@dataclass(slots=True, eq=False)
class Pipe:
    """A connection: which rows it carries and who on it listed them, what it speaks, what it has cost.

    `body`, `said`, `fast`: the newest CBOR reply, what it said, and of which rows; most say the same each time.
    `body` is None where that is not worth keeping, or a cap kept some of it out.
    """

    number: int
    rows: dict[Key, str] = field(default_factory=dict)  # key -> sender
    places: dict[tuple[str, str], Key] = field(default_factory=dict)  # (name, address) -> key of a CBOR row
    sender: str = TEXT
    cbor: bool = False
    relay: bool = False
    spoke: bool = False
    asked: bool = False
    work: int = 0
    body: bytes | None = None
    said: Reply | None = None
    fast: tuple[tuple[Row, Provider], ...] = ()


class Table:
    """Rows, pipes, and the views. Moves are noted as events until `take_events` takes them."""

    def __init__(self, limits: Limits) -> None:
        self.rows: dict[Key, Row] = {}
        self.pipes: dict[int, Pipe] = {}
        self.left: dict[int, None] = {}
        self._limits = limits
        self._names: dict[str, dict[Key, Row]] = {}
        self._down: dict[Key, Row] = {}
        self._events: list[Event] = []
        self._sets: dict[str, frozenset[Provider]] = {}
        self._choices: dict[str, Mapping[str, Sequence[Provider]]] = {}
        self._snapshot: Mapping[str, frozenset[Provider]] | None = None

    # Pipes

    def join(self, number: int) -> Pipe | None:
        """The pipe, new if need be; None if it has left, or over the cap."""
        pipe = self.pipes.get(number)
        if pipe is None and number not in self.left and len(self.pipes) < self._limits.pipes:
            pipe = self.pipes[number] = Pipe(number)
        return pipe

    def leave(self, number: int) -> None:
        """The pipe is gone and never comes back. The caller has dropped its rows."""
        self.pipes.pop(number, None)
        self.left[number] = None
        if len(self.left) > _LEFT_KEPT:
            del self.left[next(iter(self.left))]

    def attach(self, record: Provider, pipe: Pipe, sender: str) -> Row | None:
        """The row of `record`, carried by `pipe` from now on, new and JOINING if need be; None if a cap forbids it."""
        row = self.rows.get(record.key)
        if row is None or pipe.number not in row.pipes:
            if len(pipe.rows) >= self._limits.per_pipe:
                return None
            row = row or self._add(record)
            if row is None:
                return None
            row.pipes.add(pipe.number)
        pipe.rows[row.key] = sender
        if sender != TEXT:
            pipe.places[row.key[:2]] = row.key
        return row

    def detach(self, row: Row, pipe: Pipe) -> None:
        """`pipe` carries `row` no longer."""
        row.pipes.discard(pipe.number)
        del pipe.rows[row.key]
        if pipe.places.get(row.key[:2]) == row.key:
            del pipe.places[row.key[:2]]

    # Rows

    def _add(self, provider: Provider) -> Row | None:
        while (full := self._full(provider.name)) and self._down:  # the dead give way
            self._forget(next(iter(self._down.values())))
        if full:
            return None
        row = Row(provider, provider.key)
        self.rows[row.key] = row
        self._names.setdefault(provider.name, {})[row.key] = row
        return row

    def _full(self, name: str) -> bool:
        more_names = name not in self._names and len(self._names) >= self._limits.names
        return more_names or len(self.rows) >= self._limits.providers

    def move(self, row: Row, new: State, reason: Reason, now: float, round: int) -> None:
        """Put `row` into `new` (or note that its record changed, if it is there already)."""
        self._events.append(Event(row.provider.name, row.provider, row.state, new, reason, now, round))
        self.touch(row)
        if new is row.state:
            return
        if row.state is State.DOWN:
            del self._down[row.key]
        row.state, row.reason, row.since = new, reason, now
        if new is State.DOWN:
            row.stale = False
            self._down[row.key] = row

    def touch(self, row: Row) -> None:
        """The views of this row's name are to be made anew."""
        self._sets.pop(row.provider.name, None)
        self._choices.pop(row.provider.name, None)
        self._snapshot = None

    def forget_old(self, now: float) -> None:
        """Drop the rows that have been down for too long, or are too many, oldest first."""
        while self._down:
            row = next(iter(self._down.values()))
            if len(self._down) <= self._limits.max_down and now - row.since < self._limits.keep_down:
                return
            self._forget(row)

    def _forget(self, row: Row) -> None:
        for number in tuple(row.pipes):
            self.detach(row, self.pipes[number])
        del self.rows[row.key]
        del self._down[row.key]
        same_name = self._names[row.provider.name]
        del same_name[row.key]
        if not same_name:
            del self._names[row.provider.name]
        self.touch(row)

    # Views

    def take_events(self) -> tuple[Event, ...]:
        """What was noted since the last call."""
        events = tuple(self._events)
        self._events.clear()
        return events

    def choices(self, name: str) -> Mapping[str, Sequence[Provider]]:
        """Return the shortlists from which `resolve` chooses, by zone. Empty for a name that is not known."""
        found = self._choices.get(name)
        if found is None:
            rows = self._names.get(name)
            if rows is None:
                return {}
            found = self._choices[name] = shortlists(rows.values())
        return found

    def snapshot(self) -> Mapping[str, frozenset[Provider]]:
        """Every name that can be resolved, with its providers. The same object until something changes."""
        if self._snapshot is None:
            every: dict[str, frozenset[Provider]] = {}
            for name, rows in self._names.items():
                found = self._sets.get(name)
                if found is None:
                    best = [row for row in rows.values() if row.state is State.UP] or _suspects(rows)
                    found = self._sets[name] = frozenset(row.provider for row in best)
                if found:
                    every[name] = found
            self._snapshot = MappingProxyType(every)
        return self._snapshot

    def view(self) -> tuple[Status, ...]:
        """Every row, in the order of the keys."""
        return tuple(self.rows[key].status() for key in sorted(self.rows))


def _suspects(rows: Mapping[Key, Row]) -> list[Row]:
    return [row for row in rows.values() if row.state is State.SUSPECT]
