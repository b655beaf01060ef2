"""Resolver: a caller's view of the services, merged from several independent daemons and kept current.

::

    async with Resolver(["tcp://a:5556", "tcp://b:5556"]) as resolver:
        resolver.resolve("answer")              # immediate, from memory
        await resolver.find("answer", timeout=5)     # waits until there is a provider
        async for event in resolver.events(): ...

Changes arrive by long polling: each daemon is asked to reply with the changes once there are some (watch.py), and for
its snapshot at first, or after too many changes. So changes arrive as fast as by a push, no notification can be lost,
and there is no traffic without changes.
merged_view.py has the rules for daemons that disagree, restart or fail. Without any daemon, `resolve` continues with
the last known view.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, Self, TypeVar

import trio

from nngkit import tracing
from nngkit.background import Background, UnderTrio, WakeUp
from nngkit.chance import RandomSource
from nngkit.discovery._event_feed import EventFeed
from nngkit.discovery.client import DaemonClient
from nngkit.discovery.domains import check_domain
from nngkit.discovery.lanes import Suspects, make_preference
from nngkit.discovery.provider import Event, Key, Provider, State
from nngkit.discovery.questions.messages import AskQuery, make_ask
from nngkit.discovery.questions.round import OutcomeMerger
from nngkit.discovery.questions.values import AskResult, Outcome, Reserved, Until, make_result
from nngkit.discovery.questions.values import deadline as until_deadline
from nngkit.discovery.registry.merged_view import MergedView
from nngkit.discovery.registry.resolution import Resolution
from nngkit.discovery.settings import ClientSettings
from nngkit.discovery.watch import MAX_WAIT
from nngkit.errors import Broken, ConfigError, NngkitError, ServiceNotFound, TimedOut, Unreachable
from nngkit.headers import Headers
from nngkit.protocols import TLS, PeerEvent
from nngkit.trust import Choice, chosen

log = logging.getLogger("nngkit.discovery")

T = TypeVar("T")

WATCH: Final = 5.0
"""Seconds that a daemon may hold a watch open: a frozen daemon is distrusted after that and one `timeout`."""
PAUSE: Final = 0.02
"""Seconds between two fetches from one daemon, so that concurrent changes are fetched together."""
GATHER: Final = 0.005
"""Seconds between changes and the next request for some: a provider that flaps costs 200 requests a second at most."""
RETRY: Final = 0.5
"""Seconds to wait after an invalid reply, or one that came too soon."""

SLOW: Final = 0.25
"""Seconds after the end of a question that a daemon is still waited for, if another one has replied."""
DEFAULT_UNTIL: Final = until_deadline(1.0)


class Resolver(UnderTrio):
    """View of all providers, kept current from the daemons' query addresses. Use it with `async with`, under trio.

    daemons   query addresses; default: from the environment, and with them, unless given here, domain and certificates
    timeout   seconds for a reply of a daemon; None: for ever. Entering waits that long for the first daemon to reply
    prefer    zones in order, tried before all others, whatever the priorities; the default of `resolve` and `find`
    watch     seconds, see WATCH
    domain    daemons of another are used as little as unreachable ones

    Entering raises ConfigError for an invalid address. An unreachable daemon is no error; it is used once it is
    reachable.
    """

    def __init__(
        self,
        daemons: str | Iterable[str] | None = None,
        *,
        timeout: float = 1.0,
        prefer: str | Iterable[str] = (),
        watch: float = WATCH,
        domain: str = "",
        tls: TLS | None = None,
        trust: Choice | None = None,
        rng: RandomSource | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if daemons is None:
            settings = ClientSettings.from_environment()
            daemons, domain = settings.daemons, domain or settings.domain
            tls = settings.certificates.beside(tls, trust)
        self.daemons = (daemons,) if isinstance(daemons, str) else tuple(dict.fromkeys(daemons))
        if not self.daemons:
            raise ConfigError("daemons", "no daemon to ask", daemons)
        if not 0 < watch <= MAX_WAIT:
            raise ConfigError("watch", f"{watch!r} is not over 0 and up to {MAX_WAIT:g} seconds", watch)
        self._timeout = timeout
        self._preference = make_preference(prefer, (), "", "last")
        self._watch = watch
        self._domain = check_domain(domain)
        self._tls = tls
        self._trust = chosen(trust, tls)
        self._rng = rng or random.Random()
        self._clock = clock
        self._background = Background()
        self._clients: list[DaemonClient] = []

    async def __aenter__(self) -> Self:
        self._entering()
        self._views = MergedView(self.daemons)
        self._feed = EventFeed()
        self._first = trio.Event()
        self._viewed = WakeUp()
        try:
            for address in self.daemons:
                client = DaemonClient(
                    address,
                    timeout=self._timeout,
                    domain=self._domain,
                    tls=self._tls,
                    trust=self._trust,
                    clock=self._clock,
                )
                await client.__aenter__()
                self._clients.append(client)
            await self._background.open()
        except BaseException:
            await self._after_end()
            raise
        try:
            for client in self._clients:
                self._background.start(self._follow, client)
            self._background.start(self._forget)
            if (spans := tracing.spans) is None:
                await self._until_first()
            else:
                with spans.asking("discover", None) as asking:
                    await self._until_first()
                    providers = sum(map(len, self.snapshot().values()))
                    asking.found(asked=len(self.daemons), daemons=self.answering(), providers=providers)
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _until_first(self) -> None:
        with trio.move_on_after(float("inf") if self._timeout is None else self._timeout):
            await self._first.wait()

    async def _before_end(self) -> None:
        self._feed.end()

    async def _after_end(self) -> None:
        for client in self._clients:
            await client.__aexit__(None, None, None)

    # State

    def resolve(
        self,
        name: str,
        *,
        prefer: str | Iterable[str] | None = None,
        tags: str | Iterable[str] = (),
        version: str = "",
        suspects: Suspects = "last",
    ) -> Provider:
        """Return a provider of `name` from memory, at random in proportion to weight among those of the first rank.

        prefer    zones in order; None: the resolver's own
        tags      the provider must have all of them
        version   the provider's version must be this, or begin with it and a dot
        suspects  "last": suspect providers after all others. "near": a suspect in a preferred zone before other zones

        lanes.py has the ranks. Safe in any thread. Raises ServiceNotFound, ConfigError.
        """
        if prefer is None and not tags and not version and suspects == "last":
            return self._views.resolve(name, self._rng, self._preference)
        zones = self._preference.prefer if prefer is None else prefer
        return self._views.resolve(name, self._rng, make_preference(zones, tags, version, suspects))

    def resolution(
        self,
        name: str,
        *,
        prefer: str | Iterable[str] | None = None,
        tags: str | Iterable[str] = (),
        version: str = "",
        suspects: Suspects = "last",
    ) -> Resolution:
        """Return `resolve`'s choice with its reason, the age of the view and the daemons that say so."""
        zones = self._preference.prefer if prefer is None else prefer
        preference = make_preference(zones, tags, version, suspects)
        return self._views.resolution(name, self._rng, preference, now=self._clock())

    async def find(
        self,
        name: str,
        timeout: float | None = None,
        *,
        prefer: str | Iterable[str] | None = None,
        tags: str | Iterable[str] = (),
        version: str = "",
        suspects: Suspects = "last",
    ) -> Provider:
        """Return `resolve`'s choice, waiting up to `timeout` seconds (None: for ever) until there is a provider.

        Raises ServiceNotFound after `timeout` seconds, ConfigError.
        """
        options: dict[str, Any] = {"prefer": prefer, "tags": tags, "version": version, "suspects": suspects}
        choose = partial(self.resolve, name, **options)
        if (spans := tracing.spans) is None or self._feed.ended:
            return await self._until_found(choose, timeout)
        with suppress(ServiceNotFound):
            return choose()
        with spans.asking("resolve", name) as asking:
            found = await self._until_found(partial(self.resolution, name, **options), timeout)
            asking.found(daemons=found.daemons, provider=found.provider.address, reason=found.reason)
        return found.provider

    async def _until_found(self, choose: Callable[[], T], timeout: float | None) -> T:
        feed = self._feed
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            while not feed.ended:
                changes = feed.version
                try:
                    return choose()
                except ServiceNotFound:
                    await feed.wait(changes)
            raise self._background.ended("the resolver is closed")
        return choose()

    def snapshot(self) -> dict[str, frozenset[Provider]]:
        """Return the providers that `resolve` chooses from, by name."""
        return self._views.snapshot()

    async def ask(
        self,
        question: bytes | Reserved,
        name: str | None = None,
        *,
        until: Until = DEFAULT_UNTIL,
        headers: Headers | None = None,
    ) -> AskResult:
        """Have all daemons ask the providers of `name`, or of all services; see ServiceDiscovery.ask.

        A service that several daemons ask is asked once. Raises the error of a daemon only if none replies.
        """
        ask = make_ask(uuid.uuid4().hex, question, name, until, headers)
        started = time.monotonic()
        return make_result(await self._outcomes(ask), until, time.monotonic() - started)

    async def _outcomes(self, ask: AskQuery) -> tuple[Outcome, ...]:
        clients = [client for client in self._clients if self._views.answers(client.address)] or self._clients
        merged = OutcomeMerger(ask.count)
        replied = trio.Event()
        errors: list[NngkitError] = []

        async def one(client: DaemonClient) -> None:
            try:
                merged.add(await client.outcomes(ask))
            except NngkitError as error:
                errors.append(error)
            else:
                replied.set()
            if merged.enough:
                scope.cancel()

        async def late() -> None:
            await trio.sleep(ask.timeout + SLOW)
            await replied.wait()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            scope = nursery.cancel_scope
            async with trio.open_nursery() as asking:
                nursery.start_soon(late)
                for client in clients:
                    asking.start_soon(one, client)
            scope.cancel()
        if not replied.is_set():
            raise errors[0]
        return merged.outcomes()

    @property
    def fresh(self) -> bool:
        """True while a daemon answers; False while the view may be outdated."""
        return self._views.fresh

    def answers(self, daemon: str) -> bool:
        """Return True if the daemon at this address (one of `daemons`) answers."""
        return self._views.answers(daemon)

    def answering(self) -> tuple[str, ...]:
        """Return the addresses of the daemons that answer."""
        return tuple(filter(self._views.answers, self.daemons))

    def counts(self) -> dict[str, int]:
        """Return how many providers each daemon has last reported, those that are down left out, by address."""
        return self._views.counts()

    def differences(self, most: int = 100) -> dict[Key, dict[str, State | None]]:
        """Return providers on which daemons disagree: the state at each daemon that answers, None if it knows none.

        By the `key` of the provider, at most `most`. A daemon that is behind by a moment disagrees for that moment.
        """
        return self._views.differences(most)

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the current state (as events from `joining`), then each change, until closed.

        Concurrent changes of one provider may be merged into one event. Raises Full, see EventFeed.
        """
        key = self._feed.subscribe()
        async with aclosing(self._feed.follow(key, tuple(self._views.merged.values()))) as changes:
            async for event in changes:
                yield event

    # Following the daemons

    async def _follow(self, client: DaemonClient) -> None:
        """Follow one daemon for ever: wait for a change, fetch the snapshot, update the view."""
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
                    wait = self._watch if daemon else 0.0
                    state = await client.watch(daemon, version, wait=wait, changes=True)
                    known = state.daemon == daemon and self._views.answers(client.address)
                    if known and state.version == version:
                        self._views.confirmed(client.address, self._clock())
                    if known and state.version != version and state.changes is not None:
                        version = state.version
                        self._views.changed(client.address, state.changes.rows, state.changes.gone, self._clock())
                        self._update()
                        await trio.sleep(GATHER)
                    elif (state.daemon, state.version) != (daemon, version) or not self._views.answers(client.address):
                        changed = self._clock()
                        rows = await client.snapshot(everything=True)
                        daemon, version = state.daemon, state.version
                        self._views.saw(client.address, daemon, rows, self._clock())
                        self._update()
                        await trio.sleep(max(PAUSE, 2 * (self._clock() - changed)))  # long lists, longer pauses
                    elif self._clock() - asked < RETRY:
                        await trio.sleep(RETRY)  # it has too many watches to hold ours open
                except NngkitError as error:
                    self._silent(client, error)
                    daemon = ""  # fetch its state at once when it is back
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
        self._update()

    def _update(self) -> None:
        if self._views.fresh:
            self._first.set()
        self._viewed.wake()
        self._feed.publish(self._views.take_events())

    async def _forget(self) -> None:
        """Remove rows from before daemons' restarts when they expire."""
        while True:
            await self._viewed.wait()
            while (left := self._views.expire(self._clock())) is not None:
                self._feed.publish(self._views.take_events())
                await trio.sleep(max(left, 0.01))
            self._feed.publish(self._views.take_events())
