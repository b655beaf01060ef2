"""Making one call: the providers it tries, in which order, and when it gives up. For threads, trio and asyncio.

`_begin`, `_failed` and `_replied` decide; a loop for each kind of caller waits. So a call costs one asking socket's
request and a choice, and a task of an asyncio program or a thread makes it without passing through another loop.

======================================  ====================  =================================================
outcome of an attempt                   the request           then
======================================  ====================  =================================================
a result, or an error of the handler    has run               return, or raise RemoteError
draining, unhealthy, no method          has surely not run    another provider
access denied                           has surely not run    raise AccessDenied: the policy is the same elsewhere
the connection was lost before it left  has surely not run    another provider
busy                                    has surely not run    another provider, within the budget
the connection was lost later           may have run          another one if idempotent, within the budget
an unintelligible reply                 may have run          another one if idempotent, within the budget
`attempt_timeout` has passed            may have run          another one if idempotent
the timeout has passed                  may have run          raise TimedOut
======================================  ====================  =================================================

After each provider was tried once, the call pauses, up to 0.1 s, and begins again; it ends after ATTEMPTS attempts.

The budget (budget.py) caps the attempts that add to the load of a service. An attempt is ended by `attempt_timeout`
only if the budget has a retry for it, which is taken when the attempt begins and put back if the reply comes in time:
without one, the call waits on for the reply that it has asked for.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from nngkit.calls.budget import Balance, RetryBudget
from nngkit.calls.messages import (
    BUSY,
    DEADLINE,
    DENIED,
    DRAINING,
    NO_METHOD,
    UNHEALTHY,
    CallRequest,
    CancelRequest,
    Codec,
    ErrorReply,
    PartsReply,
    Reply,
    ResultReply,
    parse_reply,
)
from nngkit.calls.middleware import MOST_ATTEMPTS, Attempt, Wait
from nngkit.calls.pool import Member, Outcome, Pool
from nngkit.calls.requesting.call import Call
from nngkit.calls.requesting.changes import Changes
from nngkit.calls.requesting.hedging import race
from nngkit.calls.requesting.no_provider import denied, not_connected
from nngkit.errors import AccessDenied, BadMessage, Closed, Lost, NngkitError, ServiceNotFound, TimedOut, TooLarge
from nngkit.protocols import Req
from nngkit.trust.standing import told

ATTEMPTS: Final = 12
"""Cap on the attempts of one call: with the pauses between them, over 0.5 s, longer than a provider takes to return."""
FIRST_PAUSE: Final = 0.002
LONGEST_PAUSE: Final = 0.1  # seconds
LOOK: Final = 0.1  # seconds between two looks at why no provider is connected, under a trust
ELSEWHERE: Final = (BUSY, DRAINING, UNHEALTHY, NO_METHOD)
"""Refusals for which another provider may be different; "no method": one of another version, but not this one later."""


class Caller:
    """Makes calls with a pool, which it locks. Any thread may use it.

    `closed`: no further calls; `failure`: what has ended the client. `on_idle` is called, on any thread, when a member
    that leaves has no call in progress. `send_later` sends a message without waiting for its reply. `daemons`: those
    that are asked for providers; `answering` returns those of them that answer. They are set before the first call.
    """

    def __init__(self, name: str, pool: Pool, *, codec: Codec | None, limit: int, budget: RetryBudget) -> None:
        self.name = name
        self.pool = pool
        self.codec = codec
        self.limit = limit
        self.lock = threading.Lock()
        self.changes = Changes()
        self.closed = False
        self.failure: Exception | None = None
        self.me: str | None = None  # our name under a trust
        self.daemons: tuple[str, ...] = ()
        self.on_idle: Callable[[], object] = lambda: None
        self.send_later: Callable[[Req, bytes], object] = lambda link, message: None
        self.answering: Callable[[], tuple[str, ...]] = tuple
        self.failed = 0
        self.errors = 0
        self.over_budget = 0
        self.refused = 0
        self.retried = 0
        self.ejected = 0
        self.hedged = 0
        self.hedge_wins = 0
        self.balance = Balance(budget, time.monotonic())
        self._prefix = os.urandom(8).hex()
        self._count = count(1)

    async def request(self, call: Call) -> Any:
        """Make a call, in a task. Returns the reply's body, or the PartsReply that opens a stream."""
        while True:
            if not self._begin(call):
                await self.changes.await_(call.version, call.pause)
                continue
            try:
                data = await call.link.arequest(call.message, timeout=call.left)
            except BaseException as error:
                self._failed(call, error)
                continue
            if self.codec is None:
                self._end(call, "reply")
                return data
            done, value = self._replied(call, data)
            if done:
                return value

    def request_blocking(self, call: Call) -> Any:
        """Make a call, in a thread."""
        while True:
            if not self._begin(call):
                self.changes.wait(call.version, call.pause)
                continue
            try:
                data = call.link.request(call.message, timeout=call.left)
            except BaseException as error:
                self._failed(call, error)
                continue
            if self.codec is None:
                self._end(call, "reply")
                return data
            done, value = self._replied(call, data)
            if done:
                return value

    async def hedged_request(self, call: Call) -> tuple[Any, Call]:
        """Make a call that is hedged; return the reply's body, and the attempt that got it."""
        call.idempotent = call.hedged = True
        both = [call]

        async def second() -> Any:
            self.hedged += 1
            both.append(call.again())
            return await self.request(both[1])

        assert call.hedge is not None
        try:
            value, won = await race(lambda: self.request(call), second, call.hedge, self.may_hedge)
        except NngkitError:
            call.hedged = False
            self.count_failed(*both)
            raise
        self.hedge_wins += won
        return value, both[won]

    # Calls of `Client.request` that end with their first attempt

    def close(self) -> None:
        """Make no further calls."""
        with self.lock:
            self.closed = True
            self.pool.only = None

    def first(self, now: float) -> Member | None:
        """Choose the provider of a call's first attempt, and count both; None if `request` has to."""
        with self.lock:
            if self.closed:
                return None
            if (member := self.pool.choose(now)) is not None:
                self.pool.begin(member)
                self.balance.call(now)
        return member

    def first_replied(self, member: Member, seconds: float, now: float) -> None:
        """End the first attempt with its reply."""
        with self.lock:
            self.pool.end(member, "reply", seconds, now)
        if member.leaving and not member.outstanding:
            self.on_idle()

    def first_failed(self, call: Call, member: Member, began: float, cause: BaseException) -> None:
        """End the first attempt without a reply; return if there is to be another. Raises the call's error."""
        call.current, call.began, call.attempts = member, began, 1
        if call.seconds is not None:
            call.deadline = began + call.seconds
        self._failed(call, cause)

    # Decisions

    def _begin(self, call: Call) -> bool:
        """Choose a provider for the next attempt; return False if the call has to pause first. Raises its error."""
        if self.closed:
            raise self.ended()
        call.began = now = time.monotonic()
        left = call.deadline - now
        call.left = None if call.seconds is None else left if left > 0 else 0.0
        if self.codec is None:
            call.message = call.body
        else:
            self._encode(call, self.codec)
        pool, attempt, version = self.pool, call.attempt_timeout, self.changes.version
        with self.lock:
            member = pool.choose(now, call.tried)
            chosen = None if call.tried and member in call.tried else member
            if chosen is not None:
                if call.waiting is not None:
                    self._end_wait(call.waiting, chosen, now)
                    call.waiting = None
                pool.begin(chosen)
                if not call.attempts and not call.beside:
                    self.balance.call(now)
                if attempt is not None:
                    call.shorter = attempt < left and self.balance.take(now)
                    call.unbudgeted = attempt < left and not call.shorter
        if chosen is None:
            if member is None:
                self.check_denied(call, final=left <= 0)
            if member is None and left <= 0:
                self.count_failed(call)
                raise self._no_provider(call)
            if member is None and call.waits is not None and call.waiting is None:
                call.waiting = Wait(now)
                call.waits.append(call.waiting)
            call.pause = self.pause(left)
            call.version = version
            if member is not None:  # each was tried once
                call.pause = max(0.0, min(left, LONGEST_PAUSE, FIRST_PAUSE * 2**call.passes))
                call.tried = ()
                call.passes += 1
            return False
        call.current = chosen
        call.link = chosen.link
        call.attempts += 1
        if call.shorter:
            call.left = attempt
        return True

    def _end_wait(self, wait: Wait, chosen: Member, now: float) -> None:
        wait.ended, wait.daemons = now, self.answering()
        wait.provider, wait.reason = chosen.provider.address, self.pool.reason(chosen)

    def _encode(self, call: Call, codec: Codec) -> None:
        call.id = f"{self._prefix}{next(self._count):x}"
        if call.asks is not None:
            call.message = call.asks.encode(codec)
            return
        call.message = CallRequest(call.id, call.body, call.method, call.left, call.stream, call.headers).encode(codec)

    def _failed(self, call: Call, cause: BaseException) -> None:
        """End an attempt without a reply; return if there is to be another. Raises the call's error."""
        assert call.current is not None
        address = call.current.provider.address
        if isinstance(cause, Lost):
            self._end(call, "lost")
            sent = cause.sent
        elif isinstance(cause, Closed) and not self.closed:  # by us: the provider has left
            self._end(call, "lost")
            sent = True
        elif isinstance(cause, TimedOut):
            self._end(call, "timeout")
            seconds = call.attempt_timeout if call.shorter else call.seconds
            late = TimedOut(f"{self.name}: no reply from {address} in {seconds} s", call.seconds)
            self._again(call, late, call.shorter, cause)
            return
        else:
            self._end(call, "cancelled")
            if self.codec is not None:
                self.send_later(call.link, CancelRequest(call.id).encode(self.codec))
            raise (self.failure or cause) if isinstance(cause, Closed) else cause
        advice = "the request may have run; idempotent=True would try another provider" if sent else "it was not sent"
        lost = Lost(f"{self.name}: {address} left before it replied: {advice}", sent=sent)
        self._again(call, lost, not sent or (call.idempotent and self._may(call)), cause)

    def _replied(self, call: Call, data: bytes) -> tuple[bool, Any]:
        """End an attempt with a reply; return (True, result), or (False, None) if there is to be another attempt."""
        assert call.current is not None
        assert self.codec is not None
        address = call.current.provider.address
        try:
            reply: Reply = parse_reply(data, self.codec, limit=self.limit, peer=address)
            if not isinstance(reply, (ErrorReply, PartsReply if call.stream else ResultReply)):
                raise BadMessage("call reply", f"unexpected {type(reply).__name__}", address)
        except (BadMessage, TooLarge) as error:
            self._end(call, "bad")
            self._again(call, error, call.idempotent and self._may(call), None)
            return False, None
        if not isinstance(reply, ErrorReply):
            self._end(call, "reply")
            call.back = reply.headers
            return True, reply.body if isinstance(reply, ResultReply) else reply
        self._end(call, "error" if reply.ran else "refused")
        if reply.kind == DEADLINE:
            self.count_failed(call)
            raise TimedOut(f"{self.name}: {address} did not finish in {call.seconds} s", call.seconds)
        self.refused += not reply.ran
        if reply.kind == DENIED and not reply.ran:
            self.count_failed(call)
            there = next((pipe.who for pipe in call.link.pipes if pipe.who), address)
            raise AccessDenied(f"{there} refused {reply.message}")
        call.handler_failed = reply.ran
        elsewhere = not reply.ran and reply.kind in ELSEWHERE
        if elsewhere and reply.kind == BUSY:
            elsewhere = self._may(call)
        elif elsewhere and reply.kind == NO_METHOD:
            elsewhere = self._is_other_left(call)
        self._again(call, reply.exception(address), elsewhere, None)
        return False, None

    def _again(self, call: Call, error: NngkitError, wanted: bool, cause: BaseException | None) -> None:
        """Note that the provider was tried. Raises `error` if there is to be no further attempt."""
        if not wanted or call.attempts >= ATTEMPTS:
            self.count_failed(call)
            raise error from cause
        assert call.current is not None
        call.tried = (*call.tried, call.current)
        self.retried += 1

    def _is_other_left(self, call: Call) -> bool:
        """Return True if a provider is usable that was not tried in this pass."""
        assert call.current is not None
        tried = (*call.tried, call.current)
        with self.lock:
            member = self.pool.choose(time.monotonic(), tried)
        return member is not None and member not in tried

    def _may(self, call: Call) -> bool:
        """Take a retry from the budget, for a call that may have another attempt."""
        return call.attempts < ATTEMPTS and self.may_hedge()

    def may_hedge(self) -> bool:
        """Take a retry, or the second attempt of a hedged call, from the budget; return False if there is none."""
        with self.lock:
            taken = self.balance.take(time.monotonic())
        self.over_budget += not taken
        return taken

    def hold(self, member: Member) -> None:
        """Count a stream as a call in progress: its provider's socket stays open."""
        with self.lock:
            member.outstanding += 1
            member.streams += 1

    def release(self, member: Member) -> None:
        """End `hold`."""
        with self.lock:
            member.outstanding -= 1
            member.streams -= 1
            idle = member.leaving and not member.outstanding
        if idle:
            self.on_idle()

    def _end(self, call: Call, outcome: Outcome) -> None:
        now = time.monotonic()
        member = call.current
        assert member is not None
        seconds = now - call.began
        with self.lock:
            ejected = self.pool.end(member, outcome, seconds, now)
            if call.shorter and outcome != "timeout":
                self.balance.put_back(now)
        if ejected:
            self.ejected += 1
        if call.told is not None and len(call.told) < MOST_ATTEMPTS:
            call.told.append(Attempt(member.provider.address, call.began, seconds, outcome))
        if call.attempt_timeout is not None and call.unbudgeted and seconds > call.attempt_timeout:
            self.over_budget += 1
        if member.leaving and not member.outstanding:
            self.on_idle()

    # Errors

    def count_failed(self, *calls: Call) -> None:
        """Count a call that raises: one that is hedged by the client, once both of its halves have failed."""
        if len(calls) > 1 or not calls[0].hedged:
            self.failed += 1
            self.errors += any(call.handler_failed for call in calls)

    def pause(self, left: float) -> float:
        """Return the seconds to wait for a change of the pool, of `left`: under a trust refusals are looked for."""
        return left if self.me is None or left < LOOK else LOOK

    def check_denied(self, *calls: Call, final: bool) -> None:
        """Raise AccessDenied if no provider is connected as all that are known have refused us, or we them."""
        if self.me is None:
            return
        with self.lock:
            known = self.pool.present()
        if (error := denied(known, self.me, final=final)) is not None:
            if calls:
                self.count_failed(*calls)
            raise error

    def ended(self) -> Exception:
        """Return the error for calls of a client that is closed, or has failed."""
        return self.failure or Closed(f"{self.name}: this client is closed")

    def _no_provider(self, call: Call) -> NngkitError:
        with self.lock:
            known, missing = self.pool.present(), self.pool.missing(self.name)
        if known:
            return not_connected(self.name, known, call.seconds, told(member.provider.address for member in known))
        why = told(self.daemons)
        return ServiceNotFound(missing.name, f"{missing.why}{why}".removeprefix("; ")) if why else missing
