"""One call of a program, and its present attempt."""

from __future__ import annotations

import time
from typing import Any

from nngkit.calls.messages import InfoRequest
from nngkit.calls.middleware import Attempt, Reply, Wait
from nngkit.calls.pool import Member


class Call:
    """One call of a program, and its current attempt. A plain class: a call is made in microseconds.

    `seconds`, `deadline`: the timeout, and the time.monotonic() at which it has passed (infinite without one). `tried`:
    the providers tried in this pass. `current`: the provider asked now, or last; `id`: of the attempt, on the wire.
    """

    method = ""
    idempotent = False
    stream = False
    hedged = False  # one of the two halves of a hedged call
    beside = False  # the second of them
    handler_failed = False
    attempt_timeout: float | None = None
    tried: tuple[Member, ...] = ()
    attempts = 0
    passes = 0
    current: Member | None = None
    link: Any = None
    id = ""
    message: Any = b""
    asks: InfoRequest | None = None  # in place of a call of a handler
    headers: dict[str, str | bytes] | None = None
    back: dict[str, str | bytes] | None = None  # the headers of the reply
    told: list[Attempt] | None = None  # attempts, for the client's middleware
    waits: list[Wait] | None = None  # periods without a provider, for it too
    waiting: Wait | None = None  # the last of them, until it ends
    left: float | None = None
    shorter = False  # the attempt's timeout is shorter than the call's, and a retry is taken from the budget
    unbudgeted = False  # it would be shorter, but for the budget
    hedge: float | None = None  # seconds after which a second provider is asked too
    began = 0.0
    pause = 0.0
    version = 0

    def __init__(self, body: Any, seconds: float | None) -> None:
        self.body = body
        self.seconds = seconds
        self.deadline = float("inf") if seconds is None else time.monotonic() + seconds

    def again(self) -> Call:
        """Return an equal call for a further attempt beside this one, which avoids the provider of this one."""
        call = Call(self.body, self.seconds)
        call.deadline, call.method, call.idempotent = self.deadline, self.method, self.idempotent
        call.attempt_timeout, call.hedged, call.beside = self.attempt_timeout, True, True
        call.headers, call.told, call.waits = self.headers, self.told, self.waits
        call.tried = self.tried if self.current is None else (*self.tried, self.current)
        return call

    def reply(self, body: Any) -> Reply:
        """Return the whole of the reply with this body."""
        return Reply(body, self.back or {}, "" if self.current is None else self.current.provider.address)
