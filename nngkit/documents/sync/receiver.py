"""Reading the BUS: bytes to messages of known peers. Simulated loss, delay and partitions act here.

A receiver knows no document: it decodes a message, has `Members` find its sender, and passes it to `handle`. Rejected
input goes to `refused` with (address, what, why).
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from nngkit.background import Background
from nngkit.documents.sync.faults import NetworkFaults
from nngkit.documents.sync.members import Member, Members
from nngkit.documents.sync.messages import BusMessage, Heartbeat, Updates
from nngkit.documents.sync.wire import decode_bus
from nngkit.documents.versions import EditStream
from nngkit.errors import BadMessage, Closed, TooLarge
from nngkit.protocols import Bus

REPEATED: Final = 4096  # bytes of a heartbeat that is kept to recognize its repetition
GRAIN: Final = 0.002  # seconds by which a simulated delay may be exceeded
TURN: Final = 64  # messages before other tasks run, and storage may apply backpressure


class BusReceiver:
    """Receiver of one BUS socket. `room` is awaited after every 64 messages."""

    def __init__(
        self,
        bus: Bus,
        members: Members,
        *,
        handle: Callable[[BusMessage, Member, float], None],
        refused: Callable[[str, str, str], None],
        room: Callable[[], Awaitable[None]],
        counts: Counter[str],
        rng: random.Random,
        faults: NetworkFaults | None,
    ) -> None:
        self._bus = bus
        self._members = members
        self._handle = handle
        self._refused = refused
        self._room = room
        self._counts = counts
        self._rng = rng
        self._faults = faults
        self._delayed: deque[tuple[float, bytes, int, str]] = deque()
        self._last_heartbeats: dict[int, tuple[bytes, Heartbeat]] = {}

    async def run(self, background: Background) -> None:
        """Receive until the socket is closed."""
        received = 0
        while True:
            try:
                messages = await self._bus.arecv_msgs(TURN)
            except Closed:
                return
            for message in messages:
                if message.pipe is None:
                    continue  # its connection ended before the message was read
                if self._faults is None or not self._faults.delay:
                    self.receive(message, message.pipe.id, message.pipe.address)
                else:
                    at = trio.current_time() + self._faults.delay
                    self._delayed.append((at, message, message.pipe.id, message.pipe.address))
                    if len(self._delayed) == 1:
                        background.start(self._receive_delayed)
            received += len(messages)
            if received >= TURN:
                received = 0
                await self._room()

    async def _receive_delayed(self) -> None:
        while self._delayed:
            # one wake-up for several messages: with one each, sixteen peers on two cores do little else
            await trio.sleep_until(max(self._delayed[0][0], trio.current_time() + GRAIN))
            now = trio.current_time()
            for _ in range(TURN):
                _, data, pipe, address = self._delayed[0]
                self.receive(data, pipe, address)
                del self._delayed[0]  # only now: a non-empty queue means that this task runs
                if not self._delayed or self._delayed[0][0] > now:
                    break

    def receive(self, data: bytes, pipe: int, address: str) -> None:
        """Handle one message from the connection `pipe` at `address`."""
        self._counts["received"] += 1
        self._counts["bytes_received"] += len(data)
        if self._faults is not None and self._faults.loses(self._rng):
            return
        message: BusMessage | None = self._repeated_heartbeat(data, pipe)
        if message is None:
            try:
                message = decode_bus(data, peer=address)
            except (BadMessage, TooLarge) as error:
                self._refused(address, "BUS message", str(error))
                return
        if self._faults is not None and self._faults.cuts(_sender(message)):
            return
        now = trio.current_time()
        member = self._members.heard(message, pipe, address, now)
        if isinstance(member, str):
            self._refused(address, type(message).__name__, member)
        elif member is not None:
            if isinstance(message, Heartbeat) and len(data) <= REPEATED:
                self._last_heartbeats[pipe] = data, message
            self._handle(message, member, now)

    def _repeated_heartbeat(self, data: bytes, pipe: int) -> Heartbeat | None:
        """Return the last heartbeat of a connection if `data` repeats it: at rest, nearly all do."""
        last = self._last_heartbeats.get(pipe)
        return last[1] if last is not None and last[0] == data else None

    def forget(self, pipe: int) -> None:
        """Drop the state of a connection that ended."""
        self._last_heartbeats.pop(pipe, None)


def _sender(message: BusMessage) -> EditStream:
    return message.stream if isinstance(message, Updates) else message.sender
