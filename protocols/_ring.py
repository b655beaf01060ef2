"""Receiving ahead: posted aios, one doorbell, waiters of three kinds.

NNG hands over one message per posted receive. One receive at a time costs a thread hand-off and a wake-up a message;
the ring posts many, so NNG fills them without us, and wakes the program once for a batch::

    posted   aio aio aio aio ...     oldest first; NNG fills them in this order
              |   |   |   |          each completes into nng_aio_cancel(bell): C code, no GIL
             bell                    one nng_sleep_aio, armed before a wait; cancelled, it calls _rung in Python
              |
             waiters                 each is woken, looks again under the lock, waits again if others were first

Rules that cost a debugging session each (measured on NNG 1.11):

1. An aio is posted again only when it is not busy: its callback may still be queued, and a second post corrupts that
   queue. If it is busy though its result is there, ``nng_aio_wait`` (microseconds), then take it. Never sleep on it:
   its ring of the bell may be spent already.
2. Look, arm, look again, sleep. The bell may ring between the first look and the arming.
3. The bell's callback takes no lock, so whoever holds one may wait for it.
4. What is taken is committed in one call into C (``_run``): a signal handler that raises cannot cut it in half.
   Until a receive call returns, what it took is in its list, and goes back if the call raises.

May not know: protocols, pipes' meaning, event loops (that is ``_waiters``).
"""

from __future__ import annotations

import itertools
import operator
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from nngkit.errors import Closed

from ._nng import FOREVER, NULL, error, ffi, lib, new_aio

DEPTH = 128  # posted aios at most: past 64 the gain is small (a batch is a wake-up), and NNG's stop walks them all
FIRST_DEPTH = 4  # where a ring starts; it doubles whenever it was found full, so idle sockets stay small
BATCH = 64  # messages taken at once for callers that ask for one

SKIP: Final = object()  # what ``unpack`` returns for a message that is not for the program

_CANCEL = ffi.cast("void (*)(void *)", ffi.addressof(lib, "nng_aio_cancel"))
_call = operator.call
_repeat = itertools.repeat


def _run(*steps: Iterable[Any]) -> None:
    """Exhaust the lazy steps in one C call: all of it happens, or an exception came before it."""
    deque(itertools.chain(*steps), 0)


@ffi.callback("void (*)(void *)")  # type: ignore[untyped-decorator]
def _bell_rung(handle: Any) -> None:
    ffi.from_handle(handle)._rung()


