"""Asking: what REQ and SURVEYOR share. Ids, and replies that find who waits for them.

Replies are handed out where they are read, on NNG's threads mostly, so no task or thread is spent on them and none has
to wait for another. Who waits is woken in one call a loop, however many of its tasks got a reply.

May not know: what a request or a survey means.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from nngkit.errors import BadMessage

from ._connection import Connection
from ._core import Core
from ._waiters import TaskWaiter, ThreadWaiter, Waiter
from .sp import TOP_BIT, split_reply

Kept = TypeVar("Kept")


class Ids:
    """Ids of 31 bits from a random start, so that a restarted process does not take replies to its former self."""

    def __init__(self) -> None:
        self._next = int.from_bytes(os.urandom(4), "big") & 0x7FFFFFFF
        self._lock = threading.Lock()

    def take(self, used: Container[int]) -> int:
        """Return an id that nobody in ``used`` has, with the top bit set."""
        with self._lock:
            while True:
                self._next = (self._next + 1) & 0x7FFFFFFF
                if (number := self._next | TOP_BIT) not in used:
                    return number


def alive(kept: WeakValueDictionary[int, Kept]) -> list[Kept]:
    """Return what is in ``kept``, while other threads put in and take out: its own ``values`` would raise then."""
    return [one for reference in kept.valuerefs() if (one := reference()) is not None]


class Asker(Protocol):
    """Somebody who waits for replies to one id, ``number``; 0 before it was given one."""

    number: int

    @property
    def waiter(self) -> Waiter:
        """Who to wake."""

    def take(self, message: bytes, body: bytes, connection: Connection) -> bool:
        """Note a reply; True if the waiter is to be woken. The same ``message`` may come twice: then once counts."""


class Asking:
    """The askers of one socket. ``late`` counts replies that nobody waits for any more, ``received`` all."""

    def __init__(self, core: Core, largest: int) -> None:
        self._core = core
        self._largest = largest
        self._ids = Ids()
        self._entry = threading.Lock()
        # Weak: a signal handler that raises can keep a caller from leaving, and then its frame's end takes it out.
        self.asking: WeakValueDictionary[int, Asker] = WeakValueDictionary()
        self.late = 0
        self.received = 0
        self._answered: deque[Waiter] = deque()
        core.inbox.unpack = self._hand_out
        core.inbox.swallows = True

    def enter(self, asker: Asker) -> bytes:
        """Give ``asker`` the id under which it may ask; the header with it. ``leave`` undoes it."""
        with self._entry:
            asker.number = number = self._ids.take(self.asking)
            self.asking[number] = asker
        return number.to_bytes(4, "big")

    def leave(self, asker: Asker) -> None:
        """It asks no more. Idempotent."""
        self.asking.pop(asker.number, None)

    def _hand_out(self, connection: Connection, messages: Sequence[bytes]) -> Sequence[Any]:
        """Under the core's lock: give each reply to who asked."""
        asking, answered = self.asking, self._answered
        for index in range(connection.seen, len(messages)):
            message = messages[index]
            try:
                number, body = split_reply(message)
            except BadMessage as wrong:
                connection.fault = wrong
                break
            self.received += 1
            if len(body) > self._largest:
                self._core.inbox.too_large += 1
                self.received -= 1
            elif (asker := asking.get(number)) is None:
                self.late += 1
            elif asker.take(message, body, connection):
                answered += (asker.waiter,)
            connection.seen = index + 1
        if answered:
            self._core.later(self._wake)
        return ()

    def _wake(self, home: object) -> None:
        """Without the lock: wake those who got a reply; those in the loop ``home``, where this runs, at once."""
        loops: dict[object, tuple[TaskWaiter, list[Callable[[], None]]]] = {}
        answered, told = self._answered, []
        try:
            while answered:
                waiter = answered.popleft()
                told.append(waiter)
                if isinstance(waiter, ThreadWaiter):
                    waiter.wake()
                elif waiter.home is home:
                    waiter.wake_here()
                else:
                    loops.setdefault(waiter.home, (waiter, []))[1].append(waiter.wake_here)
            for first, wakes in loops.values():
                first.call(wakes[0] if len(wakes) == 1 else partial(_call_all, wakes))
        except BaseException:
            answered.extendleft(told)
            raise

    def wake_all(self) -> None:
        """Have all who ask look again."""
        for asker in alive(self.asking):
            asker.waiter.wake()


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
