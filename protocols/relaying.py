"""Forwarding of questions from a replying socket to an asking one, in batches: the engine of queues and surveys.

::

    relay = Relay(rep, req, timeout=60.0, ...)        # in a trio or asyncio task, whose loop does all the work
    relay.start()
    relay.expire()                                    # now and then: it returns when to call it again

Each question leaves with a word in front of its header, as SP prescribes for devices::

    in      [words of earlier devices ...] [id of the requester]  body
    out     [number] [words of earlier devices ...] [id of the requester]  body

A reply returns with the same header: its first word finds the question, the rest is the reply for the requester. So
peers count how many devices a question has passed, and a question that comes back has a word of ours followed by the
header with which it came before: a ring.

Unlike SP's own devices, the relay keeps each question until its reply (or `timeout`), so that the questions of a lost
peer go to the next one at once. No task waits for a message: what one reading brought is forwarded in a callback of the
loop, all of it together.
"""

from __future__ import annotations

import os
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakMethod

from nngkit.errors import BadMessage, Closed, TooLarge
from nngkit.protocols._core.pipe import PeerEvent, Pipe
from nngkit.protocols._core.shared_queue import SharedQueue
from nngkit.protocols._socket.answering import Answerer, Question
from nngkit.protocols._waiting.waiters import task_waiter
from nngkit.protocols.reqrep import Req
from nngkit.protocols.sp import MOST_WORDS, TOP_BIT

if TYPE_CHECKING:
    from nngkit.protocols._core.connection import Connection
    from nngkit.protocols._socket.asking import Asking
    from nngkit.protocols.survey import Surveyor

MOST_HOPS: Final = MOST_WORDS - 1  # devices in a row: further words find no room in the header of NNG and nanomsg
BATCH: Final = 256  # questions taken before other tasks run
PART: Final = 32  # messages sent on together: with more, neighbours wait longer for each other than the calls cost
NUMBERS: Final = TOP_BIT - 1
OVERDUE_CHECKS: Final = 0.25  # seconds between two searches for requests to send again


_word = struct.Struct(">I").unpack_from


class Passing:
    """A question on its way: `number`, the word in front of its header, and `question`."""

    __slots__ = ("done", "header", "message", "number", "peer", "question", "resend_at", "tag", "until")

    def __init__(self, question: Question, number: int, header: bytes, body: bytes, until: float | None) -> None:
        self.question = question
        self.number = number
        self.header = header
        self.message = number.to_bytes(4, "big") + header + body
        self.until = until
        self.tag: Any = None  # from `asked`
        self.resend_at: float | None = None
        self.peer: Connection | None = None  # that took the request
        self.done = False


Asked = tuple[Any, bytes, Any]
Returned = tuple[Passing, bytes, Pipe | None]


