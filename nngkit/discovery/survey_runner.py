"""Rounds of surveys on one SURVEYOR socket, and the registry they feed. The shell of `registry.py`.

One lock protects the registry, because two kinds of threads feed it:

 * The thread that notices a connection or its loss (mostly one of NNG's) enters it into the registry directly, without
   the event loop: a provider that was killed leaves `resolve` within milliseconds, even while the loop is busy.
 * The loop's tasks bring replies. A round is two surveys, CBOR and then the article's text form; this to the
   connections that have not answered in CBOR. A task for each feeds the registry as replies arrive, and accepts late
   ones until 8 newer rounds have ended.

Only registry calls happen under the lock, so threads hold it for microseconds and cannot deadlock.
Does not decide when a round is due.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

import trio

from nngkit.background import Background
from nngkit.discovery._event_feed import EventFeed
from nngkit.discovery.messages import FLAG_REASK, FLAG_TEXT, TEXT_QUERY, SurveyQuery
from nngkit.discovery.offers import Offers
from nngkit.discovery.provider import Reason
from nngkit.discovery.registry.liveness import Round, RoundResult
from nngkit.discovery.registry.registry import Registry
from nngkit.errors import Broken, Closed, NngkitError, TimedOut
from nngkit.log_lines import LogLines
from nngkit.protocols import TLS, PeerEvent, Pipe, Reply, Survey, Surveyor
from nngkit.trust import Choice

log = logging.getLogger("nngkit.discovery")

REPLY_SIZE: Final = 128 * 1024  # twice a reply's limit: mistakes are counted, only abuse costs the connection
LATE_ROUNDS: Final = 8  # ended rounds that still accept replies; each costs two tasks
FLOOD: Final = (
    16_384  # replies of one connection to one survey, or 256 bytes of them: 1,024 services behind it send less
)
PART: Final = 64  # connections that a paced round asks at a time, or a 32nd of them
COST: Final = 0.0005  # seconds of pause for each connection asked: a round takes a part of a core, not all
TURN: Final = 8  # replies read in one turn of the loop, about half a millisecond
LATE_WAKE: Final = 0.05  # seconds past a deadline after which our process was stalled, perhaps with NNG's threads


@dataclass(eq=False)
class _RunningRound:
    """A round in progress. `surveys`: those of each part, CBOR, then text if it may have replies; `late`: the tasks
    that read their replies, until it is `over`. `done`: set when waiting may end.
    """

    round: Round
    early: bool
    done: trio.Event = field(default_factory=trio.Event)
    surveys: list[Survey] = field(default_factory=list)
    late: list[trio.CancelScope] = field(default_factory=list)
    over: bool = False
    weight: Counter[int] = field(default_factory=Counter)  # replies of each connection, by number and size

    def end(self) -> None:
        """Accept no more replies."""
        self.over = True
        for scope in self.late:
            scope.cancel()
        for survey in self.surveys:
            survey.close()


class SurveyRunner:
    """Runs the rounds. Create it inside trio. Access `registry` with `lock` held only; `feed` gets its events.

    id           of the surveying daemon, sent in its queries
    text         send the article's text query too
    domain       sent in its queries
    offers       what the connections may state; `registry` has it too
    every        seconds between its rounds at most, sent in its queries; None: it surveys when it is told to
    background   runs its tasks
    on_peers     called in the loop after connections were made or lost
    """

    def __init__(
        self,
        registry: Registry,
        *,
        id: str,
        text: bool,
        domain: str = "",
        offers: Offers,
        every: float | None = None,
        background: Background,
        on_peers: Callable[[], object],
        clock: Callable[[], float],
        tls: TLS | None = None,
        trust: Choice | None = None,
        admit: Callable[[Pipe], bool] | None = None,
    ) -> None:
        self.registry = registry
        self.lock = threading.Lock()
        self.feed = EventFeed()
        self.socket = Surveyor(name="discovery", recv_max_size=REPLY_SIZE, tls=tls, trust=trust, admit=admit)
        self._id = id
        self._text = text
        self._domain = domain
        self._offers = offers
        self._every = every
        self._background = background
        self._on_peers = on_peers
        self._clock = clock
        self._token = trio.lowlevel.current_trio_token()
        self._in_progress: set[_RunningRound] = set()
        self._ended: deque[_RunningRound] = deque()
        self.cut = 0  # connections that were closed for flooding
        self._old = False  # True once a service has answered in an older version
        self._leaving: set[int] = set()  # connections with a goodbye
        self._log_lines = LogLines()
        self._unfollow = self.socket.on_peer(self._peer)  # before any peer can connect

    def connect(self, listen: Iterable[str], dial: Iterable[str]) -> None:
        """Listen and dial. Raises ConfigError, Unreachable."""
        for url in listen:
            self.socket.listen(url)
        for url in dial:
            self.socket.dial(url)

    def close(self) -> None:
        """Close the socket. Rounds in progress raise Closed; followers of `feed` end."""
        self._unfollow()  # losses from now on are our own doing
        self.socket.close(0.0)
        self.feed.end()
        for running in self._in_progress:
            running.done.set()

    # Rounds

    async def round(
        self, *, early: bool, deadline: float, reask: bool = False, new: bool = False, paced: bool = False
    ) -> RoundResult:
        """Run one round from its queries to its result, for `deadline` seconds or until complete if `early`.

        new: ask only the connections that no round has asked yet, so that one that joins costs the others nothing.
        paced: ask many connections in parts, so that their replies do not hold up lost connections and callers; the
        deadline starts with the last part.

        When cancelled, the replies received count, and no misses do. Raises Closed.
        """
        with self.lock:
            self._review()
            this = self.registry.start_round(self._clock(), reask=reask, new=new)
        running = _RunningRound(this, early)
        self._in_progress.add(running)
        try:
            return await self._run_round(running, deadline, new=new, paced=paced)
        finally:
            self._in_progress.discard(running)
            self._ended.append(running)
            if len(self._ended) > LATE_ROUNDS:
                self._ended.popleft().end()

    async def _run_round(self, running: _RunningRound, deadline: float, *, new: bool, paced: bool) -> RoundResult:
        this = running.round
        for number, part in enumerate(_parts(this.asked) if paced else (this.asked,)):
            if number:
                await trio.sleep(COST * len(part))
            await self._send(running, part if paced or new else None)
        # The deadline starts here, after the loop's own delays, so that they do not shorten the services' time.
        ends = trio.current_time() + deadline
        self._end_if_complete(running)
        with trio.move_on_at(ends):
            await running.done.wait()
        if self.socket.closed:
            raise _closed()
        if trio.current_time() - ends > LATE_WAKE:
            await trio.sleep(LATE_WAKE)  # NNG's threads may have been stalled too: let them read what has arrived
        for survey in running.surveys:
            self._feed(running, survey.fresh())  # replies that arrived during our own stall are no misses
        with self.lock:
            end = self.registry.end_round(this, self._clock())
            self.feed.publish(end.events)
        self._disconnect(end.silent_pipes)  # silent for 8 surveys: they may be half open
        return end

    async def _send(self, running: _RunningRound, to: Collection[int] | None) -> None:
        """Send the round's queries to some connections, to all without `to`, and start to read the replies."""
        this = running.round
        flags = {FLAG_TEXT} if self._text else set()
        flags |= {FLAG_REASK} if this.reask else set()
        query = SurveyQuery(self._id, this.number, frozenset(flags), domain=self._domain, every=self._every)
        queries = [(query.encode(), to)]
        if self._text:
            with self.lock:
                texts = self.registry.text_pipes(this)
            # A service that has answered in CBOR is silent on the text query; and a peer that connects between the two
            # is asked in neither form: it gets a round of its own.
            texts = texts if to is None else texts.intersection(to)
            queries += [(TEXT_QUERY, texts)] if texts else []
        for body, pipes in queries:
            try:
                survey = await self.socket.astart(body, timeout=None, to=pipes)
            except (TimedOut, Broken) as error:
                log.warning("a survey could not be sent: %s", error)
            else:
                running.surveys.append(survey)
                self._background.start(self._collect, running, survey)

    async def _collect(self, running: _RunningRound, survey: Survey) -> None:
        """Feed replies as they arrive, late ones included, until the round accepts no more."""
        with trio.CancelScope() as scope, contextlib.suppress(Closed):
            running.late.append(scope)
            if running.over:
                return
            count = 0
            async with contextlib.aclosing(aiter(survey)) as replies:
                async for reply in replies:
                    self._feed(running, [reply])
                    count += 1
                    if count % TURN == 0:  # a burst: callers must not wait for all of it
                        await trio.lowlevel.checkpoint()

    def _feed(self, running: _RunningRound, replies: Iterable[Reply]) -> None:
        for reply in replies:
            if reply.pipe is not None:
                now = self._clock()
                with self.lock:
                    self._review()
                    refused = self.registry.foreign[0]
                    events = self.registry.reply(
                        reply.pipe.id, running.round, reply.body, now, reply.elapsed, reply.pipe.who
                    )
                    self.feed.publish(events)
                    old = self.registry.older
                    foreign, name = self.registry.foreign
                if foreign != refused:
                    self._log(
                        f"{reply.pipe.address} states {name!r} as another connection does: refused, as are its other"
                        " records of this kind",
                        now,
                    )
                if old and not self._old:
                    self._old = True
                    log.warning("service at %s speaks version 1: its priority is read as 8", reply.pipe.address)
                before = running.weight[reply.pipe.id]
                running.weight[reply.pipe.id] = after = before + 1 + len(reply.body) // 256
                if before <= FLOOD < after:  # the registry refuses far less; this keeps the loop free
                    self.cut += self.socket.disconnect(reply.pipe)
                if any(event.reason is Reason.BYE for event in events):
                    self._leaving.add(reply.pipe.id)
                    self._token.run_sync_soon(self._disconnect_leaving, idempotent=True)
        self._end_if_complete(running)

    def _review(self) -> None:
        """Drop what a new policy does not admit. Under the lock."""
        if self._offers.changed():
            self.feed.publish(self.registry.review(self._clock()))

    def _log(self, line: str, now: float) -> None:
        if (said := self._log_lines.add(line, now)) is not None:
            log.warning(said)

    def _end_if_complete(self, running: _RunningRound) -> None:
        """End the wait if the round is complete."""
        if not running.early or running.done.is_set():
            return
        with self.lock:
            complete = self.registry.complete(running.round)
        if complete:
            running.done.set()

    def _disconnect_leaving(self) -> None:
        """Disconnect where all providers have said goodbye: that tells them that it was received."""
        leaving, self._leaving = self._leaving, set()
        with self.lock:
            over = self.registry.over(leaving)
        self._disconnect(over)

    def _disconnect(self, numbers: Collection[int]) -> None:
        if numbers:
            for pipe in self.socket.pipes:
                if pipe.id in numbers:
                    with contextlib.suppress(NngkitError):
                        self.socket.disconnect(pipe)

    # Connections

    def _peer(self, event: PeerEvent) -> None:
        # Runs on the thread that noticed, mostly one of NNG's: nothing here may wait for the loop.
        with self.lock:
            if event.kind == "joined":
                self.feed.publish(self.registry.pipe_joined(event.pipe.id, self._clock(), event.pipe.who))
            else:
                self.feed.publish(self.registry.pipe_left(event.pipe.id, self._clock()))
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._peers_changed, idempotent=True)

    def _peers_changed(self) -> None:
        self._on_peers()
        for running in self._in_progress:
            self._end_if_complete(running)


def _parts(pipes: Collection[int]) -> Iterable[frozenset[int]]:
    size = max(PART, len(pipes) // 32 + 1)
    ordered = sorted(pipes)
    return (
        (frozenset(ordered[start : start + size]) for start in range(0, len(ordered), size))
        if ordered
        else (frozenset(),)
    )


def _closed() -> Closed:
    return Closed("the discovery is closed")
