"""Service: announces one provider to every daemon by answering surveys. A RESPONDENT that dials all daemons.

::

    async with Service("answer", "tcp://10.0.0.7:9000", discovery=["tcp://daemon:5555"]) as service:
        ...                         # serve callers at that address
        service.update(weight=50)   # reaches the daemons at once
        service.drain()             # accept no new callers

A service only ever replies. A CBOR query gets the whole record. The article's text query gets `name|address`, except on
a connection that has carried a CBOR query: a daemon that sends both reads the CBOR reply.

A daemon that surveys periodically says how often. A service that hears none of its surveys for three times as long
ends the connection and dials again, as the network may have lost it (nngkit.redial).

Under a trust its id is its own name or an instance of it, and it answers daemons that call themselves by theirs.

A change or a goodbye cannot wait for the next query, so it is sent as one more reply to each daemon's newest query. A
daemon that receives a goodbye disconnects. A daemon that never asked, or is too busy, notices the end of the
connection instead: as soon, but without the reason. Knows nothing about the service's own protocol.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Self
from urllib.parse import urlsplit

import trio

from nngkit.background import Background, UnderTrio, WakeUp
from nngkit.discovery import _sigterm
from nngkit.discovery.domains import check_domain
from nngkit.discovery.messages import SurveyReply, TextReply, parse_survey_query
from nngkit.discovery.offers import CARRY
from nngkit.discovery.provider import PRIORITY, PROTOCOL_VERSION, Provider, short_name
from nngkit.discovery.questions.answering import Answering, OnQuestion
from nngkit.discovery.questions.messages import is_question
from nngkit.discovery.questions.values import Facts
from nngkit.discovery.settings import ServiceSettings
from nngkit.errors import BadMessage, ConfigError, NngkitError, TooLarge
from nngkit.instruments import ByCode, Total
from nngkit.protocols import TLS, PeerEvent, Query, Respondent, Stats
from nngkit.redial import SilentPeers
from nngkit.trust import Choice, Rights, Trust, chosen
from nngkit.trust.rights import own_id

__all__ = ["OnQuestion", "Service", "ServiceStats"]

log = logging.getLogger("nngkit.discovery")

QUERY_SIZE: Final = 64 * 1024  # a control message; a query is under 200 bytes
ANSWERING: Final = 64  # cap on replies in progress: one to a daemon that does not read takes 0.25 s
GOODBYE: Final = 1.0  # seconds for the goodbye on leaving, if a daemon does not read
LINGER: Final = 0.2  # seconds in which accepted replies are still written
COUNTERS: Final = ("queries", "text_queries", "answers", "bad", "skipped", "other_domain", "questions")
HEARD: Final = 0.25  # seconds for daemons to disconnect after a goodbye, as ours do


@dataclass(frozen=True, slots=True)
class ServiceStats:
    """Counters of a Service. `socket`: those of its socket."""

    queries: Total = 0
    """Queries of daemons."""
    text_queries: Total = 0
    """Queries in the text form."""
    answers: Total = 0
    """Queries and questions answered."""
    bad: Total = 0
    """Messages that are no queries."""
    skipped: Total = 0
    """Queries and questions left unanswered, over the cap on replies in progress."""
    other_domain: Total = 0
    """Queries of daemons of another domain."""
    questions: Total = 0
    """Questions received."""
    socket: Stats = field(default_factory=Stats)
    refused: ByCode = field(default_factory=dict)
    """Queries and questions of daemons that call themselves by another's name, by code."""


