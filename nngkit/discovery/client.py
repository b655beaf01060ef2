"""DaemonClient: asks one daemon, over REQ. What `nngkit discover` and the resolver are made of.

::

    async with DaemonClient("tcp://127.0.0.1:5556") as daemon:
        await daemon.resolve("answer")          # a Provider that the daemon chose
        await daemon.snapshot()                 # everybody who can be called, as tuple[Status, ...], all pages
        await daemon.rounds()                   # figures and counters
        await daemon.watch("", 0, wait=0.0)     # which state it is in; with a wait, whether that has changed

Each call is bounded by `timeout`. What goes wrong: Unreachable (nobody listens there), TimedOut (somebody does, and
says nothing), BadMessage (they say something else), ServiceNotFound.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from nngkit.background import UnderTrio
from nngkit.discovery.provider import PROTOCOL_VERSION, Provider, Status
from nngkit.discovery.queries import (
    ANSWER_LIMIT,
    Answer,
    Ask,
    AskResolve,
    AskRounds,
    AskSnapshot,
    Refused,
    Resolved,
    Rounds,
    Snapshot,
    parse_answer,
)
from nngkit.discovery.watch import AskWatch, Changed, parse_changed
from nngkit.errors import BadMessage, TimedOut, Unreachable
from nngkit.protocols import TLS, PeerEvent, Req

__all__ = ["DaemonClient"]

log = logging.getLogger("nngkit.discovery")

PAGES: Final = 256
"""Pages of one snapshot: four times what a daemon keeps; one that has more to say is not one of ours."""


class DaemonClient(UnderTrio):
    """A connection to one daemon's query address; use it with `async with`. `timeout`: seconds a call may take.

    Entering does not wait for the daemon. Raises ConfigError for an address that is none. Calls may overlap.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = 1.0,
        tls: TLS | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self.timeout = timeout
        self._tls = tls
        self._clock = clock
        self._met = False
        self._old = False  # whether the daemon has answered in an older version

    async def __aenter__(self) -> Self:
        self._entering()
        self._req = Req(recv_max_size=ANSWER_LIMIT, tls=self._tls)
        self._req.on_peer(self._peer)
        try:
            self._req.dial(self.address)
        except BaseException:
            self._req.close(0.0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._req.close(0.0)

    def _peer(self, event: PeerEvent) -> None:
        self._met = True  # on any thread

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return bool(self._req.pipes)

    def on_connection(self, call: Callable[[PeerEvent], None]) -> Callable[[], None]:
        """Call `call`, on any thread, when the connection comes or goes; return a function that ends that."""
        return self._req.on_peer(call)

    async def resolve(self, name: str, zone: str = "") -> Provider:
        """A provider of `name`, chosen by the daemon."""
        answer = await self._ask(AskResolve(name, zone), name)
        if not isinstance(answer, Resolved):
            raise self._unexpected(answer)
        return answer.provider

    async def snapshot(self, name: str | None = None, *, everything: bool = False) -> tuple[Status, ...]:
        """Who can be called, or everybody who is known, of one name or all; times are on this side's clock."""
        ask = AskSnapshot(name, everything)
        rows: list[Status] = []
        for _ in range(PAGES):
            answer = await self._ask(ask)
            if not isinstance(answer, Snapshot):
                raise self._unexpected(answer)
            rows.extend(answer.rows)
            if answer.after is None:
                return tuple(rows)
            if ask.after is not None and answer.after <= ask.after:
                break
            ask = AskSnapshot(name, everything, answer.after)
        raise BadMessage("discovery answer", "its pages do not end", self.address)

    async def rounds(self, last: int = 16) -> Rounds:
        """The figures of the last rounds, and what the daemon has counted."""
        answer = await self._ask(AskRounds(last))
        if not isinstance(answer, Rounds):
            raise self._unexpected(answer)
        return answer

    async def watch(self, daemon: str, version: int, *, wait: float) -> Changed:
        """The daemon's state once it is not (`daemon`, `version`) any more, or after `wait` seconds."""
        return parse_changed(await self._request(AskWatch(daemon, version, wait).encode(), wait), self.address)

    async def _ask(self, ask: Ask, name: str = "") -> Answer:
        answer = parse_answer(await self._request(ask.encode()), self._clock(), self.address)
        if isinstance(answer, Refused):
            raise answer.error(name)
        if isinstance(answer, (Snapshot, Resolved)) and answer.version < PROTOCOL_VERSION and not self._old:
            self._old = True
            log.warning("discovery daemon at %s speaks version 1: priorities are read as 8", self.address)
        return answer

    async def _request(self, body: bytes, more: float = 0.0) -> bytes:
        seconds = self.timeout + more
        try:
            return await self._req.arequest(body, timeout=seconds)
        except TimedOut as late:
            if not self._met:
                raise Unreachable(self.address, f"no discovery daemon answers there, tried for {seconds:g} s") from late
            raise TimedOut(f"{self.address}: no answer in {seconds:g} s", seconds) from late

    def _unexpected(self, answer: object) -> BadMessage:
        return BadMessage("discovery answer", f"it is a {type(answer).__name__}", self.address)
