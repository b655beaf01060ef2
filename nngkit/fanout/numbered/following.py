"""Messages of a SUB from the journal on: recorded ones from an offset, then live ones, without a gap or a duplicate.

::

    async with Sub(dial="tcp://host:7000", topics="") as sub, Following(sub, "journal", topic="ticks") as ticks:
        async for message in ticks:            # bytes; Missing for what is in neither
            ...

A recorder stores what a `Publisher` sends; this reads it from the offset `since` and joins it to what `sub` receives,
by the publisher's numbers. For other publishers `number` returns the source and the number of a message, (run, int):
numbers of a source grow by one with each message, whatever its topic. So `sub` subscribes to all that the recorder
records. The recorder may be behind: at a gap the journal is read again for up to `patience` seconds. A `Publisher`
whose heartbeats stop is connected again (nngkit.redial).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import trio

from nngkit.background import Background, UnderTrio, WakeUp
from nngkit.errors import BadMessage, Closed, ConfigError, Damaged, TooLarge
from nngkit.fanout.durable.feed import Feed
from nngkit.fanout.numbered.joining import Join, Missing, Numbered
from nngkit.fanout.numbered.lag import HEARTBEAT, TRAILER_SIZE, WITHHELD, data_size, read_trailer
from nngkit.fanout.numbered.messages import HEARTBEATS
from nngkit.instruments import Gauge, Total
from nngkit.journal.reader import Journal, open_journal
from nngkit.protocols import Sub
from nngkit.redial import SilentPeers

TURN: Final = 256
CHUNK: Final = 4096  # records of one step: milliseconds, in which live messages wait
POLL: Final = 0.005  # seconds; a recorder syncs 200 times a second at most

Parse = Callable[[bytes], Numbered | bytes | None]  # None: not for the reader; bytes: without a number


def _numbered(number: Callable[[bytes], tuple[Hashable, int] | None], message: bytes) -> Numbered | bytes:
    at = number(message)
    return message if at is None else (*at, message)


def _published(message: bytes) -> Numbered | bytes | None:
    """Take trailer and headers off a Publisher's message."""
    found = read_trailer(message)
    if found is None:
        return message
    if message.startswith((HEARTBEAT, WITHHELD)):
        return None
    publisher, epoch, number, _ = found
    return (publisher, epoch), number, message[: data_size(message)]


def _interval(messages: Iterable[bytes]) -> float | None:
    """Return the interval that a Publisher's heartbeat among the messages tells."""
    for message in messages:
        if message.startswith(HEARTBEAT):
            with suppress(BadMessage, TooLarge):
                return HEARTBEATS.decode(message[len(HEARTBEAT) : -TRAILER_SIZE]).interval
    return None


@dataclass(frozen=True, slots=True)
class FollowingStats:
    """Position and counters of a Following."""

    offset: Gauge
    """Offset of the next message to be read."""
    recorded: Total
    """Messages read from the journal."""
    live: Total
    """Messages received live."""
    duplicates: Total
    """Duplicates dropped."""
    missing: Total
    """Missing messages."""
    joins: Total
    """Times that it went from the journal to live messages."""
    held: Gauge
    """Messages that wait for the next one."""
    forgotten: Total
    """Sources over 10,000, the quiet ones first: the next message of one counts as its first."""


