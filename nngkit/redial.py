"""Connections that look alive and bring nothing are ended, so that their dialers connect again.

::

    peers = SilentPeers(sub, "publisher")             # peers that send heartbeats
    background.start(peers.run)
    peers.expect(0.5)                                 # seconds until the next one, at the latest

    server = SilentServer(req, "consumer server")     # a peer that replies
    reply = await server.request(body, timeout=10.0)

Each outage is logged twice: a warning with the address and the seconds of silence when the first connection is ended,
and a line with the seconds in all when the peer is heard again. Redials in between are silent. Whether the network, the
machine or the program has failed makes no difference here; TCP's own timers are in nngkit.protocols.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Final

import trio

from nngkit.errors import Closed, TimedOut
from nngkit.protocols import Bus, Pipe, Req, Respondent, Sub
from nngkit.silence import LEAST, PERIOD, REDIALS, Silence

log: Final = logging.getLogger("nngkit")


def log_silent(what: str, address: object, seconds: float) -> None:
    """Report the beginning of an outage."""
    log.warning("%s %s: nothing heard for %.1f s; connecting again", what, address, seconds, extra={"peer": address})


def log_heard(what: str, address: object, seconds: float) -> None:
    """Report the end of an outage."""
    log.info("%s %s: heard again after %.1f s", what, address, seconds, extra={"peer": address})


class SilentPeers:
    """Disconnects peers whose heartbeats stop; `run` is its task. `what` names them in the log."""

    def __init__(self, socket: Sub | Respondent | Bus, what: str) -> None:
        self._socket = socket
        self._what = what
        self._silence: Silence[str] = Silence()
        self._read: dict[int, int] = {}
        self._accepted: set[str] = set()  # peers that will have another port when they return
        self._longest = 0.0

    def expect(self, interval: float, pipe: Pipe | None = None) -> None:
        """Take note that a peer sends a message every `interval` seconds, at the latest; infinity: it does not.

        Without `pipe` it may be any peer: then the longest interval that was told is expected of all.
        """
        self._longest = max(self._longest, interval)
        for each in self._socket.pipes if pipe is None else (pipe,):
            self._silence.expect(each.address, self._longest if pipe is None else interval)
            if not each.dialed and each.address not in self._socket.addresses:
                self._accepted.add(each.address)

    async def run(self) -> None:
        """Check every second, until the socket is closed. Every message counts as a sign of life."""
        while True:
            await trio.sleep(PERIOD)
            now, stats = time.monotonic(), self._socket.pipe_stats
            for pipe, counted in stats.items():
                if counted.read != self._read.get(pipe.id, 0):
                    seconds = self._silence.heard(pipe.id, pipe.address, now)
                    if seconds is not None:
                        log_heard(self._what, pipe.address, seconds)
            self._read = {pipe.id: counted.read for pipe, counted in stats.items()}
            pipes = {pipe.id: pipe for pipe in stats}
            left = self._accepted.difference(pipe.address for pipe in stats)
            self._accepted -= left
            for address in left:
                self._silence.forget(address)
            for silent in self._silence.check({pipe.id: pipe.address for pipe in stats}, now):
                if silent.first:
                    log_silent(self._what, silent.peer, silent.seconds)
                try:
                    self._socket.disconnect(pipes[silent.pipe])
                except Closed:
                    return


class SilentServer:
    """Requests to a server that is connected again if it leaves them all unanswered. `what` names it in the log."""

    def __init__(self, req: Req, what: str) -> None:
        self._req = req
        self._what = what
        self._open = 0
        self._read = 0  # replies, and the pipes, when `_since` was set
        self._pipes: tuple[Pipe, ...] = ()
        self._since: float | None = None  # since when requests are unanswered; None: none is
        self._outage: float | None = None  # the same, when the outage was reported
        self._patience = LEAST

    async def request(self, body: bytes, timeout: float | None) -> bytes:
        """Like `Req.arequest`. At a TimedOut, the connections end if no reply to any request has come for 5 s."""
        if self._since is None:
            self._wait_from(time.monotonic())
        self._open += 1
        try:
            reply = await self._req.arequest(body, timeout=timeout)
        except TimedOut:
            self._open -= 1
            self._timed_out(time.monotonic())
            raise
        except BaseException:
            self._open -= 1
            if not self._open:
                self._since = None
            raise
        self._open -= 1
        self._answered(time.monotonic())
        return reply

    def _wait_from(self, now: float) -> None:
        self._since, self._read, self._pipes = now, self._req.stats.read, self._req.pipes

    def _answered(self, now: float) -> None:
        if self._outage is not None:
            log_heard(self._what, self._addresses(), now - self._outage)
        self._outage, self._patience, self._since = None, LEAST, None
        if self._open:
            self._wait_from(now)

    def _timed_out(self, now: float) -> None:
        if self._since is None or self._req.stats.read != self._read:  # a late reply is a sign of life, too
            self._since = None
            return
        pipes = self._req.pipes
        if not set(pipes) <= set(self._pipes):  # a new connection has the time that a new server has
            self._wait_from(now)
            return
        if now - self._since < self._patience or not pipes:
            return
        if self._outage is None:
            self._outage = self._since
            log_silent(self._what, self._addresses(), now - self._since)
        self._patience = min(2 * self._patience, LEAST * (1 << REDIALS))
        self._wait_from(now)
        with suppress(Closed):
            for pipe in pipes:
                self._req.disconnect(pipe)

    def _addresses(self) -> str:
        return ", ".join(pipe.address for pipe in self._req.pipes)
