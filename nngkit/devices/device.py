"""Forwarding of messages between two sockets: the shell around `kinds.py`, `examining.py` and `rings.py`.

::

    async with Rep(listen="tcp://0.0.0.0:6000") as front, Req(listen="tcp://0.0.0.0:6001", resend=None) as back:
        await forward(front, back)          # a queue: many requesters, many repliers, each dialing one address

    async with forward(front, back) as device:      # the same, while the block runs
        ...

A queue forwards requests in batches, with a word of its own in front of their headers (`nngkit.protocols.relaying`), so
that replies find their way back, peers count the devices passed, and a request that comes back is recognised. A lost
replier's requests go to the next one at once. The cost: the device keeps the requests in progress (`in_flight`,
`timeout`). A survey is forwarded likewise; each response goes back when it arrives, so that the surveyor gets all that
arrive within its deadline.

One-way traffic moves in batches of up to 256 messages: received from one socket and sent on the other, which applies
backpressure while it has no room (PUSH, PAIR), or drops and counts (PUB, BUS).

Runs under trio. Knows nothing about the messages' meaning, the reader of `tap`, or when to end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Annotated, Any, ClassVar, Final, TypedDict, TypeVar, Unpack
from weakref import WeakSet

import trio

from nngkit.background import Background, demand_trio
from nngkit.devices.examining import DirectionStats, Examination, Rate, Side, TappedMessage
from nngkit.devices.kinds import kind_of
from nngkit.devices.rings import Place, find_ring
from nngkit.errors import BadMessage, Closed, ConfigError
from nngkit.instruments import Gauge, Instrument, Label, Real, Total
from nngkit.protocols import DEFAULT, Bus, Default, Message, Pipe, Pub, Rep, Req, Respondent, Socket, Stats, Surveyor
from nngkit.protocols.relaying import MOST_HOPS, Passing, Relay, Returned
from nngkit.trust import Choice, Trust

BATCH: Final = 256  # messages received at once: enough that the wake-ups do not dominate
TIMEOUT: Final = 60.0  # seconds for a request: by then a REQ of NNG or nanomsg resends by itself
SURVEY_TIME: Final = 10.0  # seconds in which responses to a survey are sent back; surveyors wait 1 s by default
IN_FLIGHT: Final = 1024  # requests sent at once: `Rep` reads ahead as many again
HOPS: Final = MOST_HOPS
CARRY: Final = "device"

T = TypeVar("T")
Tap = Callable[[TappedMessage], object] | Pub | Bus


@dataclass(frozen=True, slots=True)
class PeerStats:
    """Counters of a connection of a device, and its rates since the last call of `Device.peers`, per second."""

    side: Annotated[Side, Instrument("label")]
    peer: Label
    read: Total
    """Messages read from the connection."""
    written: Total
    """Messages written to the connection."""
    queued: Gauge
    """Messages that wait to be written."""
    dropped: Total
    """Messages dropped at the connection."""
    read_rate: Real
    """Messages read per second."""
    written_rate: Real
    """Messages written per second."""


@dataclass(frozen=True, slots=True)
class DeviceStats:
    """Counters of a device. `front`, `back`: those of its sockets."""

    up: DirectionStats
    down: DirectionStats
    in_flight: Gauge
    """Requests, or surveys, in progress."""
    unanswered: Total
    """Requests dropped without a reply."""
    rings: Total
    """Requests and surveys dropped because this device had sent them before."""
    far: Total
    """Requests and surveys dropped because they had passed too many devices."""
    front: Stats
    back: Stats


class Device:
    """Forward messages between `front` and `back`, which the caller closes.

    One socket on both sides is a reflector, like `nng_device`: a Bus forwards a message to all peers but its sender, a
    pair returns it to its peer.

    tap        called with each TappedMessage as it is received, quickly; or a Pub or Bus, which sends each body on
               behind its side and kind, as in ``b"front request " + body``
    filter     called with each TappedMessage after the tap; a false result drops it
    transform  called with each TappedMessage after the filter; returns the body to forward
    rate       messages (requests, surveys) a second in each direction; more wait, or are dropped as for any slow
               receiver of their pattern
    once       seconds in which a body is forwarded once a direction; equal messages within them are dropped. It ends
               the messages of a ring whose pattern has no header for that (all but REQ/REP and SURVEY)
    timeout    seconds after which a request is dropped (counted in `unanswered`), and responses to a survey are; None:
               never; default: 60, for a survey 10
    in_flight  cap on concurrent requests, further ones wait at the requesters; or on surveys, of which the oldest ends
    hops       devices that a request or survey may pass, this one included, up to 7
    trust      of its sockets, where what it forwards is bound to names, as consumers and numbered messages are: the
               peers see the device's name, so its policy must grant ``carry = ["device"]``

    `up` counts from front to back, `down` from back to front. Raises ConfigError for two sockets that do not form a
    device, and for a ring with running devices of this process, by their addresses; AccessDenied without the right.
    """

    _running: ClassVar[WeakSet[Device]] = WeakSet()

    def __init__(
        self,
        front: Socket,
        back: Socket,
        *,
        tap: Tap | None = None,
        filter: Callable[[TappedMessage], object] | None = None,
        transform: Callable[[TappedMessage], bytes] | None = None,
        rate: float | None = None,
        once: float | None = None,
        timeout: float | Default | None = DEFAULT,
        in_flight: int = IN_FLIGHT,
        hops: int = HOPS,
        trust: Choice | None = None,
    ) -> None:
        if isinstance(trust, Trust):
            trust.require(trust.name, "carry", CARRY)
        self.kind = kind_of(type(front).__name__, type(back).__name__)
        if front is back and not self.kind.both_ways:
            raise ConfigError("device", f"one {type(front).__name__} cannot be both sides", front)
        if not isinstance(hops, int) or not 1 <= hops <= HOPS:
            raise ConfigError("hops", f"{hops!r} is not from 1 to {HOPS}: a header has no room for more", hops)
        if not isinstance(in_flight, int) or in_flight < 1:
            raise ConfigError("in_flight", f"{in_flight!r} is not a number of requests from 1 on", in_flight)
        if not (timeout is None or isinstance(timeout, Default) or (isinstance(timeout, (int, float)) and timeout > 0)):
            raise ConfigError("timeout", f"{timeout!r} is not a number of seconds above 0", timeout)
        self.front = front
        self.back = back
        self.up = DirectionStats()
        self.down = DirectionStats()
        self.ended = trio.Event()  # `run` has ended
        self._relays = front is back and isinstance(front, Bus)
        if isinstance(tap, Pub | Bus):
            tap = partial(_publish, tap)
        self._examination = Examination(tap, filter, transform, once)
        self._rates: dict[Side, Rate] = {} if rate is None else {"front": Rate(rate), "back": Rate(rate)}
        usual = SURVEY_TIME if isinstance(back, Surveyor) else TIMEOUT
        self._timeout = usual if isinstance(timeout, Default) else timeout
        self._most_in_flight = in_flight
        self._hops = hops
        self._relay: Relay | None = None
        self._number = 0
        self._waits: set[trio.CancelScope] = set()
        self._stopping = False
        self._end = trio.CancelScope()
        self._changed = trio.Event()  # of the relay, once it is to end
        self._tick = trio.Event()  # wakes `_keep_time` while it has no time to wait for
        self._idle = False
        self._counted: dict[tuple[Side, int], tuple[int, int]] = {}
        self._counted_at = time.monotonic()
        self._refuse_ring()

    def _register(self) -> None:
        if self.closed:
            raise ConfigError("device", f"{self!r} has run before: make another one", self)
        self._refuse_ring()
        self._running.add(self)

    def _refuse_ring(self) -> None:
        """Refuse a ring before a message enters it."""
        devices = [self, *(each for each in self._running if each is not self)]
        for other in devices[1:]:
            if {self.front, self.back} & {other.front, other.back}:
                raise ConfigError("device", f"a socket of {other!r}, which is running, cannot be in a second one", self)
        ring = find_ring([each.place for each in devices])
        if ring is not None:
            way = " -> ".join(repr(devices[index]) for index in [*ring, ring[0]])
            raise ConfigError("device", f"a ring, in which messages go round for ever: {way}", self)

    @property
    def place(self) -> Place:
        """Addresses of both sides, for `find_ring`."""
        front, back = self.front, self.back
        return Place(
            front.addresses,
            front.dialed,
            back.addresses,
            back.dialed,
            self.kind.both_ways,
            "no" if front is not back else "others" if self._relays else "same",
        )

    def __repr__(self) -> str:
        return f"<Device {self.kind.name}: {self.front!r} to {self.back!r}>"

    async def run(self) -> None:
        """Forward until `stop`, or until one of the sockets is closed. Call it once.

        Cancelling loses messages received and not sent on, and requests without a reply. A full socket with
        ``when_full="raise"`` raises its exception here, and so does a function that fails. Raises ConfigError as the
        constructor, for devices and addresses that have come since.
        """
        self._register()
        try:
            await self._run()
        except BaseExceptionGroup as group:
            failure: BaseException = group
            while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
                failure = failure.exceptions[0]
            if failure is group:
                raise
            raise failure from group
        finally:
            self._running.discard(self)
            self.ended.set()

    async def _run(self) -> None:
        front, back = self.front, self.back
        with self._end:
            async with trio.open_nursery() as nursery:
                if isinstance(front, Rep | Respondent) and isinstance(back, Req | Surveyor):
                    await self._forward_questions(front, back, nursery)
                    nursery.cancel_scope.cancel()
                else:
                    nursery.start_soon(self._pump, "front", front, back, self.up)
                    if self.kind.both_ways and front is not back:
                        nursery.start_soon(self._pump, "back", back, front, self.down)

    def stop(self, linger: float = 0.0) -> None:
        """Stop receiving. `run` ends when all received messages are sent on, after at most `linger` seconds."""
        self._stopping = True
        self._end.deadline = min(self._end.deadline, trio.current_time() + linger)
        self._changed.set()
        for scope in self._waits:
            scope.cancel()

    # ------------------------------------------------------------------ figures

    @property
    def in_flight(self) -> int:
        """Number of requests, or surveys, in progress."""
        return 0 if self._relay is None else self._relay.pending

    @property
    def unanswered(self) -> int:
        """Number of requests dropped without a reply."""
        return 0 if self._relay is None or isinstance(self.back, Surveyor) else self._relay.expired

    @property
    def rings(self) -> int:
        """Number of requests and surveys dropped because this device had sent them before."""
        return 0 if self._relay is None else self._relay.rings

    @property
    def far(self) -> int:
        """Number of requests and surveys dropped because they had passed too many devices."""
        return 0 if self._relay is None else self._relay.far

    @property
    def lost(self) -> int:
        """Number of messages received and not passed on; in a queue, of requests without a reply."""
        open_now = self.in_flight if isinstance(self.back, Req) else 0
        return sum(each.received - each.passed - each.dropped for each in (self.up, self.down)) - open_now

    @property
    def stats(self) -> DeviceStats:
        """All counters. Any thread may read them."""
        counts = self.in_flight, self.unanswered, self.rings, self.far
        return DeviceStats(replace(self.up), replace(self.down), *counts, self.front.stats, self.back.stats)

    @property
    def closed(self) -> bool:
        """True once `run` has ended."""
        return self.ended.is_set()

    def peers(self) -> list[PeerStats]:
        """Return the counters of each connection, and its rates since the last call."""
        now, found, counted = time.monotonic(), [], {}
        seconds = max(now - self._counted_at, 1e-6)
        sides: list[tuple[Side, Socket]] = [("front", self.front)]
        if self.back is not self.front:
            sides.append(("back", self.back))
        for side, socket in sides:
            for pipe, stats in socket.pipe_stats.items():
                read, written = self._counted.get((side, pipe.id), (0, 0))
                counted[side, pipe.id] = stats.read, stats.written
                rates = (stats.read - read) / seconds, (stats.written - written) / seconds
                found.append(
                    PeerStats(side, pipe.address, stats.read, stats.written, stats.queued, stats.dropped, *rates)
                )
        self._counted, self._counted_at = counted, now
        return found

    # ------------------------------------------------------------------ one way

    async def _pump(self, side: Side, source: Any, target: Any, stats: DirectionStats) -> None:
        before, rate, examined = target.stats.sent, self._rates.get(side), self._examination.wanted
        while True:
            most = BATCH if rate is None else await self._allowed(rate)
            items = await self._unless_stopped(partial(self._take, source, most))
            if items is None:
                return
            stats.received += len(items)
            stats.size += sum(map(len, items))
            if rate is not None:
                rate.use(len(items))
            if examined:
                items = self._examined(side, items, stats)
            try:
                if items:
                    stats.passed += target.relay(items) if self._relays else await target.asend_many(items)
            except Closed:
                self.stop()
            finally:
                if stats.passed < stats.received - stats.dropped:  # interrupted: only the first of them were sent
                    stats.passed = target.stats.sent - before

    async def _take(self, source: Any, most: int) -> Sequence[bytes]:
        while True:
            try:
                if self._relays or self._examination.wanted:
                    return await source.arecv_msgs(most)  # type: ignore[no-any-return]
                return await source.arecv_many(most)  # type: ignore[no-any-return]
            except BadMessage:  # an invalid batch, counted in `stats.bad`
                continue

    def _examined(self, side: Side, items: Sequence[bytes], stats: DirectionStats) -> list[bytes]:
        now, kept = time.monotonic(), []
        for item in items:
            pipe = item.pipe if isinstance(item, Message) else None
            tapped = TappedMessage(side, "message", bytes(item), None if pipe is None else pipe.address)
            body = self._examination.examine(tapped, now, stats)
            if body is not None:
                kept.append(Message(body, pipe) if self._relays else body)
        return kept

    async def _allowed(self, rate: Rate) -> int:
        while not (allowed := rate.allowed(trio.current_time())) and not self._stopping:
            await self._unless_stopped(partial(trio.sleep, rate.wait))
        return max(1, min(allowed, BATCH))

    async def _unless_stopped(self, wait: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of `wait`; None once the device is to stop, when nothing has been received."""
        if self._stopping:
            return None
        with trio.CancelScope() as scope:
            self._waits.add(scope)
            try:
                return await wait()
            except Closed:
                self.stop()
            finally:
                self._waits.discard(scope)
        return None

    # ------------------------------------------------------------------ questions

    async def _forward_questions(self, front: Rep | Respondent, back: Req | Surveyor, nursery: trio.Nursery) -> None:
        rate, examined = self._rates.get("front"), self._examination.wanted
        relay = self._relay = Relay(
            front,
            back,
            hops=self._hops,
            timeout=self._timeout,
            in_flight=self._most_in_flight,
            asked=self._asked if examined else None,
            returned=self._returned if examined else None,
            most=None if rate is None else lambda: rate.allowed(trio.current_time()),
            stuck=lambda one, body: nursery.start_soon(self._wait_for_room, relay, one, body),
            changed=lambda: self._relayed(relay),
        )
        nursery.start_soon(self._keep_time, relay, rate)
        try:
            relay.start()
            while not (relay.ended or self._stopping):
                await self._changed.wait()
                self._changed = trio.Event()
            relay.stop()
            while relay.pending and not relay.ended:
                await self._changed.wait()
                self._changed = trio.Event()
            if relay.failure is not None:
                raise relay.failure
        finally:
            self._relayed(relay)
            relay.close()

    def _relayed(self, relay: Relay) -> None:
        """Note what the relay has done."""
        rate = self._rates.get("front")
        if rate is not None:
            rate.use(relay.taken - self.up.received)
        self.up.received, self.up.size = relay.taken, relay.taken_bytes
        self.up.passed = relay.answered if isinstance(self.back, Req) else relay.sent
        self.down.received, self.down.size, self.down.passed = relay.returned, relay.returned_bytes, relay.replies
        if self._idle:
            self._tick.set()
        if self._stopping or relay.ended:
            self._changed.set()

    async def _keep_time(self, relay: Relay, rate: Rate | None) -> None:
        """Drop the questions whose time is over, and take more when the rate allows it."""
        while True:
            at = relay.expire()
            seconds = math.inf if at is None else max(0.0, at - time.monotonic())
            if rate is not None and relay.hungry:
                relay.take()
                seconds = min(seconds, rate.wait)
            self._idle = seconds == math.inf or rate is not None
            with trio.move_on_after(seconds):
                await self._tick.wait()
            self._tick = trio.Event()

    async def _wait_for_room(self, relay: Relay, one: Passing, body: bytes) -> None:
        """Send a reply to a requester that has not read the earlier ones."""
        try:
            await one.question.areply(body)
        except Closed:
            self.stop()
        finally:
            relay.finish()

    def _asked(self, questions: Sequence[Any]) -> list[tuple[Any, bytes, int]]:
        now, kept = time.monotonic(), []
        for question in questions:
            self._number += 1
            peer = _address(question.pipe)
            tapped = TappedMessage("front", "request", question.body, peer, self._number)
            body = self._examination.examine(tapped, now, self.up)
            if body is not None:
                kept.append((question, body, self._number))
        return kept

    def _returned(self, replies: Sequence[Returned]) -> list[Returned]:
        now, kept = time.monotonic(), []
        for one, body, pipe in replies:
            # the requester knows its replier as the device: the reply has no peer in a queue
            peer = None if isinstance(self.back, Req) else _address(pipe)
            changed = self._examination.examine(TappedMessage("back", "reply", body, peer, one.tag), now, self.down)
            if changed is not None:
                kept.append((one, changed, pipe))
        return kept


