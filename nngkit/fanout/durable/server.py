"""Serves a journal to named consumers: durable positions, acknowledgements, redelivery.

::

    async with ConsumerServer("journal", listen="tcp://127.0.0.1:7100") as server:
        await trio.sleep_forever()

Reads the journal and never changes it, so it works beside a running Recorder. The state of each consumer is a file in
`state`, by default the folder `consumers` of the journal; an acknowledgement is confirmed when it is on disk. A name is
served by one process at a time.

New records: while a consumer waits, the server reads the recorder's head, one small file a partition, once it is
written, every `POLL` seconds at most, and every `QUIET` at least. On shared storage without the recorder's `spool`, it
looks for new segments every second.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import trio

from nngkit.background import Background, UnderTrio, WakeUp
from nngkit.errors import BadMessage, Closed, ConfigError, NngkitError, NotFound, NotStored, TooLarge
from nngkit.fanout.durable import messages
from nngkit.fanout.durable.file import STATE
from nngkit.fanout.durable.named import NamedConsumer
from nngkit.fanout.durable.partition import check_name
from nngkit.instruments import Gauge, Label, Total
from nngkit.journal.heads import Heads
from nngkit.journal.reader import Journal, open_journal
from nngkit.protocols import TLS, PeerEvent, Rep, Stats
from nngkit.protocols import Request as Question
from nngkit.protocols.own_host import check_guarded
from nngkit.trust import Choice, Rights, chosen
from nngkit.trust.rights import BINDING, deny

FOLDER: Final = "consumers"
CARRY: Final = "device"  # by which a device speaks for the consumers behind it
POLL: Final = 0.005  # seconds; a recorder syncs 200 times a second at most
POLL_SHARED: Final = 1.0
QUIET: Final = 0.05  # seconds between looks while no write of a head is seen
UNASKED: Final = 5.0  # seconds between looks at the journal while no consumer waits: `behind` in `stats` counts on
NEW_PARTITIONS: Final = 1.0  # seconds between looks for new partitions
TURN: Final = 256
MOST_REQUESTS: Final = 10_000  # requests in progress, each with a task; a waiting consumer has one
MOST_CONSUMERS: Final = 1000  # names, each with two open files
MOST_CREATED: Final = 64  # names that one connection may create: a consumer has one, and a connection of its own


@dataclass(frozen=True, slots=True)
class DurableStats:
    """One consumer in one partition, see ConsumerInfo."""

    consumer: Label
    partition: Label
    behind: Gauge
    """Records that have not been delivered yet."""
    pending: Gauge
    """Records in flight or ready for redelivery."""
    settled: Total
    """Records settled since the server began."""
    redelivered: Total
    """Records redelivered since the server began."""
    given_up: Total
    """Records given up since the server began."""
    skipped: Gauge
    """Offsets that retention or damage took before they were settled."""


@dataclass(frozen=True, slots=True)
class ConsumerServerStats:
    """Counters of a ConsumerServer, of its consumers in use, and of its socket."""

    bad: Total
    """Messages that are no requests."""
    waiting: Gauge
    """Fetches that wait for records."""
    consumers: tuple[DurableStats, ...]
    socket: Stats


class ConsumerServer(UnderTrio):
    """Server of durable consumers; use it with `async with`, under trio.

    `state`: the folder of the consumers' state; required if the journal is on shared storage. `spool`: the folder of
    the recorder's logs, as for `open_journal`. `max_pipes`: connections. `trust`: a Trust, whose policy says which
    name may `consume` which names of consumers, or OPEN; default: NNGKIT_TRUST. A session belongs to the name of its
    peer. Raises ConfigError for a listener that other machines can reach without one, or certificates of them.
    Entering raises ConfigError, Damaged.
    """

    def __init__(
        self,
        journal: str | os.PathLike[str],
        *,
        state: str | os.PathLike[str] | None = None,
        spool: str | os.PathLike[str] | None = None,
        listen: str | Iterable[str] = (),
        dial: str | Iterable[str] = (),
        tls: TLS | None = None,
        trust: Choice | None = None,
        max_pipes: int = 1024,
    ) -> None:
        self._location = journal
        self._folder = state
        self._spool = spool
        listen, trust = (listen,) if isinstance(listen, str) else tuple(listen), chosen(trust, tls)
        check_guarded(listen, trust, tls)
        self._make_socket = partial(Rep, listen=listen, dial=dial, tls=tls, trust=trust, max_pipes=max_pipes)
        self._rights = Rights(trust, FOLDER, carry=CARRY)
        self.bad = 0

    async def __aenter__(self) -> Self:
        self._entering()
        journal = await trio.to_thread.run_sync(self._open)
        if self._folder is None and journal.storage.folder is None:
            why = f"{journal.location} is shared storage: name a local folder for the state of its consumers"
            raise ConfigError("state", why)
        self._journal: Journal = journal
        self._state = Path(self._folder or (journal.storage.folder or Path()) / FOLDER)
        self._consumers: dict[str, NamedConsumer] = {}
        self._ends: dict[int, int] = {}
        self._listed = float("-inf")
        self._waiting = self._running = 0
        self._needed = WakeUp()
        self._gone: dict[int, trio.CancelScope] = {}
        self._created: Counter[int] = Counter()  # names by connection
        self._token = trio.lowlevel.current_trio_token()
        self._read_ends()
        self._rep = self._make_socket()
        self._rep.on_peer(self._peer)
        self._background = Background()
        await self._background.open()
        self._background.start(self._serve)
        self._background.start(self._watch)
        return self

    def _open(self) -> Journal:
        journal = open_journal(self._location, spool=self._spool)
        if any(journal.segments(number) for number in journal.partitions() if _is_complete(journal, number)):
            import pyarrow.parquet  # noqa: F401  # takes 0.1 s or more, which the first delivery would wait
        return journal

    async def _after_end(self) -> None:
        self._rep.close()
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    @property
    def address(self) -> str:
        """The address that the server listens at."""
        return self._rep.address

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses that the server listens at."""
        return self._rep.addresses

    @property
    def refused(self) -> dict[str, int]:
        """Number of requests that were refused under the trust, by code: "right", "binding"."""
        return dict(self._rights.refusals)

    def consumers(self, name: str = "") -> list[messages.ConsumerInfo]:
        """Return the state of a consumer, or of all, by name and partition. Raises NotFound, Damaged."""
        self._read_ends()
        names = [check_name(name)] if name else self._names()
        return [info for each in names for info in self._find(each).info(self._ends)]

    @property
    def stats(self) -> ConsumerServerStats:
        """Counters; of consumers those that were used since the server began."""
        rows = [each for consumer in self._consumers.values() for each in consumer.info(self._ends)]
        used = tuple(
            DurableStats(
                row.name,
                str(row.partition),
                row.behind,
                row.pending,
                row.settled,
                row.redelivered,
                row.given_up,
                row.skipped,
            )
            for row in rows
        )
        return ConsumerServerStats(self.bad, self._waiting, used, self._rep.stats)

    def _names(self) -> list[str]:
        try:
            there = os.listdir(self._state)
        except FileNotFoundError:
            there = []
        on_disk = {each.removesuffix(STATE) for each in there if each.endswith(STATE)}
        return sorted(on_disk | self._consumers.keys())

    # The journal

    def _read_ends(self) -> bool:
        """Read the ends of the partitions; return True if one has moved. Raises Damaged, OSError."""
        now = trio.current_time()
        if now - self._listed >= NEW_PARTITIONS:
            self._listed = now
            numbers = self._journal.partitions()
        else:
            numbers = list(self._ends)
        return self._note_ends(numbers)

    def _note_ends(self, numbers: list[int]) -> bool:
        known = [number for number in numbers if number in self._ends or _is_complete(self._journal, number)]
        ends = {number: self._journal.end(number) for number in known}
        moved = ends != self._ends
        self._ends = ends
        return moved

    async def _watch(self) -> None:
        """Wake waiting fetches when there are new records, or records in flight are overdue."""
        with contextlib.closing(Heads()) as heads:
            while True:
                if not self._waiting:
                    with trio.move_on_after(UNASKED):
                        await self._needed.wait()
                folders = [self._journal.logs(number) for number in self._ends]
                here = [folder for folder in folders if folder is not None]
                local = len(here) == len(folders)
                seen = local and heads.watch(here)  # before they are read
                try:
                    moved = self._read_ends() if local else await trio.to_thread.run_sync(self._read_ends_there)
                except (NngkitError, OSError):
                    moved = True  # the fetches report it
                next_due = self._expire(moved=moved)
                await trio.sleep(POLL if local else POLL_SHARED)
                if seen and not moved:
                    with trio.move_on_at(min(next_due, trio.current_time() + QUIET)):
                        await heads.written()

    def _expire(self, *, moved: bool) -> float:
        """Wake fetches if there are new records or overdue ones; return when the next one is overdue."""
        now, next_due = trio.current_time(), float("inf")
        for consumer in list(self._consumers.values()):
            due = consumer.due()
            if moved or (due is not None and due <= now and consumer.expire(now)):
                consumer.notify()
            if due is not None and due > now:
                next_due = min(next_due, due)
        return next_due

    def _read_ends_there(self) -> bool:
        return self._note_ends(self._journal.partitions())

    # Requests

    async def _serve(self) -> None:
        while True:
            try:
                questions = await self._rep.arecv_many(TURN)
            except Closed:
                return
            for question in questions:
                if self._running >= MOST_REQUESTS:
                    busy = ConfigError("consumer", f"{MOST_REQUESTS} requests are in progress at this server")
                    question.reply_nowait(messages.encode_error(busy))
                else:
                    self._running += 1
                    self._background.start(self._answer, question)

    async def _answer(self, question: Question) -> None:
        try:
            reply = await self._reply(question)
            if reply is not None:
                await question.areply(reply)
        except Closed:
            pass
        finally:
            self._running -= 1

    async def _reply(self, question: Question) -> bytes | None:
        peer = None if question.pipe is None else question.pipe.address
        try:
            request = messages.parse_request(question.body, peer=peer)
        except (BadMessage, TooLarge, ConfigError) as error:
            self.bad += 1
            return messages.encode_error(error)
        try:
            pipe, who = (0, None) if question.pipe is None else (question.pipe.id, question.pipe.who)
            self._check(request, who)
            if isinstance(request, messages.InfoRequest):
                return messages.encode_reply(messages.Infos(self._infos(request.name, who)))
            if not isinstance(request, messages.FetchRequest):
                return await self._carry_out(request, pipe)
            with trio.CancelScope() as scope:
                self._gone[pipe] = scope
                try:
                    return await self._fetch(request)
                finally:
                    if self._gone.get(pipe) is scope:
                        del self._gone[pipe]
            return None  # the connection has ended, so nothing was delivered
        except NngkitError as error:
            return messages.encode_error(error)
        except OSError as error:
            return messages.encode_error(NotStored(f"{error.filename or self._location}: {error.strerror or error}"))

    def _check(self, request: messages.Request, who: str | None) -> None:
        """Raise AccessDenied unless the peer may consume this name, and the session is its own."""
        if self._rights.trust is None:
            return
        if request.name:
            self._rights.require(who, "consume", request.name)
        session = getattr(request, "session", None)
        if session is None or (who and session.startswith(messages.owner_of(who))):
            return
        if not self._rights.speaks(who, session):
            deny(BINDING, who, f"use the session {session!a}")

    def _infos(self, name: str, who: str | None) -> tuple[messages.ConsumerInfo, ...]:
        """Return the consumers of this name, or all, as far as the peer may consume them."""
        return tuple(each for each in self.consumers(name) if self._rights.grants(who, "consume", each.name))

    async def _carry_out(self, request: messages.Request, pipe: int) -> bytes:
        match request:
            case messages.OpenRequest(name, _, options):
                consumer = self._find(name, options, creator=pipe)
                return messages.encode_reply(messages.Opened(consumer.options, tuple(consumer.info(self._ends))))
            case messages.ChangeRequest(name, changes):
                await self._find(name).change(changes)
                return messages.encode_reply(messages.Done())
            case messages.SettleRequest():
                consumer = self._find(request.name)
                return messages.encode_reply(
                    messages.Settled(await consumer.settle(request, self._ends.get(request.partition, 0)))
                )
            case messages.LeaveRequest(name, session, seen):
                if name in self._consumers:
                    self._consumers[name].leave(session, seen)
                return messages.encode_reply(messages.Done())
            case messages.DeleteRequest(name):
                consumer = self._find(name)
                consumer.remove()
                del self._consumers[name]
                return messages.encode_reply(messages.Done())
            case _:
                raise AssertionError(request)

    async def _fetch(self, request: messages.FetchRequest) -> bytes:
        consumer = self._find(request.name)
        deadline = trio.current_time() + request.wait
        self._waiting += 1
        self._needed.wake()
        try:
            if self._read_ends():
                consumer.notify()
            while True:
                version = consumer.version
                consumer.refresh(self._ends)
                batches = await consumer.fetch(request, self._ends)
                consumer.check_there()
                if batches or trio.current_time() >= deadline:
                    break
                if version == consumer.version:
                    with trio.move_on_at(deadline):
                        await consumer.wake.wait()
                consumer.check_there()
                if consumer.has_left(request.session):
                    break
        finally:
            self._waiting -= 1
        return messages.encode_reply(messages.Fetched(request.seen + 1, tuple(columns.batch() for columns in batches)))

    def _find(self, name: str, options: messages.Options | None = None, *, creator: int | None = None) -> NamedConsumer:
        """Return the consumer, opening its file if need be. Raises NotFound, ConfigError, Damaged.

        `creator`: the connection that creates it, if there is none.
        """
        consumer = self._consumers.get(name)
        if consumer is not None:
            consumer.check(options)
            return consumer
        there = (self._state / (check_name(name) + STATE)).exists()
        if not there and creator is None:
            raise NotFound(f"consumer {name}: there is none at {self._state}")
        if not there and creator is not None and self._created[creator] >= MOST_CREATED:
            raise ConfigError("consumer", f"this connection has created {MOST_CREATED}, the most it may", name)
        if len(self._consumers if there else self._names()) >= MOST_CONSUMERS:
            raise ConfigError("consumer", f"this server has {MOST_CONSUMERS} consumers, the most it may have", name)
        self._read_ends()
        consumer = NamedConsumer(self._state, name, self._journal, options)
        try:
            consumer.refresh(self._ends)
            consumer.save()
        except BaseException:
            consumer.discard()
            raise
        self._consumers[name] = consumer
        if not there and creator is not None:
            self._created[creator] += 1
        return consumer

    def _peer(self, event: PeerEvent) -> None:  # on the thread that noticed
        if event.kind == "left":
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._left, event.pipe.id)

    def _left(self, pipe: int) -> None:
        del self._created[pipe]
        scope: Any = self._gone.get(pipe)
        if scope is not None:
            scope.cancel()


def _is_complete(journal: Journal, number: int) -> bool:
    """Return False for a partition that its first recorder is about to create. Raises Damaged."""
    try:
        journal.manifest(number)
    except ConfigError:
        return False
    return True
