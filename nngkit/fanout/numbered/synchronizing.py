"""Join of a snapshot with live messages: each message once, none missing. Decided by numbers alone.

While a source joins, live events are held. A snapshot is the publisher's state after its message `number`; held
messages up to that number are in it, later ones follow. So the join has no gap and no duplicate whenever the snapshot
was taken, as long as all later messages are held: if they are too many, it begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nngkit.background import WakeUp
from nngkit.fanout.numbered.backlog import OVERHEAD, HighWater, weight_of
from nngkit.fanout.numbered.lag import Event, Gap, Published, Restarted


@dataclass(frozen=True, slots=True)
class Synchronized:
    """The publisher's state after message `number` follows, as `count` messages, and then every later message."""

    publisher: bytes
    epoch: int
    number: int
    count: int


class Held:
    """Bytes that all sources of a subscriber hold together."""

    def __init__(self) -> None:
        self.bytes = 0


class Source:
    """One publisher, as a subscriber hears it. `joining`: it needs a snapshot, and live events are held.

    epoch    of the run whose heartbeat was heard last; 0 before, and once no task reports to it any more
    heard    when that heartbeat came, seconds
    changed  woken when `epoch` or `joining` has changed. Create a source in the loop
    """

    def __init__(self, publisher: bytes, high_water: HighWater, all_held: Held, *, live: bool = False) -> None:
        self.publisher = publisher
        self.joining = not live
        self.changed = WakeUp()
        self.heard = 0.0
        self._epoch = 0
        self._mark = high_water
        self._held: list[Event] = []
        self._bytes = 0
        self._all = all_held
        self._whole = True  # all events since `restart` are held

    @property
    def epoch(self) -> int:
        """Run whose heartbeat was heard last."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self.changed.wake()

    def begin(self) -> None:
        """Need a snapshot from now on."""
        if not self.joining:
            self.joining = True
            self.restart()
            self.changed.wake()

    def restart(self) -> None:
        """Hold events from here on: before a snapshot is requested."""
        self._drop()
        self._whole = True

    def _drop(self) -> None:
        self._held.clear()
        self._all.bytes -= self._bytes
        self._bytes = 0

    def receive(self, event: Event) -> list[Any]:
        """Return the events to pass on: this one, or none while it joins."""
        if not self.joining:
            return [event]
        if self._whole:
            mark, size = self._mark, weight_of(event) if type(event) is Published else OVERHEAD
            self._bytes += size
            self._all.bytes += size
            self._held.append(event)
            if (mark.messages is not None and len(self._held) > mark.messages) or (
                mark.bytes is not None and self._all.bytes > mark.bytes
            ):
                self._drop()
                self._whole = False
        return []

    def join(self, epoch: int, number: int, messages: Sequence[Published]) -> list[Any] | None:
        """Return what follows from a snapshot; None if it does not meet the held events: then get another."""
        if not self._whole or epoch != self._epoch:
            return None
        self.joining = False
        later: list[Event] = []
        for event in self._held:
            if type(event) is Restarted:  # into this run: what came before is over
                later = [] if event.epoch == epoch else [*later, event]
            elif event.epoch != epoch or (type(event) is Published and event.number > number):
                later.append(event)
            elif type(event) is Gap and event.last > number:
                first = max(event.first, number + 1)
                later.append(replace(event, first=first, count=event.last - first + 1))
        self.restart()
        return [Synchronized(self.publisher, epoch, number, len(messages)), *messages, *later]

    def give_up(self) -> list[Any]:
        """Pass on what is held: there will be no snapshot."""
        if not self.joining:
            return []
        self.joining = False
        held = list(self._held)
        self.restart()
        return held
