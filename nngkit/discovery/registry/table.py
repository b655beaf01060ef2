"""The registry's table: a row for each provider, the pipes that carry it, and the snapshots. Pure; knows no rounds.

The registry decides. The table keeps rows, pipes, indexes, caps, the list of down rows and the cached snapshots
consistent, and records an Event for every move. Internal: the registry is the interface.

 * `row.pipes` and `pipe.rows` are the two sides of one relation: `attach` and `detach` change them together.
 * `_down` holds exactly the rows that are down, in the order in which they went down.
 * `_changes` has the rows that changed last, oldest first, with the number of the change: each row once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from nngkit.discovery.lanes import Lane, Preference, find_lane
from nngkit.discovery.messages import SurveyReply
from nngkit.discovery.provider import Event, Key, Provider, Reason, State, Status
from nngkit.discovery.registry.liveness import RegistryLimits

TEXT: Final = ""
"""Sender of a text row; a CBOR sender's id is never empty."""
PREFERENCES: Final = 64
"""Cap on the preferences whose lanes are kept for each name: callers name them in queries."""
CHANGES: Final = 4_096
"""Cap on the changed rows that are remembered, about 1 MiB: a watcher that misses more fetches all rows."""
_LEFT_KEPT: Final = 4_096  # lost pipes remembered, against replies that cross with the loss


@dataclass(slots=True, eq=False)
class ProviderRow:
    """One provider and its state.

    `heard`: the number of the newest round at its last sign of life. `counted`: the same when a miss was last counted.
    `leaving`: it has said goodbye. `sender`: the process that stated it first.
    """

    provider: Provider
    key: Key
    sender: str
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
        """Return the row as a Status."""
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
class TrackedPipe:
    """A connection: the rows it carries with the sender of each, the form it speaks, and its cost.

    `elapsed`: seconds from the query to the reply that is being processed. `last_body`, `last_reply`, `last_rows`: the
    newest CBOR reply, decoded, and its rows; most replies repeat the previous one. `last_body` is None where it is too
    long to keep, or some of its records were refused. `who`: the name of the peer under a trust.
    """

    number: int
    who: str | None = None
    rows: dict[Key, str] = field(default_factory=dict)  # key -> sender
    places: dict[tuple[str, str], Key] = field(default_factory=dict)  # (name, address) -> key of a CBOR row
    sender: str = TEXT
    cbor: bool = False
    relay: bool = False
    spoke: bool = False
    asked: bool = False
    work: int = 0
    elapsed: float = 0.0
    last_body: bytes | None = None
    last_reply: SurveyReply | None = None
    last_rows: tuple[tuple[ProviderRow, Provider], ...] = ()