class Following(UnderTrio):
    """Messages from the journal, then live; use it with `async with`, under trio. Does not close `sub`.

    `topic`: the name of the recorder's stream. `number`: source and number of a message, None for one without. By
    default messages are a `Publisher`'s, with sources (publisher, epoch); they are returned without trailer and
    headers, and its heartbeats not at all. `held`: live messages kept while the journal is read, or the program is
    busy; over it the oldest are dropped, as the journal has them too. Messages without a number (None) are passed on
    once live, and are not joined.
    Entering raises ConfigError, Damaged.
    """

    def __init__(
        self,
        sub: Sub,
        journal: str | os.PathLike[str],
        number: Callable[[bytes], tuple[Hashable, int] | None] | None = None,
        *,
        topic: str,
        since: int = 0,
        partition: int = 0,
        held: int = 100_000,
        patience: float = 2.0,
    ) -> None:
        if since < 0:
            raise ConfigError("since", f"{since} is not an offset", since)
        self._sub = sub
        self._location = journal
        self._parse: Parse = _published if number is None else partial(_numbered, number)
        self._topic = topic
        self._offset = since
        self._partition = partition
        self._held = held
        self._join = Join(held)
        self._patience = patience
        self._recorded = self._live = self._missing = self._joins = 0

    async def __aenter__(self) -> Self:
        self._entering()
        self._journal: Journal = await trio.to_thread.run_sync(open_journal, self._location)
        self._journal.bounds(self._partition)
        self._feed = Feed(self._journal, self._partition, (self._topic,))
        self._arrived: deque[Numbered | bytes] = deque()
        self._ready: deque[bytes | Missing] = deque()
        self._catching_up = True
        self._until: float | None = None
        self._changed = WakeUp()
        self._ended = False
        self._background = Background()
        await self._background.open()
        self._publishers = SilentPeers(self._sub, "publisher")
        self._background.start(self._publishers.run)
        self._background.start(self._receive)
        return self

    async def _before_end(self) -> None:
        self._ended = True
        self._changed.wake()

    @property
    def stats(self) -> FollowingStats:
        """Current state."""
        return FollowingStats(
            self._offset,
            self._recorded,
            self._live,
            self._join.duplicates,
            self._missing,
            self._joins,
            self._join.held,
            self._join.forgotten,
        )

    @property
    def is_live(self) -> bool:
        """True while the messages come from the live connection."""
        return not self._catching_up

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes | Missing:
        while not self._ready:
            self._ready.extend(await self.receive_many())
        return self._ready.popleft()

    async def receive_many(self) -> list[bytes | Missing]:
        """Return the next messages, waiting for some. Raises StopAsyncIteration once `sub` is closed.

        If cancelled, none is lost.
        """
        while True:
            found = await self._catch_up() if self._catching_up else await self._next_live()
            if found:
                self._missing += sum(each.last - each.first + 1 for each in found if type(each) is Missing)
                return found

    async def _receive(self) -> None:
        """Receive live messages as they come, so that the socket drops none."""
        parse = self._parse
        while True:
            try:
                messages = await self._sub.arecv_many(TURN)
            except Closed:
                self._ended = True
                self._changed.wake()
                return
            if parse is _published and (interval := _interval(messages)) is not None:
                self._publishers.expect(interval)
            numbered = [each for message in messages if (each := parse(message)) is not None]
            if self._catching_up:
                self._join.hold([each for each in numbered if type(each) is tuple])
            else:
                self._arrived.extend(numbered)
                if len(self._arrived) > self._held:  # the journal has what the program is too slow for
                    self._join.hold([each for each in self._arrived if type(each) is tuple])
                    self._arrived.clear()
                    self._catching_up = True
            self._changed.wake()

    async def _catch_up(self) -> list[bytes | Missing]:
        """Return the next recorded messages; at the end of the journal, the held ones."""
        end = self._journal.end(self._partition)
        if self._offset > end:
            raise Damaged(str(self._location), f"it ends at offset {end}", offset=self._offset)
        if self._offset < end:
            columns, self._offset = await trio.to_thread.run_sync(self._feed.take, self._offset, end, CHUNK, 1 << 22)
            if columns is None:
                return []
            parse, values = self._parse, columns.values()
            found = self._join.recorded([each for value in values if type(each := parse(value)) is tuple])
            self._recorded += len(values)
            if found:
                self._until = None
            return found
        now = trio.current_time()
        if self._until is None:
            self._until = now + self._patience
        if not self._join.caught_up() and now < self._until and not self._ended:
            await trio.sleep(POLL)
            return []
        self._until = None
        self._catching_up = False
        self._joins += 1
        before = self._join.held
        found = self._join.finish()
        self._live += before
        if not found:
            await trio.lowlevel.checkpoint()
        return found

    async def _next_live(self) -> list[bytes | Missing]:
        while not self._arrived:
            if self._catching_up:  # so many have come that the journal has to be read again
                return []
            if self._ended:
                raise self._background.failure or StopAsyncIteration
            await self._changed.wait()
        arrived = list(self._arrived)
        self._arrived.clear()
        plain = [each for each in arrived if type(each) is bytes]
        found, rest = self._join.live([each for each in arrived if type(each) is tuple])
        self._live += len(arrived) - len(rest)
        if rest:  # a gap: the journal may have it
            self._join.hold(rest)
            self._catching_up = True
        return [*found, *plain]