def _address(pipe: Pipe | None) -> str | None:
    return None if pipe is None else pipe.address


def _publish(socket: Pub | Bus, message: TappedMessage) -> None:
    socket.send(f"{message.side} {message.what} ".encode() + message.body)


class DeviceOptions(TypedDict, total=False):
    """Options of `Device`."""

    tap: Tap | None
    filter: Callable[[TappedMessage], object] | None
    transform: Callable[[TappedMessage], bytes] | None
    rate: float | None
    once: float | None
    timeout: float | Default | None
    in_flight: int
    hops: int
    trust: Choice | None


class Forwarding:
    """A device that is about to run: await it, or use it with `async with`, which returns the Device.

    The block's end stops the device as `Device.stop` does, and waits for it, at most `linger` seconds.
    """

    def __init__(self, device: Device, linger: float) -> None:
        self._device = device
        self._linger = linger
        self._background = Background()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._device.run().__await__()

    async def __aenter__(self) -> Device:
        demand_trio("forward", blocking=False)
        if self._device in Device._running:
            raise ConfigError("device", f"{self._device!r} runs already", self._device)
        self._device._register()
        await self._background.open()
        self._background.start(self._device.run)
        return self._device

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._device.stop(self._linger)
                await self._device.ended.wait()
        finally:
            await self._background.close(kind, value, traceback)


def forward(front: Socket, back: Socket, *, linger: float = 1.0, **options: Unpack[DeviceOptions]) -> Forwarding:
    """Forward messages between `front` and `back` until one of them is closed, or while a block runs.

    The options are Device's; `linger`: seconds that the end of the block may take. Raises ConfigError, AccessDenied.
    """
    return Forwarding(Device(front, back, **options), linger)
