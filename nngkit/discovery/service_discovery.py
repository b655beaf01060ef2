"""ServiceDiscovery: surveys for providers, collects replies until the deadline, and resolves names.

::

    async with ServiceDiscovery(listen="tcp://0.0.0.0:5555", deadline=0.5, interval=2.0) as discovery:
        await discovery.discover()              # {name: frozenset[Provider]}
        discovery.resolve("answer")             # one of them, at random
        async for event in discovery.events(): ...

Rounds run when `discover` is called; with `interval=`, in the background with that pause between them; immediately for
connections that no round has asked yet (while rounds run at all); and once more after a round that some have missed.
survey_runner.py runs a round. Knows nothing about a command's output.
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final, Self

import trio

from nngkit import tracing
from nngkit.background import Background, UnderTrio, WakeUp
from nngkit.chance import RandomSource
from nngkit.discovery.domains import check_domain
from nngkit.discovery.lanes import Preference, Suspects, find_lane, make_preference
from nngkit.discovery.offers import Offers
from nngkit.discovery.provider import Event, Provider, RoundFigures, Status, check_id
from nngkit.discovery.queries import (
    PAGE,
    DaemonQuery,
    DaemonReply,
    ResolveQuery,
    ResolveReply,
    RoundsReply,
    answer_query,
)
from nngkit.discovery.questions.asking import Asking
from nngkit.discovery.questions.messages import AskQuery, make_ask
from nngkit.discovery.questions.round import MAX_TOTAL
from nngkit.discovery.questions.tracing import trace_ask
from nngkit.discovery.questions.values import AskResult, Outcome, Reserved, Until, make_result
from nngkit.discovery.questions.values import deadline as until_deadline
from nngkit.discovery.registry.liveness import LivenessRules, RegistryLimits, RoundResult
from nngkit.discovery.registry.registry import Registry
from nngkit.discovery.registry.resolution import Resolution, give_reason
from nngkit.discovery.survey_runner import COST, SurveyRunner
from nngkit.discovery.watch import Changes, WatchReply
from nngkit.errors import Closed, ConfigError
from nngkit.headers import Headers
from nngkit.instruments import ByCode, ByKind, Instrument
from nngkit.protocols import DEFAULT, TLS, Default, Pipe, Stats, Timeout
from nngkit.release import __version__
from nngkit.trust import Choice, Trust, chosen
from nngkit.trust.rights import own_id

log = logging.getLogger("nngkit.discovery")

ROUNDS: Final = 8  # cap on rounds in progress, more wait their turn: the registry accepts replies to the 16 newest
NEW_ROUNDS: Final = 4  # and on additional rounds for new connections
GATHER: Final = 0.02  # seconds, so that connections made at the same time share a round
DEFAULT_UNTIL: Final = until_deadline(1.0)
SHORTEST: Final = 0.01  # minimum pause in seconds, also for `interval=0`: without services a round takes no time


@dataclass(frozen=True, slots=True)
class DiscoveryStats:
    """Counters of a ServiceDiscovery, and its providers at present. `socket`: counters of the survey socket."""

    counters: ByKind
    """Replies and refusals by kind (registry.py's COUNTERS), questions and their answers (question_round.py's
    COUNTERS), and connections: "pipes joined", "pipes left", "pipes refused" (by `admit`), "pipes cut" (for
    flooding)."""
    socket: Stats
    refused: ByCode = field(default_factory=dict)
    """Records of members that may not state them, by code: "binding", "right"; among the counters too, as "refused:
    binding"."""
    providers: Annotated[Mapping[str, int], Instrument("gauge", label="state")] = field(default_factory=dict)
    """Providers by state."""
    up: Annotated[Mapping[str, int], Instrument("gauge", label="service")] = field(default_factory=dict)
    """Providers that are up, by service."""


