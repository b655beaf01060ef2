"""Asking side of REQ/REP and SURVEY: ids, and the delivery of replies to their callers.

The thread that reads replies delivers them, so no task or thread is spent on them and none waits for another. All
callers of a loop that got a reply are woken in one call.

May not know: the difference between requests and surveys.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol
from weakref import ref

from nngkit.errors import BadMessage
from nngkit.protocols._core.connection import Connection
from nngkit.protocols._core.core import Core
from nngkit.protocols._core.send_queue import LOOP_MESSAGES
from nngkit.protocols._waiting.waiters import TaskWaiter, ThreadWaiter, Waiter
from nngkit.protocols.sp import TOP_BIT, split_reply


class Requester(Protocol):
    """A caller that waits for replies with ``header``, which is empty before ``Asking.enter``."""

    header: bytes

    @property
    def waiter(self) -> Waiter:
        """Waiter of the caller."""

    def take(self, message: Any, body: Any, connection: Connection) -> bool:
        """Note a reply; return True to wake the waiter. A ``message`` passed twice counts once."""


class Relaying(Protocol):
    """Taker of replies to questions that were not asked here (`relaying.py`)."""

    def take_reply(self, message: bytes, connection: Connection) -> bool:
        """Keep a reply; return False if it is not one for the relay. Under the lock."""

    def took(self, connection: Connection | None, messages: Sequence[bytes]) -> None:
        """Note the connection that took questions; None: they are queued again. Under the lock."""


class Asking:
    """Requesters of one socket by their headers. ``late`` counts replies whose requester has left, ``received`` all.

    A header is an id of 31 bits. They start at random, so that a restarted process does not take replies to its
    predecessor.
    """

    def __init__(self, core: Core, largest: int) -> None:
        self.state, self._inbox, self._outbox = core.state, core.inbox, core.outbox
        self._largest = largest
        self.longest = largest + 4  # bytes of a reply with its header
        self._numbers = itertools.count(int.from_bytes(os.urandom(4), "big"))
        # weak: a signal handler that raises can keep a caller from leaving; the end of its frame then removes it
        self._asking: dict[bytes, ref[Requester]] = {}
        self._drop_dead = self._died
        self.late = 0
        self.received = 0
        self._answered: list[Waiter] = []
        self.relay: Relaying | None = None
        self._inbox.unpack = self._hand_out
        self._inbox.no_receivers = True

    def enter(self, requester: Requester) -> bytes:
        """Give ``requester`` a header with an id of its own; return it. ``leave`` undoes that."""
        asking, reference = self._asking, ref(requester, self._drop_dead)
        while True:
            requester.header = header = (next(self._numbers) & 0x7FFFFFFF | TOP_BIT).to_bytes(4, "big")
            if asking.setdefault(header, reference) is reference:  # in one step of C
                return header

    def leave(self, requester: Requester) -> None:
        """Remove ``requester``. Idempotent."""
        self._asking.pop(requester.header, None)

    def _died(self, dead: ref[Requester]) -> None:
        for header in [*self._asking]:
            if self._asking.get(header) is dead:
                del self._asking[header]

    def __len__(self) -> int:
        return len(self._asking)

    def found(self, messages: Sequence[bytes]) -> list[Requester]:
        """Return the requesters of ``messages`` that have not left."""
        references = map(self._asking.get, [message[:4] for message in messages])
        return [requester for each in references if each is not None and (requester := each()) is not None]

    def requesters(self) -> list[Requester]:
        """Return all requesters. On any thread."""
        references = list(self._asking.values())  # in one step of C
        return [requester for reference in references if (requester := reference()) is not None]

    def _hand_out(self, connection: Connection, messages: Sequence[bytes]) -> Sequence[Any]:
        """Deliver each reply to its requester. Under the lock."""
        asking, answered, relay, largest = self._asking, self._answered, self.relay, self._largest
        for index in range(connection.seen, len(messages)):
            message = messages[index]
            if relay is not None and relay.take_reply(message, connection):
                self.received += 1
                connection.seen = index + 1
                continue
            body = message[4:]
            if (found := asking.get(message[:4])) is None or (requester := found()) is None:
                try:
                    split_reply(message)
                except BadMessage as wrong:
                    connection.fault = wrong
                    break
                if len(body) > largest:
                    self._inbox.too_large += 1
                else:
                    self.received += 1
                    self.late += 1
            elif len(body) > largest:
                self._inbox.too_large += 1
            else:
                self.received += 1
                if requester.take(message, body, connection):
                    answered += (requester.waiter,)
            connection.seen = index + 1
        if answered:
            self.state.call_later(self._wake)
        return ()

    def _wake(self, loop: object) -> None:
        """Wake the callers that got a reply; those in ``loop``, where this runs, directly. Called without the lock.

        Interrupted, it wakes all of them again: a wake-up is a hint.
        """
        answered = self._answered
        woken = answered[:]  # in one step of C, as is their removal: others may be added meanwhile
        loops: dict[object, tuple[TaskWaiter, list[Callable[[], None]]]] = {}
        for waiter in woken:
            if isinstance(waiter, ThreadWaiter):
                waiter.wake()
            elif waiter.loop is loop:
                waiter.wake_here()
            else:
                loops.setdefault(waiter.loop, (waiter, []))[1].append(waiter.wake_here)
        for first, wakes in loops.values():
            first.call(wakes[0] if len(wakes) == 1 else partial(_call_all, wakes))
        del answered[: len(woken)]
        if loop is not None and len(woken) > 1:
            self._outbox.coming = min(len(woken), LOOP_MESSAGES)  # the next questions of these tasks

    def wake_all(self) -> None:
        """Wake all callers that wait for replies."""
        for requester in self.requesters():
            requester.waiter.wake()


def _call_all(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
