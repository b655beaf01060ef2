"""Raw sockets for REQ/REP and SURVEY: ids, a pump for replies, a pace for answers.

NNG's cooked sockets hold one conversation, lose replies on the way, and die with a cancelled receive (docs/protocols.md
has the list). Raw, a socket only moves messages; who asked what is kept here.

``Pump``: the asking side. Replies come in on a ring and go to whoever waits, by id. No task or thread is spent on it:
when the bell rings, the pump runs in the loops and threads of those who wait; the first of them finds the replies, and
wakes those whose they are.

``Pace``: the answering side. NNG's raw sockets queue a few messages a connection and drop the rest without a word
(measured: 64 for REP, 2 for RESPONDENT, 16 for SURVEYOR). The pace counts what was handed over for each pipe, asks NNG
what it wrote when that might be too much, and says how long to wait.

May not know: what a request or a survey means.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import deque
from collections.abc import Container, Iterator
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar
from weakref import WeakValueDictionary

from nngkit.errors import NngkitError

from ._nng import Written, as_buffer, ffi, lib, pipe_id
from ._pipes import UNCOUNTED, Pipe, Pipes
from ._receiving import DEFAULT, Receiver
from ._ring import QueueRing, Ring
from ._sending import Sending
from ._socket import MOST_BUFFER, Socket
from ._waiters import TaskWaiter, ThreadWaiter, Waiter, sleep

TOP_BIT = 0x80000000  # marks the id as the end of the trail of hops in the header
_WORD = struct.Struct(">I")


class Ids:
    """Ids of 31 bits from a random start, so that a restarted process does not take replies to its former self."""

    def __init__(self) -> None:
        self._next = int.from_bytes(os.urandom(4), "big") & 0x7FFFFFFF
        self._lock = threading.Lock()

    def take(self, used: Container[int]) -> int:
        """An id that nobody in ``used`` has, with the top bit set."""
        with self._lock:
            while True:
                self._next = (self._next + 1) & 0x7FFFFFFF
                if (number := self._next | TOP_BIT) not in used:
                    return number


def header_of(number: int) -> bytes:
    """The header of a question."""
    return _WORD.pack(number)


def header_bytes(message: Any) -> bytes:
    """The header of a received message: hops and id as NNG keeps them."""
    size = lib.nng_msg_header_len(message)
    return bytes(ffi.buffer(lib.nng_msg_header(message), size)) if size else b""


def unpack_reply(message: Any, body: bytes) -> tuple[int, bytes, int]:
    """``(id, body, pipe id)`` of a reply; the id is the last word of the header, 0 if there is none."""
    header = header_bytes(message)
    return (_WORD.unpack_from(header, len(header) - 4)[0] if len(header) >= 4 else 0, body, pipe_id(message))


Kept = TypeVar("Kept")


def alive(kept: WeakValueDictionary[int, Kept]) -> list[Kept]:
    """What is in ``kept``, while other threads put in and take out: its own ``values`` would raise then."""
    return [one for reference in kept.valuerefs() if (one := reference()) is not None]


class Asker(Protocol):
    """Somebody who waits for replies to one id, ``number``; 0 before the pump has given one."""

    number: int

    @property
    def waiter(self) -> Waiter:
        """Who to wake."""

    def take(self, reply: tuple[int, bytes, int]) -> bool:
        """A reply has come; True if the waiter is to be woken. The same object may come twice: then once counts."""


class Pump:
    """Moves replies from a ring to those who asked. ``late`` counts those nobody waits for any more."""

    def __init__(self, ring: Ring) -> None:
        assert isinstance(ring, QueueRing)
        self._ring = ring
        ring.unpack = unpack_reply
        self._ids = Ids()
        # Weak: a signal handler that raises can keep a caller from leaving, and then its frame's end takes it out.
        self.asking: WeakValueDictionary[int, Asker] = WeakValueDictionary()
        self.late = 0
        self._homes: dict[object, TaskWaiter] = {}
        self._threads: WeakValueDictionary[int, ThreadWaiter] = WeakValueDictionary()
        self._entry = threading.Lock()
        self._one = threading.Lock()
        self._dirty = False
        self._inbox: deque[tuple[int, bytes, int]] = deque()
        ring.watch(self)

    def enter(self, asker: Asker) -> None:
        """Give ``asker`` the id under which it may ask. Whatever happens here, ``leave`` undoes it."""
        waiter = asker.waiter
        with self._entry:
            asker.number = number = self._ids.take(self.asking)
            self.asking[number] = asker
            if isinstance(waiter, ThreadWaiter):
                self._threads[number] = waiter
            elif waiter.home not in self._homes:
                for home, other in list(self._homes.items()):
                    if other.ended:
                        self._homes.pop(home, None)
                self._homes[waiter.home] = waiter
                self._ring.attend(waiter)

    def leave(self, asker: Asker) -> None:
        """It asks no more. Idempotent."""
        self._threads.pop(asker.number, None)
        self.asking.pop(asker.number, None)

    def will_ring(self, home: object) -> bool:
        """Whether those who ask in ``home`` (None: threads) will be told of what there is, and what comes."""
        return not self._inbox and self._ring.will_ring(home)

    def beyond(self, homes: Container[object]) -> bool:
        """Whether somebody may wait outside those loops."""
        return bool(self._threads) or any(home not in homes for home in self._homes.copy())

    def rung_in(self, home: object) -> bool:
        """The doorbell of that loop rang, in the loop. True: it goes on listening, as all there was is taken."""
        self.run(home, told=True)
        return True

    def wake(self) -> None:
        """The bell rang (on an NNG thread): have the pump run in every loop that ever asked and in every thread.

        In all of them, as one may be busy with something else or be gone; the first to come finds the replies.
        """
        for home, waiter in list(self._homes.items()):
            if not waiter.call(partial(self.run, home)):
                self._homes.pop(home, None)  # that loop has ended
        for thread in alive(self._threads):
            thread.wake()

    def run(self, home: object = None, *, told: bool = False) -> None:
        """Hand out all replies there are, then arm the bell. ``home`` is the loop this runs in, if it is one.

        Called by those who wait, too, before they sleep. ``told``: by a doorbell, which tells again of what one look
        has left. Never raises for what a peer or a close did.
        """
        self._dirty = True
        while self._dirty:
            # a loop's step, as a signal handler that raises after a call would leave the lock taken for ever
            for mine in map(self._one.acquire, (False,)):
                try:
                    if not mine:
                        return
                    self._dirty = False
                    # the second look is the ring's rule 2; what is left over from an interrupted run goes first
                    while self._inbox or self._ring.drain(self._inbox) or self._ring.drain(self._inbox):
                        self._hand_out(home)
                        if told:
                            break
                except NngkitError:
                    return  # closed: those who wait are woken by the close itself
                finally:
                    if mine:
                        self._one.release()

    def _hand_out(self, home: object) -> None:
        inbox = self._inbox
        while inbox:
            reply = inbox[0]
            asker = self.asking.get(reply[0])
            if asker is None:
                self.late += 1
            elif asker.take(reply):
                waiter = asker.waiter
                if home is not None and not isinstance(waiter, ThreadWaiter) and waiter.home is home:
                    waiter.wake_here()
                else:
                    waiter.wake()
            # only now: an interrupt in between hands it out twice, which take() knows, instead of losing it
            inbox.popleft()

    def wake_all(self) -> None:
        """Have everybody who asked look again."""
        for asker in alive(self.asking):
            asker.waiter.wake()


class Pace:
    """Holds answers back before NNG drops them. ``limit``: how many NNG queues for one pipe."""

    PATIENCE = 0.25  # seconds a pipe may keep an answerer waiting before its answers are dropped instead
    BLIND = 0.005  # seconds after which a pipe whose messages NNG does not count is taken to have moved on

    def __init__(self, limit: int, pipes: Pipes) -> None:
        self._limit = limit
        self._pipes = pipes
        self._handed: dict[int, int] = {}
        self._blind: dict[int, tuple[float, int]] = {}
        self._clogged: set[int] = set()

    def handed(self, pipe: int) -> None:
        """One more message for ``pipe`` was given to NNG."""
        self._handed[pipe] = self._handed.get(pipe, 0) + 1

    def due(self) -> int:
        """Answers not written yet, for peers still here; all of a peer's where NNG does not count."""
        written, find = self._pipes.written_by_pipe(), self._pipes.find
        return sum(count - written.get(pipe, 0) for pipe, count in self._handed.copy().items() if find(pipe))

    def pauses(self, pipe: int) -> Iterator[float]:
        """Yield seconds to wait until there is room for one more; ``open`` then says whether there is."""
        if self.open(pipe) or pipe in self._clogged:
            return
        start, pause = time.monotonic(), 0.0002
        while not self.open(pipe):
            if time.monotonic() - start > self.PATIENCE:
                self._clogged.add(pipe)
                return
            yield pause
            pause = min(pause * 2, 0.005)

    def open(self, pipe: int) -> bool:
        """Whether one more message for ``pipe`` would not be dropped."""
        handed = self._handed.get(pipe, 0)
        if handed < self._limit or handed - Written.of(pipe) < self._limit:
            return True
        there = self._pipes.find(pipe)
        if there is not None and there.address.startswith(UNCOUNTED):
            free = self._moved_on(pipe, handed)
        else:
            Written.look()
            self._forget_gone()
            free = handed - Written.of(pipe) < self._limit
        if free:
            self._clogged.discard(pipe)
        return free

    def _moved_on(self, pipe: int, handed: int) -> bool:
        now = time.monotonic()
        since, counted = self._blind.get(pipe, (0.0, 0))
        if now - since >= self.BLIND:
            self._blind[pipe] = (now, handed)
            return True
        return handed - counted < self._limit

    def _forget_gone(self) -> None:
        for pipe in [pipe for pipe in list(self._handed) if self._pipes.find(pipe) is None]:
            self._handed.pop(pipe, None)
            self._blind.pop(pipe, None)
            self._clogged.discard(pipe)


