"""Side channel of one connection: which segments its peer knows, and who still looks at which slot.

Each end is owner of the slots that it sends and reader of those that it receives. A release is sent as the last view
ends, on any thread and at any point, by one call into C: no signal handler can divide it. The socket has room for it,
as an owner waits after IN_FLIGHT bodies; one that sends more and does not read loses releases, at its own cost.

May not know: protocols, queues.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import select
import socket as sockets
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from nngkit.errors import BadMessage
from nngkit.protocols._nng.operations import atomically
from nngkit.protocols._shm import formats, memory
from nngkit.protocols._shm.slots import Place
from nngkit.protocols._shm.watcher import watcher

MOST_MAPPED: Final = 1024  # segments of one peer
AT_ONCE: Final = 64  # messages read in one step
ROUNDS: Final = 8  # steps in a row: an honest peer has sent less
KEPT: Final = 2  # bodies that a reader may always keep ...
MOST_KEPT: Final = 32  # ... and those from which on it copies, whatever their size
IN_FLIGHT: Final = 64  # bodies sent to one peer and not released

# for recvmsg: sizes of a message and of its descriptors, both with room for one too many, which is then noticed
_INTEGER: Final = struct.calcsize("i")
_CLOEXEC: Final = getattr(sockets, "MSG_CMSG_CLOEXEC", 0)
_RECEIVE: Final = (formats.LARGEST + 1, 16 + 4 * _INTEGER, _CLOEXEC)

FLAGS: Final = getattr(sockets, "MSG_DONTWAIT", 0) | getattr(sockets, "MSG_NOSIGNAL", 0)


class Held(Protocol):
    """A slot that the peer has not released."""

    place: Place


class Slots(Protocol):
    """The slots of the socket (`sharing.py`)."""

    waiters: set[Any]

    def join(self, link: Link, state: Any) -> None:
        """Add the link of a new connection."""

    def left(self, link: Link) -> None:
        """Abandon what the peer of a link holds."""

    def came_back(self) -> None:
        """Note that a peer has released slots."""

    def window(self) -> int:
        """Return how many bytes one peer may have before it gets no more."""


class Link:
    """Side channel ``side`` to the process ``pid``, for one connection. It owns the socket.

    ``holding``: slots by use that the peer has not released. ``waiting``: the connection writes on once the peer has
    released something. ``alive``: bytes by use of received bodies that somebody here still looks at.
    """

    def __init__(self, side: sockets.socket, pid: int | None) -> None:
        side.setblocking(False)
        self.pid = pid
        self.closed = False
        self.holding: dict[int, Held] = {}
        self.waiting = False
        self.alive: dict[int, int] = {}
        self._side = side
        self._number = ctypes.c_int(side.fileno())  # its descriptor; -1 once it is closed
        self._sharing: Slots | None = None
        self._connection: Any = None
        self._state: Any = None
        self._known: set[int] = set()  # numbers of the segments that the peer knows
        self._mapped: dict[int, memory.Mapping] = {}
        self._share = 0  # bytes that may be kept before bodies are copied
        self._ended = False  # the peer has closed its end
        self._reading = threading.Lock()
        self._arrivals: Iterator[Any] = iter(partial(side.recvmsg, *_RECEIVE), None)  # without end
        self._arrived: deque[Any] = deque()  # messages that were read, not handled yet

    def begin(self, sharing: Slots, connection: Any, state: Any) -> None:
        """Serve ``connection`` from now on. Under the lock of its socket."""
        self._sharing = sharing
        self._connection = connection
        self._state = state
        sharing.join(self, state)

    # ------------------------------------------------------------------ both

    def read(self, most: int | None = None) -> None:
        """Handle what has arrived, without waiting; ``most``: so many messages at most. Raises BadMessage."""
        # One call: out of a loop Python 3.12 may jump back to the end of the block, where a signal handler runs, and
        # would leave the lock taken.
        with self._reading:
            self._read_and_handle(ROUNDS * AT_ONCE if most is None else most)
        if self.waiting and self.room():
            self.waiting = False
            self._state.call_later(self._write_on)

    def _read_and_handle(self, most: int) -> None:
        while most > 0 and not (self.closed or self._ended):
            try:
                # one step for Python: a signal handler that raises loses no descriptor
                self._arrived.extend(itertools.islice(self._arrivals, min(most, AT_ONCE)))
                most -= AT_ONCE
            except OSError:  # there is no more now, or another thread has closed it
                break
            finally:
                self._handle_arrived()

    def _handle_arrived(self) -> None:
        """Handle messages that were read. Interrupted, it goes on with the same message at the next call."""
        arrived = self._arrived
        while arrived:
            message, control, _, _ = arrived[0]
            passed = [number for _, _, data in control for number in _numbers(data)] if control else []
            steps: list[tuple[Any, ...]] = []
            wrong: BadMessage | None = None
            try:
                steps = self._handle(message, passed)
            except BadMessage as found:
                wrong = found
            except OSError as refused:
                wrong = BadMessage("shm", f"a segment that cannot be used: {refused}")
            if steps or passed:
                atomically(*steps, *((os.close, number) for number in passed), (arrived.popleft,))
            else:
                arrived.popleft()
            if wrong is not None:
                raise wrong

    def _handle(self, message: bytes, passed: list[int]) -> list[tuple[Any, ...]]:
        """Handle one message; return the calls that note a new segment. Raises BadMessage, OSError."""
        if not message:
            self._ended = True  # and the stream ends too
            return []
        kind, fields = message[:1], formats.read(message)
        if kind == formats.RELEASED:
            for use in fields:
                self.holding.pop(use, None)  # the end of the last reference gives the slot back
            if self._sharing is not None:
                self._sharing.came_back()
        elif kind == formats.DROPPED:
            self._mapped.pop(fields[0], None)
        else:
            number, size, self._share = fields
            if len(passed) != 1 or number in self._mapped or len(self._mapped) >= MOST_MAPPED:
                raise BadMessage("shm", f"segment {number} is one too many, or has no descriptor")
            return [(self._mapped.__setitem__, number, memory.accept(passed[0], size))]
        return []

    def _write_on(self, loop: object) -> None:
        """Let the connection write, as the peer has released something. Called without the lock."""
        with self._state.lock:
            if self._connection.number in self._state.present:
                self._connection.write_on(now=True)
        self._state.notify()

    def events(self) -> int:
        """Return what the watching thread should wait for."""
        if self.closed or self._ended:
            return 0
        return select.EPOLLIN if self.waiting or (self._sharing is not None and self._sharing.waiters) else 0

    def ready(self) -> None:
        """Read what there is. On the watching thread."""
        try:
            self.read()
        except BadMessage as wrong:
            self.fail(wrong)
        if self._state is not None:
            self._state.notify()
        self.watch()

    def watch(self) -> None:
        """Have the watching thread wait for what is needed."""
        if self.events():
            watcher().arm(self._side, self)

    def fail(self, wrong: BadMessage) -> None:
        """End the connection, whose peer breaks the rules. Called without the lock."""
        if self._state is None:
            self.close()
            return
        with self._state.lock:
            self._connection.fault = wrong
            self._state.lose(self._connection)
        self._state.notify()

    def close(self) -> None:
        """Close the side channel: the peer's slots are abandoned. Idempotent."""
        if self.closed:
            return
        with suppress(BadMessage):
            self.read()  # what the peer released before it closed
        self.closed = True
        if self._sharing is not None:
            self._sharing.left(self)
        watcher().forget(self._side)
        self._close_side()
        self._mapped.clear()  # bodies that are looked at keep theirs

    def forked(self) -> None:
        """Close the child's copy: its garbage collector must not release what the parent looks at."""
        self.closed = True
        self._close_side()

    def _close_side(self) -> None:
        self._number.value = -1  # before another file gets its descriptor
        self._side.close()

    # ------------------------------------------------------------------ as owner, under the socket's lock

    def introduce(self, number: int, size: int, descriptor: int, share: int) -> None:
        """Pass a segment to the peer, unless it knows it. Raises OSError if the peer takes no more."""
        if number not in self._known:
            sockets.send_fds(self._side, [formats.segment(number, size, share)], [descriptor])
            self._known.add(number)

    def knows(self, number: int) -> bool:
        """Return True if the peer knows a segment."""
        return number in self._known

    def dropped(self, number: int) -> None:
        """Tell the peer that a segment is no longer used."""
        if number in self._known:
            self._known.discard(number)
            try:
                self._side.send(formats.dropped(number))
            except OSError:  # its mapping stays until the connection ends
                return

    def room(self) -> int:
        """Return how many bodies may be sent to the peer now."""
        held = list(self.holding.values())
        if len(held) < KEPT:
            return KEPT - len(held)
        if self._sharing is None or sum(slot.place.size for slot in held) >= self._sharing.window():
            return 0
        return max(0, IN_FLIGHT - len(held))

    # ------------------------------------------------------------------ as reader

    def mapping(self, number: int) -> memory.Mapping:
        """Return the mapping of a segment, which the peer introduced before it named it. Raises BadMessage."""
        if number not in self._mapped:
            self.read()
        if (found := self._mapped.get(number)) is None:
            raise BadMessage("shm", f"segment {number} is unknown")
        return found

    def keeps_many(self, size: int) -> bool:
        """Return True if the program looks at so much that ``size`` more bytes are copied."""
        count = len(self.alive)
        return count >= MOST_KEPT or (count >= KEPT and size + sum(list(self.alive.values())) > self._share)

    def looked_at(self, use: int, mapping: memory.Mapping, offset: int, size: int) -> Iterator[Any]:
        """Return an iterator in C over one pointer to a received body, whose end releases ``use``."""
        self.alive[use] = size
        message = formats.released((use,))
        release = partial(memory.functions()[2], self._number, message, len(message), FLAGS)
        return memory.pointers(
            mapping.address + offset, partial(self.alive.pop, use, None), release, partial(id, mapping)
        )


def _numbers(data: bytes) -> tuple[int, ...]:
    count = len(data) // _INTEGER
    return struct.unpack_from(f"{count}i", data)
