"""Subscriber that knows what it missed, how far it is behind, and how to catch up.

::

    async with Subscriber("tcp://127.0.0.1:7000", topics="weather.") as subscriber:
        async for event in subscriber:
            match event:
                case Published(data): ...
                case Gap(count=count): ...            # in the place of what is missing

    async for message in subscriber.messages(): ...   # without the other events

It reads its sockets all the time, so that nothing piles up in the network, and keeps what the program has not read yet
in a capped backlog (backlog.py). A publisher whose heartbeats stop is connected again (nngkit.redial). Runs under trio.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import trio

from nngkit import tracing
from nngkit.background import Background, UnderTrio, WakeUp
from nngkit.errors import BadMessage, Closed, ConfigError, Lost, NngkitError, SlowSubscriber, TimedOut, TooLarge
from nngkit.fanout.numbered.backlog import Backlog, HighWater, Policy, Unread
from nngkit.fanout.numbered.granted import Sifting, check_owner, check_topics, match_of, rights_of
from nngkit.fanout.numbered.lag import (
    MOST_ADDED,
    Accounts,
    Event,
    Gap,
    Heartbeat,
    Published,
    published,
)
from nngkit.fanout.numbered.messages import (
    HEARTBEATS,
    PAGE_LIMIT,
    REPLIES,
    REQUESTS,
    Position,
    PositionReply,
    PublisherHeartbeat,
    RefusedQuery,
    SnapshotPage,
    SnapshotQuery,
)
from nngkit.fanout.numbered.synchronizing import Held, Source, Synchronized
from nngkit.instruments import ByKind, Gauge, Seconds, Total
from nngkit.protocols import TLS, Pattern, Req, Sub, Topics
from nngkit.redial import SilentPeers, SilentServer
from nngkit.trust import Choice, Trust, chosen
from nngkit.trust.rights import own_id
from nngkit.trust.standing import told

log = logging.getLogger("nngkit.fanout")

READ_AHEAD: Final = 8192  # messages that a socket keeps while the loop is busy; over it they are lost, and reported
TURN: Final = 256  # messages examined in one turn of the loop, under a millisecond
PAUSES: Final = (0.05, 0.2, 1.0)  # seconds between tries to get a snapshot
UNHEARD: Final = 5.0  # seconds that a request to a publisher may take
QUIET: Final = 60.0  # seconds without a heartbeat after which one that is not connected is no longer dialed

Topic = str | bytes | Pattern


@dataclass(frozen=True, slots=True)
class SubscriberLag:
    """How far a subscriber is behind one publisher.

    publisher  its id
    behind     messages that were published, and neither received nor reported as missing; as of the last report
    missed     messages that were reported as missing, and have not come late
    """

    publisher: bytes
    behind: int
    missed: int


@dataclass(frozen=True, slots=True)
class SubscriberStats:
    """Counters of a Subscriber's messages, and what is unread now."""

    received: Total
    """Messages with a number, of all topics; those that came late among them."""
    missed: Gauge
    """Messages reported in Gap events as "lost", less those that came late."""
    late: Total
    """Messages that came after they had been reported as missing."""
    withheld: Total
    """Messages of topics to which the publisher's policy does not let it subscribe."""
    dropped: Total
    """Messages received and not read, in Gap events as "slow"."""
    refused: ByKind
    """Messages refused, by reason: no number (not of a Publisher), bad number, duplicate, earlier run, over cap; right,
    binding: of a topic that the policy does not let its publisher publish, or under the id of another."""
    snapshots: Total
    """Snapshots received."""
    unread: Gauge
    """Unread messages."""
    age: Seconds
    """Age of the oldest unread message."""


