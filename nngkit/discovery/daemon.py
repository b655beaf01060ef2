"""Daemon: surveys periodically, and answers callers. What `nngkit discoverd` runs, and any program may.

::

    settings = DaemonSettings.from_environment()
    async with Daemon(settings) as daemon:
        print(daemon.discovery.addresses, daemon.query_addresses)
        await daemon.run(on_event=print)        # until cancelled

Two sockets: a SURVEYOR for the services (service_discovery.py) and a REP for callers (queries.py, watch.py). Daemons
know nothing of each other; run several, and have the services dial all of them.

`on_event` and `on_round` are the door for what comes later (a journal, a page): called in the loop, they must not wait.
May not know: how a command prints.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from types import TracebackType
from typing import Final, Self

import trio

from nngkit.background import Background, UnderTrio
from nngkit.discovery.provider import PROTOCOL_VERSION, Event, RoundFigures
from nngkit.discovery.queries import AskRounds, Refused, parse_ask
from nngkit.discovery.service_discovery import ServiceDiscovery
from nngkit.discovery.settings import DaemonSettings, query_address
from nngkit.discovery.watch import AskWatch, Changed, parse_ask_watch
from nngkit.envelope import CONTROL_LIMIT
from nngkit.errors import BadMessage, NngkitError, TooLarge
from nngkit.protocols import TLS, PeerEvent, Rep, Request

__all__ = ["Daemon"]

log = logging.getLogger("nngkit.discovery")

ANSWERING: Final = 4096  # requests open at once; what comes above that is not answered, and counted
WATCHES: Final = 8  # of one connection that are kept waiting; more are answered at once
SERVED: Final = 2048  # and of all connections


class Daemon(UnderTrio):
    """A discovery daemon; use it with `async with`, under trio. It surveys and answers from then on.

    on_round   called with each round's figures, in the loop
    tls        for both sockets; the default is that of the settings' certificates
    id         see ServiceDiscovery

    Entering raises ConfigError for an address that is none, Unreachable for one that cannot be listened on.
    """

    def __init__(
        self,
        settings: DaemonSettings | None = None,
        *,
        on_round: Callable[[RoundFigures], object] | None = None,
        tls: TLS | None = None,
        id: str | None = None,
    ) -> None:
        self.settings = settings or DaemonSettings()
        tls = self.settings.certificates.tls if tls is None else tls
        self.discovery = ServiceDiscovery(
            listen=self.settings.listen,
            deadline=self.settings.deadline,
            interval=self.settings.interval,
            text=self.settings.text,
            id=id,
            on_round=on_round,
            tls=tls,
        )
        self.counts: Counter[str] = Counter()
        self._old = False  # whether a caller of an older version has asked
        self._tls = tls
        self._watching: Counter[int] = Counter()
        self._background = Background()

    async def __aenter__(self) -> Self:
        self._entering()
        await self.discovery.__aenter__()
        try:
            # A request is a control message: this bounds what a crowd of callers can make us hold.
            self._rep = Rep(name="discovery queries", recv_max_size=CONTROL_LIMIT, tls=self._tls, linger=0.2)
            try:
                self._rep.on_peer(self._peer)
                for url in self.settings.query or [query_address(url) for url in self.settings.listen]:
                    self._rep.listen(url)
                await self._background.open()
            except BaseException:
                self._rep.close(0.0)
                raise
        except BaseException:
            await self.discovery.__aexit__(None, None, None)
            raise
        self._background.start(self._serve)
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
        """Where it surveys."""
        return self.discovery.addresses

    @property
    def query_addresses(self) -> tuple[str, ...]:
        """Where callers ask."""
        return self._rep.addresses

    async def run(self, on_event: Callable[[Event], object] | None = None) -> None:
        """Stay until cancelled, and call `on_event` for each change, in the loop. Raises Full, see `events`."""
        async with aclosing(self.discovery.events()) as events:
            async for event in events:
                if on_event is not None:
                    try:
                        on_event(event)
                    except Exception:
                        log.exception("on_event failed")

    # Callers

    async def _serve(self) -> None:
        open_now = 0

        async def answer(request: Request) -> None:
            nonlocal open_now
            try:
                await request.areply(await self._answer(request))
            except NngkitError as error:  # closed, or the caller has gone
                log.debug("not answered: %s", error)
            finally:
                open_now -= 1

        async for request in self._rep:
            if open_now >= ANSWERING:
                self.counts["unanswered"] += 1
                continue
            open_now += 1
            self._background.start(answer, request)

    async def _answer(self, request: Request) -> bytes:
        peer = request.pipe.address if request.pipe else None
        self.counts["requests"] += 1
        if (watch := parse_ask_watch(request.body, peer)) is not None:
            return await self._watch(watch, request)
        try:
            ask = parse_ask(request.body, peer)
        except (BadMessage, TooLarge) as error:
            self.counts["bad requests"] += 1
            return Refused(self.discovery.id, "bad message", str(error)).encode()
        if not isinstance(ask, AskRounds) and ask.speaks < PROTOCOL_VERSION and not self._old:
            self._old = True
            log.warning("caller at %s speaks version 1: it is not told priorities", peer)
        return self.discovery.answer(ask).encode(self.discovery.now())

    async def _watch(self, ask: AskWatch, request: Request) -> bytes:
        discovery = self.discovery
        pipe = request.pipe.id if request.pipe else 0
        if self._watching[pipe] < WATCHES and self._watching.total() < SERVED:
            self._watching[pipe] += 1
            try:
                with trio.move_on_after(ask.wait):
                    while (ask.daemon, ask.version) == (discovery.id, discovery.version):
                        await discovery.wait_for_change(ask.version)
                        if all(here.id != pipe for here in self._rep.pipes):
                            break  # nobody waits any more
            finally:
                self._watching[pipe] -= 1
                if not self._watching[pipe]:
                    del self._watching[pipe]
        return Changed(discovery.id, discovery.version).encode()

    def _peer(self, event: PeerEvent) -> None:
        if event.kind == "left":  # on any thread
            self.discovery.wake()
