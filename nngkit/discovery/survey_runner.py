"""Surveys: one SURVEYOR socket and one Registry, and the rounds between them. The shell of `registry.py`.

One lock stands around the registry, because two kinds of threads feed it:

 * The thread that notices that a connection came or went (mostly one of NNG's) says so. That goes straight into the
   registry, not by way of the event loop: a provider that was killed leaves `resolve` within milliseconds, also while
   the loop is busy.
 * The loop's tasks bring replies. A round is two surveys, CBOR and then the article's text form; each is a task that
   feeds the registry as replies come in, and stays for those that come late, until 8 newer rounds have ended.

Nothing but registry calls happens under the lock, so threads wait microseconds for it, and never in a circle.
May not know: when a round is due.
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
from nngkit.discovery._event_feed import Changes
from nngkit.discovery.liveness import Round, RoundEnd
from nngkit.discovery.messages import FLAG_REASK, FLAG_TEXT, TEXT_QUERY, Query
from nngkit.discovery.provider import Reason, State
from nngkit.discovery.registry import Registry
from nngkit.errors import Broken, Closed, NngkitError, TimedOut
from nngkit.protocols import TLS, PeerEvent, Pipe, Reply, Survey, Surveyor

__all__ = ["Surveys"]

log = logging.getLogger("nngkit.discovery")

REPLY_SIZE: Final = 128 * 1024  # twice what a reply may have: a mistake is counted, only abuse costs the connection
LATE_ROUNDS: Final = 8  # ended rounds that still take replies; each costs two tasks
FLOOD: Final = (
    16_384  # replies of one connection to one survey, or 256 bytes of them: 1,024 services behind it say less
)
LATE_WAKE: Final = 0.05  # seconds behind a deadline after which it was us who slept, NNG's threads perhaps with us


@dataclass(eq=False)
class _Asking:
    """A round as its tasks know it. `surveys`: CBOR, then text. `done`: no need to wait any longer."""

    round: Round
    early: bool
    done: trio.Event = field(default_factory=trio.Event)
    surveys: list[Survey] = field(default_factory=list)
    late: trio.CancelScope = field(default_factory=trio.CancelScope)
    weight: Counter[int] = field(default_factory=Counter)  # of what each connection has said

    def end(self) -> None:
        """No reply is wanted any more."""
        self.late.cancel()
        for survey in self.surveys:
            survey.close()


class Surveys:
    """Made inside trio. `registry` is read and written with `lock` held, by anybody; `changes` gets its events.

    id           of who asks, in its queries
    text         send the article's text query too
    background   where its tasks live
    on_peers     called in the loop after connections came or went
    """

    def __init__(
        self,
        registry: Registry,
        *,
        id: str,
        text: bool,
        background: Background,
        on_peers: Callable[[], object],
        clock: Callable[[], float],
        tls: TLS | None = None,
        admit: Callable[[Pipe], bool] | None = None,
    ) -> None:
        self.registry = registry
        self.lock = threading.Lock()
        self.changes = Changes()
        self.socket = Surveyor(name="discovery", recv_max_size=REPLY_SIZE, tls=tls, admit=admit)
        self._id = id
        self._text = text
        self._background = background
        self._on_peers = on_peers
        self._clock = clock
        self._token = trio.lowlevel.current_trio_token()
        self._under_way: set[_Asking] = set()
        self._ended: deque[_Asking] = deque()
        self.cut = 0  # connections that were ended because they flooded us
        self._old = False  # whether a service has answered in an older version
        self._leaving: set[int] = set()  # connections on which somebody has said good-bye
        self._unfollow = self.socket.on_peer(self._peer)  # before anybody can connect

    def connect(self, listen: Iterable[str], dial: Iterable[str]) -> None:
        """Listen and dial. Raises ConfigError, Unreachable."""
        for url in listen:
            self.socket.listen(url)
        for url in dial:
            self.socket.dial(url)

    def close(self) -> None:
        """Close the socket; rounds under way raise Closed, followers of `changes` end."""
        self._unfollow()  # what is lost from now on is our own doing
        self.socket.close(0.0)
        self.changes.end()
        for asking in self._under_way:
            asking.done.set()

    # Rounds

    async def round(self, *, early: bool, deadline: float, reask: bool = False) -> RoundEnd:
        """One round, from its questions to its verdict, after `deadline` seconds or `early`. Raises Closed.

        Cancelled, the replies that came count, and nobody's silence does.
        """
        with self.lock:
            this = self.registry.start_round(self._clock(), reask=reask)
        asking = _Asking(this, early)
        self._under_way.add(asking)
        try:
            return await self._ask_and_judge(asking, deadline)
        finally:
            self._under_way.discard(asking)
            self._ended.append(asking)
            if len(self._ended) > LATE_ROUNDS:
                self._ended.popleft().end()

    async def _ask_and_judge(self, asking: _Asking, deadline: float) -> RoundEnd:
        this = asking.round
        flags = {FLAG_TEXT} if self._text else set()
        query = Query(self._id, this.number, frozenset(flags | ({FLAG_REASK} if this.reask else set())))
        for body in (query.encode(), TEXT_QUERY) if self._text else (query.encode(),):
            try:
                asking.surveys.append(await self.socket.astart(body, timeout=None))
            except (TimedOut, Broken) as error:
                log.warning("a survey could not be sent: %s", error)
        self._background.start(self._collect, asking)
        # From here, not from the round's start: what the loop was kept busy in between is not taken from the services.
        ends = trio.current_time() + deadline
        self._look(asking)
        with trio.move_on_at(ends):
            await asking.done.wait()
        if self.socket.closed:
            raise _closed()
        if trio.current_time() - ends > LATE_WAKE:
            await trio.sleep(LATE_WAKE)  # stopped with us, NNG's threads get a moment to read what lies there
        for survey in asking.surveys:
            self._feed(
                asking, survey, survey.fresh()
            )  # what has come meanwhile: our own stall must not look like silence
        with self.lock:
            end = self.registry.end_round(this, self._clock())
            self.changes.note(end.events)
        self._disconnect(end.silent_pipes)  # silent for as long as it takes to be down: they may be half open
        return end

    async def _collect(self, asking: _Asking) -> None:
        """Take replies as they come, the late ones too, until nobody wants them any more."""

        async def replies_to(survey: Survey) -> None:
            with contextlib.suppress(Closed):
                async for reply in survey:
                    self._feed(asking, survey, [reply])

        with asking.late:
            async with trio.open_nursery() as nursery:
                for survey in asking.surveys:
                    nursery.start_soon(replies_to, survey)

    def _feed(self, asking: _Asking, survey: Survey, replies: Iterable[Reply]) -> None:
        # Who connects between the two surveys is asked in text alone, whatever it speaks, so its answer to that says
        # too little. Its own round is due anyway.
        everybody = survey is not asking.surveys[-1] or not self._text
        for reply in replies:
            if reply.pipe is not None and (everybody or reply.pipe.id in asking.round.asked):
                with self.lock:
                    events = self.registry.reply(reply.pipe.id, asking.round, reply.body, self._clock())
                    self.changes.note(events)
                    old = self.registry.older
                if old and not self._old:
                    self._old = True
                    log.warning("service at %s speaks version 1: its priority is read as 8", reply.pipe.address)
                before = asking.weight[reply.pipe.id]
                asking.weight[reply.pipe.id] = after = before + 1 + len(reply.body) // 256
                if before <= FLOOD < after:  # the registry refuses more long before; this keeps the loop free of it
                    self.cut += self.socket.disconnect(reply.pipe)
                if any(event.reason is Reason.BYE for event in events):
                    self._leaving.add(reply.pipe.id)
                    self._token.run_sync_soon(self._hang_up, idempotent=True)
        self._look(asking)

    def _look(self, asking: _Asking) -> None:
        """Everybody may have answered."""
        if not asking.early or asking.done.is_set():
            return
        with self.lock:
            complete = self.registry.complete(asking.round)
        if complete:
            asking.done.set()

    def _hang_up(self) -> None:
        """Let go of connections all of whose providers have said good-bye: that it was heard, they see by this."""
        leaving, self._leaving = self._leaving, set()
        with self.lock:
            rows = self.registry.view(self._clock())
        for row in rows:
            if row.state is not State.DOWN and row.reason is not Reason.BYE:
                leaving.difference_update(row.pipes)
        self._disconnect(leaving)

    def _disconnect(self, numbers: Collection[int]) -> None:
        if numbers:
            for pipe in self.socket.pipes:
                if pipe.id in numbers:
                    with contextlib.suppress(NngkitError):
                        self.socket.disconnect(pipe)

    # Connections

    def _peer(self, event: PeerEvent) -> None:
        # On the thread that noticed, mostly one of NNG's: nothing here may wait for the loop.
        with self.lock:
            if event.kind == "joined":
                self.changes.note(self.registry.pipe_joined(event.pipe.id, self._clock()))
            else:
                self.changes.note(self.registry.pipe_left(event.pipe.id, self._clock()))
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._peers_changed, idempotent=True)

    def _peers_changed(self) -> None:
        self._on_peers()
        for asking in self._under_way:
            self._look(asking)


def _closed() -> Closed:
    return Closed("the discovery is closed")
