"""Shared memory of one socket: its slots, the messages in them, and its counters.

::

    Slot        memory of this socket while anything refers to it: a queue, a loan, a peer that has not released it
    Reference   message to send whose body is in a slot: the bytes of its frame, which queues handle like any others
    Shared      received message whose body is in a peer's slot; the slot is released with the last view of it

A slot is given back by a finalizer, on any thread and at any point: it only notes that, and the next sender looks.

May not know: protocols.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from nngkit.errors import BadMessage, ConfigError
from nngkit.protocols._nng.library import Payload, as_bytes, size_of
from nngkit.protocols._nng.operations import atomically
from nngkit.protocols._shm import formats, memory
from nngkit.protocols._shm.link import KEPT, Link
from nngkit.protocols._shm.slots import Place, Slots
from nngkit.protocols._waiting.waiters import Waiter, wake_all

PATIENCE: Final = 0.25  # seconds without a release after which a sender copies instead of waiting for a slot


class Slot:
    """Writable memory of ``place``. While anything refers to it or to a view of it, it keeps ``end``."""

    __slots__ = ("_pointer", "address", "place")

    def __init__(self, mapping: memory.Mapping, place: Place, end: object) -> None:
        self.address = mapping.address + place.offset
        self.place = place
        self._pointer = next(memory.pointers(self.address, partial(id, mapping), partial(id, end)))

    def view(self, start: int, end: int) -> memoryview:
        """Return a writable view of bytes."""
        return memory.view(self._pointer, end)[start:]


class Reference(bytes):
    """Message whose body is in ``slot``, behind a protocol's header; its use is still 0."""

    slot: Slot

    def __new__(cls, frame: bytes, slot: Slot) -> Reference:
        reference = super().__new__(cls, frame)
        reference.slot = slot
        return reference


class Shared:
    """A received message. Like bytes it has a length, can be cut and compared at its start; ``bytes`` copies it."""

    __slots__ = ("_body", "_header")

    def __init__(self, header: bytes, body: memoryview) -> None:
        self._header = header
        self._body = body

    def __len__(self) -> int:
        return len(self._header) + len(self._body)

    def __getitem__(self, index: int | slice) -> Any:
        """Return a byte, the bytes of a slice that ends, or the message from an offset on, without a copy."""
        if isinstance(index, int):
            return self[index : index + 1][0]
        start, stop, _ = index.indices(len(self))
        head = len(self._header)
        header, body = self._header[start:stop], self._body[max(start - head, 0) : max(stop - head, 0)]
        return Shared(header, body) if index.stop is None else header + bytes(body)

    def startswith(self, prefix: bytes | tuple[bytes, ...]) -> bool:
        """Like the method of bytes."""
        longest = max(map(len, prefix), default=0) if isinstance(prefix, tuple) else len(prefix)
        found: bytes = self[:longest]
        return found.startswith(prefix)

    def __bytes__(self) -> bytes:
        return memory.copy(self._body, self._header)

    def view(self) -> memoryview:
        """Return a read-only view, which keeps the slot as long as anything refers to it."""
        return memoryview(bytes(self)) if self._header else self._body[:]


Message = bytes | Shared


def plain(message: Message) -> bytes:
    """Return a received message as bytes."""
    return bytes(message) if isinstance(message, Shared) else message


def view_of(message: Message) -> memoryview:
    """Return a read-only view of a received message."""
    return message.view() if isinstance(message, Shared) else memoryview(message)