class ServiceDiscovery(UnderTrio):
    """Surveys all connected services and keeps a view of them. Use it with `async with`, under trio.

    listen, dial   addresses of the survey socket; services dial in, so `listen` is the usual one
    deadline       seconds that a round waits for replies
    interval       seconds of pause between rounds in the background; None: rounds run only when `discover` is called
    early          background rounds end once every connection has answered, instead of at the deadline
    text           send the article's text query too
    id             of this daemon, sent in its queries; default: new at every start. Under a trust its name, or an
                   instance of it
    domain         services of another are counted ("other domain") and not shown; the article's are of the default one
    on_round       called with the figures of each round at its end, in the loop; must not block
    rules, limits  of the registry; tls, trust, admit as for every socket; rng and clock are for tests

    Entering raises ConfigError for an invalid value or address, Unreachable if it cannot listen.
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
        domain: str = "",
        on_round: Callable[[RoundFigures], object] | None = None,
        rules: LivenessRules | None = None,
        limits: RegistryLimits | None = None,
        tls: TLS | None = None,
        trust: Choice | None = None,
        admit: Callable[[Pipe], bool] | None = None,
        rng: RandomSource | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.deadline = _seconds("deadline", deadline)
        self.interval = None if interval is None else _seconds("interval", interval)
        self._trust = chosen(trust, tls)
        try:
            own = own_id(self._trust, id, instance=True) if isinstance(self._trust, Trust) else id or uuid.uuid4().hex
            self.id = check_id(own)
        except ValueError as error:
            raise ConfigError("id", str(error), id) from error
        self._listen = _several(listen)
        self._dial = _several(dial)
        self._early = early
        self.domain = check_domain(domain)
        self._text = text and not self.domain
        self._on_round = on_round
        self._tls = tls
        self._admit = admit
        self._rng = rng or random.Random()
        self._clock = clock
        self._offers = Offers(self._trust)
        self._registry = Registry(
            rules=rules,
            limits=limits,
            domain=self.domain,
            admission=None if self._offers.rights.trust is None else self._offers,
        )
        self._discovering = 0
        self._background = Background()

    # Lifecycle

    async def __aenter__(self) -> Self:
        self._entering()
        self._joined = WakeUp()
        self._rounds = trio.Semaphore(ROUNDS)
        self._new_rounds = trio.Semaphore(NEW_ROUNDS)
        self._surveys = surveys = SurveyRunner(
            self._registry,
            id=self.id,
            text=self._text,
            domain=self.domain,
            offers=self._offers,
            every=None if self.interval is None else max(self.interval, SHORTEST) + self.deadline,
            background=self._background,
            on_peers=self._joined.wake,
            clock=self._clock,
            tls=self._tls,
            trust=self._trust,
            admit=self._admit,
        )
        self._asking = Asking(surveys, id=self.id, domain=self.domain, grace=self.deadline)
        try:
            surveys.connect(self._listen, self._dial)
            await self._background.open()
        except BaseException:
            surveys.close()
            raise
        self._background.start(self._survey_new_connections)
        if self.interval is not None:
            self._background.start(self._run, self.interval)
        return self

    async def _before_end(self) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close before the block ends: waiting calls raise Closed, `events` iterations end. Idempotent."""
        self._background.end()
        self._surveys.close()
        await trio.lowlevel.checkpoint()

    @property
    def address(self) -> str:
        """First address bound. Raises ConfigError if there is none."""
        return self._surveys.socket.address

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses bound."""
        return self._surveys.socket.addresses

    @property
    def stats(self) -> DiscoveryStats:
        """Counters of replies and connections, and of the survey socket."""
        stats = self._surveys.socket.stats
        with self._surveys.lock:
            counters = dict(self._registry.counters)
            states, up = self._registry.counts()
        connections = {"joined": stats.joined, "left": stats.left, "refused": stats.refused, "cut": self._surveys.cut}
        counters |= self._asking.counters | {f"pipes {kind}": count for kind, count in connections.items()}
        refused = dict(self._offers.rights.refusals)
        return DiscoveryStats(
            counters | {f"refused: {code}": n for code, n in refused.items()}, stats, refused, states, up
        )

    async def wait_for_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until `n` services are connected. Raises TimedOut, Closed."""
        await self._surveys.socket.await_for_peers(n, timeout)

    # State

    def resolve(
        self,
        name: str,
        *,
        prefer: str | Iterable[str] = (),
        tags: str | Iterable[str] = (),
        version: str = "",
        suspects: Suspects = "last",
    ) -> Provider:
        """Return a provider of `name`, at random in proportion to weight among those of the first rank (lanes.py).

        prefer: zones in order. tags, version: the provider must have them; version "2" accepts "2.1". Any thread may
        call. Raises ServiceNotFound, ConfigError.
        """
        preference = make_preference(prefer, tags, version, suspects)
        with self._surveys.lock:
            return self._registry.resolve(name, self._rng, preference)

    def resolution(
        self,
        name: str,
        *,
        prefer: str | Iterable[str] = (),
        tags: str | Iterable[str] = (),
        version: str = "",
        suspects: Suspects = "last",
    ) -> Resolution:
        """Return `resolve`'s choice with its reason. The age is that of the provider's last reply."""
        preference = make_preference(prefer, tags, version, suspects)
        with self._surveys.lock:
            provider = self._registry.resolve(name, self._rng, preference)
        return self._explain(provider, preference)

    def _explain(self, provider: Provider, preference: Preference) -> Resolution:
        with self._surveys.lock:
            rows = {row.provider.key: row for row in self._registry.named(provider.name)}
        row, now = rows.get(provider.key), self._clock()
        lane = find_lane(rows.values(), preference)
        return Resolution(
            provider=provider,
            age=max(0.0, now - (now if row is None or row.last_reply is None else row.last_reply)),
            reason=give_reason(provider, row, preference, 1 if lane is None else len(lane.providers)),
            daemons=(self.id,),
            fresh=True,
        )

    def snapshot(self) -> dict[str, frozenset[Provider]]:
        """Return the providers that `resolve` chooses from, by name, without names that have none."""
        with self._surveys.lock:
            return dict(self._registry.snapshot(self._clock()))

    def view(self) -> tuple[Status, ...]:
        """Return all known providers, down and draining included; times are on `clock`."""
        with self._surveys.lock:
            return self._registry.view(self._clock())

    @property
    def rounds(self) -> tuple[RoundFigures, ...]:
        """Figures of the last 64 rounds, oldest first."""
        with self._surveys.lock:
            return self._registry.figures

    @property
    def version(self) -> int:
        """Number of changes so far."""
        return self._surveys.feed.version

    def answer(self, query: DaemonQuery) -> DaemonReply:
        """Return a daemon's reply to a query (see queries.py)."""
        if (spans := tracing.spans) is None or not isinstance(query, ResolveQuery):
            return self._answer(query)
        with spans.answering("resolve", query.name, query.headers) as answering:
            reply = self._answer(query)
            if isinstance(reply, ResolveReply):
                reason = self._explain(reply.provider, query.preference).reason
                answering.found(provider=reply.provider.address, reason=reason)
        return reply

    def _answer(self, query: DaemonQuery) -> DaemonReply:
        with self._surveys.lock:
            reply = answer_query(self._registry, query, self.id, self._rng, self._clock())
        if isinstance(reply, RoundsReply):
            counters = self.stats.counters
            return RoundsReply(reply.daemon, reply.rounds, counters, reply.silent, __version__, time.time())
        return reply

    def changes(self, since: int) -> WatchReply:
        """Return a daemon's reply to a watch: the rows that changed after change `since`, if they are known."""
        with self._surveys.lock:
            found = self._registry.changes(since, PAGE)
            if found is None:
                return WatchReply(self.id, self._registry.version)
            return WatchReply(self.id, found[0], Changes(*found[1:]))

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the current state (as events from `joining`; without providers that are down), then each change.

        Ends when closed. Event.time is on `clock`. Raises Full with over 65,536 events unread; a new call starts again.
        """
        with self._surveys.lock:
            key = self._surveys.feed.subscribe()
            view = self._registry.view(self._clock())
        async with aclosing(self._surveys.feed.follow(key, view)) as changes:
            async for event in changes:
                yield event

    async def wait_for_change(self, version: int) -> None:
        """Wait until there were more than `version` changes. May return early: check the condition and call again."""
        await self._surveys.feed.wait(version)

    def wake(self) -> None:
        """Wake all callers of `wait_for_change`, to check another condition. On any thread."""
        self._surveys.feed.wake()

    def now(self) -> float:
        """Return the current time of `clock`."""
        return self._clock()

    # Questions

    async def ask(
        self,
        question: bytes | Reserved,
        name: str | None = None,
        *,
        until: Until = DEFAULT_UNTIL,
        headers: Headers | None = None,
    ) -> AskResult:
        """Ask the providers of `name`, of all services without one; return their answers and the providers asked.

        question   bytes, at most 60 KiB, that the services' `on_question` answers; or PING, INFO, STATS
        headers    metadata beside it: `Question.headers`; they count as bytes of the question
        until      `deadline(seconds)`, `first(n, timeout=)` or `bids(n, timeout=)`; default: deadline(1.0)

        Returns early once no answer is left to wait for; without services connected, at once. Services that connect
        meanwhile are not asked. Calls may overlap. If cancelled, later answers are dropped. Raises Closed, ConfigError,
        TooLarge.
        """
        ask = make_ask(uuid.uuid4().hex, question, name, until, headers)
        started = time.monotonic()
        return make_result(await self.outcomes(ask), until, time.monotonic() - started)

    async def outcomes(self, ask: AskQuery, limit: int = MAX_TOTAL) -> tuple[Outcome, ...]:
        """Ask, and return what became of it for each provider: a daemon's side of `ask`. Raises Closed, TooLarge."""
        with self._surveys.lock:
            unasked = self._registry.unasked
        if unasked:  # their providers are not known yet
            self._background.start(self._in_background, self._new_rounds)
        return await trace_ask(partial(self._asking.outcomes, limit=limit), ask)

    # Rounds

    async def discover(self, *, early: bool = False, deadline: Timeout = DEFAULT) -> dict[str, frozenset[Provider]]:
        """Survey all connected services; return the `snapshot` after `deadline` seconds.

        `deadline`: DEFAULT is this object's own, None waits for ever. `early`: return once every connection has
        answered, unless one is a relay; without connections, return at once. Replies count as they arrive. Services
        that connect meanwhile are surveyed too. Silent providers are surveyed once more after the return. If cancelled,
        received replies count, and misses do not. Raises Closed.
        """
        if isinstance(deadline, Default):
            deadline = self.deadline
        seconds = float("inf") if deadline is None else deadline
        if (spans := tracing.spans) is None:
            await self._discover(early, seconds)
            return self.snapshot()
        with spans.asking("discover", None) as asking:
            figures = await self._discover(early, seconds)
            found = self.snapshot()
            providers = sum(map(len, found.values()))
            asking.found(asked=figures.asked, answered=figures.answered, providers=providers)
        return found

    async def _discover(self, early: bool, seconds: float) -> RoundFigures:
        self._discovering += 1
        try:
            async with self._rounds:
                end = await self._one_round(early=early, deadline=seconds)
        finally:
            self._discovering -= 1
        if end.ask_again:
            self._background.start(self._in_background, self._rounds, True)
        return end.figures

    async def _run(self, interval: float) -> None:
        while True:
            end = await self._in_background(self._rounds)
            if end is not None and end.ask_again:
                await self._in_background(self._rounds, True)
            await trio.sleep(max(interval, SHORTEST))

    async def _survey_new_connections(self) -> None:
        """Survey new connections at once: a service is found when it connects, not an interval later."""
        while True:
            await self._joined.wait()
            await trio.sleep(GATHER)
            self._joined.clear()
            with self._surveys.lock:
                unasked = self._registry.unasked
            if unasked and (self.interval is not None or self._discovering):
                async with self._new_rounds:
                    pass  # wait while too many are in progress: later connections then share a round
                self._background.start(self._in_background, self._new_rounds)
                await trio.sleep(COST * unasked)

    async def _one_round(
        self, *, early: bool, deadline: float, reask: bool = False, new: bool = False, paced: bool = False
    ) -> RoundResult:
        end = await self._surveys.round(early=early, deadline=deadline, reask=reask, new=new, paced=paced)
        if self._on_round is not None:
            try:
                self._on_round(end.figures)
            except Exception:
                log.exception("on_round failed")
        return end

    async def _in_background(self, turns: trio.Semaphore, reask: bool = False) -> RoundResult | None:
        with contextlib.suppress(Closed):
            async with turns:
                new = turns is self._new_rounds
                return await self._one_round(
                    early=self._early, deadline=self.deadline, reask=reask, new=new, paced=True
                )
        return None


def _seconds(what: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e6:
        raise ConfigError(what, f"{value!r} is not a number of seconds", value)
    return float(value)


def _several(value: str | Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