class Ring:
    """The receiving side of one NNG socket.

    ``depth`` caps the messages held here (posted and ready), ``window`` the bytes: as many receives stay posted as
    messages of the size lately seen fit in it, one at least. ``limit`` is the largest message to let through, for the
    one transport where NNG does not check it (inproc); larger ones are dropped and counted in ``too_large``.
    ``unpack(message, body) -> item`` may add to the body what it reads from the message, or return SKIP. It may be
    called twice for one message (rule 4), so it must not mind.
    """

    def __init__(self, socket_id: Any, *, depth: int, window: int, limit: int, where: str) -> None:
        self._socket_id = socket_id
        self._depth = depth
        self._window = window
        self._limit = limit
        self._where = where
        self._lock = threading.Lock()
        self._posted: deque[Any] = deque()
        self._spare: list[Any] = []
        self._made = 0
        self._largest = 1
        self._waiters: set[Any] = set()
        self._armed = False
        self._started = False
        self._closed: Closed | None = None
        self._failed = 0
        self.ready: deque[Any] = deque()
        self.unpack: Callable[[Any, bytes], Any] | None = None
        self.names_pipes = False
        self.received = 0
        self.too_large = 0
        # popping through an iterator: FOR_ITER, STORE, RETURN have no point where a signal handler can run
        self.pops = iter(self.ready.popleft, None)
        self._handle = ffi.new_handle(self)
        self._bell = new_aio(_bell_rung, self._handle)

    def start(self) -> None:
        """Begin to read ahead. Idempotent."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        if self._started or self._closed is not None:
            return
        self._grow(min(FIRST_DEPTH, self._depth))
        spare = self._spare
        _run(
            map(lib.nng_recv_aio, _repeat(self._socket_id), spare),
            map(self._posted.extend, (list(spare),)),
            map(_call, (spare.clear,)),
            map(setattr, (self,), ("_started",), (True,)),
        )

    def _grow(self, target: int) -> None:
        while self._made < target:
            self._spare.append(new_aio(_CANCEL, self._bell))
            self._made += 1

    def _rung(self) -> None:
        # NNG thread. set.copy is one C call, so it needs no lock against add and discard.
        self._armed = False
        for waiter in self._waiters.copy():
            waiter.wake()

    # ------------------------------------------------------------------ taking, under the lock

    def _take(self, most: int, wanted: int) -> None:
        """Move up to ``most`` finished messages to ``ready``; ``wanted`` of them leave it at once."""
        posted, unpack = self._posted, self.unpack
        busy, result, get, size_of, body_of = (
            lib.nng_aio_busy,
            lib.nng_aio_result,
            lib.nng_aio_get_msg,
            lib.nng_msg_len,
            lib.nng_msg_body,
        )
        taken, messages, items, largest, too_large = [], [], [], 1, 0
        for aio in itertools.islice(posted, most):
            if busy(aio):
                if get(aio) or result(aio):
                    lib.nng_aio_wait(aio)
                else:
                    break
            if code := result(aio):
                self._failed = code
                break
            if not (message := get(aio)):
                break
            size = size_of(message)
            taken.append(aio)
            messages.append(message)
            if size > largest:
                largest = size
                if size > self._limit:
                    too_large += 1
                    continue
            body = bytes(ffi.buffer(body_of(message), size)) if size else b""
            if unpack is None:
                items.append(body)
            elif (item := unpack(message, body)) is not SKIP:
                items.append(item)
        count = len(taken)
        if not count:
            return
        # a large message shrinks the window at once, smaller ones let it grow back slowly
        self._largest = max(largest, self._largest - (self._largest >> 3))
        kept = len(posted) - count
        if kept == 0 and self._made < self._depth and largest * self._made * 2 <= self._window:
            self._grow(min(self._made * 2, self._depth))
        target = min(self._made, max(1, self._window // self._largest))
        waiting = max(0, len(self.ready) + len(items) - wanted)
        taken += self._spare
        again = taken[: max(0, target - kept - waiting)]
        if not again and not kept:
            again = taken[:1]
        _run(
            map(lib.nng_aio_set_msg, taken[:count], _repeat(NULL)),
            map(lib.nng_msg_free, messages),
            map(_call, _repeat(posted.popleft, count)),
            map(self.ready.extend, (items,)),
            map(lib.nng_recv_aio, _repeat(self._socket_id), again),
            map(posted.extend, (again,)),
            map(setattr, _repeat(self), ("_spare", "received"), (taken[len(again) :], self.received + len(items))),
        )
        self.too_large += too_large

    def poll(self, most: int, out: list[Any] | deque[Any]) -> bool:
        """Move up to ``most`` items into ``out``, or arm the bell. Raises Closed, or what broke the socket."""
        with self._lock:
            if self._closed is not None:
                raise type(self._closed)(str(self._closed))
            if not self._started:
                self._start()
            ready = self.ready
            if not ready:
                self._take(max(most, min(BATCH, self._depth >> 1)), most)
            if ready:
                if len(ready) <= most:
                    _run(map(out.extend, (ready,)), map(_call, (ready.clear,)))
                else:
                    _run(
                        map(out.extend, (list(itertools.islice(ready, most)),)),
                        map(_call, _repeat(ready.popleft, most)),
                    )
                return True
            if self._failed:
                raise error(self._failed, self._where)
            if not self._armed:
                self._armed = True
                lib.nng_sleep_aio(FOREVER, self._bell)
            return False

    def put_back(self, out: list[Any]) -> None:
        """What a call took but could not return goes back in front."""
        if out:
            with self._lock:
                if self._closed is None:
                    self.ready.extendleft(reversed(out))
            for waiter in self._waiters.copy():
                waiter.wake()

    def drain(self, out: list[Any] | deque[Any]) -> bool:
        """Everything there is into ``out``; with nothing there, arm the bell and return False."""
        return self.poll(1 << 30, out)

    def watch(self, waiter: Any) -> None:
        """Have ``waiter.wake()`` called, on an NNG thread, whenever the bell rings: it is then to poll until False."""
        self._waiters.add(waiter)

    def unwatch(self, waiter: Any) -> None:
        """The end of ``watch``."""
        self._waiters.discard(waiter)

    # ------------------------------------------------------------------ the end

    def refuse(self, reason: Closed) -> None:
        """Hand out nothing more; every waiter is woken and raises ``reason``. Idempotent, from any thread."""
        with self._lock:
            if self._closed is not None:
                return
            self._closed = reason
            self.ready.clear()
        for waiter in self._waiters.copy():
            waiter.wake()

    def free(self) -> None:
        """Give everything back, once NNG's socket is closed: NNG has ended, or is just ending, each posted receive.

        They are waited for and not stopped: nng_aio_stop meets a receive that is just completing with nni_task_abort,
        takes it for idle, and its completion then runs on freed memory (NNG 1.11; one close in some thousands).
        """
        aios = [*self._posted, *self._spare]
        for aio in aios:
            lib.nng_aio_wait(aio)
        # No callback of a receive is left that could ring the bell, so it may be stopped.
        lib.nng_aio_stop(self._bell)
        for aio in aios:
            if not lib.nng_aio_result(aio) and (message := lib.nng_aio_get_msg(aio)):
                lib.nng_msg_free(message)
            lib.nng_aio_free(aio)
        lib.nng_aio_free(self._bell)
        self._posted.clear()
        self._spare = []

    def forked(self, reason: Closed) -> None:
        """In a forked child: refuse everything and free nothing, as any NNG call would abort the process."""
        self._lock = threading.Lock()
        self._closed = reason
        self.ready.clear()