class ProviderTable:
    """Rows, pipes and snapshots. Moves are recorded as events until `take_events` takes them."""

    def __init__(self, limits: RegistryLimits) -> None:
        self.rows: dict[Key, ProviderRow] = {}
        self.pipes: dict[int, TrackedPipe] = {}
        self.left: dict[int, None] = {}
        self._limits = limits
        self._names: dict[str, dict[Key, ProviderRow]] = {}
        self._down: dict[Key, ProviderRow] = {}
        self._events: list[Event] = []
        self._sets: dict[str, frozenset[Provider]] = {}
        self._lanes: dict[str, dict[Preference, Lane | None]] = {}
        self._snapshot: Mapping[str, frozenset[Provider]] | None = None
        self.version = 0  # count of events so far
        self._changes: dict[Key, int] = {}
        self._forgotten = 0  # the newest change that is no longer in `_changes`

    # Pipes

    def join(self, number: int, who: str | None) -> TrackedPipe | None:
        """Return the pipe, created if needed; None if it was lost, or over the cap."""
        pipe = self.pipes.get(number)
        if pipe is None and number not in self.left and len(self.pipes) < self._limits.pipes:
            pipe = self.pipes[number] = TrackedPipe(number, who)
        return pipe

    def leave(self, number: int) -> None:
        """Remove a pipe for good. The caller has dropped its rows."""
        self.pipes.pop(number, None)
        self.left[number] = None
        if len(self.left) > _LEFT_KEPT:
            del self.left[next(iter(self.left))]

    def attach(self, record: Provider, pipe: TrackedPipe, sender: str) -> ProviderRow | None:
        """Return the row of `record`, now carried by `pipe`, created as JOINING if needed; None over a cap."""
        row = self.rows.get(record.key)
        if row is None or pipe.number not in row.pipes:
            if len(pipe.rows) >= self._limits.per_pipe:
                return None
            row = row or self._add(record, sender)
            if row is None:
                return None
            row.pipes.add(pipe.number)
        pipe.rows[row.key] = sender
        if sender != TEXT:
            pipe.places[row.key[:2]] = row.key
        return row

    def detach(self, row: ProviderRow, pipe: TrackedPipe) -> None:
        """Remove `row` from the rows that `pipe` carries."""
        row.pipes.discard(pipe.number)
        del pipe.rows[row.key]
        if pipe.places.get(row.key[:2]) == row.key:
            del pipe.places[row.key[:2]]

    # Rows

    def _add(self, provider: Provider, sender: str) -> ProviderRow | None:
        while (full := self._full(provider.name)) and self._down:  # down rows give way
            self._forget(next(iter(self._down.values())))
        if full:
            return None
        row = ProviderRow(provider, provider.key, sender)
        self.rows[row.key] = row
        self._names.setdefault(provider.name, {})[row.key] = row
        return row

    def _full(self, name: str) -> bool:
        more_names = name not in self._names and len(self._names) >= self._limits.names
        return more_names or len(self.rows) >= self._limits.providers

    def move(self, row: ProviderRow, new: State, reason: Reason, now: float, round: int) -> None:
        """Move `row` to the state `new`, or record that its provider changed if it is there already."""
        self._events.append(Event(row.provider.name, row.provider, row.state, new, reason, now, round))
        self.version += 1
        self._remember(row.key, self.version)
        self.touch(row)
        if new is row.state:
            return
        if row.state is State.DOWN:
            del self._down[row.key]
        row.state, row.reason, row.since = new, reason, now
        if new is State.DOWN:
            row.stale = False
            self._down[row.key] = row

    def touch(self, row: ProviderRow) -> None:
        """Invalidate the cached snapshots of this row's name."""
        self._sets.pop(row.provider.name, None)
        self._lanes.pop(row.provider.name, None)
        self._snapshot = None

    def mark(self, row: ProviderRow) -> None:
        """List this row with the next change: a field has changed for which there is no event."""
        self._remember(row.key, self.version + 1)
        self.touch(row)

    def _remember(self, key: Key, version: int) -> None:
        self._changes.pop(key, None)
        self._changes[key] = version
        if len(self._changes) > CHANGES:
            oldest = next(iter(self._changes))
            self._forgotten = max(self._forgotten, self._changes.pop(oldest))

    def changes(self, since: int, limit: int) -> tuple[int, tuple[Key, ...]] | None:
        """Return the rows that changed after change `since`, at most `limit`, and the number of the last change.

        None if some are no longer remembered, or `since` is of another table. Costs as much as there are changes.
        """
        if not self._forgotten <= since <= self.version:
            return None
        found = []
        for key in reversed(self._changes):
            if (number := self._changes[key]) <= since:
                break
            if number <= self.version:
                found.append((number, key))
        found.reverse()
        version = self.version
        if len(found) > limit:  # end between two changes, so that the next request continues with the rest
            version = found[limit][0] - 1
            found = [one for one in found[:limit] if one[0] <= version]
            if not found:
                return None
        return version, tuple(key for _, key in found)

    def forget_old(self, now: float) -> None:
        """Drop down rows that are too old or too many, oldest first."""
        while self._down:
            row = next(iter(self._down.values()))
            if len(self._down) <= self._limits.max_down and now - row.since < self._limits.keep_down:
                return
            self._forget(row)

    def _forget(self, row: ProviderRow) -> None:
        for number in tuple(row.pipes):
            self.detach(row, self.pipes[number])
        del self.rows[row.key]
        del self._down[row.key]
        same_name = self._names[row.provider.name]
        del same_name[row.key]
        if not same_name:
            del self._names[row.provider.name]
        self.touch(row)

    # Snapshots

    def take_events(self) -> tuple[Event, ...]:
        """Return and clear the recorded events."""
        events = tuple(self._events)
        self._events.clear()
        return events

    def lane(self, name: str, preference: Preference) -> Lane | None:
        """Return the lane that `resolve` chooses from; None without a provider."""
        rows = self._names.get(name)
        if rows is None:
            return None
        known = self._lanes.setdefault(name, {})
        if preference not in known:
            if len(known) >= PREFERENCES:
                known.clear()
            known[preference] = find_lane(rows.values(), preference)
        return known[preference]

    def named(self, name: str) -> Iterable[ProviderRow]:
        """Return the rows of a name."""
        return self._names.get(name, {}).values()

    def snapshot(self) -> Mapping[str, frozenset[Provider]]:
        """Return the names that can be resolved, with their providers. The same object until something changes."""
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
        """Return every row, in the order of the keys."""
        return tuple(self.rows[key].status() for key in sorted(self.rows))

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the numbers of rows by state, and of those that are up by name."""
        states = Counter(row.state for row in self.rows.values())
        up = dict.fromkeys((row.provider.name for row in self.rows.values()), 0)
        up |= Counter(row.provider.name for row in self.rows.values() if row.state is State.UP)
        return {state.value: states[state] for state in State}, up


def _suspects(rows: Mapping[Key, ProviderRow]) -> list[ProviderRow]:
    return [row for row in rows.values() if row.state is State.SUSPECT]