class Relay:
    """Questions of `front` on their way through `back`. Made and called in one task of trio or asyncio.

    hops       devices that a question may pass, this one included
    timeout    seconds after which a question without a reply (a survey in any case) is dropped; None: never
    in_flight  cap on questions in progress: further requests are not taken, and of surveys the oldest ends

    `asked(questions)` is called with each batch of questions, and returns (question, body, tag) of those to forward;
    `returned(replies)` with (Passing, body, pipe) of each batch of replies, and returns those to send back. Without
    them all are forwarded. `most()`, if given, limits the questions of the next batch; while `hungry`, `take` is then
    to be called again. `stuck(passing, body)` gets each reply for which the requester's queue has no room, and calls
    `finish` later. `changed()` is called when questions were taken or ended.

    Counters: questions `taken`, `answered`, `expired` without a reply, surveys `sent`; replies `returned`, those sent
    back (`replies`); questions that came back (`rings`), or had passed too many devices
    (`far`).
    """

    def __init__(
        self,
        front: Answerer[Any],
        back: Req | Surveyor,
        *,
        hops: int = MOST_HOPS,
        timeout: float | None = None,
        in_flight: int = 1024,
        asked: Callable[[Sequence[Any]], list[Asked]] | None = None,
        returned: Callable[[Sequence[Returned]], list[Returned]] | None = None,
        most: Callable[[], int] | None = None,
        stuck: Callable[[Passing, bytes], object],
        changed: Callable[[], object],
    ) -> None:
        self.answered = self.expired = self.replies = self.rings = self.far = 0
        self.taken = self.taken_bytes = self.sent = self.returned = self.returned_bytes = 0
        self._front = front
        self._back = back
        self._hops = hops
        self._timeout = timeout
        self._most = in_flight
        self._asked = asked
        self._returned = returned
        self._most_now = most
        self._stuck = stuck
        self._changed = changed
        self._once = isinstance(back, Req)  # one reply ends it
        self._resend = back._resend if isinstance(back, Req) else None
        self._raises = isinstance(back, Req) and back._raises
        self._pending: dict[int, Passing] = {}  # in the order of their deadlines
        self._leaving = 0  # replies that wait for room in their requester's queue
        self._unsent: deque[Passing] = deque()
        self._arrived: deque[tuple[Passing, bytes, Connection]] = deque()
        self._last = int.from_bytes(os.urandom(4), "big") & NUMBERS  # a restarted device must not know older words
        self._next_overdue = 0.0
        self._waiter = task_waiter()
        self._asking: Asking = back._asking
        self._state = back._state
        self._inbox = back._inbox
        self._poller = back._core.poller
        self._largest = back._largest
        self._outbox = back._outbox
        self._answers = front._answers
        self._asking.relay = self
        back._sharing.lazy = False  # replies are cut and joined as bytes
        self._wakeup = _WakeUp(self, self.pump)
        self._closing = _WakeUp(self, self._check)
        self._ends: list[Callable[[], object]] = []
        self._taking = False
        self._again = False
        self.hungry = False  # questions may be waiting
        self._due = False  # `_hand_out` is to be called
        self.failure: BaseException | None = None
        self.ended = False

    def start(self) -> None:
        """Take questions from now on."""
        front = self._front
        arrivals = _WakeUp(self, self.take)
        front._inbox.waiters.add(arrivals)
        self._ends = [
            partial(front._inbox.waiters.discard, arrivals),
            partial(self._outbox.waiters.discard, self._wakeup),
            front._state.follow(self._joined),
            self._state.follow(self._peer),
            partial(self._state.peer_waiters.discard, self._closing),
        ]
        self._state.peer_waiters.add(self._closing)
        self._taking = True
        self._watch()
        self.take()

    def _joined(self, event: PeerEvent) -> None:
        self._waiter.call(self._watch)

    def _watch(self) -> None:
        """Let this loop read what arrives, from the first connection on."""
        self._front._core.poller.watch_for(self._waiter)
        self._poller.watch_for(self._waiter)

    def _check(self) -> None:
        """End if the back was closed."""
        self._safely(self._state.check_open)

    def stop(self) -> None:
        """Take no more questions; the replies to those in progress still go back."""
        self._taking = False

    @property
    def pending(self) -> int:
        """Questions in progress."""
        return len(self._pending) + self._leaving

    @property
    def room(self) -> int:
        """Questions that may be taken now; 0 while there are unsent ones."""
        if not self._once:
            return BATCH
        return 0 if self._unsent else max(0, self._most - len(self._pending) - self._leaving)

    # ------------------------------------------------------------------ to the back

    def take(self) -> None:
        """Forward the questions that have arrived, as many as there is room for."""
        self._safely(self._take)

    def _safely(self, step: Callable[[], None]) -> None:
        """Run `step`; its error ends the relay, not the loop or the socket that has called it."""
        try:
            step()
        except Closed:
            self.ended = True
            self.stop()
            self._changed()
        except BaseException as wrong:
            self.failure = wrong
            self.ended = True
            self.stop()
            self._changed()

    def _take(self) -> None:
        self._again = False
        for _ in range(BATCH // PART):
            most = min(PART, self.room)
            if self._most_now is not None and most > 0:
                most = min(most, self._most_now())
            if not self._taking or most <= 0:
                self.hungry = True
                self._changed()
                return
            self.hungry = False
            questions: list[Any] = []
            try:
                if not self._front._inbox.poll(most, questions):
                    return
            except (BadMessage, TooLarge):
                continue  # a connection was cut, and counted
            self.taken += len(questions)
            self.taken_bytes += sum([len(question.body) for question in questions])
            if self._asked is None:
                self._forward(questions, None)
            else:
                kept = self._asked(questions)
                self._forward([each[0] for each in kept], kept)
        self._take_soon()

    def _take_soon(self) -> None:
        if not self._again:
            self._again = True
            self._waiter.call(self.take)

    def _forward(self, questions: Sequence[Question], asked: Sequence[Asked] | None) -> None:
        now = time.monotonic()
        until = None if self._timeout is None else now + self._timeout
        pending, limit, number = self._pending, self._hops * 4, self._last
        passing: list[Passing] = []
        for index, question in enumerate(questions):
            header = question._header
            if len(header) > 4:
                if len(header) > limit:
                    self.far += 1
                    continue
                if self._came_back(header):
                    self.rings += 1
                    continue
            number = (number + 1) & NUMBERS
            while number in pending:
                number = (number + 1) & NUMBERS
            if asked is None:
                one = Passing(question, number, header, question.body, until)
            else:
                one = Passing(question, number, header, asked[index][1], until)
                one.tag = asked[index][2]
            pending[number] = one
            passing.append(one)
        self._last = number
        if self._once and not self._unsent and self._state.present and self._resend is None:  # the usual case
            sent = self._outbox.add_many([one.message for one in passing]) if passing else 0
            if sent < len(passing):
                self._unsent += passing[sent:]
                self.pump()
        else:
            self._unsent += passing
            self.pump()
        self._changed()

    def _came_back(self, header: bytes) -> bool:
        """Return True if this relay has sent the question before, and it has not been answered."""
        for at in range(0, len(header) - 4, 4):
            one = self._pending.get(int.from_bytes(header[at : at + 4], "big"))
            if one is not None and header[at + 4 :] == one.header:
                return True
        return False

    def pump(self) -> None:
        """Send the unsent questions, as far as there is room. Called again when there is more."""
        self._safely(self._pump)

    def _pump(self) -> None:
        unsent = self._unsent
        self._state.check_open()
        if not unsent:
            return
        if not self._once:
            count = len(unsent)
            self._outbox.add_many([each.message for each in unsent])
            unsent.clear()
            self.sent += count
            over = len(self._pending) - self._most
            for one in list(islice(self._pending.values(), max(0, over))):
                self._drop(one)  # a survey is not held back: the oldest ends earlier
            return
        if not self._send_unsent():
            self._outbox.waiters.add(self._wakeup)
            if not self._send_unsent():  # there may have been room before that
                return
            self._outbox.waiters.discard(self._wakeup)
        self._freed()

    def _send_unsent(self) -> bool:
        """Return True if all was sent."""
        unsent = self._unsent
        # Nothing is queued without a peer: the next peer would get it, however late.
        while unsent and self._state.present:
            some = [one for one in islice(unsent, BATCH) if not one.done]
            if self._resend is not None:
                again = time.monotonic() + self._resend
                for one in some:
                    one.resend_at = again
            sent = self._outbox.add_many([one.message for one in some]) if some else 0
            if sent == len(some):
                for _ in range(min(BATCH, len(unsent))):
                    unsent.popleft()
                continue
            while sent or unsent[0].done:
                sent -= not unsent.popleft().done
            return False
        return not unsent

    def took(self, connection: Connection | None, messages: Sequence[bytes]) -> None:
        """Note the connection that took requests; None: they are queued again. Under the lock of `back`."""
        find = self._pending.get
        for message in messages:
            one = find(_word(message)[0])
            if one is not None:
                one.peer = connection

    def _peer(self, event: PeerEvent) -> None:
        """Send again what a lost peer had taken. On the thread that noticed."""
        if self._once:
            self._waiter.call(self.pump if event.kind == "joined" else lambda: self._lost(event.pipe.id))

    def _lost(self, number: int) -> None:
        taken = [one for one in self._pending.values() if one.peer is not None and one.peer.number == number]
        for one in taken:
            one.peer = None
            if self._raises:
                self._drop(one)
                self.expired += 1
        if not self._raises:
            self._unsent.extendleft(reversed(taken))
            self._back._resent += len(taken)  # type: ignore[union-attr]
        self.pump()
        self._freed()

    # ------------------------------------------------------------------ from the back

    def take_reply(self, message: bytes, connection: Connection) -> bool:
        """Keep a reply if it is one to a relayed question. Under the lock of `back`, on any thread."""
        if len(message) < 8 or message[0] & 0x80:
            return False
        (number,) = _word(message)
        one = self._pending.get(number)
        if one is None:
            self._asking.late += 1
            return True
        header = one.header
        if not message.startswith(header, 4):
            return False
        if len(message) - 4 - len(header) > self._largest:
            self._inbox.too_large += 1
            return True
        if self._once:
            del self._pending[number]
            one.done = True
            self._leaving += 1
        self._arrived += ((one, message, connection),)
        if not self._due:
            self._due = True
            self._state.call_later(self._hand_out)
        return True

    def _hand_out(self, loop: object) -> None:
        if loop is self._waiter.loop:
            self._safely(self._give_back)
        else:
            self._waiter.call(partial(self._safely, self._give_back))

    def _give_back(self) -> None:
        """Send back the replies that have arrived."""
        self._due = False  # first: another thread may add replies meanwhile
        arrived = self._arrived
        while arrived:
            self._give_back_some([arrived.popleft() for _ in range(min(PART, len(arrived)))])
        self._freed()

    def _give_back_some(self, arrived: Sequence[tuple[Passing, bytes, Connection]]) -> None:
        found: list[Returned] = []
        if self._returned is None:
            answers = [(one.question._connection, message[4:]) for one, message, _ in arrived]
            self.returned_bytes += sum([len(message) - 4 - len(one.header) for one, message, _ in arrived])
            count = len(answers)
        else:
            found = [(one, message[4 + len(one.header) :], connection.pipe) for one, message, connection in arrived]
            self.returned_bytes += sum([len(body) for _, body, _ in found])
            found = self._returned(found)
            answers = [(one.question._connection, one.header + body) for one, body, _ in found]
            count = len(found)
        self.returned += len(arrived)
        waiting = self._answers.answer_all(answers)
        self.replies += count
        if self._once:
            self.answered += count
            self._leaving -= len(arrived) - len(waiting)
        for index in waiting:
            one = found[index][0] if found else arrived[index][0]
            self._stuck(one, answers[index][1][len(one.header) :])

    def _freed(self) -> None:
        """Go on taking: there may be room now."""
        if self.hungry and self.room:
            self._take_soon()
        self._changed()

    def finish(self) -> None:
        """Note that a reply given to `stuck` has been sent or dropped."""
        if self._once:
            self._leaving -= 1
        self._freed()

    # ------------------------------------------------------------------ time

    def expire(self) -> float | None:
        """Drop the questions whose time is over; return when to call again (`time.monotonic`), None if not needed."""
        now = time.monotonic()
        if self._resend is not None and now >= self._next_overdue:
            self._next_overdue = now + min(OVERDUE_CHECKS, self._resend)
            late = [one for one in self._pending.values() if one.resend_at is not None and one.resend_at <= now]
            for one in late:
                one.resend_at = now + (self._resend or 0.0)
            if late:
                self._unsent += [one for one in late if one.peer is not None]
                self.pump()
        dropped = []
        for one in self._pending.values():
            if one.until is None or one.until > now:
                break
            dropped.append(one)
        for one in dropped:
            self._drop(one)
            self.expired += 1
        if dropped:
            self._freed()
        times = [] if self._resend is None or not self._pending else [self._next_overdue]
        for one in self._pending.values():
            if one.until is not None:
                times.append(one.until)
            break
        return min(times, default=None)

    def _drop(self, one: Passing) -> None:
        self._pending.pop(one.number, None)
        one.done = True
        if isinstance(self._outbox, SharedQueue) and one.peer is None:
            self._outbox.withdraw(one.message)

    def close(self) -> None:
        """Forget all questions; their replies count as late, also later ones."""
        self.stop()
        for end in self._ends:
            end()
        for one in list(self._pending.values()):
            self._drop(one)


class _WakeUp:
    """Member of the waiters of a queue: calls back in the relay's loop."""

    def __init__(self, relay: Relay, call: Callable[[], None]) -> None:
        self._waiter = relay._waiter
        self._call = WeakMethod(call)

    def wake(self) -> None:
        call = self._call()
        if call is not None:
            self._waiter.call(call)

    def wake_from(self, loop: object) -> None:
        if loop is not self._waiter.loop:
            self.wake()
        elif (call := self._call()) is not None:
            call()