class Question:
    """What an answering socket received: ``body``, and the ``pipe`` it came by (None if that has gone)."""

    __slots__ = ("_header", "_socket", "body", "pipe")

    def __init__(self, socket: Answerer[Any], body: bytes, header: bytes, pipe: Pipe | None) -> None:
        self.body = body
        self.pipe = pipe
        self._header = header
        self._socket = socket

    def reply(self, data: Any) -> None:
        """Send the answer, once (RuntimeError). Blocks while earlier answers to this peer are under way.

        A peer that does not read for 0.25 s has its answers dropped, and counted in ``stats.dropped``, until it reads
        again, as it has when it went away. Raises Closed, and TimedOut after ``send_timeout`` with nobody connected.
        """
        self._answering()
        self._socket._answer(data, self._header)

    async def areply(self, data: Any) -> None:
        """``reply`` for a task. Cancelled, the answer was sent whole or not at all."""
        self._answering()
        await self._socket._aanswer(data, self._header)

    def _answering(self) -> None:
        """What the protocol has to say against one more answer."""

    def __repr__(self) -> str:
        peer = self.pipe.address if self.pipe else "a peer that left"
        return f"<{type(self).__name__} {len(self.body)} bytes from {peer}>"


Asked = TypeVar("Asked", bound=Question)


