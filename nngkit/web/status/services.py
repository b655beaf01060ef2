"""Tables of a view of services: the providers, which of them `resolve` would choose from, and the last changes.

A view tells of its changes by events (`ServiceDiscovery`, `Resolver`), so that a change costs the same beside ten
thousand providers as beside ten. `services` has a row for each provider, `picks` one for each name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final, Protocol

import trio

from nngkit.discovery.history import Change, History
from nngkit.discovery.lanes import find_lane
from nngkit.discovery.provider import Event, Key, State, Status
from nngkit.errors import ConfigError, Full
from nngkit.web.status.feed import Section
from nngkit.web.status.table import Table

SETTLE: Final = 0.1  # seconds between two looks at which names have changed
REVIEW: Final = 5.0  # seconds between two looks at what no event tells of: rows that were forgotten or are stale
KEEP_DOWN: Final = 600.0  # seconds for which a row that is down is shown, as a daemon keeps it
BATCH: Final = 64  # names between two turns of the loop, a millisecond
CHANGES: Final = 200  # changes shown, the newest
TABLES: Final = {
    "services": "Providers and their states.",
    "picks": "Providers that resolve chooses from, for a caller that prefers no zone.",
    "changes": "The last changes of providers.",
}


class Source(Protocol):
    """A view of services."""

    def events(self) -> Any:
        """Yield the current state, then each change."""


def services(
    source: Source, *, view: Callable[[], Iterable[Status]] | None = None, history: History | None = None
) -> Section:
    """Return the tables of a view. `view`: returns all rows; `history`: changes from before the page was opened."""

    async def run(providers: Table, picks: Table, changes: Table) -> None:
        await _Follower(source, view, history, providers, picks, changes).run()

    return Section(TABLES, run)


class _Follower:
    """A view as its events tell, and its tables."""

    def __init__(
        self,
        source: Source,
        view: Callable[[], Iterable[Status]] | None,
        history: History | None,
        providers: Table,
        picks: Table,
        changes: Table,
    ) -> None:
        self._source = source
        self._view = view
        self._history = history
        self._providers = providers
        self._picks = picks
        self._changes = changes
        self._names: dict[str, dict[Key, Status]] = {}
        self._touched: dict[str, None] = {}  # names whose choice may be another
        self._new: list[Event] = []
        self._number = 0
        self._known: dict[str, None] = {}  # keys of the changes shown, the oldest first

    async def run(self) -> None:
        """Follow for ever."""
        past = await self._past()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow)
            reviewed = trio.current_time()
            while True:
                await trio.sleep(SETTLE)
                self._tell(past)
                past = ()
                if trio.current_time() - reviewed >= REVIEW:
                    reviewed = trio.current_time()
                    self._review()

    async def _past(self) -> Sequence[Change]:
        if self._history is None:
            return ()
        try:
            return await trio.to_thread.run_sync(self._history.newest, CHANGES)
        except ConfigError as wrong:
            self._changes.fail(str(wrong))
            return ()

    async def _follow(self) -> None:
        while True:
            try:
                async with aclosing(self._source.events()) as events:
                    async for event in events:
                        self._take(event)
                        if len(self._touched) % BATCH == 0:
                            await trio.lowlevel.checkpoint()
                return
            except Full:
                continue  # the next subscription begins with the whole state

    def _take(self, event: Event) -> None:
        key = event.provider.key
        known = self._names.setdefault(event.name, {}).get(key)
        since = known.since if known is not None and event.old is event.new else event.time
        self._set(Status(event.provider, event.new, event.reason, since))
        if known is None or known.state is not event.new or event.old is event.new:
            self._new.append(event)

    def _set(self, status: Status) -> None:
        provider = status.provider
        self._names.setdefault(provider.name, {})[provider.key] = status
        self._touched[provider.name] = None
        row = {
            "name": provider.name,
            "address": provider.address,
            "id": provider.id,
            "state": status.state.value,
            "reason": status.reason.value,
            "since": round(status.since + _wall(), 3),
            "zone": provider.zone,
            "priority": provider.priority,
            "weight": provider.weight,
            "version": provider.version,
            "tags": sorted(provider.tags),
            "stale": status.stale,
        }
        self._providers.set(_text(provider.key), row)

    def _drop(self, key: Key) -> None:
        self._providers.drop(_text(key))
        rows = self._names[key[0]]
        del rows[key]
        self._touched[key[0]] = None

    def _review(self) -> None:
        """Take over what no event tells of."""
        if self._view is None:
            old = time.monotonic() - KEEP_DOWN
            rows = [status for named in self._names.values() for status in named.values()]
            for status in rows:
                if status.state is State.DOWN and status.since < old:
                    self._drop(status.provider.key)
            return
        seen = {status.provider.key: status for status in self._view()}
        for key in [key for named in self._names.values() for key in named if key not in seen]:
            self._drop(key)
        for key, status in seen.items():
            known = self._names.get(key[0], {}).get(key)
            if known is not None and known.stale is not status.stale:
                self._set(replace(known, stale=status.stale))

    def _tell(self, past: Sequence[Change]) -> None:
        """Bring the choices and the changes up to date. `past`: changes of the history, once."""
        touched, self._touched = self._touched, {}
        for name in touched:
            rows = self._names.get(name, {})
            if not rows:
                self._names.pop(name, None)
                self._picks.drop(name)
                continue
            lane = find_lane(rows.values())
            if lane is None:
                self._picks.set(name, {"of": 0})
                continue
            suspect, _, stale, priority = lane.rank
            pick: dict[str, Any] = {"of": len(lane.providers), "priority": priority}
            pick |= {"suspect": bool(suspect), "stale": bool(stale)}
            if len(lane.providers) == 1:
                pick["address"] = lane.providers[0].address
            self._picks.set(name, pick)
        new, self._new = self._new, []
        if past or new:
            self._show(past, new)

    def _show(self, past: Sequence[Change], new: Sequence[Event]) -> None:
        wall = _wall()
        last = max((change.at for change in past), default=0.0)
        shown = [(change.at, change.name, change.address, change.was, change.state, change.reason) for change in past]
        for event in new:  # those of the past tell of the present state again
            at = event.time + wall
            if at > last + 0.001:
                states = event.old.value, event.new.value, event.reason.value
                shown.append((at, event.name, event.provider.address, *states))
        for at, name, address, was, state, reason in sorted(shown)[-CHANGES:]:
            self._number += 1
            key = str(self._number)
            row = {"at": round(at, 3), "name": name, "address": address, "was": was, "state": state, "reason": reason}
            self._changes.set(key, row)
            self._known[key] = None
        while len(self._known) > CHANGES:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._changes.drop(oldest)


def _wall() -> float:
    """Return the unix time at which the monotonic clock was 0."""
    return time.time() - time.monotonic()


def _text(key: Key) -> str:
    return "|".join(map(str, key))  # no name, id or epoch has a "|"
