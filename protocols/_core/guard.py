"""Limits on unknown peers: how many connections, how long a handshake or an incomplete message may take.

A connection over a limit is cut: it is lost, and a ``Cut`` records its peer and the reason. A sweep on the alarm
thread checks the time limits, every half of the shortest one.

May not know: protocols, waiters, options.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from nngkit.log_lines import LogLines
from nngkit.protocols._core.connection import SHAKING, Connection
from nngkit.protocols._core.inbox import Inbox
from nngkit.protocols._core.pipe import Pipe
from nngkit.protocols._core.state import State
from nngkit.protocols._waiting.alarm import Alarm
from nngkit.trust.refusals import listened
from nngkit.trust.trust import PERIOD

log = logging.getLogger("nngkit.protocols")

CUTS: Final = 64  # cuts kept
STRANGER: Final = 0.5  # of the time for a handshake, for peers of other hosts that connect to us

_lines = LogLines()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on peers: seconds, and numbers of connections (0: no limit)."""

    handshake: float
    idle: float
    peer: float
    pipes: int
    pipes_per_host: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A connection that was cut: for breaking a rule, for silence or by an internal error.

    ``time`` is time.monotonic() seconds.
    """

    address: str
    reason: str
    time: float


class Guard:
    """Limits of one socket: counts connections, sweeps them, records cuts. ``cut_ever`` counts all cuts."""

    def __init__(self, state: State[Connection], inbox: Inbox, limits: Limits) -> None:
        self._state = state
        self._inbox = inbox
        self._limits = limits
        self._hosts: dict[str, set[int]] = {}  # accepted connections by host
        self._sweeper = Alarm(self._sweep)
        self._changed = Alarm(self._sweep_once)
        self.cut_ever = 0
        self.cuts: deque[Cut] = deque(maxlen=CUTS)

    def close(self) -> None:
        """Stop the sweep."""
        self._sweeper.close()
        self._changed.close()

    def cut(self, where: str, why: str) -> None:
        """Record that the connection from ``where`` is cut; the caller ends it."""
        self.cut_ever += 1
        self.cuts.append(Cut(where, why, time.monotonic()))
        log.info("%s: cut: %s", where, why)

    def not_understood(self, bound: str, where: str, why: str) -> None:
        """Log that a peer speaks something else than the listener at ``bound``, if that is why its handshake failed."""
        text = listened(why, bound, where.partition("://")[2])
        if text and (line := _lines.add(text, time.monotonic(), f"{bound} {why}")) is not None:
            log.warning("%s", line)

    # ------------------------------------------------------------------ numbers of connections, under the lock

    def too_many(self) -> str | None:
        """Return the reason why no more connections are accepted, or None."""
        most, state = self._limits.pipes, self._state
        if most and sum(one.dialer is None for one in (*state.present.values(), *state.handshaking.values())) >= most:
            return f"more than {most} connections"
        return None

    def too_many_from(self, pipe: Pipe) -> str | None:
        """Return the reason why ``pipe`` may not join, too many connections from its host, or None."""
        most = self._limits.pipes_per_host
        if most and not pipe.dialed and len(self._hosts.get(_host(pipe), ())) >= most:
            return f"more than {most} connections from {_host(pipe)}"
        return None

    def joined(self, pipe: Pipe) -> None:
        """Count ``pipe`` among the connections from its host, if it was accepted."""
        if not pipe.dialed:
            self._hosts.setdefault(_host(pipe), set()).add(pipe.id)

    def left(self, pipe: Pipe) -> None:
        """Undo ``joined``. Idempotent."""
        host = _host(pipe)
        if (numbers := self._hosts.get(host)) is not None:
            numbers.discard(pipe.id)
            if not numbers:
                self._hosts.pop(host, None)

    # ------------------------------------------------------------------ time limits

    def watch(self) -> None:
        """Start the sweep, if there is a limit to check, for a new connection. A changed policy is checked at once."""
        if self._state.identity.trust is not None:
            self._state.identity.trust.follow(self._trust_changed)
        period = self._period()
        if period is not None:
            self._sweeper.set(period)

    def _trust_changed(self) -> None:
        self._changed.set(0.0)

    def _sweep_once(self) -> None:
        self._sweep()

    def _period(self) -> float | None:
        limits = [limit for limit in (STRANGER * self._limits.handshake, self._limits.idle) if limit]
        if self._state.identity.trust is not None:
            limits.append(2 * PERIOD)
        return max(0.01, min(limits) / 2) if limits else None

    def _sweep(self) -> float | None:
        """End handshakes and messages that take too long. On the alarm thread."""
        now, state = time.monotonic(), self._state
        if state.identity.trust is not None:
            state.identity.trust.refresh()
        with state.lock:
            if state.reason is not None:
                return None
            for connection in [*state.handshaking.values(), *state.joined()]:
                try:
                    self._sweep_one(connection, now)
                except Exception as wrong:
                    connection.crash(wrong)
                    state.lose(connection)
            more = bool(state.present or state.handshaking)
        state.notify()
        return self._period() if more else None

    def _sweep_one(self, connection: Connection, now: float) -> None:
        limits, state = self._limits, self._state
        if connection.number in state.handshaking:
            longest = limits.handshake if connection.host is None else STRANGER * limits.handshake
            if longest and now - connection.since > longest and connection.stage == SHAKING:
                self.cut(connection.where(), f"no handshake in {longest:g} s")
                state.lose(connection, "no handshake")
        elif (
            connection.peer is not None
            and (denied := state.identity.objection(connection.where(), connection.peer)) is not None
        ):
            connection.fault = denied
            state.lose(connection)
        elif limits.idle:
            self._sweep_incomplete(connection, now)

    def _sweep_incomplete(self, connection: Connection, now: float) -> None:
        machine = connection.machine
        progress = connection.progress_made()
        if not machine.begun or self._inbox.is_held_back(connection) or progress != connection.progress:
            connection.progress = progress
            connection.since = now
        elif now - connection.since > self._limits.idle:
            assert connection.pipe is not None
            self.cut(connection.pipe.address, f"incomplete message, nothing received for {self._limits.idle} s")
            self._state.lose(connection, "incomplete message")


def _host(pipe: Pipe) -> str:
    return pipe.address.partition("://")[2].rpartition(":")[0] or pipe.address
