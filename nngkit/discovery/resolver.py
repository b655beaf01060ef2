"""Resolver: a caller's view of who is there, from several independent daemons, kept current while it is open.

::

    async with Resolver(["tcp://a:5556", "tcp://b:5556"]) as resolver:
        resolver.resolve("answer")              # at once, from what is known
        await resolver.find("answer", timeout=5)     # waits for one that is not there yet
        async for event in resolver.events(): ...

How it is told of changes: each daemon is asked to answer when something has changed (watch.py), and then for its
snapshot. So a change arrives as fast as a push, yet nothing is pushed that could be lost, and there is no polling while
nothing happens. views.py says what is believed when daemons disagree, restart or vanish; with all of them gone,
`resolve` goes on with what was seen last.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Final, Self

import trio

from nngkit.background import Background, UnderTrio
from nngkit.discovery._event_feed import Changes
from nngkit.discovery.client import DaemonClient
from nngkit.discovery.liveness import Chance
from nngkit.discovery.merged_view import Views
from nngkit.discovery.provider import Event, Provider, State
from nngkit.discovery.watch import MAX_WAIT
from nngkit.errors import Broken, ConfigError, NngkitError, ServiceNotFound, TimedOut, Unreachable
from nngkit.protocols import TLS, PeerEvent

__all__ = ["Resolver"]

log = logging.getLogger("nngkit.discovery")

WATCH: Final = 5.0
"""Seconds a daemon may keep a watch open: a daemon that is frozen is not believed after that and one `timeout`."""
PAUSE: Final = 0.02
"""Seconds between two fetches from one daemon: changes that come together are fetched together."""
RETRY: Final = 0.5
"""Seconds after an answer that makes no sense, or one that came too soon."""


class Resolver(UnderTrio):
    """Knows who can be called, from the daemons' query addresses. Use it with `async with`, under trio.

    timeout   seconds for one answer of a daemon; entering waits so long at most, for the first daemon to answer
    zone      of the caller: a provider of it is taken first, whatever its priority
    watch     seconds, see WATCH

    Entering raises ConfigError for an address that is none; a daemon that is not there is no error, it may come later.
    """

    def __init__(
        self,
        daemons: str | Iterable[str],
        *,
        timeout: float = 1.0,
        zone: str = "",
        watch: float = WATCH,
        tls: TLS | None = None,
        rng: Chance | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.daemons = (daemons,) if isinstance(daemons, str) else tuple(dict.fromkeys(daemons))
        if not self.daemons:
            raise ConfigError("daemons", "no daemon to ask", daemons)
        if not 0 < watch <= MAX_WAIT:
            raise ConfigError("watch", f"{watch!r} is not over 0 and up to {MAX_WAIT:g} seconds", watch)
        self._timeout = timeout
        self._zone = zone
        self._watch = watch
        self._tls = tls
        self._rng = rng or random.Random()
        self._clock = clock
        self._background = Background()
        self._clients: list[DaemonClient] = []

    async def __aenter__(self) -> Self:
        self._entering()
        self._views = Views(self.daemons)
        self._changes = Changes()
        self._first = trio.Event()
        self._memory = trio.Event()
        try:
            for address in self.daemons:
                client = DaemonClient(address, timeout=self._timeout, tls=self._tls, clock=self._clock)
                await client.__aenter__()
                self._clients.append(client)
            await self._background.open()
        except BaseException:
            await self._hang_up()
            raise
        for client in self._clients:
            self._background.start(self._follow, client)
        self._background.start(self._forget)
        with trio.move_on_after(self._timeout):
            await self._first.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._changes.end()
        try:
            await self._background.close(kind, value, traceback)
        finally:
            await self._hang_up()

    async def _hang_up(self) -> None:
        for client in self._clients:
            await client.__aexit__(None, None, None)

    # What is known

    def resolve(self, name: str, zone: str | None = None) -> Provider:
        """One provider of `name`, from what is known now; any thread may call it. Raises ServiceNotFound."""
        return self._views.resolve(name, self._rng, self._zone if zone is None else zone)

    async def find(self, name: str, timeout: float | None = None, zone: str | None = None) -> Provider:
        """`resolve`, waiting up to `timeout` seconds for a provider to come. Raises ServiceNotFound after that."""
        changes = self._changes
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            while not changes.ended:
                version = changes.version
                try:
                    return self.resolve(name, zone)
                except ServiceNotFound:
                    await changes.wait(version)
        return self.resolve(name, zone)

    def snapshot(self) -> dict[str, frozenset[Provider]]:
        """What `resolve` chooses from, by name."""
        return self._views.snapshot()

    @property
    def fresh(self) -> bool:
        """Whether a daemon stands behind what is known, or it is only what was seen last."""
        return self._views.fresh

    def answers(self, daemon: str) -> bool:
        """Whether the daemon at this address (one of `daemons`) does."""
        return self._views.answers(daemon)

    async def events(self) -> AsyncGenerator[Event, None]:
        """What is known (as events from `joining`), then each change, until this is closed. Raises Full, see Changes.

        Several changes of one provider that come together may be seen as one.
        """
        key = self._changes.subscribe()
        known = tuple(self._views.merged.values())
        async with aclosing(self._changes.follow(key)) as changes:
            for row in known:
                name = row.provider.name
                yield Event(name, row.provider, State.JOINING, row.state, row.reason, row.since, row.round)
            async for event in changes:
                yield event

    # Following

    async def _follow(self, client: DaemonClient) -> None:
        """One daemon, for ever: wait for a change, fetch, tell."""
        token = trio.lowlevel.current_trio_token()

        def peer(event: PeerEvent) -> None:  # on any thread
            if event.kind == "left":
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(self._lost, client)

        end = client.on_connection(peer)
        daemon, version = "", 0
        try:
            while True:
                asked = self._clock()
                try:
                    state = await client.watch(daemon, version, wait=self._watch if daemon else 0.0)
                    if (state.daemon, state.version) != (daemon, version) or not self._views.answers(client.address):
                        changed = self._clock()
                        rows = await client.snapshot(everything=True)
                        daemon, version = state.daemon, state.version
                        self._views.saw(client.address, daemon, rows, self._clock())
                        self._told()
                        await trio.sleep(max(PAUSE, 2 * (self._clock() - changed)))  # long lists, longer pauses
                    elif self._clock() - asked < RETRY:
                        await trio.sleep(RETRY)  # it has too many callers to keep us waiting
                except NngkitError as error:
                    self._silent(client, error)
                    daemon = ""  # ask for its state at once when it is back
                    waited = isinstance(error, (TimedOut, Unreachable))
                    await trio.sleep(PAUSE if waited else RETRY)
        finally:
            end()

    def _lost(self, client: DaemonClient) -> None:
        if not client.connected:
            self._silent(client, Broken(f"{client.address}: connection lost"))

    def _silent(self, client: DaemonClient, error: Exception) -> None:
        if self._views.answers(client.address):
            log.info("discovery daemon does not answer: %s", error)
        self._views.silent(client.address, self._clock())
        self._told()

    def _told(self) -> None:
        if self._views.fresh:
            self._first.set()
        self._memory.set()
        self._changes.note(self._views.take_events())

    async def _forget(self) -> None:
        """Let go of what restarted daemons' predecessors saw, when its time is over."""
        while True:
            await self._memory.wait()
            self._memory = trio.Event()
            while (left := self._views.expire(self._clock())) is not None:
                self._changes.note(self._views.take_events())
                await trio.sleep(max(left, 0.01))
            self._changes.note(self._views.take_events())
