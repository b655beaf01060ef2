"""Refusing a connection without killing the peer: it is kept for a while, hears nothing and is not heard, then is cut.

NNG's PUSH (1.11, issue 1653 of its tracker) puts a connection in its list of peers after the first receive on it was
posted. If that fails at once, because the other side has closed already, the connection is freed and still in the list,
and the process dies of it: of some hundred such refusals, ours or not (``test_defects_connections.py``). So a PULL,
which is what PUSH talks to, closes none that is young. Nothing is said to a connection in its time of grace, as PULL
only listens, and what comes by it is let go.

May not know: sockets, messages' meaning.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from ._alarm import Alarm
from ._nng import lib, pipe_id

GRACE = 0.1  # seconds; a peer that is busy comes late to the posting of its receive
LEAST = 0.01  # seconds that the end of the socket waits for, where a connection was made just before
PASSED = 8192  # messages a ring holds at most: after as many, what came before a connection left is through


class Refusing:
    """The refused connections of one socket. ``bar`` and ``left`` are called on NNG's threads, the rest by the ring."""

    def __init__(self) -> None:
        self.newest = float("-inf")  # time.monotonic() of the last connection made
        self._barred: set[int] = set()
        self._gone: deque[tuple[int, int]] = deque()
        self._taken = 0
        self._young: deque[tuple[float, Any]] = deque()
        self._alarm = Alarm(self._cut)

    # ------------------------------------------------------------------ connections

    def bar(self, raw: Any) -> None:
        """Refuse the pynng pipe ``raw``, which was just made."""
        self._barred.add(raw.id)
        self.cut_later(raw.pipe)

    def bars(self, pipe: int) -> bool:
        """Whether the connection of that id was refused."""
        return pipe in self._barred

    def left(self, pipe: int) -> bool:
        """A connection has gone; whether it was refused. What came by it may still be in the ring."""
        if barred := pipe in self._barred:
            self._gone.append((pipe, self._taken))
        return barred

    def cut_later(self, pipe: Any) -> None:
        """Close NNG's ``pipe`` when it is no longer young."""
        self._young.append((time.monotonic() + GRACE, pipe))
        self._alarm.set(GRACE)

    def youth(self, grace: float = GRACE) -> float:
        """Seconds until the last connection made is ``grace`` old."""
        return max(0.0, self.newest + grace - time.monotonic())

    def _cut(self) -> float | None:
        now, young = time.monotonic(), self._young
        while young and young[0][0] <= now:
            lib.nng_pipe_close(young.popleft()[1])
        return young[0][0] - now if young else None

    # ------------------------------------------------------------------ messages

    def without(self, messages: list[Any]) -> list[Any]:
        """Those of the ``messages`` just taken that came by connections that were not refused."""
        self._taken += len(messages)
        barred = self._barred
        if not barred:
            return messages
        while self._gone and self._taken - self._gone[0][1] > PASSED + len(messages):
            barred.discard(self._gone.popleft()[0])
        return [message for message in messages if pipe_id(message) not in barred]

    def looks(self) -> int:
        """Before the ring is looked at: how many refused connections have left. For ``nothing_left``."""
        return len(self._gone)

    def nothing_left(self, gone: int) -> None:
        """The ring was empty, so nothing can come any more of the first ``gone`` connections that had left."""
        for _ in range(min(gone, len(self._gone))):
            self._barred.discard(self._gone.popleft()[0])

    # ------------------------------------------------------------------ the end

    def free(self) -> None:
        """Give everything back, once the socket is closed."""
        self._alarm.close()
