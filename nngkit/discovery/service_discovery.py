"""ServiceDiscovery: asks who is there, collects until the deadline, and knows whom to call.

::

    async with ServiceDiscovery(listen="tcp://0.0.0.0:5555", deadline=0.5, interval=2.0) as discovery:
        await discovery.discover()              # {name: frozenset[Provider]}
        discovery.resolve("answer")             # one of them, at random
        async for event in discovery.events(): ...

When rounds happen: when `discover` is called; with `interval=`, in the background with that pause between them; at once
for connections that no round has asked yet (while there are rounds at all); and once more after a round that some have
missed. How a round goes is in surveys.py. May not know: how a command prints.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from types import TracebackType
from typing import Final, Self

import trio

from nngkit.background import Background, UnderTrio
from nngkit.discovery.liveness import Chance, Limits, RoundEnd, Rules
from nngkit.discovery.provider import Event, Provider, RoundFigures, State, Status, check_id
from nngkit.discovery.queries import Answer, Ask, Rounds, answer
from nngkit.discovery.registry import Registry
from nngkit.discovery.survey_runner import Surveys
from nngkit.errors import Closed, ConfigError
from nngkit.protocols import TLS, Pipe, Stats

__all__ = ["ServiceDiscovery"]

log = logging.getLogger("nngkit.discovery")

ROUNDS: Final = 8  # rounds under way at once, more wait their turn: the registry judges the 16 newest
GREETINGS: Final = 4  # and those for new connections beside them
GATHER: Final = 0.02  # seconds in which connections that come together are asked together
COST: Final = 0.0005  # seconds between such rounds for each connection: they take a tenth of a core, not all of it
SHORTEST: Final = 0.01  # seconds of pause, also for `interval=0`: with nobody there a round takes no time at all


class ServiceDiscovery(UnderTrio):
    """Surveys all who connect, and keeps a view of who is there. Use it with `async with`, under trio.

    listen, dial   addresses to survey at; services dial in, so `listen` is the usual one
    deadline       seconds that a round waits for replies
    interval       seconds of pause between rounds in the background; None: asks only when `discover` is called
    early          rounds in the background end once every connection has answered, instead of at the deadline
    text           ask in the article's text form too
    id             of this daemon, in what it sends; the default is new at every start
    on_round       called with the figures of each round at its end, in the loop; must not block
    rules, limits  of the registry; tls, admit as for every socket; rng and clock are for tests

    Entering raises ConfigError for a value or address that cannot be used, Unreachable where it cannot listen.
    """

    def __init__(
        self,
        *,
        listen: str | Iterable[str] | None = None,
        dial: str | Iterable[str] | None = None,
        deadline: float = 0.5,
        interval: float | None = None,
        early: bool = True,
        text: bool = True,
        id: str | None = None,
        on_round: Callable[[RoundFigures], object] | None = None,
        rules: Rules | None = None,
        limits: Limits | None = None,
        tls: TLS | None = None,
        admit: Callable[[Pipe], bool] | None = None,
        rng: Chance | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.deadline = _seconds("deadline", deadline)
        self.interval = None if interval is None else _seconds("interval", interval)
        try:
            self.id = check_id(id or uuid.uuid4().hex)
        except ValueError as error:
            raise ConfigError("id", str(error), id) from error
        self._listen = _several(listen)
        self._dial = _several(dial)
        self._early = early
        self._text = text
        self._on_round = on_round
        self._tls = tls
        self._admit = admit
        self._rng = rng or random.Random()
        self._clock = clock
        self._registry = Registry(rules=rules, limits=limits)
        self._discovering = 0
        self._background = Background()

    # Life

    async def __aenter__(self) -> Self:
        self._entering()
        self._joined = trio.Event()
        self._rounds = trio.Semaphore(ROUNDS)
        self._greetings = trio.Semaphore(GREETINGS)
        self._surveys = surveys = Surveys(
            self._registry,
            id=self.id,
            text=self._text,
            background=self._background,
            on_peers=self._peers_changed,
            clock=self._clock,
            tls=self._tls,
            admit=self._admit,
        )
        try:
            surveys.connect(self._listen, self._dial)
            await self._background.open()
        except BaseException:
            surveys.close()
            raise
        self._background.start(self._greet)
        if self.interval is not None:
            self._background.start(self._run, self.interval)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()
        await self._background.close(kind, value, traceback)

    async def aclose(self) -> None:
        """Close before the block ends: what waits raises Closed, followers end. Again is harmless."""
        self._end()
        await trio.lowlevel.checkpoint()

    def _end(self) -> None:
        self._background.end()
        self._surveys.close()

    @property
    def address(self) -> str:
        """The first address bound. Raises ConfigError if there is none."""
        return self._surveys.socket.address

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses bound."""
        return self._surveys.socket.addresses

    @property
    def stats(self) -> Stats:
        """The survey socket's counters."""
        return self._surveys.socket.stats

    async def await_for_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until `n` services are connected. Raises TimedOut, Closed."""
        await self._surveys.socket.await_for_peers(n, timeout)

    def _peers_changed(self) -> None:
        self._joined.set()

    # What is known

    def resolve(self, name: str, zone: str = "") -> Provider:
        """One provider of `name` at random: of `zone` if any is there, then the lowest priority, then by weight.

        Of those that are up, or if there is none, of the suspects. Raises ServiceNotFound. Any thread may call it.
        """
        with self._surveys.lock:
            return self._registry.resolve(name, self._rng, zone)

    def snapshot(self) -> dict[str, frozenset[Provider]]:
        """What `resolve` chooses from, by name. A name without anybody is not in it."""
        with self._surveys.lock:
            return dict(self._registry.snapshot(self._clock()))

    def view(self) -> tuple[Status, ...]:
        """Everything that is known, those down and draining included; times are on `clock`."""
        with self._surveys.lock:
            return self._registry.view(self._clock())

    @property
    def counts(self) -> dict[str, int]:
        """What came in and what of it was refused, by kind; and connections: joined, left, refused by `admit`,
        cut for flooding us."""
        stats = self._surveys.socket.stats
        with self._surveys.lock:
            counts = dict(self._registry.counts)
        connections = {"joined": stats.joined, "left": stats.left, "refused": stats.refused, "cut": self._surveys.cut}
        return counts | {f"pipes {what}": count for what, count in connections.items()}

    @property
    def rounds(self) -> tuple[RoundFigures, ...]:
        """The figures of the last 64 rounds, oldest first."""
        with self._surveys.lock:
            return self._registry.figures

    @property
    def version(self) -> int:
        """Counts the changes so far."""
        return self._surveys.changes.version

    def answer(self, ask: Ask) -> Answer:
        """What a daemon says to a question (see queries.py)."""
        with self._surveys.lock:
            said = answer(self._registry, ask, self.id, self._rng, self._clock())
        if isinstance(said, Rounds):
            return Rounds(said.daemon, said.rounds, self.counts, said.silent)
        return said

    async def events(self) -> AsyncGenerator[Event, None]:
        """What is there (as events from `joining`; nobody down), then each change, until this is closed.

        Event.time is on `clock`. Raises Full if the caller leaves 65,536 of them unread; a new call begins anew.
        """
        with self._surveys.lock:
            key = self._surveys.changes.subscribe()
            view = self._registry.view(self._clock())
        async with aclosing(self._surveys.changes.follow(key)) as changes:
            for row in view:
                if row.state is not State.DOWN:
                    name = row.provider.name
                    yield Event(name, row.provider, State.JOINING, row.state, row.reason, row.since, row.round)
            async for event in changes:
                yield event

    async def wait_for_change(self, version: int) -> None:
        """Return when `version` is not the newest any more. It may also return for nothing: look, and call again."""
        await self._surveys.changes.wait(version)

    def wake(self) -> None:
        """Have `wait_for_change` return everywhere, so that who waits can look at something else; from any thread."""
        self._surveys.changes.ring()

    def now(self) -> float:
        """The time on this one's clock, which all its times are on."""
        return self._clock()

    # Asking

    async def discover(self, *, early: bool = False, deadline: float | None = None) -> dict[str, frozenset[Provider]]:
        """Ask all who are connected; return the `snapshot` after `deadline` seconds (left out: as this was told).

        Replies count as they come in, not at the end. Who connects meanwhile is asked too. `early`: return once every
        connection asked has answered and none has said that it relays for others; at once if nobody is connected.
        A provider that kept silent is asked once more after this has returned. Cancelled, the replies that came count,
        and nobody's silence does. Raises Closed.
        """
        self._discovering += 1
        try:
            async with self._rounds:
                end = await self._one_round(early=early, deadline=self.deadline if deadline is None else deadline)
        finally:
            self._discovering -= 1
        if end.ask_again:
            self._background.start(self._in_background, self._rounds, True)
        return self.snapshot()

    async def _run(self, interval: float) -> None:
        while True:
            end = await self._in_background(self._rounds)
            if end is not None and end.ask_again:
                await self._in_background(self._rounds, True)
            await trio.sleep(max(interval, SHORTEST))

    async def _greet(self) -> None:
        """Ask at once those whom no round has asked: a service is found when it connects, not an interval later."""
        while True:
            await self._joined.wait()
            await trio.sleep(GATHER)
            self._joined = trio.Event()
            with self._surveys.lock:
                unasked = self._registry.unasked
            if unasked and (self.interval is not None or self._discovering):
                async with self._greetings:
                    pass  # not while so many are under way: those who come meanwhile are asked together
                self._background.start(self._in_background, self._greetings)
                await trio.sleep(COST * len(self._surveys.socket.pipes))

    async def _one_round(self, *, early: bool, deadline: float, reask: bool = False) -> RoundEnd:
        end = await self._surveys.round(early=early, deadline=deadline, reask=reask)
        if self._on_round is not None:
            try:
                self._on_round(end.figures)
            except Exception:
                log.exception("on_round failed")
        return end

    async def _in_background(self, turns: trio.Semaphore, reask: bool = False) -> RoundEnd | None:
        with contextlib.suppress(Closed):
            async with turns:
                return await self._one_round(early=self._early, deadline=self.deadline, reask=reask)
        return None


def _seconds(what: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e6:
        raise ConfigError(what, f"{value!r} is not a number of seconds", value)
    return float(value)


def _several(value: str | Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
