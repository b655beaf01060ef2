"""Forwarding of messages between two sockets: the shell around `kinds.py`.

::

    async with Rep(listen="tcp://0.0.0.0:6000") as front, Req(listen="tcp://0.0.0.0:6001", resend=None) as back:
        await forward(front, back)          # a queue: many requesters, many repliers, each dialing one address

    async with forward(front, back) as device:      # the same, while the block runs
        ...

A queue sends each Request of `Rep` again through `Req`, all concurrently. The header with the way back to the requester
(its connection, the devices in between, its id) stays with the Request; on the other side the request has an id of our
own. So peers on both sides see only a REP and a REQ, a lost replier's requests go to the next one at once, and replies
are flow-controlled. The cost: the device keeps the requests in progress (`in_flight`, `timeout`), and the hop count
starts again, so it does not detect a ring of devices.

A survey is sent on with a deadline of the device's own, as the surveyor's is not in it. Each response goes back when it
arrives, so that the surveyor gets all that arrive within its deadline.

One-way traffic moves in batches of up to 256 messages: received from one socket and sent on the other, which applies
backpressure while it has no room (PUSH, PAIR), or drops and counts (PUB, BUS).

Runs under trio. Knows nothing about the messages' meaning, the reader of `tap`, or when to end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, TypeVar

import trio

from nngkit.background import Background, demand_trio
from nngkit.devices.kinds import kind_of
from nngkit.errors import BadMessage, Closed, TimedOut
from nngkit.protocols import (
    DEFAULT,
    Bus,
    Default,
    Message,
    Pipe,
    Query,
    Rep,
    Req,
    Request,
    Respondent,
    Socket,
    Surveyor,
)

__all__ = ["IN_FLIGHT", "TIMEOUT", "Device", "DirectionStats", "Forwarding", "TappedMessage", "forward"]

BATCH: Final = 256  # messages received at once: enough that the wake-ups do not dominate
TIMEOUT: Final = 60.0  # seconds for a request: by then a REQ of NNG or nanomsg resends by itself
SURVEY_TIME: Final = 10.0  # seconds in which responses to a survey are sent back; surveyors wait 1 s by default
IN_FLIGHT: Final = 1024  # requests sent at once: `Rep` reads ahead as many again

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TappedMessage:
    """A message as the device received it, with its side, its peer (None if disconnected) and its kind.

    `number` is the same for a request and its reply, and counts from 1; None for other messages.
    """

    side: Literal["front", "back"]
    what: Literal["message", "request", "reply"]
    body: bytes
    peer: str | None
    number: int | None = None


@dataclass(slots=True)
class DirectionStats:
    """Counters of one direction: `received`, `passed` on (queue, up: requests answered), `size` in bytes."""

    received: int = 0
    passed: int = 0
    size: int = 0

    def take(self, body: bytes) -> None:
        """Count one received message."""
        self.received += 1
        self.size += len(body)


class Device:
    """Forward messages between `front` and `back`, which the caller closes.

    One socket on both sides is a reflector, like `nng_device`: a Bus forwards a message to all peers but its sender, a
    pair returns it to its peer.

    tap        called with each message as it is received; it must be quick
    timeout    seconds after which a request is dropped (counted in `unanswered`), and responses to a survey are; None:
               never; default: 60, for a survey 10
    in_flight  cap on concurrent requests or surveys; further ones wait at the requesters

    `up` counts from front to back, `down` from back to front. Raises ConfigError for two sockets that do not form a
    device.
    """

    def __init__(
        self,
        front: Socket,
        back: Socket,
        *,
        tap: Callable[[TappedMessage], None] | None = None,
        timeout: float | Default | None = DEFAULT,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self.kind = kind_of(type(front).__name__, type(back).__name__)
        self.front = front
        self.back = back
        self.up = DirectionStats()
        self.down = DirectionStats()
        self.unanswered = 0
        self.in_flight = 0
        self._relays = front is back and isinstance(front, Bus)
        self._tap = tap
        usual = SURVEY_TIME if isinstance(back, Surveyor) else TIMEOUT
        self._timeout = usual if isinstance(timeout, Default) else timeout
        self._room = trio.Semaphore(in_flight)
        self._number = 0
        self._waits: set[trio.CancelScope] = set()
        self._stopping = False
        self._end = trio.CancelScope()
        self.ended = trio.Event()  # `run` has ended

    async def run(self) -> None:
        """Forward until `stop`, or until one of the sockets is closed. Call it once.

        Cancelling loses messages received and not sent on, and requests without a reply. A
        full socket with ``when_full="raise"`` raises its exception here.
        """
        try:
            await self._run()
        finally:
            self.ended.set()

    async def _run(self) -> None:
        with self._end:
            async with trio.open_nursery() as nursery:
                if isinstance(self.front, Rep) and isinstance(self.back, Req):
                    await self._answer_all(self.front, self._ask, nursery)
                elif isinstance(self.front, Respondent) and isinstance(self.back, Surveyor):
                    await self._answer_all(self.front, self._survey, nursery)
                elif self.front is self.back:
                    nursery.start_soon(self._pump, "front", self.front, self.back, self.up)
                else:
                    nursery.start_soon(self._pump, "front", self.front, self.back, self.up)
                    if self.kind.both_ways:
                        nursery.start_soon(self._pump, "back", self.back, self.front, self.down)

    def stop(self, linger: float = 0.0) -> None:
        """Stop receiving. `run` ends when all received messages are sent on, after at most `linger` seconds."""
        self._stopping = True
        self._end.deadline = min(self._end.deadline, trio.current_time() + linger)
        for scope in self._waits:
            scope.cancel()

    @property
    def lost(self) -> int:
        """Number of messages received and not passed on; in a queue, of requests without a reply."""
        open_now = self.in_flight if isinstance(self.back, Req) else 0
        return self.up.received - self.up.passed + self.down.received - self.down.passed - open_now

    async def _pump(self, side: Literal["front", "back"], source: Any, target: Any, stats: DirectionStats) -> None:
        before = target.stats.sent
        while (items := await self._unless_stopped(lambda: self._take(source))) is not None:
            for item in items:
                stats.take(item)
                if self._tap is not None:
                    pipe = item.pipe if isinstance(item, Message) else None
                    self._tap(TappedMessage(side, "message", item, None if pipe is None else pipe.address))
            try:
                stats.passed += target.relay(items) if self._relays else await target.asend_many(items)
            except Closed:
                self.stop()
            finally:
                if stats.passed < stats.received:  # interrupted: only the first of them were sent
                    stats.passed = target.stats.sent - before

    async def _take(self, source: Any) -> list[bytes]:
        while True:
            try:
                if self._relays:
                    return await source.arecv_msgs(BATCH)  # type: ignore[no-any-return]
                if self._tap is None:
                    return await source.arecv_many(BATCH)  # type: ignore[no-any-return]
                # one by one, as only that gives the peer
                return [await source.arecv_msg()]
            except BadMessage:  # an invalid batch, counted in `stats.bad`
                continue

    async def _answer_all(
        self, front: Rep | Respondent, answer: Callable[[Any, int], Awaitable[None]], nursery: trio.Nursery
    ) -> None:
        async def take() -> Request | Query:
            await self._room.acquire()
            return await front.arecv()

        while (question := await self._unless_stopped(take)) is not None:
            self.in_flight += 1
            self.up.take(question.body)
            self._number += 1
            # here and not in the task, as trio starts tasks in any order
            if self._tap is not None:
                peer = None if question.pipe is None else question.pipe.address
                self._tap(TappedMessage("front", "request", question.body, peer, self._number))
            nursery.start_soon(self._while_open, answer, question, self._number)

    async def _while_open(
        self, answer: Callable[[Any, int], Awaitable[None]], question: Request | Query, number: int
    ) -> None:
        try:
            await answer(question, number)
        except Closed:
            self.stop()
        finally:
            self.in_flight -= 1
            self._room.release()

    async def _ask(self, request: Request, number: int) -> None:
        try:
            reply = await self.back.arequest(request.body, self._timeout)  # type: ignore[attr-defined]
        except TimedOut:
            self.unanswered += 1
            return
        self.up.passed += 1
        await self._reply(request, reply, None, number)

    async def _survey(self, query: Query, number: int) -> None:
        assert isinstance(self.back, Surveyor)
        with await self.back.astart(query.body, self._timeout) as survey:
            self.up.passed += 1
            async with aclosing(aiter(survey)) as replies:
                async for reply in replies:
                    await self._reply(query, reply.body, reply.pipe, number)

    async def _reply(self, question: Request | Query, body: bytes, pipe: Pipe | None, number: int) -> None:
        self.down.take(body)
        if self._tap is not None:
            self._tap(TappedMessage("back", "reply", body, None if pipe is None else pipe.address, number))
        await question.areply(body)
        self.down.passed += 1

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


def forward(
    front: Socket,
    back: Socket,
    *,
    tap: Callable[[TappedMessage], None] | None = None,
    timeout: float | Default | None = DEFAULT,
    in_flight: int = IN_FLIGHT,
    linger: float = 1.0,
) -> Forwarding:
    """Forward messages between `front` and `back` until one of them is closed, or while a block runs.

    The parameters are Device's; `linger`: seconds that the end of the block may take. Raises ConfigError.
    """
    return Forwarding(Device(front, back, tap=tap, timeout=timeout, in_flight=in_flight), linger)
