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
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from nngkit.errors import BadMessage, Closed, TooLarge

from ._doorbells import Doorbell
from ._nng import FOREVER, NONBLOCK, NULL, check, error, ffi, lib, new_aio
from ._refusing import Refusing
from ._waiters import AsyncioWaiter, TaskWaiter, TrioWaiter

DEPTH = 128  # posted aios at most: past 64 the gain is small (a batch is a wake-up), and NNG's stop walks them all
FIRST_DEPTH = 4  # where a ring starts; it doubles whenever it was found full, so idle sockets stay small
BATCH = 64  # messages taken at once for callers that ask for one
SPLIT = 16  # messages taken at once where each holds many
MOST_REFUSED = 64  # errors kept for receivers that do not ask; beyond, the oldest are only counted

SKIP: Final = object()  # what ``unpack`` returns for a message that is not for the program

_CANCEL = ffi.cast("void (*)(void *)", ffi.addressof(lib, "nng_aio_cancel"))
_call = operator.call
_repeat = itertools.repeat


def _run(*steps: Iterable[Any]) -> None:
    """Exhaust the lazy steps in one C call: all of it happens, or an exception came before it."""
    deque(itertools.chain(*steps), 0)


class Loan:
    """One message whose memory the program reads; given back to NNG when nobody does any more."""

    __slots__ = ("message", "taken")

    def __init__(self, message: Any) -> None:
        self.message = message
        self.taken = False  # until then it is the ring's, which may open it again (rule 4)

    def __call__(self, _: Any) -> None:
        if self.taken:
            lib.nng_msg_free(self.message)


class Opened:
    """What a handful of messages held."""

    __slots__ = ("items", "largest", "lent", "read", "refused", "too_large")

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.read: list[Any] = []  # messages to be freed
        self.lent: list[Loan] = []
        self.refused: list[BadMessage | TooLarge] = []
        self.largest = 1
        self.too_large = 0


@ffi.callback("void (*)(void *)")  # type: ignore[untyped-decorator]
def _bell_rung(handle: Any) -> None:
    ffi.from_handle(handle)._rung()


class Ring:
    """The receiving side of one NNG socket: what its two kinds share.

    ``depth`` caps the messages held here, ``window`` the bytes (``PostedRing``). ``limit`` is the largest message to
    let through, for the one transport where NNG does not check it (inproc); larger ones are dropped and counted in
    ``too_large``. ``unpack(message, body) -> item`` may add to the body what it reads from the message, or return SKIP.
    It may be called twice for one message (rule 4), so it must not mind. ``split(message, body) -> items`` stands in
    its place where one message holds many; what it raises (BadMessage, TooLarge) is counted, and raised once to a
    receiver that finds nothing else to take. With ``lends``, what neither of them opens is not copied out of NNG: the
    item is a view of the message, which is freed with it.
    """

    def __init__(self, socket_id: Any, *, depth: int, window: int, limit: int, where: str) -> None:
        self._socket_id = socket_id
        self._depth = depth
        self._window = window
        self._limit = limit
        self._where = where
        self._lock = threading.Lock()
        self._waiters: set[Any] = set()
        self.armed = False
        self._started = False
        self._closed: Closed | None = None
        self._failed = 0
        self.ready: deque[Any] = deque()
        self.unpack: Callable[[Any, bytes], Any] | None = None
        self.split: Callable[[Any, bytes], Sequence[Any]] | None = None
        self.refusing: Refusing | None = None
        self.lends = False
        self.names_pipes = False
        self.received = 0
        self.too_large = 0
        self.bad = 0
        self._refused: deque[BadMessage | TooLarge] = deque(maxlen=MOST_REFUSED)
        # popping through an iterator: FOR_ITER, STORE, RETURN have no point where a signal handler can run
        self.pops = iter(self.ready.popleft, None)
        self._handle = ffi.new_handle(self)
        self._bell = new_aio(_bell_rung, self._handle)

    def start(self) -> None:
        """Begin to read ahead. Idempotent."""
        with self._lock:
            if not self._started and self._closed is None:
                self._start()

    def _rung(self) -> None:
        # NNG thread. set.copy is one C call, so it needs no lock against add and discard.
        self.armed = False
        for waiter in self._waiters.copy():
            waiter.wake()

    # ------------------------------------------------------------------ taking, under the lock

    def _start(self) -> None:
        raise NotImplementedError

    def _take(self, most: int, wanted: int) -> None:
        """Move up to ``most`` messages to ``ready``; ``wanted`` items of them leave it at once."""
        raise NotImplementedError

    def _arm(self) -> None:
        """See that ``_rung`` is called when there is something to take."""
        raise NotImplementedError

    def _open(self, messages: Iterable[Any]) -> Opened:
        """What the messages hold; they stay whose they are."""
        unpack, split, limit = self.unpack, self.split, self._limit
        size_of, body_of, buffer = lib.nng_msg_len, lib.nng_msg_body, ffi.buffer
        lends = self.lends and unpack is None and split is None
        opened = Opened()
        items, largest = opened.items, 1
        for message in messages:
            size = size_of(message)
            if size > largest:
                largest = size
                if size > limit:
                    opened.too_large += 1
                    opened.read.append(message)
                    continue
            if lends and size:
                opened.lent.append(loan := Loan(message))
                items.append(memoryview(buffer(ffi.gc(body_of(message), loan), size)).toreadonly())
                continue
            opened.read.append(message)
            body = bytes(buffer(body_of(message), size)) if size else b""
            if split is not None:
                try:
                    items += split(message, body)
                except (BadMessage, TooLarge) as wrong:
                    opened.refused.append(wrong)
            elif unpack is None:
                items.append(body)
            elif (item := unpack(message, body)) is not SKIP:
                items.append(item)
        opened.largest = largest
        return opened

    def _count(self, opened: Opened) -> None:
        large = sum(isinstance(wrong, TooLarge) for wrong in opened.refused)
        self.too_large += opened.too_large + large
        self.bad += len(opened.refused) - large

    def poll(self, most: int, out: list[Any] | deque[Any]) -> bool:
        """Move up to ``most`` items into ``out``, or arm the bell. Raises Closed, or what broke the socket."""
        with self._lock:
            if self._closed is not None:
                raise type(self._closed)(str(self._closed))
            if not self._started:
                self._start()
            ready = self.ready
            if not ready:
                if self.split is None:
                    self._take(max(most, min(BATCH, self._depth >> 1)), most)
                else:
                    self._take(SPLIT, most)
            if ready:
                if len(ready) <= most:
                    _run(map(out.extend, (ready,)), map(_call, (ready.clear,)))
                else:
                    _run(
                        map(out.extend, (list(itertools.islice(ready, most)),)),
                        map(_call, _repeat(ready.popleft, most)),
                    )
                return True
            if self._refused:
                raise self._refused.popleft()
            if self._failed:
                raise error(self._failed, self._where)
            if not self.armed:
                self._arm()
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

    def watch(self, waiter: Any) -> bool:
        """Have ``waiter.wake()`` called when something comes; it is then to poll until False, and to watch again if it
        goes on waiting. True: also if it is there already. Called in the waiter's own thread or task.
        """
        self._waiters.add(waiter)
        return False

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
        raise NotImplementedError

    def forked(self, reason: Closed) -> None:
        """In a forked child: refuse everything and free nothing, as any NNG call would abort the process."""
        self._lock = threading.Lock()
        self._closed = reason
        self.ready.clear()