class Answerer(Sending, Receiver[Asked], Socket):
    """The answering side of REQ/REP and SURVEY: many questions open at once on one socket."""

    _ring_kind: ClassVar[type[Ring]] = QueueRing
    _question: ClassVar[type[Question]] = Question
    _queued: ClassVar[int]
    _nng_recv_buffer: ClassVar[bool] = True
    _nng_send_buffer: ClassVar[bool] = True
    _default_send_buffer: ClassVar[int] = MOST_BUFFER
    _drains: ClassVar[bool] = True

    def _set_up(self) -> None:
        self._pace = Pace(self._queued, self._pipes)
        self._ring.unpack = self._unpack

    def _unpack(self, message: Any, body: bytes) -> Question:
        header = header_bytes(message)
        return self._question(self, body, header, self._pipes.find(pipe_id(message)))

    def _answer(self, data: Any, header: bytes) -> None:
        pipe = _WORD.unpack_from(header)[0]
        for pause in self._pace.pauses(pipe):
            time.sleep(pause)
        if self._may_answer(pipe):
            self._send(as_buffer(data), header, DEFAULT)
            self._pace.handed(pipe)

    async def _aanswer(self, data: Any, header: bytes) -> None:
        pipe = _WORD.unpack_from(header)[0]
        for pause in self._pace.pauses(pipe):
            await sleep(pause)
        if self._may_answer(pipe):
            await self._asend(as_buffer(data), header, DEFAULT)
            self._pace.handed(pipe)

    def _unwritten(self, written: int) -> int:
        # an answer is for one peer: what was meant for one that left is due to nobody, and close need not wait for it
        return self._pace.due()

    def _may_answer(self, pipe: int) -> bool:
        self._check_open()
        if self._pipes.find(pipe) is not None and self._pace.open(pipe):
            return True
        self._queue.dropped += 1
        return False
