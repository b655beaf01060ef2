"""Peers that should be heard at intervals, and connections on which they no longer are. Pure: `now` is in seconds.

::

    silence = Silence()
    silence.expect("tcp://10.0.0.1:7000", 0.5)               # from its heartbeats: one every 0.5 s, at the latest
    ended = silence.heard(pipe, "tcp://10.0.0.1:7000", now)
    for each in silence.check({pipe: "tcp://10.0.0.1:7000"}, now):
        ...                                                  # disconnect each.pipe: its dialer returns

A connection is silent after MISSES intervals, and at least LEAST seconds, without a message. A peer that never says an
interval may be silent for ever. After each redial that brings nothing the limit doubles, and after REDIALS the peer is
left alone: it accepts connections, so another one is no help.

===========================  =========================================================================================
event                        effect
===========================  =========================================================================================
heard                        the connection's limit starts anew; an outage of this peer ends, and its length is returned
check, not connected before  as heard, but no outage ends: a handshake proves a kernel, not a program
check, over the limit        the connection is reported, as `first` once in each outage
check, itself late           all limits start anew: our own loop or machine stood still, and messages wait to be read
===========================  =========================================================================================
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Peer = TypeVar("Peer", bound=Hashable)

PERIOD: Final = 1.0  # seconds between two checks
LEAST: Final = 5.0  # seconds: a program that loads a large file or collects garbage is not taken for lost
MISSES: Final = 3  # intervals
REDIALS: Final = 5  # the last one after 31 limits: 2.6 minutes with heartbeats of 0.5 s
LATE: Final = 1.0  # seconds by which a check may be late
REMEMBERED: Final = 1024  # peers whose interval is kept; those heard longest ago are forgotten


@dataclass(frozen=True, slots=True)
class Silent(Generic[Peer]):
    """A connection to end. `seconds`: since its peer was last heard; `first`: of this outage, which may be reported."""

    pipe: int
    peer: Peer
    seconds: float
    first: bool


@dataclass(slots=True)
class _Known:
    """`since`: when the peer was last heard before its outage, None outside one. `redials`: of this outage."""

    interval: float
    since: float | None = None
    redials: int = 0

    def limit(self) -> float:
        return float("inf") if self.redials >= REDIALS else max(LEAST, MISSES * self.interval) * (1 << self.redials)


class Silence(Generic[Peer]):
    """Silence of the peers of a socket. A connection is its pipe's id, a peer is what stays over reconnections."""

    def __init__(self) -> None:
        self._peers: dict[Peer, _Known] = {}
        self._heard: dict[int, float] = {}
        self._checked: float | None = None

    def expect(self, peer: Peer, interval: float) -> None:
        """Note that `peer` sends a message every `interval` seconds, at the latest; infinity: it may be silent."""
        known = self._peers.get(peer)
        if known is not None:
            known.interval = interval
            return
        self._peers[peer] = _Known(interval)
        if len(self._peers) > REMEMBERED:
            del self._peers[next(iter(self._peers))]

    def forget(self, peer: Peer) -> None:
        """Forget a peer that has left and, if it returns, is another one."""
        self._peers.pop(peer, None)

    def heard(self, pipe: int, peer: Peer, now: float) -> float | None:
        """Note a message; return the length of the outage that it ends, in seconds, or None."""
        self._heard[pipe] = now
        known = self._peers.pop(peer, None)
        if known is None:
            return None
        self._peers[peer] = known  # the last to be forgotten
        if known.since is None:
            return None
        seconds = now - known.since
        known.since, known.redials = None, 0
        return seconds

    def check(self, pipes: Mapping[int, Peer], now: float) -> list[Silent[Peer]]:
        """Return the silent ones of `pipes`, which are all connections. Call it every PERIOD seconds."""
        late = self._checked is not None and now - self._checked > PERIOD + LATE
        self._checked = now
        self._heard = {pipe: now if late else self._heard.get(pipe, now) for pipe in pipes}
        found = []
        for pipe, peer in pipes.items():
            known, heard = self._peers.get(peer), self._heard[pipe]
            if known is None or now - heard < known.limit():
                continue
            first = known.since is None
            if known.since is None:
                known.since = heard
            known.redials += 1
            found.append(Silent(pipe, peer, now - known.since, first))
        return found