class PostedRing(Ring):
    """For cooked sockets, which hand over from the pipes themselves: many receives stay posted, and fill without us.

    As many as messages of the size lately seen fit into ``window``, one at least, ``depth`` at most.
    """

    def __init__(self, socket_id: Any, **options: Any) -> None:
        super().__init__(socket_id, **options)
        self._posted: deque[Any] = deque()
        self._spare: list[Any] = []
        self._made = 0
        self._largest = 1

    def _start(self) -> None:
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

    def _arm(self) -> None:
        _run(
            map(setattr, (self,), ("armed",), (True,)),
            map(lib.nng_sleep_aio, (FOREVER,), (self._bell,)),
        )

    def _take(self, most: int, wanted: int) -> None:
        posted = self._posted
        busy, result, get = lib.nng_aio_busy, lib.nng_aio_result, lib.nng_aio_get_msg
        taken, messages = [], []
        refused = 0 if self.refusing is None else self.refusing.looks()
        for aio in itertools.islice(posted, most):
            if busy(aio):
                if get(aio) or result(aio):
                    lib.nng_aio_wait(aio)
                else:
                    break
            if not (message := get(aio)):
                self._failed = result(aio)
                break
            taken.append(aio)
            messages.append(message)
        count = len(taken)
        if not count:
            if refused and self.refusing is not None:
                self.refusing.nothing_left(refused)
            return
        welcome = messages if self.refusing is None else self.refusing.without(messages)
        opened = self._open(welcome)
        items, read = opened.items, opened.read
        if welcome is not messages:
            read += set(messages).difference(welcome)
        # a large message shrinks the window at once, smaller ones let it grow back slowly
        self._largest = max(opened.largest, self._largest - (self._largest >> 3))
        kept = len(posted) - count
        if kept == 0 and self._made < self._depth and opened.largest * self._made * 2 <= self._window:
            self._grow(min(self._made * 2, self._depth))
        target = min(self._made, max(1, self._window // self._largest))
        waiting = max(0, len(self.ready) + len(items) - wanted)
        if self.split is not None:
            waiting = waiting * count // max(len(items), 1)  # in messages, as what is posted
        taken += self._spare
        again = taken[: max(0, target - kept - waiting)]
        if not again and not kept:
            again = taken[:1]
        _run(
            map(lib.nng_aio_set_msg, taken[:count], _repeat(NULL)),
            map(lib.nng_msg_free, read),
            map(setattr, opened.lent, _repeat("taken"), _repeat(True)),
            map(_call, _repeat(posted.popleft, count)),
            map(self.ready.extend, (items,)),
            map(self._refused.extend, (opened.refused,)),
            map(lib.nng_recv_aio, _repeat(self._socket_id), again),
            map(posted.extend, (again,)),
            map(setattr, _repeat(self), ("_spare", "received"), (taken[len(again) :], self.received + len(items))),
        )
        self._count(opened)

    def free(self) -> None:
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


class QueueRing(Ring):
    """For raw sockets, which keep a queue of their own: what comes is drained from that queue, not posted for.

    Posted, each of its messages would cost one more hand-over between NNG's threads. Loops watch NNG's descriptor of
    the queue (``_doorbells``). Only where somebody waits outside a loop, one receive is posted as the bell: NNG fills
    it first, and its callback is ours.
    """

    def __init__(self, socket_id: Any, **options: Any) -> None:
        super().__init__(socket_id, **options)
        self._posted = False
        # What was drained stays in these until it is committed, also over a signal handler that raises.
        self._slots = [ffi.new("nng_msg **") for _ in range(BATCH)]
        self._doorbells: dict[object, Doorbell] = {}

    def watch(self, waiter: Any) -> bool:
        self._waiters.add(waiter)
        return isinstance(waiter, (TrioWaiter, AsyncioWaiter)) and self.attend(waiter)

    def attend(self, waiter: TaskWaiter) -> bool:
        """Have those who wait in this waiter's loop, the running one, told there when there is something to take.

        False if that cannot be: this loop watches no descriptors, or the bell is armed and comes first.
        """
        home = waiter.home
        bell = self._doorbells.get(home)
        if bell is None:
            for other, old in list(self._doorbells.items()):
                if old.ended:
                    self._doorbells.pop(other, None)
                    old.close()
            descriptor = ffi.new("int *")
            check(lib.nng_socket_get_int(self._socket_id, b"recv-fd", descriptor), self._where)
            bell = waiter.doorbell(descriptor[0], partial(self._rung_in, home))
            if bell is None:
                return False
            self._doorbells[home] = bell
            if self._closed is not None:  # by another thread, which may not have seen it
                bell.close()
        bell.listen()
        return bell.listening and not self._posted

    def _rung_in(self, home: object) -> bool:
        go_on = [waiter.rung_in(home) for waiter in self._waiters.copy()]  # all of them, before any of the answers
        return True in go_on

    def will_ring(self, home: object) -> bool:
        """Whether those who wait in that loop (None: outside loops) will be told of what there is, and what comes."""
        if (bell := self._doorbells.get(home)) is not None and bell.listening:
            return True
        return self.armed

    def _start(self) -> None:
        self._started = True

    def _arm(self) -> None:
        if not any(waiter.beyond(self._doorbells) for waiter in self._waiters.copy()):
            return  # a doorbell is level-triggered: whoever waits hears what is there, and what comes
        if self._posted:  # and filled since it was looked at: it has rung, or is just ringing
            return
        _run(
            map(setattr, (self, self), ("armed", "_posted"), (True, True)),
            map(lib.nng_recv_aio, (self._socket_id,), (self._bell,)),
        )

    def _take(self, most: int, wanted: int) -> None:
        bell, slots, messages = self._bell, self._slots, []
        rung = self._posted
        if rung:
            if lib.nng_aio_busy(bell):
                if not lib.nng_aio_get_msg(bell) and not lib.nng_aio_result(bell):
                    return  # it would have been filled first
                lib.nng_aio_wait(bell)
            if not (message := lib.nng_aio_get_msg(bell)):
                self._failed = lib.nng_aio_result(bell)
                return
            messages.append(message)
        if not slots[0][0]:
            receiving = map(lib.nng_recvmsg, _repeat(self._socket_id), slots, _repeat(NONBLOCK))
            deque(itertools.takewhile(operator.not_, receiving), 0)
        drained = list(itertools.takewhile(operator.truth, map(operator.getitem, slots, _repeat(0))))
        messages += drained
        if not messages:
            return
        opened = self._open(messages)
        steps = [
            map(lib.nng_msg_free, messages),
            map(operator.setitem, slots[: len(drained)], _repeat(0), _repeat(NULL)),
            map(self.ready.extend, (opened.items,)),
            map(setattr, (self,), ("received",), (self.received + len(opened.items),)),
        ]
        if rung:
            steps += [
                map(lib.nng_aio_set_msg, (bell,), (NULL,)),
                map(setattr, (self,), ("_posted",), (False,)),
            ]
        _run(*steps)
        self._count(opened)

    def refuse(self, reason: Closed) -> None:
        super().refuse(reason)
        for bell in list(self._doorbells.values()):
            bell.close()

    def free(self) -> None:
        bell = self._bell
        lib.nng_aio_wait(bell)
        if self._posted and not lib.nng_aio_result(bell) and (message := lib.nng_aio_get_msg(bell)):
            lib.nng_msg_free(message)
        lib.nng_aio_free(bell)
        for slot in self._slots:
            if slot[0]:
                lib.nng_msg_free(slot[0])
                slot[0] = NULL
