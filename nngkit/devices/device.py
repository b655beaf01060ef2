"""Passing messages on between two sockets: the shell around `plan.py`.

::

    async with Rep(listen="tcp://0.0.0.0:6000") as front, Req(listen="tcp://0.0.0.0:6001", resend=None) as back:
        await Device(front, back).run()          # a queue: many askers, many answerers, each dialling one address

How a queue asks: each Request of `Rep` is asked again through `Req`, all of them at once. The header that names the
way back to the asker (his connection, the devices he came by, his id) stays with the Request; on the other side the
question has an id of our own. So peers on both sides see nothing but a REP and a REQ, a lost answerer's requests go to
the next one at once, and replies are paced. What that costs: the device remembers what is under way (`in_flight`,
`timeout`), and the count of hops begins anew, so that a ring of devices is not noticed by it.

What goes one way goes in turns of up to 256 messages: taken from the one socket, handed to the other, which holds the
first back while it has no room (PUSH, PAIR), or drops and counts (PUB, BUS).

Everything waits in trio. May not know: what a message means, who watches it pass (`tap`), or when to end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import trio

from nngkit.devices.kinds import kind_of
from nngkit.errors import BadMessage, Closed, TimedOut
from nngkit.protocols import Bus, Message, Rep, Req, Request, Socket

__all__ = ["IN_FLIGHT", "TIMEOUT", "Device", "Flow", "Passed"]

TURN: Final = 256  # messages taken at once: enough that waking up is not what costs
TIMEOUT: Final = 60.0  # seconds a request may take: then a REQ of NNG or nanomsg asks again by itself
IN_FLIGHT: Final = 1024  # requests asked at once: what `Rep` reads ahead on top is as much again

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Passed:
    """One message as the device got it: by which side, from whom (None if that has gone), and what it is.

    `number` is the same for a request and its reply, and counts from 1; None for all that is neither.
    """

    side: Literal["front", "back"]
    what: Literal["message", "request", "reply"]
    body: bytes
    peer: str | None
    number: int | None = None


@dataclass(slots=True)
class Flow:
    """What went one way: `received` by the device, `size` in bytes, `passed` on (in a queue, up: requests answered)."""

    received: int = 0
    passed: int = 0
    size: int = 0

    def take(self, body: bytes) -> None:
        """One more has come."""
        self.received += 1
        self.size += len(body)


class Device:
    """Passes messages on between `front` and `back`, which stay their owner's to close.

    One socket on both sides is a reflector, as of `nng_device`: a Bus passes a message on to all its peers but the one
    that sent it, a pair returns it to its peer.

    `tap`: called with each message as it comes; it has to be quick. `timeout`: seconds that a request may take until it
    is given up (`unanswered`; None: never), `in_flight`: requests asked at once; more are left with those who ask.
    Raises ConfigError for two sockets that make no device.
    """

    def __init__(
        self,
        front: Socket,
        back: Socket,
        *,
        tap: Callable[[Passed], None] | None = None,
        timeout: float | None = TIMEOUT,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self.kind = kind_of(type(front).__name__, type(back).__name__)
        self.front = front
        self.back = back
        self.up = Flow()
        self.down = Flow()
        self.unanswered = 0
        self.in_flight = 0
        self._relays = front is back and isinstance(front, Bus)
        self._tap = tap
        self._timeout = timeout
        self._room = trio.Semaphore(in_flight)
        self._number = 0
        self._waits: set[trio.CancelScope] = set()
        self._stopping = False
        self._end = trio.CancelScope()

    async def run(self) -> None:
        """Pass on until `stop`, or until one of the sockets is closed. Once.

        Cancelled, what the device held is lost: messages taken and not handed over, requests without their replies.
        Raises what a socket that was told to raise when it is full raises.
        """
        with self._end:
            async with trio.open_nursery() as nursery:
                if isinstance(self.front, Rep) and isinstance(self.back, Req):
                    await self._answer_all(self.front, self.back, nursery)
                elif self.front is self.back:
                    nursery.start_soon(self._pump, "front", self.front, self.back, self.up)
                else:
                    nursery.start_soon(self._pump, "front", self.front, self.back, self.up)
                    if self.kind.both_ways:
                        nursery.start_soon(self._pump, "back", self.back, self.front, self.down)

    def stop(self, linger: float = 0.0) -> None:
        """Take no more, and have `run` end once what was taken has gone on, after `linger` seconds at the latest."""
        self._stopping = True
        self._end.deadline = min(self._end.deadline, trio.current_time() + linger)
        for scope in self._waits:
            scope.cancel()

    @property
    def lost(self) -> int:
        """Messages taken and not passed on, so far: in a queue, requests without a reply."""
        return self.up.received - self.up.passed + self.down.received - self.down.passed - self.in_flight

    async def _pump(self, side: Literal["front", "back"], source: Any, target: Any, flow: Flow) -> None:
        before = target.stats.sent
        while (items := await self._unless_stopped(lambda: self._take(source))) is not None:
            for item in items:
                flow.take(item)
                if self._tap is not None:
                    pipe = item.pipe if isinstance(item, Message) else None
                    self._tap(Passed(side, "message", item, None if pipe is None else pipe.address))
            try:
                flow.passed += target.relay(items) if self._relays else await target.asend_many(items)
            except Closed:
                self.stop()
            finally:
                if flow.passed < flow.received:  # cut short: a first part of them went
                    flow.passed = target.stats.sent - before

    async def _take(self, source: Any) -> list[bytes]:
        while True:
            try:
                if self._relays:
                    return await source.arecv_msgs(TURN)  # type: ignore[no-any-return]
                if self._tap is None:
                    return await source.arecv_many(TURN)  # type: ignore[no-any-return]
                # one by one, as only that tells whose it is
                return [await source.arecv_msg()]
            except BadMessage:  # a batch that is none: `stats.bad` has counted it
                continue

    async def _answer_all(self, front: Rep, back: Req, nursery: trio.Nursery) -> None:
        async def take() -> Request:
            await self._room.acquire()
            return await front.arecv()

        while (request := await self._unless_stopped(take)) is not None:
            self.in_flight += 1
            self.up.take(request.body)
            self._number += 1
            # told here and not in the task, as trio starts tasks in any order
            if self._tap is not None:
                peer = None if request.pipe is None else request.pipe.address
                self._tap(Passed("front", "request", request.body, peer, self._number))
            nursery.start_soon(self._ask, request, back, self._number)

    async def _ask(self, request: Request, back: Req, number: int) -> None:
        try:
            reply = await back.arequest(request.body, self._timeout)
            self.up.passed += 1
            self.down.take(reply)
            if self._tap is not None:
                self._tap(Passed("back", "reply", reply, None, number))
            await request.areply(reply)
            self.down.passed += 1
        except TimedOut:
            self.unanswered += 1
        except Closed:
            self.stop()
        finally:
            self.in_flight -= 1
            self._room.release()

    async def _unless_stopped(self, wait: Callable[[], Awaitable[T]]) -> T | None:
        """What `wait` comes back with; None once the device is to stop, and then nothing was taken."""
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