class Service(UnderTrio):
    """One provider of the service `name` at `address`. Use it with `async with`, under trio.

    discovery   addresses of all daemons; they may start and stop in any order. Default: from the environment, and with
                them, unless given here, domain, zone, priority and certificates (settings.py has the variables)
    id          fixed id, kept over restarts; default: new at every start. Under a trust the name of its pass, or an
                instance of it, as "pay.a:1"
    version, zone, priority, weight, tags: see Provider
    load        a number, or a quick function called for one at every reply
    domain      daemons of another domain learn that domain and nothing else
    on_question function of a Question, plain or async, that returns bytes, None (no answer) or a Bid. A plain one runs
                in a worker thread. At most 64 run at once, each as long as its answer is awaited; a draining service
                declines. Exceptions are logged, and the caller gets their text
    info, stats maps, or quick functions that return one: added to the answers to INFO and STATS
    sigterm     say goodbye on SIGTERM, if the program leaves that signal at its default (see _sigterm.py)

    Entering never waits for a daemon. Leaving takes milliseconds, up to 1.25 s if a daemon does not read. Raises
    ConfigError for an invalid value, such as an address that cannot be dialed (a wildcard, port 0).
    """

    def __init__(
        self,
        name: str,
        address: str,
        *,
        discovery: str | Iterable[str] | None = None,
        id: str | None = None,
        version: str = "",
        zone: str = "",
        priority: int | None = None,
        weight: int = 100,
        tags: str | Iterable[str] = (),
        load: float | Callable[[], float] = 0.0,
        domain: str = "",
        on_question: OnQuestion | None = None,
        info: Facts | None = None,
        stats: Facts | None = None,
        tls: TLS | None = None,
        trust: Choice | None = None,
        sigterm: bool = True,
    ) -> None:
        if discovery is None:
            settings = ServiceSettings.from_environment()
            discovery, domain, zone = settings.discovery, domain or settings.domain, zone or settings.zone
            priority = settings.priority if priority is None else priority
            tls = settings.certificates.beside(tls, trust)
        self._load = load
        self._trust = chosen(trust, tls)
        self._record = _provider(
            name=name,
            address=address,
            id=own_id(self._trust, id, instance=True) if isinstance(self._trust, Trust) else id or uuid.uuid4().hex,
            epoch=time.time_ns() // 1_000_000,
            version=version,
            zone=zone,
            priority=PRIORITY if priority is None else priority,
            weight=weight,
            tags=tags,
            load=0.0 if callable(load) else load,
        )
        check_callable(address)
        self._domain = check_domain(domain)
        self._daemons = (discovery,) if isinstance(discovery, str) else tuple(discovery)
        if not self._daemons:
            raise ConfigError("discovery", "no daemon address", discovery)
        self._tls = tls
        self._rights = Rights(self._trust, "discovery", carry=CARRY)
        self._sigterm = sigterm
        self._sender = uuid.uuid4().hex
        self._asked: dict[int, tuple[Query, int]] = {}  # newest CBOR query of each connection, and its version
        self._old = False  # True once a daemon of an older version has asked
        self._answering = 0
        self._counters = dict.fromkeys(COUNTERS, 0)
        self._background = Background()
        self._questions = Answering(
            domain=self._domain,
            on_question=on_question,
            info=info,
            stats=stats,
            provider=lambda: self.provider,
            speaks=self._rights.speaks,
            counters=self._counters,
            background=self._background,
        )
        self._left = False

    async def __aenter__(self) -> Self:
        self._entering()
        self._changed = WakeUp()
        self._terminated = WakeUp()
        self._peers_changed = WakeUp()
        self._respondent = Respondent(
            name=short_name(f"service {self._record.name}"),
            recv_max_size=QUERY_SIZE,
            tls=self._tls,
            trust=self._trust,
            linger=LINGER,
        )
        try:
            for url in self._daemons:
                self._respondent.dial(url)
            self._respondent.on_peer(self._peer)
            await self._background.open()
        except BaseException:
            self._respondent.close(0.0)
            raise
        self._expected = SilentPeers(self._respondent, "discovery daemon")
        self._background.start(self._expected.run)
        self._background.start(self._serve)
        self._background.start(self._send_changes)
        if self._sigterm:
            self._key = _sigterm.on_sigterm(self._sigterm_came)
            self._background.start(self._leave_on_sigterm, self._key)
        return self

    async def _before_end(self) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Say goodbye and disconnect, before the block ends; also when cancelled. Idempotent.

        In an answer to a question of its own it returns at once: the service leaves once that has been sent.
        """
        if self._background.is_inside:
            self._background.put_off(partial(self._background.start, self._leave))
        else:
            await self._leave()
        await trio.lowlevel.checkpoint()

    async def _leave(self) -> None:
        if not self._left:
            self._left = True
            with trio.CancelScope(shield=True), trio.move_on_after(GOODBYE):
                await self._until_disconnected(await self._reply_to_all())
            with trio.CancelScope(shield=True):
                await self._respondent.aclose(LINGER if self._respondent.pipes else 0.0)
            self._background.end()
        if self._sigterm:
            _sigterm.gone(self._key)

    # The record

    @property
    def provider(self) -> Provider:
        """The current record, including the load."""
        if callable(self._load):
            try:
                return replace(self._record, load=self._load())
            except Exception:
                log.exception("load of %s failed; the last known load is reported", self._record.name)
        return self._record

    def update(
        self,
        *,
        version: str | None = None,
        zone: str | None = None,
        priority: int | None = None,
        weight: int | None = None,
        tags: str | Iterable[str] | None = None,
        load: float | Callable[[], float] | None = None,
        draining: bool | None = None,
    ) -> None:
        """Change the given fields, and report the change to connected daemons at once. Raises ConfigError."""
        changes: dict[str, Any] = {
            "version": version,
            "zone": zone,
            "priority": priority,
            "weight": weight,
            "tags": tags,
            "load": None if callable(load) else load,
            "draining": draining,
        }
        try:
            self._record = replace(self._record, **{key: value for key, value in changes.items() if value is not None})
        except ValueError as error:
            raise ConfigError("service", str(error)) from error
        if load is not None:
            self._load = load
        self._changed.wake()

    def drain(self) -> None:
        """Announce that no new callers are accepted; known callers may continue. Text queries get no reply."""
        self.update(draining=True)

    # Queries

    async def wait_for_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until `n` daemons are connected. Raises TimedOut, Closed."""
        await self._respondent.await_for_peers(n, timeout)

    @property
    def stats(self) -> ServiceStats:
        """Counters of queries and replies, and of the socket."""
        return ServiceStats(**self._counters, socket=self._respondent.stats, refused=dict(self._rights.refusals))

    async def _serve(self) -> None:
        async for query in self._respondent:
            if query.pipe is None:
                continue
            if is_question(query.body) and self._questions.receive(query):
                continue
            try:
                asked = parse_survey_query(query.body, query.pipe.address)
            except (BadMessage, TooLarge) as error:
                self._counters["bad"] += 1
                log.debug("%s", error)
                continue
            self._counters["queries" if asked else "text_queries"] += 1
            if asked is not None and not self._rights.speaks(query.pipe.who, asked.daemon):
                continue
            if asked is not None:
                self._expected.expect(float("inf") if asked.every is None else asked.every, query.pipe)
            if (asked.domain if asked else "") != self._domain:
                self._counters["other_domain"] += 1
                if asked is None:
                    continue
                answer = SurveyReply(self._sender, domain=self._domain).encode()
            elif asked is not None:
                self._remember(query, asked.speaks)
                answer = self._reply(asked.speaks)
            elif query.pipe.id in self._asked or self._record.draining or self._left:
                continue
            else:
                answer = TextReply(self._record.name, self._record.address).encode()
            if self._answering < ANSWERING:
                self._answering += 1
                self._background.start(self._answer, query, answer)
            else:
                self._counters["skipped"] += 1

    def _remember(self, query: Query, speaks: int) -> None:
        assert query.pipe is not None
        if speaks < PROTOCOL_VERSION and not self._old:
            self._old = True
            log.warning(
                "discovery daemon at %s speaks version %d: our priority is not sent, as its order is reversed there",
                query.pipe.address,
                speaks,
            )
        if query.pipe.id not in self._asked:
            present = {pipe.id for pipe in self._respondent.pipes}
            self._asked = {number: kept for number, kept in self._asked.items() if number in present}
        self._asked[query.pipe.id] = query, speaks

    async def _answer(self, query: Query, body: bytes) -> None:
        try:
            await query.areply(body)
            self._counters["answers"] += 1
        except NngkitError as error:  # closed, or the daemon has disconnected
            log.debug("not answered: %s", error)
        finally:
            self._answering -= 1

    async def _send_changes(self) -> None:
        while True:
            await self._changed.wait()
            await self._reply_to_all()

    def _reply(self, version: int) -> bytes:
        """Return the current reply, encoded."""
        return SurveyReply(
            self._sender, () if self._left else (self.provider,), bye=self._left, version=version, domain=self._domain
        ).encode()

    async def _until_disconnected(self, pipes: frozenset[int]) -> None:
        """Wait for the daemons on `pipes` to disconnect. If we did first, they would see a lost pipe, not a goodbye."""
        with trio.move_on_after(HEARD):
            while any(pipe.id in pipes for pipe in self._respondent.pipes):
                await self._peers_changed.wait()

    async def _reply_to_all(self) -> frozenset[int]:
        """Reply once more to the newest query of each daemon; return the connections."""
        present = {pipe.id for pipe in self._respondent.pipes}
        queries = {number: asked for number, asked in self._asked.items() if number in present}
        self._answering += len(queries)
        async with trio.open_nursery() as nursery:  # a daemon that does not read delays no other
            for query, speaks in queries.values():
                nursery.start_soon(self._answer, query, self._reply(speaks))
        return frozenset(queries)

    def _peer(self, event: PeerEvent) -> None:
        self._peers_changed.wake_soon()  # from any thread

    def _sigterm_came(self) -> None:
        if not self._terminated.wake_soon():
            _sigterm.gone(self._key)

    async def _leave_on_sigterm(self, key: object) -> None:
        await self._terminated.wait()
        await self.aclose()


def check_callable(address: str) -> None:
    """Raise ConfigError for an address that can be listened on, but not be called by others."""
    try:
        parts = urlsplit(address)
        wildcard = parts.scheme not in ("ipc", "unix", "abstract", "inproc") and (
            parts.hostname in ("", "*", "0.0.0.0", "::", None) or parts.port == 0
        )
    except ValueError as error:
        raise ConfigError("address", f"{address}: {error}", address) from error
    if wildcard:
        raise ConfigError("address", f"{address}: others cannot call this; name a host and a port", address)


def _provider(**fields: Any) -> Provider:
    try:
        return Provider(**fields)
    except ValueError as error:
        raise ConfigError("service", str(error)) from error
