"""Service: a provider tells who asks what it offers, and says good-bye. A RESPONDENT that dials every daemon.

::

    async with Service("answer", "tcp://10.0.0.7:9000", discovery=["tcp://daemon:5555"]) as service:
        ...                         # serve callers at that address
        service.update(weight=50)   # the daemons hear of it at once
        service.drain()             # no new callers, please

It only ever answers. A CBOR query gets the whole record; the article's text query gets `name|address`, but not on a
connection that has brought a CBOR query before: whoever sends both means the first.

A change or a good-bye cannot wait for the next question, so it is one more answer to the newest question of each
daemon. Who has heard a good-bye hangs up; a daemon that never asked, or is too busy, learns of it from the end of the
connection: as soon, without the reason. May not know: trees of daemons, what the service does.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import trio

from nngkit.background import Background, UnderTrio
from nngkit.discovery import _sigterm
from nngkit.discovery.messages import Reply, TextReply, parse_query
from nngkit.discovery.provider import PRIORITY, PROTOCOL_VERSION, Provider
from nngkit.errors import BadMessage, ConfigError, NngkitError, TooLarge
from nngkit.protocols import TLS, PeerEvent, Query, Respondent, Stats

__all__ = ["Service", "ServiceCounts"]

log = logging.getLogger("nngkit.discovery")

QUERY_SIZE: Final = 64 * 1024  # a control message; a query is under 200 bytes
ANSWERING: Final = 64  # answers under way at once: one to a daemon that does not read takes 0.25 s
GOOD_BYE: Final = 1.0  # seconds that leaving may take, with a daemon that does not read
LINGER: Final = 0.2  # seconds in which accepted answers are still written
HEARD: Final = 0.25  # seconds that a daemon may take to hang up, as ours do when they have heard a good-bye


@dataclass(frozen=True, slots=True)
class ServiceCounts:
    """What a Service has heard and said. `skipped`: queries left unanswered, as too many answers were under way."""

    queries: int = 0
    text_queries: int = 0
    answers: int = 0
    bad: int = 0
    skipped: int = 0


class Service(UnderTrio):
    """One provider of the service `name`, to be called at `address`. Use it with `async with`, under trio.

    discovery   addresses of all daemons; they may come and go in any order
    id          stays the same over restarts if given; the default is new at every start
    version, zone, priority, weight, tags: see Provider, as for what they may be
    load        a number, or what is called for it at every answer (it must be quick)
    sigterm     say good-bye when SIGTERM comes, if the program leaves that signal at its default (see _sigterm.py)

    Entering never waits for a daemon; leaving takes milliseconds, with a daemon that does not read up to 1.25 s.
    Raises ConfigError for a value that cannot be used, among them an address that nobody can call (a wildcard, port 0).
    """

    def __init__(
        self,
        name: str,
        address: str,
        *,
        discovery: str | Iterable[str],
        id: str | None = None,
        version: str = "",
        zone: str = "",
        priority: int = PRIORITY,
        weight: int = 100,
        tags: Iterable[str] = (),
        load: float | Callable[[], float] = 0.0,
        tls: TLS | None = None,
        sigterm: bool = True,
    ) -> None:
        self._load = load
        self._record = _provider(
            name=name,
            address=address,
            id=id or uuid.uuid4().hex,
            epoch=time.time_ns() // 1_000_000,
            version=version,
            zone=zone,
            priority=priority,
            weight=weight,
            tags=frozenset(tags),
            load=0.0 if callable(load) else load,
        )
        check_callable(address)
        self._daemons = (discovery,) if isinstance(discovery, str) else tuple(discovery)
        if not self._daemons:
            raise ConfigError("discovery", "no daemon to be found by", discovery)
        self._tls = tls
        self._sigterm = sigterm
        self._sender = uuid.uuid4().hex
        self._asked: dict[int, tuple[Query, int]] = {}  # the newest CBOR query of each connection, and its version
        self._old = False  # whether a daemon of an older version has asked
        self._answering = 0
        self._counts = dict.fromkeys(ServiceCounts.__slots__, 0)
        self._background = Background()
        self._left = False

    async def __aenter__(self) -> Self:
        self._entering()
        self._again = trio.Event()
        self._terminated = trio.Event()
        self._gone = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        self._respondent = Respondent(
            name=_short(f"service {self._record.name}"), recv_max_size=QUERY_SIZE, tls=self._tls, linger=LINGER
        )
        try:
            for url in self._daemons:
                self._respondent.dial(url)
            self._respondent.on_peer(self._peer)
            await self._background.open()
        except BaseException:
            self._respondent.close(0.0)
            raise
        self._background.start(self._serve)
        self._background.start(self._tell_changes)
        if self._sigterm:
            self._key = _sigterm.on_sigterm(self._sigterm_came)
            self._background.start(self._leave_on_sigterm, self._key)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        finally:
            await self._background.close(kind, value, traceback)

    async def aclose(self) -> None:
        """Say good-bye and disconnect, before the block ends; also when cancelled. Again is harmless."""
        if not self._left:
            self._left = True
            with trio.CancelScope(shield=True), trio.move_on_after(GOOD_BYE):
                await self._until_heard(await self._tell())
            with trio.CancelScope(shield=True):
                await self._respondent.aclose(LINGER if self._respondent.pipes else 0.0)
            self._background.end()
        if self._sigterm:
            _sigterm.gone(self._key)
        await trio.lowlevel.checkpoint()

    # What it offers

    @property
    def provider(self) -> Provider:
        """The record as it stands, with the load of this moment."""
        if callable(self._load):
            try:
                return replace(self._record, load=self._load())
            except Exception:
                log.exception("load of %s cannot be told; the last known one is", self._record.name)
        return self._record

    def update(
        self,
        *,
        version: str | None = None,
        zone: str | None = None,
        priority: int | None = None,
        weight: int | None = None,
        tags: Iterable[str] | None = None,
        load: float | Callable[[], float] | None = None,
        draining: bool | None = None,
    ) -> None:
        """Change what was given; daemons that are connected hear of it at once. Raises ConfigError."""
        changes: dict[str, Any] = {
            "version": version,
            "zone": zone,
            "priority": priority,
            "weight": weight,
            "tags": None if tags is None else frozenset(tags),
            "load": None if callable(load) else load,
            "draining": draining,
        }
        try:
            self._record = replace(self._record, **{key: value for key, value in changes.items() if value is not None})
        except ValueError as error:
            raise ConfigError("service", str(error)) from error
        if load is not None:
            self._load = load
        self._again.set()

    def drain(self) -> None:
        """Ask for no new callers; those who have the address may go on. In the text form: stay silent."""
        self.update(draining=True)

    # Who asks

    async def await_for_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until `n` daemons are connected. Raises TimedOut, Closed."""
        await self._respondent.await_for_peers(n, timeout)

    @property
    def stats(self) -> Stats:
        """The socket's counters."""
        return self._respondent.stats

    @property
    def counts(self) -> ServiceCounts:
        """What was heard and said so far."""
        return ServiceCounts(**self._counts)

    async def _serve(self) -> None:
        async for query in self._respondent:
            if query.pipe is None:
                continue
            try:
                asked = parse_query(query.body, query.pipe.address)
            except (BadMessage, TooLarge) as error:
                self._counts["bad"] += 1
                log.debug("%s", error)
                continue
            self._counts["queries" if asked else "text_queries"] += 1
            if asked is not None:
                self._remember(query, asked.speaks)
                answer = self._say(asked.speaks)
            elif query.pipe.id in self._asked or self._record.draining or self._left:
                continue
            else:
                answer = TextReply(self._record.name, self._record.address).encode()
            if self._answering < ANSWERING:
                self._answering += 1
                self._background.start(self._answer, query, answer)
            else:
                self._counts["skipped"] += 1

    def _remember(self, query: Query, speaks: int) -> None:
        assert query.pipe is not None
        if speaks < PROTOCOL_VERSION and not self._old:
            self._old = True
            what = (
                "discovery daemon at %s speaks version %d: it is not told our priority, which meant the opposite there"
            )
            log.warning(what, query.pipe.address, speaks)
        if query.pipe.id not in self._asked:
            present = {pipe.id for pipe in self._respondent.pipes}
            self._asked = {number: kept for number, kept in self._asked.items() if number in present}
        self._asked[query.pipe.id] = query, speaks

    async def _answer(self, query: Query, body: bytes) -> None:
        try:
            await query.areply(body)
            self._counts["answers"] += 1
        except NngkitError as error:  # closed, or nobody there any more
            log.debug("not answered: %s", error)
        finally:
            self._answering -= 1

    async def _tell_changes(self) -> None:
        while True:
            await self._again.wait()
            self._again = trio.Event()
            await self._tell()

    def _say(self, version: int) -> bytes:
        """Return the answer of this moment."""
        return Reply(self._sender, () if self._left else (self.provider,), bye=self._left, version=version).encode()

    async def _until_heard(self, told: frozenset[int]) -> None:
        """Wait for those `told` to hang up. Hung up on first, they would see that first, and not know why."""
        with trio.move_on_after(HEARD):
            while any(pipe.id in told for pipe in self._respondent.pipes):
                await self._gone.wait()
                self._gone = trio.Event()

    async def _tell(self) -> frozenset[int]:
        """One more answer to the newest question of everybody; the connections told."""
        present = {pipe.id for pipe in self._respondent.pipes}
        queries = {number: asked for number, asked in self._asked.items() if number in present}
        self._answering += len(queries)
        async with trio.open_nursery() as nursery:  # one who does not read keeps nobody waiting
            for query, speaks in queries.values():
                nursery.start_soon(self._answer, query, self._say(speaks))
        return frozenset(queries)

    def _peer(self, event: PeerEvent) -> None:
        self._soon(self._look_again)  # from any thread

    def _look_again(self) -> None:
        self._gone.set()

    def _soon(self, call: Callable[[], object]) -> bool:
        """Have it called in the loop; from any thread. False if there is no loop any more."""
        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            return False
        return True

    def _sigterm_came(self) -> None:
        if not self._soon(self._terminated.set):
            _sigterm.gone(self._key)

    async def _leave_on_sigterm(self, key: object) -> None:
        await self._terminated.wait()
        await self.aclose()


def _short(text: str, limit: int = 63) -> str:
    """Return the beginning of `text` that fits a socket's name: a service's may be twice as long."""
    return text.encode()[:limit].decode(errors="ignore")


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
