"""Discovery daemon: surveys periodically and answers callers. `nngkit discoverd` runs it, and any program may.

::

    settings = DaemonSettings.from_environment()
    async with Daemon(settings) as daemon:
        print(daemon.discovery.addresses, daemon.query_addresses)
        await daemon.run(on_event=print)        # until cancelled

It has two sockets: a SURVEYOR for services (service_discovery.py) and a REP for callers (queries.py, watch.py). Daemons
are independent of each other: run several, and have the services dial all of them.

The callbacks `on_event` and `on_round` feed a journal or a page. They run in the loop and must not wait.
Knows nothing about a command's output.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, Self

import trio

from nngkit.background import Background, UnderTrio
from nngkit.discovery._ask_desk import AskDesk
from nngkit.discovery._watch_desk import WatchDesk
from nngkit.discovery.domains import domain_of, other_domain
from nngkit.discovery.history import Change, History
from nngkit.discovery.provider import PROTOCOL_VERSION, Event, RoundFigures
from nngkit.discovery.queries import (
    NO_HISTORY,
    ChangeRecord,
    HistoryQuery,
    HistoryReply,
    RefusedReply,
    RoundsQuery,
    SnapshotQuery,
    parse_daemon_query,
)
from nngkit.discovery.questions.messages import is_ask_query
from nngkit.discovery.service_discovery import DiscoveryStats, ServiceDiscovery
from nngkit.discovery.settings import DaemonSettings, query_address
from nngkit.discovery.watch import parse_watch_query
from nngkit.envelope import CONTROL_LIMIT
from nngkit.errors import BadMessage, Closed, ConfigError, Full, NngkitError, TooLarge
from nngkit.instruments import Gauge, Total
from nngkit.protocols import TLS, PeerEvent, Rep, Request, Stats
from nngkit.protocols.own_host import check_guarded
from nngkit.trust import OPEN, Choice, chosen

log = logging.getLogger("nngkit.discovery")

GATHER: Final = 0.001  # seconds, so that watchers that were answered together are read together
STORE: Final = 0.5  # seconds between two additions to the history
COUNTERS: Final = ("requests", "bad_requests", "snapshots", "unanswered", "other_domain")
ANSWERING: Final = 4096  # cap on open requests; requests above it are left unanswered and counted


@dataclass(frozen=True, slots=True)
class DaemonStats:
    """Counters of a daemon. `discovery`: those of its surveys; `socket`: of its query socket."""

    requests: Total
    """Requests of callers."""
    bad_requests: Total
    """Requests that could not be read."""
    snapshots: Total
    """Whole views sent to callers."""
    unanswered: Total
    """Requests left unanswered, as too many were open."""
    other_domain: Total
    """Requests of callers of another domain."""
    watching: Gauge
    """Requests that wait for a change."""
    discovery: DiscoveryStats
    socket: Stats


class Daemon(UnderTrio):
    """Discovery daemon; use it with `async with`, under trio. It surveys services and answers queries inside the block.

    on_round   called with each round's figures, in the loop
    tls        for both sockets; default: the certificates of `settings`
    trust      for both sockets: a Trust, or OPEN; default: NNGKIT_TRUST
    history    keeps the changes, and is read for callers; the daemon does not close it
    id         see ServiceDiscovery

    Raises ConfigError for a listener that other machines can reach, without a trust or certificates of them. Entering
    raises it for an invalid address, and Unreachable for one that cannot be listened on.
    """

    def __init__(
        self,
        settings: DaemonSettings | None = None,
        *,
        on_round: Callable[[RoundFigures], object] | None = None,
        tls: TLS | None = None,
        trust: Choice | None = None,
        history: History | None = None,
        id: str | None = None,
    ) -> None:
        self.settings = settings or DaemonSettings()
        tls = self.settings.certificates.beside(tls, trust)
        trust = chosen(trust, tls)
        if trust is None and self.settings.open:
            trust = OPEN
        self._query = self.settings.query or tuple(query_address(url) for url in self.settings.listen)
        check_guarded((*self.settings.listen, *self._query), trust, tls)
        self.discovery = ServiceDiscovery(
            listen=self.settings.listen,
            deadline=self.settings.deadline,
            interval=self.settings.interval,
            text=self.settings.text,
            id=id,
            domain=self.settings.domain,
            on_round=on_round,
            tls=tls,
            trust=trust,
        )
        self._counters = dict.fromkeys(COUNTERS, 0)
        self._old = False  # True once a caller of an older version has asked
        self._tls = tls
        self._trust = trust
        self._history = history
        self._background = Background()

    async def __aenter__(self) -> Self:
        self._entering()
        await self.discovery.__aenter__()
        try:
            # A request is a control message; the limit bounds the memory that many callers can use.
            self._rep = Rep(
                name="discovery queries", recv_max_size=CONTROL_LIMIT, tls=self._tls, trust=self._trust, linger=0.2
            )
            try:
                self._rep.on_peer(self._peer)
                for url in self._query:
                    self._rep.listen(url)
                await self._background.open()
            except BaseException:
                self._rep.close(0.0)
                raise
        except BaseException:
            await self.discovery.__aexit__(None, None, None)
            raise
        self._desk = AskDesk(self.discovery, self._background)
        self._watches = WatchDesk(self.discovery, self._rep)
        self._background.start(self._watches.run)
        self._background.start(self._serve)
        if self._history is not None:
            self._background.start(self._keep, self._history)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._rep.close(0.0)
            await self._background.close(kind, value, traceback)
        finally:
            await self.discovery.__aexit__(kind, value, traceback)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses for services (the survey socket)."""
        return self.discovery.addresses

    @property
    def query_addresses(self) -> tuple[str, ...]:
        """Addresses for callers (the query socket)."""
        return self._rep.addresses

    @property
    def watching(self) -> int:
        """Number of callers' requests that wait for a change."""
        return len(self._watches)

    @property
    def stats(self) -> DaemonStats:
        """Counters of requests, and of surveys with the providers at present."""
        return DaemonStats(
            **self._counters,
            watching=self.watching,
            discovery=self.discovery.stats,
            socket=self._rep.stats,
        )

    async def run(self, on_event: Callable[[Event], object] | None = None) -> None:
        """Run until cancelled, calling `on_event` in the loop for each change. Raises Full, see `events`."""
        async with aclosing(self.discovery.events()) as events:
            async for event in events:
                if on_event is not None:
                    try:
                        on_event(event)
                    except Exception:
                        log.exception("on_event failed")
        if (failure := self._background.failure) is not None:
            raise failure

    async def _keep(self, history: History) -> None:
        """Store the changes, those of a moment together. What cannot be stored is logged once, and left out."""
        failed = ""
        changes: list[Change] = []

        def note(event: Event) -> None:
            changes.append(_change(event, time.time() - self.discovery.now()))

        async def follow() -> None:
            while True:
                with contextlib.suppress(Full):  # it begins again, with the present state
                    async with aclosing(self.discovery.events()) as events:
                        async for event in events:
                            note(event)
                    return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            try:
                while True:
                    await trio.sleep(STORE)
                    if not changes:
                        continue
                    count = len(changes)
                    try:
                        await trio.to_thread.run_sync(history.add, changes[:count])
                        failed = ""
                    except ConfigError as wrong:
                        if str(wrong) != failed:
                            failed = str(wrong)
                            log.warning("changes are not kept: %s", failed)
                    del changes[:count]  # not before: if no thread is free at the end, they are stored below
            finally:
                with contextlib.suppress(ConfigError):
                    history.add(changes)  # at the end, not in a thread: nothing waits for this loop any more

    # Callers

    async def _serve(self) -> None:
        open_now = 0

        async def answer(request: Request) -> None:
            nonlocal open_now
            try:
                await request.areply(await self._answer(request))
            except NngkitError as error:  # closed, or the caller has disconnected
                log.debug("not answered: %s", error)
            finally:
                open_now -= 1

        domain = self.discovery.domain
        with contextlib.suppress(Closed):
            while True:
                for request in await self._rep.arecv_many():
                    if domain_of(request.body) == domain and (watch := parse_watch_query(request.body)) is not None:
                        self._counters["requests"] += 1
                        self._watches.add(watch, request)  # without a task: there are thousands, and most wait
                    elif open_now >= ANSWERING:
                        self._counters["unanswered"] += 1
                    else:
                        open_now += 1
                        self._background.start(answer, request)
                await trio.sleep(GATHER)

    async def _answer(self, request: Request) -> bytes:
        peer = request.pipe.address if request.pipe else None
        self._counters["requests"] += 1
        ours = self.discovery.domain
        if (theirs := domain_of(request.body)) != ours:
            self._counters["other_domain"] += 1
            return RefusedReply(self.discovery.id, "unavailable", other_domain(ours, theirs)).encode()
        if is_ask_query(request.body):
            asked = await self._desk.answer(request.body, request.pipe.id if request.pipe else 0, peer)
            if asked is not None:
                return asked
        try:
            query = parse_daemon_query(request.body, peer)
        except (BadMessage, TooLarge) as error:
            self._counters["bad_requests"] += 1
            return RefusedReply(self.discovery.id, "bad message", str(error)).encode()
        if isinstance(query, HistoryQuery):
            return (await self._past(query)).encode()
        if not isinstance(query, RoundsQuery) and query.speaks < PROTOCOL_VERSION and not self._old:
            self._old = True
            log.warning("caller at %s speaks version 1: priorities are left out of its replies", peer)
        if isinstance(query, SnapshotQuery):
            self._counters["snapshots"] += query.after is None
        return self.discovery.answer(query).encode(self.discovery.now())

    async def _past(self, query: HistoryQuery) -> HistoryReply | RefusedReply:
        if self._history is None:
            return RefusedReply(self.discovery.id, "unavailable", NO_HISTORY)
        now = time.time()
        try:
            read = partial(self._history.read, now - query.age, query.name, query.after)
            changes, after = await trio.to_thread.run_sync(read)
        except ConfigError as wrong:
            return RefusedReply(self.discovery.id, "unavailable", str(wrong))
        rows = tuple(ChangeRecord(max(0.0, now - each.at), *each[1:]) for each in changes)
        return HistoryReply(self.discovery.id, rows, after)

    def _peer(self, event: PeerEvent) -> None:
        if event.kind == "left":  # on any thread
            self.discovery.wake()


def _change(event: Event, wall: float) -> Change:
    old, new, reason = event.old.value, event.new.value, event.reason.value
    return Change(event.time + wall, event.name, event.provider.address, event.provider.id, old, new, reason)
