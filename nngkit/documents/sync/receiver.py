"""Reading the BUS: bytes to messages of known peers. Simulated loss, delay and partitions act here.

A receiver knows no document: it decodes a message, has `Members` find its sender, and passes it to `handle`. Rejected
input goes to `refused` with (address, what, why).
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from operator import attrgetter
from typing import Final

import trio

from nngkit.background import Background
from nngkit.documents.sync.faults import NetworkFaults
from nngkit.documents.sync.members import Member, Members
from nngkit.documents.sync.messages import BusMessage, Heartbeat, Updates
from nngkit.documents.sync.wire import decode_bus
from nngkit.documents.versions import EditStream
from nngkit.errors import BadMessage, Closed, TooLarge
from nngkit.protocols import Bus, Pipe

REPEATED: Final = 4096  # bytes of a heartbeat that is kept to recognize its repetition
GRAIN: Final = 0.002  # seconds by which a simulated delay may be exceeded
TURN: Final = 64  # messages before other tasks run, and storage may apply backpressure


@dataclass(eq=False, repr=False)
class BusReceiver:
    """Receiver of one BUS socket. `room` is awaited after every 64 messages.

    `objection` returns why a message from a peer of that name is refused, with a code first; None: no trust. `who`
    returns the name of the peer of a connection.
    """

    bus: Bus
    members: Members
    _: KW_ONLY
    handle: Callable[[BusMessage, Member, float], None]
    refused: Callable[[str, str, str], None]
    room: Callable[[], Awaitable[None]]
    counts: Counter[str]
    rng: random.Random
    faults: NetworkFaults | None
    objection: Callable[[BusMessage, str | None], str | None] | None = None
    who: Callable[[Pipe], str | None] = attrgetter("who")

    def __post_init__(self) -> None:
        self._delayed: deque[tuple[float, bytes, int, str, str | None]] = deque()
        self._last_heartbeats: dict[int, tuple[bytes, Heartbeat]] = {}

    async def run(self, background: Background) -> None:
        """Receive until the socket is closed."""
        received = 0
        while True:
            try:
                messages = await self.bus.arecv_msgs(TURN)
            except Closed:
                return
            for message in messages:
                if message.pipe is None:
                    continue  # its connection ended before the message was read
                pipe = message.pipe
                if self.faults is None or not self.faults.delay:
                    self.receive(message, pipe.id, pipe.address, self.who(pipe))
                else:
                    at = trio.current_time() + self.faults.delay
                    self._delayed.append((at, message, pipe.id, pipe.address, self.who(pipe)))
                    if len(self._delayed) == 1:
                        background.start(self._receive_delayed)
            received += len(messages)
            if received >= TURN:
                received = 0
                await self.room()

    async def _receive_delayed(self) -> None:
        while self._delayed:
            # one wake-up for several messages: with one each, sixteen peers on two cores do little else
            await trio.sleep_until(max(self._delayed[0][0], trio.current_time() + GRAIN))
            now = trio.current_time()
            for _ in range(TURN):
                _, data, pipe, address, who = self._delayed[0]
                self.receive(data, pipe, address, who)
                del self._delayed[0]  # only now: a non-empty queue means that this task runs
                if not self._delayed or self._delayed[0][0] > now:
                    break

    def receive(self, data: bytes, pipe: int, address: str, who: str | None = None) -> None:
        """Handle one message from the connection `pipe` at `address`; `who`: the peer's name under a trust."""
        self.counts["received"] += 1
        self.counts["bytes_received"] += len(data)
        if self.faults is not None and self.faults.loses(self.rng):
            return
        message: BusMessage | None = self._repeated_heartbeat(data, pipe)
        if message is None:
            try:
                message = decode_bus(data, peer=address)
            except (BadMessage, TooLarge) as error:
                self.refused(address, "BUS message", str(error))
                return
        if self.faults is not None and self.faults.cuts(_sender(message)):
            return
        now = trio.current_time()
        asked = self.objection
        introduces = asked is not None and isinstance(message, Heartbeat)
        why = asked(message, who) if asked is not None and introduces else None
        member = self.members.heard(message, pipe, address, now) if why is None else None
        if asked is not None and not introduces and isinstance(member, Member):
            why = asked(message, who)
        if why is not None:
            self.refused(who or address, why.partition(":")[0], why)
        elif isinstance(member, str):
            self.refused(address, type(message).__name__, member)
        elif member is not None:
            member.who = who
            if isinstance(message, Heartbeat) and len(data) <= REPEATED:
                self._last_heartbeats[pipe] = data, message
            self.handle(message, member, now)

    def _repeated_heartbeat(self, data: bytes, pipe: int) -> Heartbeat | None:
        """Return the last heartbeat of a connection if `data` repeats it: at rest, nearly all do."""
        last = self._last_heartbeats.get(pipe)
        return last[1] if last is not None and last[0] == data else None

    def forget(self, pipe: int) -> None:
        """Drop the state of a connection that ended."""
        self._last_heartbeats.pop(pipe, None)


def _sender(message: BusMessage) -> EditStream:
    return message.stream if isinstance(message, Updates) else message.sender