class Subscriber(UnderTrio):
    """SUB that accounts for every number; use it with `async with`, under trio. Iterating yields its events.

    dial        addresses of publishers
    topics      prefixes or Patterns of the messages that are yielded, as for a Sub; gaps concern all topics, as a lost
                message's is not known
    policy      at the high-water mark: "report", "resync" or "raise", see backlog.py; "resync" also at each gap
    high_water  caps on what is unread
    last        begin with the publisher's last message of each topic, then live ones: Synchronized says from where
    id          by which publishers know it; default: new. Under a trust the name of its pass, or NAME:WORD
    trust       in place of tls, or OPEN; default: NNGKIT_TRUST. Its policy says which names may publish which topics
    recv_max_size  bytes of the largest message; TLS as for every socket

    The events: Published, Gap, Restarted, Lagging, CaughtUp, Synchronized; of a publisher in the order of its numbers.
    Entering raises ConfigError.
    """

    def __init__(
        self,
        dial: str | Iterable[str],
        topics: Topic | Iterable[Topic] = b"",
        *,
        policy: Policy = "report",
        high_water: HighWater | None = None,
        last: bool = False,
        id: str | None = None,
        tls: TLS | None = None,
        trust: Choice | None = None,
        recv_max_size: int = 1 << 20,
    ) -> None:
        if policy not in ("report", "resync", "raise"):
            raise ConfigError("policy", f"{policy!r} is none of report, resync, raise", policy)
        self._dial = (dial,) if isinstance(dial, str) else tuple(dial)
        wanted = Topics()
        for topic in (topics,) if isinstance(topics, (str, bytes, Pattern)) else topics:
            if not isinstance(topic, (str, bytes, Pattern)):
                raise ConfigError("topics", f"{topic!r} is neither text nor bytes nor a Pattern", topics)
            wanted.add(topic.encode() if isinstance(topic, str) else topic)
        if not wanted:
            raise ConfigError("topics", "none: b'' is the prefix of all", topics)
        self._wanted = None if wanted.prefixes.everything else wanted.match
        self._tls = tls
        self._trust = chosen(trust, tls)
        self._rights = rights_of(self._trust)
        if isinstance(self._trust, Trust):
            self.id = own_id(self._trust, id, instance=True)
        else:
            self.id = os.urandom(8).hex() if id is None else id
        if not 0 < len(self.id.encode()) <= 64:
            raise ConfigError("id", f"{id!r} is not text of 1 to 64 bytes", id)
        self._policy = policy
        self._keeps_state = last or policy == "resync"
        self._largest = recv_max_size
        self._high_water = high_water or HighWater()
        self._accounts = Accounts()
        self._backlog = Backlog(self._high_water, policy)
        self._sources: dict[bytes, Source] = {}
        self._held = Held()
        self._behind: Counter[bytes] = Counter()
        self._snapshots = self._bad_heartbeats = 0
        self._failure: SlowSubscriber | None = None
        self._background = Background()

    async def __aenter__(self) -> Self:
        self._entering()
        self._wake = WakeUp()
        self._open = True
        self._subs: list[Sub] = []
        rights = self._rights
        try:
            for address in self._dial:
                sub = Sub(
                    topics=b"",  # everything is received: a number is accounted for whatever its topic
                    recv_max_size=self._largest and self._largest + MOST_ADDED,
                    recv_buffer=READ_AHEAD,
                    tls=self._tls,
                    trust=self._trust,
                    peers=None if rights is None else check_topics(rights, "publish"),
                )
                self._subs.append(sub)
                if rights is not None:
                    sub.sift(Sifting(rights))
                sub.dial(address)
            await self._background.open()
        except BaseException:
            self._close()
            raise
        for address, sub in zip(self._dial, self._subs, strict=True):
            publishers = SilentPeers(sub, "publisher")
            self._background.start(publishers.run)
            self._background.start(self._receive_all, address, sub, publishers)
        return self

    async def _before_end(self) -> None:
        self._open = False
        self._close()
        self._wake.wake()

    def _close(self) -> None:
        for sub in self._subs:
            sub.close(0.0)

    # Events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Unread | Synchronized:
        return await self.receive()

    async def receive(self, timeout: float | None = None) -> Unread | Synchronized:
        """Return the next event, waiting for one. If cancelled, none is lost.

        Raises TimedOut after `timeout` seconds, SlowSubscriber, Closed.
        """
        event = await self._receive(timeout)
        if tracing.spans is not None and type(event) is Published:
            tracing.spans.received((event,))
        return event

    async def _receive(self, timeout: float | None) -> Unread | Synchronized:
        await trio.lowlevel.checkpoint_if_cancelled()
        if (event := self._next()) is not None:
            return event
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            while True:
                await self._wake.wait()
                if (event := self._next()) is not None:
                    return event
        raise TimedOut(f"{self!r}: no event in {timeout} s{self._refused()}", timeout)

    def _next(self) -> Unread | Synchronized | None:
        """Return the next event, None if there is none. Raises SlowSubscriber, Closed, the error of a task."""
        if self._failure is not None:
            raise self._failure.again()
        event: Unread | Synchronized | None = self._backlog.take(time.monotonic())
        if event is None and not self._open:
            raise self._background.ended("the subscriber is closed")
        return event

    async def receive_many(self, max: int = 256, timeout: float | None = None) -> list[Unread | Synchronized]:
        """Like `receive`, for up to `max` events that have arrived: at high rates it costs less for each."""
        events = [await self._receive(timeout)]
        take, now = self._backlog.take, time.monotonic()
        while len(events) < max and (event := take(now)) is not None:
            events.append(event)
        if tracing.spans is not None:
            tracing.spans.received([each for each in events if type(each) is Published])
        return events

    async def messages(self) -> AsyncGenerator[Published, None]:
        """Yield the messages only. Raises SlowSubscriber, Closed."""
        while True:
            event = await self.receive()
            if type(event) is Published:
                yield event

    def lag(self) -> tuple[SubscriberLag, ...]:
        """Return how far it is behind each publisher."""
        return tuple(
            SubscriberLag(each.publisher, self._behind[each.publisher], each.missed - each.late)
            for each in self._accounts.all()
        )

    @property
    def stats(self) -> SubscriberStats:
        """The counters."""
        total = self._accounts.total
        unread = self._backlog.lag(time.monotonic())
        refused: dict[str, int] = {str(why): count for why, count in self._accounts.refused.items()}
        if self._rights is not None:
            refused |= self._rights.refusals
        return SubscriberStats(
            received=total("delivered"),
            missed=total("missed") - total("late"),
            late=total("late"),
            withheld=total("withheld"),
            dropped=self._backlog.dropped,
            refused=refused,
            snapshots=self._snapshots,
            unread=unread.messages,
            age=unread.age,
        )

    @property
    def connected(self) -> int:
        """Number of connections to publishers."""
        return sum(len(sub.pipes) for sub in self._subs)

    @property
    def left(self) -> bool:
        """True once it has disconnected for being slow, or was cut off: `receive` raises SlowSubscriber."""
        return self._failure is not None

    async def wait_for_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until `n` publishers are connected. Raises TimedOut, Closed."""
        deadline = float("inf") if timeout is None else trio.current_time() + timeout
        while (found := self.connected) < n:
            if not self._open:
                raise self._background.ended("the subscriber is closed")
            if trio.current_time() >= deadline:
                raise TimedOut(f"{found} of {n} publishers are connected after {timeout} s{self._refused()}", timeout)
            await trio.sleep(0.005)

    def _refused(self) -> str:
        return told(url for sub in self._subs for url in sub.dialed)

    def __repr__(self) -> str:
        return f"<Subscriber {self.id}>"

    # Receiving

    async def _receive_all(self, address: str, sub: Sub, publishers: SilentPeers) -> None:
        while True:
            try:
                received = await sub.arecv_many(TURN)
            except Closed:
                return
            interval = self._account(address, self._accounts.receive(received))
            if interval is not None:
                publishers.expect(interval)
            await trio.lowlevel.checkpoint()

    def _account(self, address: str, events: Sequence[Event]) -> float | None:
        """Take in what has arrived; return the interval of a publisher's first heartbeat among it."""
        wanted, ready, interval = self._wanted, [], None
        for event in events:
            if type(event) is Heartbeat:
                interval = self._hear(address, event) or interval
                continue
            if wanted is not None and type(event) is Published and not wanted(event.data):
                continue
            source = self._sources.get(event.publisher)
            if source is None and self._keeps_state:
                source = self._source(event.publisher)
            if source is None:
                ready.append(event)
                continue
            ready += source.receive(event)
            if self._policy == "resync" and type(event) is Gap:
                source.begin()
        for publisher in self._accounts.forgotten():
            if (source := self._sources.pop(publisher, None)) is not None:
                ready += source.give_up()
                source.epoch = 0
            self._behind.pop(publisher, None)
        self._put(ready)
        return interval

    def _put(self, events: Sequence[Unread | Synchronized], *, forced: bool = False) -> None:
        now = time.monotonic()
        if self._backlog.put(events, now, forced=forced):
            unread = self._backlog.lag(now)
            self._backlog.clear()
            if self._policy == "raise":
                self._leave(f"{unread.messages} messages are unread, the oldest for {unread.age:.1f} s", unread)
            else:
                for source in self._sources.values():
                    source.begin()
        self._wake.wake()

    def _leave(self, why: str, unread: object = None, *, cut: bool = False) -> None:
        lag = self._backlog.lag(time.monotonic()) if unread is None else unread
        self._failure = SlowSubscriber(why, messages=lag.messages, age=lag.age, cut=cut)  # type: ignore[attr-defined]
        self._close()
        self._wake.wake()

    # Publishers

    def _source(self, publisher: bytes) -> Source:
        source = self._sources.get(publisher)
        if source is None:
            source = self._sources[publisher] = Source(
                publisher, self._high_water, self._held, live=not self._keeps_state
            )
        return source

    def _hear(self, address: str, heartbeat: Heartbeat) -> float | None:
        """Begin to report to a publisher that is heard of for the first time, in this run; return its interval."""
        source = self._source(heartbeat.publisher)
        source.heard = time.monotonic()
        if source.epoch == heartbeat.epoch:
            return None
        try:
            told = HEARTBEATS.decode(heartbeat.body, address)
        except (BadMessage, TooLarge) as error:
            self._bad_heartbeats += 1
            if self._bad_heartbeats == 1:
                log.warning("%s: a heartbeat is ignored, as are all further ones of this kind: %s", address, error)
            source.epoch = heartbeat.epoch
            self._put(source.give_up())
            return None
        source.epoch = heartbeat.epoch
        if not told.keeps:
            self._put(source.give_up())
        if told.control:
            self._background.start(self._follow, source, heartbeat.epoch, _reachable(told.control, address), told)
        return told.interval

    async def _follow(self, source: Source, epoch: int, control: str, told: PublisherHeartbeat) -> None:
        """Report to a publisher's run, and get its snapshots, until there is a newer one, or it has gone."""
        largest = PAGE_LIMIT + self._largest + (1 << 16)
        try:
            peers = None if self._rights is None else check_owner(self._rights, source.publisher)
            req = Req(
                dial=control,
                lost="raise",
                resend=None,
                recv_max_size=largest,
                tls=self._tls,
                trust=self._trust,
                peers=peers,
            )
        except NngkitError as error:
            log.warning("%s: its publisher cannot be reported to: %s", control, error)
            self._put(source.give_up())
            return
        server = SilentServer(req, "publisher's control")
        async with req, trio.open_nursery() as nursery:
            nursery.start_soon(self._report, source, req, server, epoch, told.interval)
            if told.keeps and self._keeps_state:
                nursery.start_soon(self._synchronize, source, req, server, epoch, largest)
            while source.epoch == epoch and self._failure is None and self._open:
                await source.changed.wait()
            nursery.cancel_scope.cancel()

    async def _report(self, source: Source, req: Req, server: SilentServer, epoch: int, interval: float) -> None:
        while True:
            if not req.pipes and time.monotonic() > source.heard + QUIET:
                source.epoch = 0  # its next heartbeat begins anew
                return
            account = self._accounts.get(source.publisher)
            number = 0 if account is None or account.epoch != epoch else account.next - 1
            missed = 0 if account is None else account.missed - account.late
            unread = self._backlog.lag(time.monotonic())
            report = Position(self.id, epoch, number, missed, unread.messages, unread.age)
            try:
                reply = REPLIES.decode(await server.request(REQUESTS.encode(report), UNHEARD), limit=PAGE_LIMIT)
            except (Lost, TimedOut, BadMessage, TooLarge):
                reply = None
            except Closed:
                return
            if isinstance(reply, PositionReply) and reply.epoch == epoch:
                self._behind[source.publisher] = max(0, reply.number - self._accounted(source.publisher, epoch))
                if reply.cut:
                    self._leave(f"the publisher has cut it off: {reply.cut}", cut=True)
                    return
            # not all at the same time
            await trio.sleep(interval * random.uniform(0.9, 1.1))

    def _accounted(self, publisher: bytes, epoch: int) -> int:
        account = self._accounts.get(publisher)
        return account.next - 1 if account is not None and account.epoch == epoch else 0

    async def _synchronize(self, source: Source, req: Req, server: SilentServer, epoch: int, largest: int) -> None:
        """Get a snapshot whenever the source needs one."""
        tries = 0
        while True:
            while not source.joining:
                await source.changed.wait()
            source.restart()
            pages = await self._pages(server, epoch, largest)
            if pages is None:
                await trio.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
                tries += 1
                continue
            tries = 0
            self._snapshots += 1
            number = pages[0].number
            may = self._may_publish(req)
            rows = [row for page in pages for row in page.messages]
            state = (published(data, source.publisher, epoch, at, stamp) for at, stamp, data in rows)
            messages = [
                each
                for each in state
                if (self._wanted is None or self._wanted(each.data)) and (may is None or may(each.topic))
            ]
            done = source.join(epoch, number, messages)
            if done is not None:
                self._accounts.begin(source.publisher, epoch, number + 1)
                self._put(done, forced=True)

    def _may_publish(self, req: Req) -> Callable[[bytes], bool] | None:
        """Return a function that is True for the topics that the publisher at the other end may publish; None: all."""
        if self._rights is None:
            return None
        names = {pipe.who for pipe in req.pipes}
        return match_of(self._rights.topics(names.pop(), "publish") if len(names) == 1 else ())

    async def _pages(self, server: SilentServer, epoch: int, largest: int) -> list[SnapshotPage] | None:
        """Return the pages of a snapshot; None if they did not all come."""
        pages: list[SnapshotPage] = []
        while not pages or pages[-1].more:
            query = SnapshotQuery(self.id, pages[0].number if pages else 0, len(pages))
            try:
                reply = REPLIES.decode(await server.request(REQUESTS.encode(query), UNHEARD), limit=largest)
            except (Lost, TimedOut, BadMessage, TooLarge) as error:
                log.debug("no snapshot: %s", error)
                return None
            if isinstance(reply, RefusedQuery):
                log.warning("no snapshot: %s", reply.why)
                return None
            if not isinstance(reply, SnapshotPage) or reply.epoch != epoch:
                return None
            pages.append(reply)
        return pages


def _reachable(control: str, address: str) -> str:
    """Return the control address, with the host that was dialed in place of a wildcard."""
    scheme, _, rest = control.partition("://")
    host, colon, port = rest.rpartition(":")
    if host not in ("0.0.0.0", "[::]", "*", "") or not colon:
        return control
    dialed = address.partition("://")[2].partition("/")[0].rpartition(":")[0]
    return f"{scheme}://{dialed}:{port}"
