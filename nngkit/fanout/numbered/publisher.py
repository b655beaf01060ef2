"""Publisher of numbered messages, with heartbeats and the last message of each topic.

::

    async with Publisher("tcp://0.0.0.0:7000", keep=Keep()) as publisher:
        publisher.publish("weather.oslo", b" 3")
        for each in publisher.subscribers():
            print(each.id, each.behind, each.unread, each.age)

Beside the PUB socket it has a REP socket, whose address its heartbeats tell: subscribers report there how far they are,
and get the last messages of all topics when they join. Runs under trio.
"""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, Self

import trio

from nngkit import tracing
from nngkit.background import Background, UnderTrio, WakeUp
from nngkit.errors import BadMessage, Closed, ConfigError, NngkitError, NotFound, TooLarge
from nngkit.fanout.numbered.granted import (
    Division,
    check_all_topics,
    check_topics,
    match_of,
    publisher_id,
    rights_of,
)
from nngkit.fanout.numbered.keeping import Keep, LastMessages
from nngkit.fanout.numbered.lag import (
    HEARTBEAT,
    MAGIC,
    MAGIC_HEADERS,
    MOST_TOPIC,
    pack_trailer,
    published,
    sized_headers,
    stamp,
)
from nngkit.fanout.numbered.messages import (
    HEARTBEATS,
    MAX_REASON,
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
from nngkit.headers import Headers, check_headers
from nngkit.instruments import ByCode, Gauge, Total
from nngkit.protocols import TLS, PeerEvent, Pipe, Pub, Rep, Request
from nngkit.protocols.sp import ALL
from nngkit.trust import Choice, Trust, chosen
from nngkit.trust.rights import own_id

log = logging.getLogger("nngkit.fanout")

Topic = str | bytes
Snapshot = Callable[[], Iterable[tuple[Topic, bytes]]]

MOST_SUBSCRIBERS: Final = 10_000
SNAPSHOTS: Final = 4  # kept for their further pages
OVERDUE: Final = 2.5  # intervals without a report, which comes every 0.9 to 1.1
FORGET: Final = 10.0  # seconds without a report, or three intervals if that is more


@dataclass(frozen=True, slots=True)
class SubscriberInfo:
    """A subscriber, as it reported itself.

    id       its own
    address  of its connection
    behind   messages that it had neither received nor reported as missing when it reported; if a report is overdue,
             with those that were published since
    unread   messages that it has received, and its program has not read; the oldest for `age` seconds
    missed   messages that it has not got
    since    seconds since it reported that it has read all that was published before its previous report; 0 if nothing
             is left to read
    """

    id: str
    address: str
    behind: int
    unread: int
    age: float
    missed: int
    since: float


@dataclass(frozen=True, slots=True)
class PublisherStats:
    """Counters of a Publisher, and what it has at present."""

    published: Total
    """Messages published."""
    dropped: Total
    """Messages dropped for subscribers whose queue was full."""
    snapshots: Total
    """Snapshots requested."""
    bad: Total
    """Bad requests."""
    forgotten: Total
    """Topics that the cap of `keep` has forgotten."""
    kept: Gauge
    """Messages kept."""
    plain: Gauge
    """Plain subscribers."""
    refused: ByCode = field(default_factory=dict)
    """Peers and requests that were refused under the trust, by code ("right", "binding")."""


@dataclass(slots=True)
class _Known:
    pipe: int
    address: str
    position: Position
    number: int  # of the last message when it reported
    heard: float
    well: float  # when it last reported that all published before the report preceding it is read
    cut: str = ""


class Publisher(UnderTrio):
    """Numbered PUB; use it with `async with`, under trio.

    listen     addresses of the PUB socket
    id         of this publisher: a restart with the same id is known as such; default: new at every start. Under a
               trust the name of its pass, or NAME:WORD
    heartbeat  seconds between heartbeats; subscribers notice a missing tail within that time
    keep       keep the last message of each topic, for subscribers that join; Keep has the caps
    snapshot   returns (topic, body) pairs that are the present state: used for them instead of kept messages
    plain      addresses of a second PUB socket, with the messages as they are: for nngcat, browsers, any SUB; under a
               policy for names that may subscribe to all topics
    control    address of the REP socket; default: a free port at the first address; for ipc the path with ".control"
    tls        for all sockets
    trust      in place of tls, or OPEN; default: NNGKIT_TRUST. Its policy says which name may subscribe to what
    send_buffer  messages queued for each subscriber, 1 to 8192; over it the oldest are dropped

    Entering raises ConfigError for unusable values, Unreachable if it cannot listen.
    """

    def __init__(
        self,
        listen: str | Iterable[str],
        *,
        id: str | None = None,
        heartbeat: float = 0.5,
        keep: Keep | None = None,
        snapshot: Snapshot | None = None,
        plain: str | Iterable[str] = (),
        control: str | None = None,
        tls: TLS | None = None,
        trust: Choice | None = None,
        send_buffer: int = 1024,
    ) -> None:
        if not 0.001 <= heartbeat <= 3600:
            raise ConfigError("heartbeat", f"{heartbeat!r} is not a number of seconds from 0.001 to 3600", heartbeat)
        if keep is not None and snapshot is not None:
            raise ConfigError("snapshot", "give either it or keep", snapshot)
        self._listen = (listen,) if isinstance(listen, str) else tuple(listen)
        if not self._listen:
            raise ConfigError("listen", "no address", listen)
        self._plain = (plain,) if isinstance(plain, str) else tuple(plain)
        self._control = _beside(self._listen[0]) if control is None else control
        self._interval = float(heartbeat)
        self._tls = tls
        self._trust = chosen(trust, tls)
        self._send_buffer = send_buffer
        self._rights = rights_of(self._trust)
        if isinstance(self._trust, Trust):
            self.id = publisher_id(own_id(self._trust, id, instance=True))
        else:
            self.id = blake2b(id.encode(), digest_size=8).digest() if id is not None else os.urandom(8)
        self._last = None if keep is None else LastMessages(keep)
        self._snapshot = snapshot
        self._number = 0
        self._bad = self._answered = 0
        self._background = Background()

    async def __aenter__(self) -> Self:
        self._entering()
        self.epoch = time.time_ns() // 1000
        self._joined = WakeUp()
        self._token = trio.lowlevel.current_trio_token()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._pages: OrderedDict[int, list[list[tuple[int, int, bytes]]]] = OrderedDict()
        rights = self._rights
        some = None if rights is None else check_topics(rights, "subscribe")
        every = None if rights is None else check_all_topics(rights, "subscribe")
        secured: dict[str, Any] = {"tls": self._tls, "trust": self._trust}
        self._division = None if rights is None else Division(rights, self.id, self.epoch)
        self._pub = Pub(
            name="publisher",
            peers=some,
            send_buffer=self._send_buffer,
            **(secured if rights is None else secured | {"shm_from": ALL}),  # what is divided is read
        )
        self._bare: Pub | None = None
        self._rep = Rep(name="publisher's control", peers=some, linger=0.2, **secured)
        try:
            if self._division is not None:
                self._pub.divide(self._division)
            self._pub.on_peer(self._peer)
            for url in self._listen:
                self._pub.listen(url)
            if self._plain:
                self._bare = Pub(name="publisher, plain", peers=every, send_buffer=self._send_buffer, **secured)
                for url in self._plain:
                    self._bare.listen(url)
            self._rep.on_peer(self._reporter)
            self._rep.listen(self._control)
            await self._background.open()
        except BaseException:
            self._close()
            raise
        keeps = self._last is not None or self._snapshot is not None
        self._heartbeat = HEARTBEAT + HEARTBEATS.encode(PublisherHeartbeat(self._interval, self._rep.address, keeps))
        self._background.start(self._send_heartbeats)
        self._background.start(self._serve)
        return self

    async def _before_end(self) -> None:
        self._say_number()  # so that a missing tail shows

    async def _after_end(self) -> None:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        for socket in (self._pub, self._bare, self._rep):
            if socket is not None:
                socket.close()

    @property
    def address(self) -> str:
        """First address of the PUB socket."""
        return self._pub.address

    @property
    def plain_address(self) -> str:
        """First address for plain subscribers: messages without trailers. Raises ConfigError if there is none."""
        if self._bare is None:
            raise ConfigError("plain", "this publisher has no address for plain subscribers", ())
        return self._bare.address

    @property
    def number(self) -> int:
        """Number of the last message."""
        return self._number

    @property
    def stats(self) -> PublisherStats:
        """The counters."""
        last = self._last
        return PublisherStats(
            published=self._number,
            dropped=self._pub.stats.dropped,
            snapshots=self._answered,
            bad=self._bad,
            forgotten=0 if last is None else last.forgotten,
            kept=0 if last is None else len(last),
            plain=0 if self._bare is None else len(self._bare.pipes),
            refused={} if self._rights is None else dict(self._rights.refusals),
        )

    async def wait_for_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until `n` subscribers are connected. Raises TimedOut, Closed."""
        try:
            await self._pub.await_for_peers(n, timeout)
        except Closed:
            raise self._background.ended("the publisher is closed") from None

    # Publishing

    def publish(self, topic: Topic, body: bytes, *, headers: Headers | None = None) -> int:
        """Publish a message; return its number. Never waits: a subscriber with a full queue sees a gap.

        To a subscriber of a version before headers, a message that has some is a gap.
        """
        return self.publish_many(((topic, body),), headers=headers)

    def publish_many(self, messages: Iterable[tuple[Topic, bytes]], *, headers: Headers | None = None) -> int:
        """Publish (topic, body) pairs; return the number of the last one. `headers`: of each of them.

        Raises ConfigError and TooLarge, having sent none.
        """
        if (spans := tracing.spans) is None:
            return self._publish(messages, headers)
        several = list(messages)
        topic = several[0][0] if len(several) == 1 else None
        with spans.sending("publish", topic, headers, len(several)) as sending:
            number = self._publish(several, sending.headers)
            if topic is not None:
                sending.sent(f"{self.id.hex()}.{self.epoch}.{number}")
        return number

    def _publish(self, messages: Iterable[tuple[Topic, bytes]], headers: Headers | None) -> int:
        sized, magic = b"", MAGIC
        if headers and (checked := check_headers(headers)):
            sized, magic = sized_headers(checked), MAGIC_HEADERS
        now, last, bare = time.time_ns() // 1000, self._last, self._bare
        publisher, epoch, number = self.id, self.epoch, self._number
        frames, plain, kept = [], [], []
        for topic, body in messages:
            head = topic if type(topic) is bytes else topic.encode()  # type: ignore[union-attr]
            number += 1
            size = len(head)
            if size > MOST_TOPIC:
                raise ConfigError("topic", f"{size} bytes; at most {MOST_TOPIC}", topic)
            told = stamp(now, size)
            frame = head + body + sized + pack_trailer(publisher, epoch, number, told, magic)
            if not frame[0] and (head or body):
                raise ConfigError("topic", "a message must not begin with a zero byte", topic)
            frames.append(frame)
            if last is not None:
                kept.append((head, number, told, head + body))
            if bare is not None:
                plain.append(head + body)
        self._number = number
        for each in kept:
            last.note(*each)  # type: ignore[union-attr]  # there are some only if it keeps them
        self._pub.send_many(frames)
        if bare is not None:
            bare.send_many(plain)
        return number

    def _say_number(self) -> None:
        now = time.time_ns() // 1000
        self._pub.send(self._heartbeat + pack_trailer(self.id, self.epoch, self._number, now))

    async def _send_heartbeats(self) -> None:
        while True:
            self._joined.clear()
            self._say_number()
            with trio.move_on_after(self._interval):
                await self._joined.wait()  # a subscriber that joins hears of us at once

    def _peer(self, event: PeerEvent) -> None:
        if event.kind == "joined":  # on any thread
            self._joined.wake_soon()

    # Subscribers

    def _reporter(self, event: PeerEvent) -> None:
        if event.kind == "left":  # on any thread
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._forget_pipe, event.pipe.id)

    def _forget_pipe(self, pipe: int) -> None:
        for name in [name for name, known in self._known.items() if known.pipe == pipe]:
            del self._known[name]

    def subscribers(self) -> tuple[SubscriberInfo, ...]:
        """Return the subscribers that report themselves, those that are furthest behind first."""
        self._forget()
        found = (self._info(name, known) for name, known in self._known.items())
        return tuple(sorted(found, key=lambda info: -(info.behind + info.unread)))

    def cut(self, subscriber: str, reason: str = "too slow") -> None:
        """Disconnect a subscriber, which raises SlowSubscriber with the reason. Raises NotFound for an unknown id."""
        known = self._known.get(subscriber)
        if known is None:
            raise NotFound(f"no subscriber {subscriber!r} has reported itself")
        known.cut = (reason or "cut off").encode()[:MAX_REASON].decode(errors="ignore")

    def _info(self, name: str, known: _Known) -> SubscriberInfo:
        now, position = time.monotonic(), known.position
        overdue = now - known.heard > OVERDUE * self._interval
        accounted = position.number if position.epoch == self.epoch else 0
        behind = max(0, (self._number if overdue else known.number) - accounted)
        waited = 0.0 if not position.unread else position.age + now - known.heard
        since = now - known.well if behind or position.unread else 0.0
        return SubscriberInfo(name, known.address, behind, position.unread, waited, position.missed, since)

    def _forget(self) -> None:
        oldest = time.monotonic() - max(FORGET, 3 * self._interval)
        for name in [name for name, known in self._known.items() if known.heard < oldest]:
            del self._known[name]

    async def _serve(self) -> None:
        async for request in self._rep:
            request.reply_nowait(self._answer(request))

    def _answer(self, request: Request) -> bytes:
        peer = request.pipe.address if request.pipe else ""
        try:
            query = REQUESTS.decode(request.body, peer)
        except (BadMessage, TooLarge) as error:
            self._bad += 1
            if self._bad == 1:
                log.warning("publisher: a request is refused, as are all further ones of this kind: %s", error)
            return REPLIES.encode(RefusedQuery(str(error)[:MAX_REASON]))
        pipe = request.pipe
        if self._rights is not None and pipe is not None and not self._rights.speaks(pipe.who, query.subscriber):
            return REPLIES.encode(RefusedQuery(f"binding: {pipe.who} is not {query.subscriber!a}"[:MAX_REASON]))
        if isinstance(query, Position):
            return REPLIES.encode(self._note(query, pipe))
        return REPLIES.encode(self._allowed(self._page(query), pipe))

    def _note(self, position: Position, pipe: Pipe | None) -> PositionReply:
        if pipe is None:  # it has left
            return PositionReply(self.epoch, self._number)
        now, number = time.monotonic(), self._number
        if self._division is not None:
            number = self._division.told(pipe.who, number)
        known = self._known.pop(position.subscriber, None)
        if known is None:
            known = _Known(pipe.id, pipe.address, position, number, now, now)
        elif position.epoch == self.epoch and position.number - position.unread >= known.number:
            known.well = now
        known.pipe, known.address, known.position = pipe.id, pipe.address, position
        known.number, known.heard = number, now
        self._known[position.subscriber] = known
        if len(self._known) > MOST_SUBSCRIBERS:
            self._known.popitem(last=False)
        return PositionReply(self.epoch, number, known.cut)

    def _allowed(self, page: SnapshotPage | RefusedQuery, pipe: Pipe | None) -> SnapshotPage | RefusedQuery:
        """Return what the peer may have of a page."""
        if self._rights is None or not isinstance(page, SnapshotPage):
            return page
        match = match_of(self._rights.topics(None if pipe is None else pipe.who, "subscribe"))
        if match is None:
            return page
        rows = tuple(row for row in page.messages if match(published(row[2], self.id, 0, *row[:2]).topic))
        return SnapshotPage(page.epoch, page.number, rows, page.more)

    def _page(self, query: SnapshotQuery) -> SnapshotPage | RefusedQuery:
        number = query.number
        if not query.page:
            number = self._number
            try:
                if number not in self._pages:
                    self._pages[number] = self._make_pages()
            except NngkitError as error:
                return RefusedQuery(str(error)[:MAX_REASON])
            self._pages.move_to_end(number)
            while len(self._pages) > SNAPSHOTS:
                self._pages.popitem(last=False)
            self._answered += 1
        pages = self._pages.get(number)
        if pages is None or query.page >= len(pages):
            return RefusedQuery("this snapshot is no longer kept: ask for a new one")
        return SnapshotPage(self.epoch, number, tuple(pages[query.page]), query.page + 1 < len(pages))

    def _make_pages(self) -> list[list[tuple[int, int, bytes]]]:
        """Return the present state in pages; at least one."""
        rows: Iterable[tuple[int, int, bytes]] = ()
        if self._snapshot is not None:
            now = time.time_ns() // 1000
            try:
                made = [(topic.encode() if isinstance(topic, str) else topic, body) for topic, body in self._snapshot()]
                rows = [(self._number, stamp(now, min(len(topic), MOST_TOPIC)), topic + body) for topic, body in made]
            except Exception:
                log.exception("publisher: the snapshot failed")
                raise NotFound("the publisher's snapshot failed") from None
        elif self._last is not None:
            rows = self._last.rows()
        pages: list[list[tuple[int, int, bytes]]] = [[]]
        size = 0
        for row in rows:
            size += len(row[2]) + 32
            if pages[-1] and size > PAGE_LIMIT:
                pages.append([])
                size = len(row[2]) + 32
            pages[-1].append(row)
        return pages


def _beside(listen: str) -> str:
    """Return an address for the REP socket of a publisher at `listen`."""
    scheme, _, rest = listen.partition("://")
    if scheme in ("ipc", "unix", "abstract", "inproc"):
        return f"{scheme}://{rest}.control"
    host, path = rest.partition("/")[::2]
    bare = host.rpartition(":")[0]
    return f"{scheme}://{bare}:0" + (f"/{path}.control" if path else "")
