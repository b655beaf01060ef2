"""Receive queue of a socket, with its cap and its policy when full.

``full``: "hold" stops reading from peers until there is room; "newest" and "oldest" name the messages kept by sockets
that always read on (SUB, BUS). Holding back is exact: beyond the cap, received bytes stay with their connection and are
not split into messages.

A receive call takes from ``ready`` without the lock, and calls ``poll`` when that is empty. Undelivered messages are
requeued at the head. May not know: protocols, event loops.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from nngkit.errors import BadMessage, Closed, TooLarge
from nngkit.protocols._core.connection import JOINED, Connection
from nngkit.protocols._core.poller import Poller
from nngkit.protocols._core.state import State
from nngkit.protocols._nng.operations import atomically
from nngkit.protocols._waiting.waiters import wake_all
from nngkit.protocols.routing import Rotation
from nngkit.protocols.sp import ALL

TURN_MESSAGES: Final = 128  # a thousand busy peers are each read within 40 ms; 10 peers at an eighth of the full rate
MOST_REFUSED: Final = 64  # errors kept for receive calls; the oldest beyond are only counted

WhenBehind = Literal["hold", "newest", "oldest"]
_call = operator.call


class Inbox:
    """Queue of ``cap`` messages and ``window`` bytes.

    ``unpack(connection, messages) -> items`` examines received messages and may leave some out. It may be called twice
    with the same ones, before they count: where that would show, it notes in ``connection.seen`` how many it has
    finished. It counts ``bad`` and ``too_large`` messages too.
    """

    def __init__(self, state: State[Connection], poller: Poller, *, cap: int, window: int, full: WhenBehind) -> None:
        self._state = state
        self._poller = poller
        self._cap = cap
        self._window = window
        self._full = full
        self.ready: deque[Any] = deque()
        # popping through an iterator: no signal handler can run in FOR_ITER, STORE, RETURN
        self.pops = iter(self.ready.popleft, None)
        self.unpack: Callable[[Connection, Sequence[bytes]], Sequence[Any]] | None = None
        self.no_receivers = False  # True without receive calls: unpacked messages are not queued
        self.turn_messages = TURN_MESSAGES  # messages of one peer in a row, if there are several and they are held back
        self.unpack_limit = ALL  # messages unpacked at once, if each is a batch
        self.unread_limit: tuple[int, int] | None = None  # answers, and their bytes, that a peer may leave unread
        self.wrap: Callable[[Connection, Any], Any] | None = None  # makes an item that knows its pipe
        self.received = 0
        self.dropped = 0
        self.too_large = 0
        self.bad = 0
        self.refused: deque[BadMessage | TooLarge] = deque(maxlen=MOST_REFUSED)
        self.waiters = state.receivers
        self._held_back: Rotation[Connection] = Rotation()
        self._not_reading: set[Connection] = set()  # held back until they have read answers
        self._bytes_ahead = 0  # bytes read since the queue was empty
        self.added = 0  # items ever queued
        self._runs: deque[list[Any]] = deque()  # [number of items up to here, their connection]
        self._source: Connection | None = None

    # ------------------------------------------------------------------ from connections, under the lock

    def take_from(self, connection: Connection) -> bool:
        """Queue the connection's complete messages; return True if it may read on."""
        machine, ready = connection.machine, self.ready
        holds = self._full == "hold" and not self.no_receivers
        turn = self.turn_messages if len(self._state.present) > 1 else ALL
        while machine.more or connection.fresh or connection.looked != machine.fed:
            room = ALL
            if holds:
                if connection.tx_state and self._leaves_unread(connection):
                    self._held_back.discard(connection)
                    self._not_reading.add(connection)
                    return False
                if not ready:
                    self._bytes_ahead = 0
                room = self._cap - len(ready)
                if room <= 0 or turn <= 0 or (ready and self._bytes_ahead >= self._window):
                    self._held_back.add(connection)
                    return False
                room = min(room, turn)
            before = machine.count
            self._move(connection, min(room, self.unpack_limit))
            connection.looked = machine.fed  # not before: interrupted, it is looked at again
            turn -= machine.count - before
            if (ready or self.refused) and self.waiters:
                self._state.wake_receivers = True
            if connection.fault is not None:
                return True
        if machine.to_send:
            connection.write(now=True)
        if machine.ended and connection.fault is None:
            connection.fault = "the peer closed"
        if holds and ready and self._bytes_ahead >= self._window:
            self._held_back.add(connection)
            return False
        self._held_back.discard(connection)
        return True

    def take_small(self, connection: Connection, message: bytes, out: list[Any] | None = None) -> bool:
        """Queue a message that was read past the machine, and clear ``state.reading``; no change if it is not usual.

        ``out``: gets it instead if nobody can be before this caller; return True then.
        """
        state, ready = self._state, self.ready
        if not ready:
            self._bytes_ahead = 0
        if (
            self.wrap is not None
            or self.unpack_limit != ALL
            or (connection.tx_state and self._leaves_unread(connection))
        ):
            return False
        if not self.no_receivers and (
            len(ready) >= self._cap or (self._full == "hold" and self._bytes_ahead >= self._window)
        ):
            return False
        items: Sequence[Any] = (message,) if self.unpack is None else self.unpack(connection, (message,))
        machine, size, count = connection.machine, len(message), len(items)
        if connection is not self._source:
            self._note_source(connection)
        run = self._runs[-1]
        first = out is not None and count == 1 and not ready and not self.refused
        target: Any = out if first else ready
        # no calls, so no signal handler runs in between
        target += items
        self.received += count
        self.added += count
        self._bytes_ahead += size
        run[0] = self.added
        machine.count += 1
        connection.taken_in += 1
        connection.seen = 0
        machine.referred = None
        state.reading = None
        if not first and (ready or self.refused) and self.waiters:
            state.wake_receivers = True
        return first

    def _move(self, connection: Connection, room: int) -> None:
        machine = connection.machine
        direct = self.unpack is None and self._full != "oldest" and self.wrap is None
        ready = self.ready
        if connection is not self._source:
            self._note_source(connection)
        try:
            machine.take(ready if direct else connection.fresh, room)
        except (BadMessage, TooLarge) as wrong:
            connection.fault = wrong
        if direct:
            new = machine.count - connection.taken_in
            connection.taken_in += new
            self.received += new
            self.added += new
        else:
            fresh = connection.fresh
            items = fresh if self.unpack is None else self.unpack(connection, fresh)
            if self.wrap is not None:
                wrap = self.wrap
                items = [wrap(connection, item) for item in items]
            new, lost = len(items), 0
            if self._full == "oldest" and (lost := max(0, len(ready) + new - self._cap)):
                items = items[: new - lost]
            # no calls, so no signal handler runs in between
            ready += items
            self.received += new - lost
            self.added += new - lost
            self.dropped += lost
            connection.dropped += lost
            connection.fresh = []
            connection.seen = 0
        self._runs[-1][0] = self.added
        if self._full == "newest" and (over := len(ready) - self._cap) > 0:
            gone: list[Any] = []
            try:
                gone.extend(map(_call, itertools.repeat(ready.popleft, over)))  # thousands, of a peer that is faster
            except IndexError:  # a receiver has taken some
                pass
            finally:
                lost = len(gone)
                self.dropped += lost
                self.received -= lost
                connection.dropped += lost

    def _note_source(self, connection: Connection) -> None:
        """Record that further items are from ``connection``, for later queries of their pipes."""
        runs = self._runs
        self._source = None  # until it is recorded: a signal handler may raise
        first = self.added - len(self.ready)
        while runs and runs[0][0] <= first:
            runs.popleft()
        runs.append([self.added, connection])
        self._source = connection

    def name_pipes(self, wrap: Callable[[Connection, Any], Any]) -> None:
        """Make every item one that knows its pipe, queued ones too."""
        state = self._state
        try:
            with state.lock:
                if self.wrap is not None:
                    return
                ready = self.ready
                plain: list[Any] = []
                named: list[Any] = []
                try:
                    atomically((plain.extend, ready), (ready.clear,))
                    at = self.added - len(plain)
                    runs = list(self._runs)
                    for item in plain:
                        while runs and runs[0][0] <= at:
                            runs.pop(0)
                        named.append(wrap(runs[0][1], item) if runs else item)
                        at += 1
                except BaseException:
                    ready.extendleft(reversed(plain))
                    raise
                else:
                    # no calls, so no signal handler runs in between
                    ready += named
                    self.wrap = wrap
                finally:
                    state.wake_receivers = True  # one that found the queue empty waits
        finally:
            state.notify()

    def read(self, size: int) -> None:
        """Count received bytes."""
        self._bytes_ahead += size

    def is_held_back(self, connection: Connection) -> bool:
        """Return True if a connection is not read for lack of room."""
        return connection in self._held_back or connection in self._not_reading

    def _leaves_unread(self, connection: Connection) -> bool:
        limit = self.unread_limit
        return limit is not None and (len(connection.out) >= limit[0] or connection.out_bytes >= limit[1])

    def wrote(self, connection: Connection) -> None:
        """Read on from a peer that was held back until it reads its answers, if it has."""
        if connection in self._not_reading and not (connection.tx_state and self._leaves_unread(connection)):
            self._not_reading.discard(connection)
            connection.read_on()

    def take_remaining(self, connection: Connection) -> None:
        """Queue what was received before the peer closed, beyond the cap too: at most one reception."""
        fault = connection.fault
        try:
            while connection.machine.more or connection.fresh or connection.looked != connection.machine.fed:
                connection.fault = None
                self._move(connection, self.unpack_limit)
                connection.looked = connection.machine.fed
                if connection.fault is not None:
                    break
        finally:
            connection.fault = fault
        if self.ready and self.waiters:
            self._state.wake_receivers = True

    def count_fault(self, fault: Exception) -> None:
        """Count the reason for which a connection was cut."""
        if isinstance(fault, TooLarge):
            self.too_large += 1
        elif isinstance(fault, BadMessage):
            self.bad += 1

    def forget(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._held_back.discard(connection)
        self._not_reading.discard(connection)
        if self._source is connection or not self.ready:
            self._source = None
        if not self.ready:
            self._runs.clear()  # it may be the newest

    # ------------------------------------------------------------------ taking

    def idle(self) -> bool:
        """Return True if ``poll`` would find nothing."""
        return not (self.ready or self.refused or self._held_back.peers or self._state.reason is not None)

    def poll(self, most: int, out: list[Any] | deque[Any]) -> bool:
        """Move up to ``most`` items into ``out``; return False if there are none.

        Raises Closed, BadMessage, TooLarge.
        """
        state = self._state
        try:
            with state.lock:
                state.check_open()
                ready = self.ready
                before = len(out)
                while ready or self._refill():
                    # other threads pop without the lock between any two calls into C: each step is one such call
                    if len(ready) <= most:
                        atomically((out.extend, ready), (ready.clear,))
                    else:
                        with contextlib.suppress(IndexError):
                            out.extend(map(_call, itertools.repeat(ready.popleft, most)))
                    if len(out) != before:
                        return True
                if self.refused:
                    raise self.refused.popleft()
        except (Closed, BadMessage, TooLarge):
            raise
        except BaseException:
            state.resume()
            raise
        finally:
            state.notify()
        return False

    def _refill(self) -> bool:
        """Read from connections that were held back, in turn; return True if messages arrived."""
        self._bytes_ahead = 0
        if not self._held_back:
            return False
        if len(self._state.present) > 1:
            self._poller.read_now()  # a receiver that is never idle polls here
        before = self.added
        for connection in self._held_back:
            if connection.stage == JOINED:
                self._held_back.turn(connection)
                connection.read_on(now=True)
            else:
                self._held_back.discard(connection)
            if self.added != before:
                return True
        return False

    def put_back(self, out: list[Any]) -> None:
        """Requeue messages at the head that a call took and could not return."""
        if not out:
            return
        state = self._state
        try:
            with state.lock:
                ready = self.ready
                if self._full == "newest" and (over := len(out) + len(ready) - self._cap) > 0:
                    del out[:over]  # they are the oldest
                    self.dropped += over
                ready.extendleft(reversed(out))
                state.wake_receivers = True
        finally:
            state.notify()

    def take_back(self, unwanted: Callable[[Any], bool]) -> None:
        """Drop queued items that are no longer wanted."""
        state = self._state
        try:
            with state.lock:
                ready = self.ready
                taken: list[Any] = []
                try:
                    atomically((taken.extend, ready), (ready.clear,))
                    kept = [item for item in reversed(taken) if not unwanted(item)]
                except BaseException:
                    ready.extendleft(reversed(taken))
                    raise
                else:
                    ready.extendleft(kept)
                finally:
                    state.wake_receivers = True  # one that found the queue empty waits
        finally:
            state.notify()

    def wake(self) -> None:
        """Wake all waiters."""
        wake_all(self.waiters)

    def refuse(self, reason: Closed) -> None:
        """Deliver nothing more."""
        with self._state.lock:
            self.ready.clear()
        self.wake()