class Sharing:
    """Slots of one socket, ``size`` bytes together, for bodies of ``least`` bytes and more.

    ``lazy``: received bodies stay in shared memory until the program takes them; otherwise they are copied as they
    arrive. ``patient``: senders wait for a slot, otherwise they copy. ``active``: all addresses of the socket are shm.
    """

    def __init__(self, size: int, least: int) -> None:
        self.least = least
        self.lazy = False
        self.patient = False
        self.shed: Callable[[], bool] | None = None  # drops a queued message; returns False if there is none
        self.active: bool | None = None  # None: there is no address yet
        self.links: tuple[Link, ...] = ()
        self.waiters: set[Any] = set()
        self.shared = self.copied = self.abandoned = 0
        self._slots = Slots(size)
        self._segments: dict[int, tuple[int, memory.Mapping]] = {}  # descriptor and mapping
        self._returned: deque[Place] = deque()
        self._dead: set[Place] = set()  # in use, and not to be used again
        self._lock = threading.Lock()
        self._state: Any = None
        self._releases = 0  # messages of the side channels with releases
        self._closed = False

    def add(self, scheme: str) -> None:
        """Note an address of the socket. Raises ConfigError if messages for shm could reach it."""
        if self.active and scheme != "shm" and self._segments:
            raise ConfigError("address", f"{scheme} beside shm, of which bodies were sent: name it before", scheme)
        self.active = scheme == "shm" and self.active is not False

    def join(self, link: Link, state: Any) -> None:
        """Add the side channel of a new connection. Under the lock of the socket."""
        self._state = state
        self.links = (*self.links, link)

    # ------------------------------------------------------------------ slots

    def wants(self, data: Payload) -> int:
        """Return the bytes of a body that belongs into shared memory; 0 if it does not, or is there."""
        return size if type(data) is not Reference and (size := size_of(data)) >= self.least else 0

    def find(self, size: int) -> Slot | None:
        """Return a slot, None if there is no room. Called without the socket's lock.

        Releases are read once a peer has several slots, one of them for each slot that is given: mostly there is one.
        """
        for link in self.links:
            if (several := len(link.holding) - KEPT) >= 0:
                self._read(link, several + 1)
        slot = self._locked_take(size)
        if slot is None and self.links:
            self.read()
            slot = self._locked_take(size)
        return slot

    def read(self) -> None:
        """Read all that the peers have released. Called without the socket's lock."""
        for link in self.links:
            self._read(link)

    def _read(self, link: Link, most: int | None = None) -> None:
        try:
            link.read(most)
        except BadMessage as wrong:
            link.fail(wrong)
        if self._state is not None:
            self._state.notify()

    def _locked_take(self, size: int) -> Slot | None:
        with self._lock:  # one call: see `Link.read`
            return self._take(size)

    def _take(self, size: int) -> Slot | None:
        returned, slots, segments = self._returned, self._slots, self._segments
        while returned:
            place = returned[0]
            slots.give(place, dead=place in self._dead)  # again, if a signal handler interrupts
            self._dead.discard(place)
            returned.popleft()
        if self._closed:
            return None
        noted: list[Place] = []
        end = next(memory.pointers(0, partial(returned.extend, noted)))  # first, so that nothing is lost
        try:
            if not slots.take(size, noted):
                return None
            number = noted[0].segment
            if number not in segments:
                segments[number] = memory.create(slots.segments[number].size)
            return Slot(segments[number][1], noted[0], end)
        except OSError:  # no descriptor, no memory: the message is copied
            slots.give(noted[0], dead=True)
            return None
        finally:
            if slots.shrunk:
                self._free_dropped()

    def _free_dropped(self) -> None:
        for number in self._segments.keys() - self._slots.segments.keys():
            for link in self.links:
                link.dropped(number)
            atomically((os.close, self._segments[number][0]), (self._segments.__delitem__, number))
        self._slots.shrunk = False

    def finding(self, size: int, found: list[Slot], waiter: Waiter, deadline: float | None) -> Iterator[float]:
        """Append a slot to ``found``, if there is one; yield each time to wait until."""
        slot = self.find(size)
        while slot is None and self.shed is not None and self.shed():
            slot = self.find(size)
        if slot is None and self.patient and self.links:
            seen, until = self._releases, time.monotonic() + PATIENCE
            self.waiters.add(waiter)
            try:
                while True:
                    for link in self.links:
                        link.watch()
                    slot = self.find(size)
                    if self._releases != seen:
                        seen, until = self._releases, time.monotonic() + PATIENCE
                    end = until if deadline is None else min(deadline, until)
                    if slot is not None or not self.links or time.monotonic() >= end:
                        break
                    yield end
            finally:
                self.waiters.discard(waiter)
        if slot is not None:
            found.append(slot)

    def came_back(self) -> None:
        """Note that a peer has released slots."""
        self._releases += 1
        if self.waiters:
            wake_all(self.waiters)

    # ------------------------------------------------------------------ messages

    def message(self, header: bytes, data: Payload, size: int, found: list[Slot]) -> bytes:
        """Return the message with ``header`` and ``data``, which is copied into the slot that was found, if any.

        ``size``: what it ``wants``.
        """
        if type(data) is Reference:
            return Reference(header + data, data.slot) if header else data
        if found:
            memory.fill(found[0].address, data)
            return self.reference(header, found[0], size)
        self.copied += size > 0
        return header + as_bytes(data)

    def reference(self, header: bytes, slot: Slot, size: int) -> Reference:
        """Return the message with ``header`` and what is in ``slot``."""
        self.shared += 1
        place = slot.place
        return Reference(header + formats.REFERENCE.pack(place.segment, place.offset, size, 0), slot)

    def introduce(self, link: Link, slot: Slot) -> None:
        """Pass the segment of a slot to a peer. Raises OSError."""
        number = slot.place.segment
        descriptor, mapping = self._segments[number]
        link.introduce(number, mapping.size, descriptor, self.window() // 2)

    def window(self) -> int:
        """Return how many bytes one peer may have before it gets no more: half of the slots are divided among all."""
        return self._slots.limit // (2 * max(1, len(self.links)))

    # ------------------------------------------------------------------ the end

    def left(self, link: Link) -> None:
        """Abandon the slots of a peer that has left: it may still look at them."""
        self.links = tuple(one for one in self.links if one is not link)
        self._dead.update(slot.place for slot in link.holding.values())
        if not self._closed:
            self.abandoned += len(link.holding)
        link.holding.clear()
        self.came_back()

    def close(self) -> None:
        """Free the segments; peers keep what they look at, and so do loans. Idempotent."""
        with self._lock:
            self._closed = True
            for link in self.links:
                link.close()
            while self._segments:
                atomically((os.close, self._segments.popitem()[1][0]))

    def forked(self) -> None:
        """Let go of the parent's memory in a forked child."""
        self._lock = threading.Lock()
        for link in self.links:
            link.forked()
        self.links = ()
        self.close()
