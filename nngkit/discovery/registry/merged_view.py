"""View of the services merged from several daemons, and its changes. Pure.

Daemons are independent and services dial all of them, so normally each daemon sees every service. Otherwise:

======================================  ==========================================================================
fault                                   merged view
======================================  ==========================================================================
a daemon cannot reach a service         as the others see it: up for one daemon is up
one daemon reports a service draining   draining: only the service itself can have announced it
a daemon is gone or does not answer     as the others see it; without another, as last seen (`fresh` is then False)
a daemon was restarted, and is empty    also as seen before the restart, until none has come back for 3 s
======================================  ==========================================================================

A provider in this view is up, suspect or draining; others are absent. The events that `take_events` returns, applied in
order to an empty table, give `merged`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nngkit.chance import RandomSource
from nngkit.discovery.lanes import ANY, Lane, Preference, explain, find_lane
from nngkit.discovery.provider import Event, Key, Provider, Reason, State, Status
from nngkit.discovery.registry.resolution import Resolution, give_reason

RESTART_GRACE: Final = 3.0
"""Seconds: services reconnect within 0.2 s of a daemon's return and are asked at once; a busy machine takes longer.

Many services under TLS come back one after another, each with a millisecond of CPU at both ends: 1,000 took 8 s on
two cores beside other work. So the time begins again with each that comes back. Resumed handshakes would not do in its
place: a daemon that starts again cannot decrypt the tickets of the one before.
"""
MOST_GRACE: Final = 30.0
"""Seconds from the restart after which what was seen before it does not count, even if services still come back."""
PREFERENCES: Final = 256
"""Cap on the preferences whose lanes are kept; the program's own calls name them."""
_RANK = {State.DRAINING: 0, State.UP: 1, State.SUSPECT: 2}


@dataclass(slots=True, eq=False)
class _DaemonView:
    """State that one daemon last reported, and the rows kept over its restart.

    `down`: reasons of the providers that it has lost and another daemon still has. `confirmed`: the time at which the
    daemon last said that this is its state. `restarted`: that of its last restart.
    """

    daemon: str = ""
    answers: bool = False
    rows: dict[Key, Status] = field(default_factory=dict)
    down: dict[Key, Reason] = field(default_factory=dict)
    before: dict[Key, Status] = field(default_factory=dict)
    before_until: float = 0.0
    restarted: float = 0.0
    confirmed: float = float("-inf")


