"""Client of one discovery daemon, over REQ. `nngkit discover` and the resolver are built on it.

::

    async with DaemonClient("tcp://127.0.0.1:5556") as daemon:
        await daemon.resolve("answer")          # a Provider that the daemon chose
        await daemon.snapshot()                 # all providers that can be called, tuple[Status, ...], all pages
        await daemon.rounds()                   # figures and counters
        await daemon.watch("", 0, wait=0.0)     # the state; with a wait, once it has changed

Each call is bounded by `timeout`. Raises Unreachable (nothing listens there), TimedOut (connected, no reply),
BadMessage (an invalid reply), ServiceNotFound.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, TypeVar

from nngkit import tracing
from nngkit.background import UnderTrio
from nngkit.discovery import queries
from nngkit.discovery.domains import check_domain, domain_of, other_domain, with_domain
from nngkit.discovery.lanes import Suspects, make_preference
from nngkit.discovery.provider import PROTOCOL_VERSION, Provider, Status
from nngkit.discovery.questions.messages import AskQuery, make_ask, parse_ask_reply
from nngkit.discovery.questions.tracing import trace_ask
from nngkit.discovery.questions.values import AskResult, Outcome, Reserved, Until, make_result
from nngkit.discovery.questions.values import deadline as until_deadline
from nngkit.discovery.watch import WatchQuery, WatchReply, parse_watch_reply
from nngkit.errors import BadMessage, Broken, ServiceNotFound, TimedOut, Unreachable
from nngkit.headers import Headers
from nngkit.protocols import TLS, PeerEvent, Req
from nngkit.redial import SilentServer
from nngkit.trust import Choice, chosen
from nngkit.trust.standing import told

log = logging.getLogger("nngkit.discovery")

PAGES: Final = 256
"""Cap on the pages of one snapshot: four times as many as a daemon holds."""

DEFAULT_UNTIL: Final = until_deadline(1.0)

R = TypeVar("R")


class DaemonClient(UnderTrio):
    """Connection to one daemon's query address; use it with `async with`.

    `timeout`: seconds that a call may take; None: for ever. Entering does not wait for the daemon. Raises ConfigError
    for an invalid address. Calls may overlap. Every call raises Broken if the daemon is of another `domain`. A daemon
    that answers no call for 5 s is connected again (nngkit.redial).
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float | None = 1.0,
        domain: str = "",
        tls: TLS | None = None,
        trust: Choice | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self.timeout = timeout
        self._tls = tls
        self._trust = chosen(trust, tls)
        self._clock = clock
        self._domain = check_domain(domain)
        self._checked = not self._domain  # True once the daemon at the other end has named our domain
        self._met = False
        self._old = False  # True once the daemon has replied in an older version

    async def __aenter__(self) -> Self:
        self._entering()
        self._req = Req(recv_max_size=queries.REPLY_LIMIT, tls=self._tls, trust=self._trust)
        self._req.on_peer(self._peer)
        self._server = SilentServer(self._req, "discovery daemon")
        try:
            self._req.dial(self.address)
        except BaseException:
            self._req.close(0.0)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closed = True
        self._req.close(0.0)

    def _peer(self, event: PeerEvent) -> None:
        self._met = True  # on any thread
        self._checked = not self._domain

    @property
    def connected(self) -> bool:
        """True while connected."""
        return bool(self._req.pipes)

    def on_connection(self, call: Callable[[PeerEvent], None]) -> Callable[[], None]:
        """Call `call`, on any thread, when the connection is established or lost; return an unregister function."""
        return self._req.on_peer(call)

    async def resolve(
        self,
        name: str,
        *,
        prefer: str | Iterable[str] = (),
        tags: str | Iterable[str] = (),
        version: str = "",
        suspects: Suspects = "last",
    ) -> Provider:
        """Return a provider of `name`, chosen by the daemon; the preference is as for `Resolver.resolve`.

        Raises ServiceNotFound; also if the daemon is older and does not know tags and versions, and so chose wrongly.
        """
        query = queries.ResolveQuery(name, make_preference(prefer, tags, version, suspects))
        if (spans := tracing.spans) is None:
            return await self._resolve(query)
        with spans.asking("resolve", name, {}, self.address) as asking:
            provider = await self._resolve(replace(query, headers=asking.headers))
            asking.found(provider=provider.address)
        return provider

    async def _resolve(self, query: queries.ResolveQuery) -> Provider:
        name = query.name
        reply = await self._ask(queries.ResolveReply, query, name)
        if not query.preference.accepts(reply.provider):
            raise ServiceNotFound(name, f"the daemon at {self.address} is too old to choose by tags or version")
        return reply.provider

    async def snapshot(self, name: str | None = None, *, everything: bool = False) -> tuple[Status, ...]:
        """Return the providers of one name or of all; times are on the caller's clock.

        `everything`: include those that cannot be resolved.
        """
        query = queries.SnapshotQuery(name, everything)
        rows: list[Status] = []
        for _ in range(PAGES):
            reply = await self._ask(queries.SnapshotReply, query)
            rows.extend(reply.rows)
            if reply.after is None:
                return tuple(rows)
            if query.after is not None and reply.after <= query.after:
                break
            query = queries.SnapshotQuery(name, everything, reply.after)
        raise BadMessage("daemon reply", "its pages do not end", self.address)

    async def rounds(self, last: int = 16) -> queries.RoundsReply:
        """Return the figures of the last rounds and the daemon's counters."""
        return await self._ask(queries.RoundsReply, queries.RoundsQuery(last))

    async def history(self, age: float, name: str | None = None) -> tuple[queries.ChangeRecord, ...]:
        """Return the changes of the last `age` seconds, of one service or of all, the oldest first.

        Raises Broken if the daemon keeps no history, or is too old to.
        """
        query, found = queries.HistoryQuery(age, name), list[queries.ChangeRecord]()
        started = time.monotonic()
        while True:
            reply = await self._ask(queries.HistoryReply, query)
            found.extend(reply.changes)
            if reply.after is None or reply.after <= query.after:
                return tuple(found)
            query = queries.HistoryQuery(age + time.monotonic() - started, name, reply.after)

    async def ask(
        self,
        question: bytes | Reserved,
        name: str | None = None,
        *,
        until: Until = DEFAULT_UNTIL,
        headers: Headers | None = None,
    ) -> AskResult:
        """Have the daemon ask the providers of `name`, or of all services; see ServiceDiscovery.ask."""
        ask = make_ask(uuid.uuid4().hex, question, name, until, headers)
        started = time.monotonic()
        return make_result(await self.outcomes(ask), until, time.monotonic() - started)

    async def outcomes(self, ask: AskQuery) -> tuple[Outcome, ...]:
        """Have the daemon ask; return the outcome for each provider. `ask` may repeat an earlier one."""
        return await trace_ask(self._outcomes, ask, self.address)

    async def _outcomes(self, ask: AskQuery) -> tuple[Outcome, ...]:
        found: list[Outcome] = []
        for _ in range(PAGES):
            body = await self._request(ask.encode(len(found)), ask.timeout)
            reply = parse_ask_reply(body, self.address)
            if reply is None:
                refused = queries.parse_daemon_reply(body, self._clock(), self.address)
                if isinstance(refused, queries.RefusedReply) and "ask-question" in refused.message:
                    raise Broken(f"discovery daemon at {self.address} is too old to ask questions")
                raise refused.error() if isinstance(refused, queries.RefusedReply) else self._unexpected(refused)
            found.extend(reply.outcomes)
            if reply.after is None:
                return tuple(found)
            if reply.after != len(found):
                break
        raise BadMessage("daemon reply", "its pages do not end", self.address)

    async def watch(self, daemon: str, version: int, *, wait: float, changes: bool = False) -> WatchReply:
        """Return the daemon's state once it is no longer (`daemon`, `version`), or after `wait` seconds.

        `changes`: with the rows that changed since `version`; without them if the daemon does not know them any more.
        """
        body = await self._request(WatchQuery(daemon, version, wait, changes).encode(), wait)
        return parse_watch_reply(body, self._clock(), self.address)

    async def _ask(self, kind: type[R], query: queries.DaemonQuery | queries.HistoryQuery, name: str = "") -> R:
        """Return the daemon's reply, which has to be of the kind. Raises its refusal."""
        reply = queries.parse_daemon_reply(await self._request(query.encode()), self._clock(), self.address)
        if isinstance(reply, queries.RefusedReply):
            raise reply.error(name)
        if not isinstance(reply, kind):
            raise self._unexpected(reply)
        if (
            isinstance(reply, (queries.SnapshotReply, queries.ResolveReply))
            and reply.version < PROTOCOL_VERSION
            and not self._old
        ):
            self._old = True
            log.warning("discovery daemon at %s speaks version 1: priorities are read as 8", self.address)
        return reply

    async def _request(self, body: bytes, more: float = 0.0) -> bytes:
        if not self._checked:  # daemons without domains answer callers of any
            reply = await self._exchange(with_domain(WatchQuery().encode(), self._domain))
            if domain_of(reply) != self._domain:
                self._raise_refusal(reply)
                raise Broken(f"discovery daemon at {self.address}: {other_domain(domain_of(reply), self._domain)}")
            self._checked = True
        reply = await self._exchange(with_domain(body, self._domain), more)
        self._raise_refusal(reply)
        return reply

    def _raise_refusal(self, reply: bytes) -> None:
        """Raise Broken if the daemon refuses all callers of our domain."""
        if b"unavailable" in reply[:128]:
            refused = queries.parse_daemon_reply(reply, self._clock(), self.address)
            if isinstance(refused, queries.RefusedReply):
                raise refused.error()

    async def _exchange(self, body: bytes, more: float = 0.0) -> bytes:
        seconds = None if self.timeout is None else self.timeout + more
        try:
            return await self._server.request(body, seconds)
        except TimedOut as late:
            if not self._met:
                why = f"no discovery daemon answered within {seconds:g} s{told([self.address])}"
                raise Unreachable(self.address, why) from late
            raise TimedOut(f"{self.address}: no answer in {seconds:g} s{told([self.address])}", seconds) from late

    def _unexpected(self, reply: object) -> BadMessage:
        return BadMessage("daemon reply", f"unexpected {type(reply).__name__}", self.address)