class MergedView:
    """Views of several daemons by address, merged. Not thread-safe: one task owns it."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._views = {address: _DaemonView() for address in addresses}
        self._merged: dict[Key, Status] = {}
        self._names: dict[str, dict[Key, Status]] = {}
        self._changed: set[Key] = set()  # keys to merge again
        self._merged_from: tuple[list[_DaemonView], bool] | None = None
        self._lanes: dict[Preference, dict[str, Lane]] = {}
        self._events: list[Event] = []

    # Inputs

    def saw(self, address: str, daemon: str, rows: Iterable[Status], now: float) -> None:
        """Replace the view of the daemon at `address`, whose id is `daemon`, by exactly `rows`."""
        view = self._views[address]
        self._changed.update(view.rows, view.before)
        if view.daemon not in ("", daemon):
            view.before, view.before_until, view.restarted = view.rows, now + RESTART_GRACE, now
        known = view.rows if view.daemon == daemon else {}
        view.daemon, view.rows, view.down = daemon, {}, {}
        self._take(view, tuple(rows), (), known, now)

    def changed(self, address: str, rows: Iterable[Status], gone: Iterable[Key], now: float) -> None:
        """Replace `rows` in the view of the daemon at `address`; it has forgotten the rows of the keys `gone`."""
        view = self._views[address]
        self._take(view, tuple(rows), gone, view.rows, now)

    def _take(
        self, view: _DaemonView, rows: Collection[Status], gone: Iterable[Key], known: Mapping[Key, Status], now: float
    ) -> None:
        """Replace rows in a view. `known`: those that it had since the daemon's restart."""
        view.answers, view.confirmed = True, now
        states = {row.provider.key: row.state for row in rows} if now < view.before_until else {}
        if any(key in view.before and key not in known and states[key] in _RANK for key in states):
            view.before_until = min(now + RESTART_GRACE, view.restarted + MOST_GRACE)
        for row in rows:
            key = row.provider.key
            self._changed.add(key)
            view.rows.pop(key, None)
            view.down.pop(key, None)
            if row.state in _RANK:
                view.rows[key] = row
            else:
                view.down[key] = row.reason
        for key in gone:
            self._changed.add(key)
            view.rows.pop(key, None)
        self._merge(now)

    def confirmed(self, address: str, now: float) -> None:
        """Record that the daemon at `address` has said that nothing changed."""
        self._views[address].confirmed = now

    def silent(self, address: str, now: float) -> None:
        """Record that the daemon at `address` does not answer."""
        self._views[address].answers = False
        self._merge(now)

    def expire(self, now: float) -> float | None:
        """Forget expired rows from before restarts; return the seconds until the next expiry, None without one."""
        self._merge(now)
        return min((view.before_until - now for view in self._views.values() if view.before), default=None)

    # Questions

    @property
    def fresh(self) -> bool:
        """True if at least one daemon answers."""
        return any(view.answers for view in self._views.values())

    def answers(self, address: str) -> bool:
        """Return True if the daemon at `address` answers."""
        return self._views[address].answers

    def differences(self, most: int) -> dict[Key, dict[str, State | None]]:
        """Return providers in different states at the daemons that answer, by address; None: it knows none.

        At most `most` of them.
        """
        views = {address: view.rows for address, view in self._views.items() if view.answers}
        found: dict[Key, dict[str, State | None]] = {}
        if len(views) < 2:
            return found
        for key in dict.fromkeys(key for rows in views.values() for key in rows):
            seen = {address: rows.get(key) for address, rows in views.items()}
            states = {address: None if row is None else row.state for address, row in seen.items()}
            if len(set(states.values())) > 1:
                found[key] = states
                if len(found) == most:
                    break
        return found

    def counts(self) -> dict[str, int]:
        """Return how many providers each daemon has last reported that were not down, by address."""
        return {address: len(view.rows) for address, view in self._views.items()}

    def lanes(self, preference: Preference) -> dict[str, Lane]:
        """Return the lanes known for a preference, by name: a cache, replaced when anything changes."""
        found = self._lanes.get(preference)
        if found is None:
            if len(self._lanes) >= PREFERENCES:
                self._lanes.clear()
            found = self._lanes[preference] = {}
        return found

    def resolve(self, name: str, rng: RandomSource, preference: Preference = ANY) -> Provider:
        """Return a provider of `name`, at random by weight in the first lane (lanes.py). Raises ServiceNotFound."""
        lanes = self.lanes(preference)  # before the rows: a merge by another thread replaces the rows first
        lane = lanes.get(name)
        if lane is None:
            rows = self._rows(name)
            lane = find_lane(rows, preference)
            if lane is None:
                raise explain(name, rows, preference)
            lanes[name] = lane
        return lane.choose(rng)

    def resolution(self, name: str, rng: RandomSource, preference: Preference = ANY, *, now: float) -> Resolution:
        """Return `resolve`'s choice with its reason. Raises ServiceNotFound."""
        provider = self.resolve(name, rng, preference)
        row = self._merged.get(provider.key)
        saying = {
            address: view.confirmed
            for address, view in self._views.items()
            if provider.key in view.rows and (view.answers or not self.fresh)
        }
        lane = find_lane(self._rows(name), preference)
        return Resolution(
            provider=provider,
            age=max(0.0, now - max(saying.values(), default=float("-inf"))),
            reason=give_reason(provider, row, preference, 1 if lane is None else len(lane.providers)),
            daemons=tuple(saying),
            fresh=self.fresh,
        )

    def _rows(self, name: str) -> tuple[Status, ...]:
        """Return the rows of a name. In one step of the interpreter, because another thread may change them."""
        return tuple(self._names.get(name, {}).values())

    def snapshot(self) -> dict[str, frozenset[Provider]]:
        """Return the providers that `resolve` chooses from, by name."""
        found = {}
        for name in tuple(self._names):
            rows = self._rows(name)
            for wanted in (State.UP, State.SUSPECT):
                if best := frozenset(row.provider for row in rows if row.state is wanted):
                    found[name] = best
                    break
        return found

    @property
    def merged(self) -> Mapping[Key, Status]:
        """All providers, each as seen by the daemon that takes precedence."""
        return self._merged

    def take_events(self) -> tuple[Event, ...]:
        """Return the changes since the last call."""
        events = tuple(self._events)
        self._events.clear()
        return events

    # Merging

    def _merge(self, now: float) -> None:
        """Merge again: all rows, or only those of `_changed`, so that a small change costs little."""
        for view in self._views.values():
            if view.before and now >= view.before_until:
                self._changed.update(view.before)
                view.before = {}
        voices = [view for view in self._views.values() if view.answers] or list(self._views.values())
        steady = any(not view.before for view in voices)  # with a daemon that did not restart, `before` is not needed
        if (voices, steady) != self._merged_from:
            self._merged_from = (voices, steady)
            for view in self._views.values():
                self._changed.update(view.rows, view.before)
            self._changed.update(self._merged)
        for key in self._changed:
            best: Status | None = None
            for view in voices:
                row = view.rows.get(key)
                if row is None and not steady:
                    row = view.before.get(key)
                if row is not None and (best is None or _RANK[row.state] < _RANK[best.state]):
                    best = row
            self._replace(key, best, now)
        if self._changed:
            self._changed = set()
            self._lanes = {}  # after the rows: callers on other threads see either both old, or new rows first

    def _replace(self, key: Key, row: Status | None, now: float) -> None:
        before = self._merged.get(key)
        if row is None:
            told = [(view.answers, view.down.pop(key, None)) for view in self._views.values()]
            if before is not None:
                reasons = (reason for answers, reason in told if answers)
                why = next(filter(None, reasons), Reason.MISSED)  # unknown even as down: it did not come back
                self._events.append(Event(key[0], before.provider, before.state, State.DOWN, why, now, before.round))
                del self._merged[key]
                rows = self._names[key[0]]
                del rows[key]
                if not rows:
                    del self._names[key[0]]
            return
        old = State.JOINING if before is None else before.state
        if before is None or old is not row.state:
            self._events.append(Event(key[0], row.provider, old, row.state, row.reason, row.since, row.round))
        elif before.provider != row.provider:
            self._events.append(Event(key[0], row.provider, old, old, Reason.CHANGED, now, row.round))
        self._merged[key] = row
        self._names.setdefault(key[0], {})[key] = row
