"""Durable consumer of a journal: receives records from a ConsumerServer and acknowledges them.

::

    async with Consumer("billing", dial="tcp://127.0.0.1:7100", topics="orders") as consumer:
        async for delivery in consumer:
            handle(delivery.value)
            await delivery.ack()                       # on disk at the server when it returns

    async for batch in consumer.batches():             # thousands at once, as columns
        handle_all(batch.values)
        await batch.ack()

Delivery is at least once: a record that is not acknowledged within `ack_wait` seconds is delivered again, to this or
another consumer of the same name. Consumers of one name share the records; each name has its own position. Needs no
extra: the server reads the journal.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, Self

import trio

from nngkit.background import Background, UnderTrio
from nngkit.errors import Closed, ConfigError, Lost, NngkitError, NotFound, NotStored, TimedOut
from nngkit.fanout.durable import messages
from nngkit.fanout.durable.acknowledgements import Acknowledgements
from nngkit.fanout.durable.delivery import Delivery, DeliveryBatch, runs_in
from nngkit.fanout.durable.partition import check_name, runs_of
from nngkit.instruments import Total
from nngkit.log_lines import LogLines
from nngkit.protocols import TLS, Req
from nngkit.redial import SilentServer
from nngkit.trust import Choice, Trust, chosen
from nngkit.trust.standing import told

log: Final = logging.getLogger("nngkit.fanout")

UNLIMITED: Final = 1 << 30  # bytes: what a socket takes 0 for
WAIT: Final = 5.0  # seconds that the server holds a fetch without records
REPLY: Final = 10.0  # seconds for a reply that the server has to read or sync for; then it is asked again
PAUSES: Final = (0.02, 0.1, 0.3)  # seconds between tries to reach the server; the last one repeats
PARTING: Final = 2.0  # seconds that closing may take to give back what is unread


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    """Counters of a Consumer."""

    received: Total = 0
    """Records received."""
    redelivered: Total = 0
    """Records received again."""
    confirmed: Total = 0
    """Records confirmed."""
    retries: Total = 0
    """Requests sent to the server again."""
    stale: Total = 0
    """Records that were read ahead for longer than `ack_wait` and dropped, as the server delivers them again."""


class Consumer(UnderTrio):
    """Consumer of a name; use it with `async with`, under trio.

    `start`: "earliest", "latest" or an offset; `start_time`: microseconds since 1970. `topics`: only these.
    `ack_wait`: seconds until an unacknowledged record is delivered again. `max_deliver`: deliveries after which a
    record is given up. `max_ack_pending`: records in flight to all consumers of the name. These options are kept at
    the server from the first use of the name; later they must be the same or left out. With `change` those of a known
    name are changed to the given ones, all but its start: it keeps its position.

    `records`, `size`: records and bytes of one fetch; one fetch is read ahead. `timeout`: seconds that reaching the
    server may take; None: no limit. `recv_max_size`: bytes of the largest reply. Entering raises ConfigError, TimedOut.
    """

    def __init__(
        self,
        name: str,
        dial: str | Iterable[str],
        *,
        start: Literal["earliest", "latest"] | int | None = None,
        start_time: int | None = None,
        topics: str | list[str] | tuple[str, ...] | None = None,
        ack_wait: float | None = None,
        max_deliver: int | None = None,
        max_ack_pending: int | None = None,
        change: bool = False,
        records: int = 1000,
        size: int = 1 << 20,
        timeout: float | None = 30.0,
        tls: TLS | None = None,
        trust: Choice | None = None,
        recv_max_size: int = 64 << 20,
    ) -> None:
        self.name = check_name(name)
        if start is not None and start_time is not None:
            raise ConfigError("start_time", "give either it or start", start_time)
        if records < 1 or size < 1:
            raise ConfigError("records", f"{records} records of {size} bytes: both must be 1 or more", records)
        given = {
            "topics": [topics] if isinstance(topics, str) else topics and list(topics),
            "ack_wait": None if ack_wait is None else float(ack_wait),
            "max_deliver": max_deliver,
            "max_ack_pending": max_ack_pending,
        }
        self._given = {name: value for name, value in given.items() if value is not None}
        self._wanted = _options(start, start_time, self._given)
        self._change = change
        self._records = records
        self._size = size
        self._timeout = timeout
        self._largest = recv_max_size or UNLIMITED
        self._trust = chosen(trust, tls)
        self._make_socket = partial(
            Req,
            dial=dial,
            lost="raise",
            resend=None,
            tls=tls,
            trust=self._trust,
            recv_max_size=recv_max_size,
            name=name,
        )
        self._stats = ConsumerStats()
        self._lines = LogLines()

    async def __aenter__(self) -> Self:
        self._entering()
        own = messages.owner_of(self._trust.name) if isinstance(self._trust, Trust) else ""
        self._session = own + os.urandom(8).hex()
        self._left = False
        self._req = self._make_socket()
        self._server = SilentServer(self._req, "consumer server")
        self._seen = self._read = 0
        settle = partial(self._ask, kind=messages.Settled)
        self._acks = Acknowledgements(self.name, self._session, settle, self._confirmed, self._ended)
        self._arrived: deque[messages.Columns] = deque()
        self._current: Iterator[Delivery] = iter(())
        self._offsets: Any = ()
        self._partition = self._yielded = 0
        self._background = Background()
        try:
            if self._change:
                with suppress(NotFound):  # a new name
                    await self._ask(messages.ChangeRequest(self.name, self._given), messages.Done)
                    self._wanted = None
            reply = await self._ask(messages.OpenRequest(self.name, self._session, self._wanted), messages.Opened)
            self.options = reply.options
        except BaseException:
            self._req.close()
            raise
        send, self._batches = trio.open_memory_channel[Any](0)
        await self._background.open()
        self._background.start(self._fetch_all, send)
        self._background.start(self._acks.send_all)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            with trio.move_on_after(PARTING, shield=True):
                try:
                    if self._background.failure is None:
                        await self.flush()
                    self._background.end()
                    # First leave, so that no waiting fetch of this session takes what is then given back.
                    await self._ask(messages.LeaveRequest(self.name, self._session, self._read), messages.Done)
                    for partition, offsets in self._unread():
                        await self._acks.settle("release", partition, runs_of(offsets))
                except NngkitError:
                    pass  # what is unread is delivered again after `ack_wait`
        finally:
            self._left = True
            self._background.end()
            self._batches.close()
            self._acks.close()
            try:
                await self._background.close(kind, value, traceback)
            finally:
                self._req.close()

    @property
    def stats(self) -> ConsumerStats:
        """Current counters."""
        return self._stats

    # Records

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        return await self.receive()

    async def receive(self, timeout: float | None = None) -> Delivery:
        """Return the next record, waiting for one. If cancelled, none is lost.

        Raises TimedOut after `timeout` seconds, BadMessage, TooLarge, NotFound, ConfigError.
        """
        while True:
            delivery = next(self._current, None)
            if delivery is not None:
                self._yielded += 1
                return delivery
            batch = await self.receive_batch(timeout)
            self._offsets, self._partition, self._yielded = batch.offsets, batch.partition, 0
            self._current = iter(batch)

    async def receive_batch(self, timeout: float | None = None) -> DeliveryBatch:
        """Like `receive`, for all records of one partition that arrived together."""
        deadline = trio.current_time() + (float("inf") if timeout is None else timeout)
        while not self._arrived:
            found = None
            with trio.move_on_at(deadline), suppress(trio.ClosedResourceError, trio.EndOfChannel):
                found = await self._batches.receive()
            if self._left:
                raise self._ended()
            if found is None:
                raise TimedOut(f"consumer {self.name}: no record in {timeout} s", timeout)
            if isinstance(found, NngkitError):
                raise found
            self._read, batches, arrived = found
            # Read ahead for too long, while acknowledgements waited for the server: it delivers these records again.
            if trio.current_time() - arrived < self.options.limits.ack_wait:
                self._arrived.extend(batches)
            else:
                stale = sum(len(columns.offsets) for columns in batches)
                self._stats = replace(self._stats, stale=self._stats.stale + stale)
        columns = self._arrived.popleft()
        again = 0 if columns.counts is None else sum(count > 1 for count in columns.counts)
        self._stats = replace(
            self._stats,
            received=self._stats.received + len(columns.offsets),
            redelivered=self._stats.redelivered + again,
        )
        return DeliveryBatch(self._acks, columns)

    def batches(self) -> AsyncIterator[DeliveryBatch]:
        """Iterate over `receive_batch`, until the block ends."""
        return _Batches(self)

    def _unread(self) -> list[tuple[int, Any]]:
        """Return (partition, offsets) of what has arrived and was not received by the caller."""
        rest = self._offsets[self._yielded :]
        return [
            *([(self._partition, rest)] if len(rest) else []),
            *((columns.partition, columns.offsets) for columns in self._arrived),
        ]

    async def _fetch_all(self, send: Any) -> None:
        while True:
            request = messages.FetchRequest(
                self.name, self._session, self._seen, self._records, self._size, self._largest, WAIT
            )
            try:
                reply = await self._ask(request, messages.Fetched, waits=WAIT, limit=None)
                number, batches = reply.number, list(map(messages.Columns.of, reply.batches))
            except Closed:
                return
            except NotStored as error:  # the server's disk fails, or it is out of descriptors: it may pass
                said = f"consumer {self.name}: its server cannot deliver: {error}"
                if line := self._lines.add(said, trio.current_time(), about=""):
                    log.warning("%s", line)
                self._stats = replace(self._stats, retries=self._stats.retries + 1)
                await trio.sleep(PAUSES[-1])
                continue
            except NngkitError as error:
                await send.send(error)
                await trio.sleep(PAUSES[-1])
                continue
            self._seen = number
            if batches:
                await send.send((number, batches, trio.current_time()))
            else:
                self._read = number

    # Acknowledgements

    async def ack(self, *deliveries: Delivery | DeliveryBatch) -> None:
        """Acknowledge records or batches; return when that is on disk. Raises NotStored, TimedOut, Closed."""
        for ticket in [self._acks.ack_soon(each.partition, runs_in(each)) for each in deliveries]:
            await ticket.confirmed()

    async def nak(self, *deliveries: Delivery | DeliveryBatch, delay: float = 0.0) -> None:
        """Return records or batches, to be delivered again after `delay` seconds."""
        for each in deliveries:
            await self._acks.settle("nak", each.partition, runs_in(each), delay)

    async def term(self, *deliveries: Delivery | DeliveryBatch) -> None:
        """Settle records or batches without success; return when that is on disk."""
        for each in deliveries:
            await self._acks.settle("term", each.partition, runs_in(each))

    async def flush(self) -> None:
        """Wait until all acknowledgements are confirmed. Raises NotStored, TimedOut, Closed."""
        await self._acks.flush()

    def _confirmed(self, records: int) -> None:
        self._stats = replace(self._stats, confirmed=self._stats.confirmed + records)

    def _ended(self) -> Exception:
        return self._background.ended(f"consumer {self.name} is closed")

    # The server

    async def info(self) -> list[messages.ConsumerInfo]:
        """Return the consumer's state at the server, by partition."""
        return list((await self._ask(messages.InfoRequest(self.name), messages.Infos)).infos)

    async def delete(self) -> None:
        """Delete the consumer and its state at the server. Its other sessions get NotFound."""
        await self._ask(messages.DeleteRequest(self.name), messages.Done)

    async def _ask(
        self, request: messages.Request, kind: type[messages.R], *, waits: float = 0.0, limit: float | None = -1.0
    ) -> messages.R:
        """Return the server's reply, reconnecting and repeating until it has come: every request may be repeated.

        `waits`: seconds that the server may take by itself. Raises TimedOut after `timeout` seconds.
        """
        limit = self._timeout if limit == -1.0 else limit
        deadline = None if limit is None else trio.current_time() + limit
        body = messages.REQUESTS.encode(request)
        for attempt in range(1 << 62):
            left = None if deadline is None else deadline - trio.current_time()
            try:
                return messages.parse_reply(await self._server.request(body, _least(left, waits + REPLY)), kind)
            except (Lost, TimedOut) as error:
                pause = PAUSES[min(attempt, len(PAUSES) - 1)]
                if deadline is not None and trio.current_time() + pause >= deadline:
                    late = f"consumer {self.name}: no reply from the server in {limit} s{told(self._req.dialed)}"
                    raise TimedOut(late, limit) from error
            self._stats = replace(self._stats, retries=self._stats.retries + 1)
            await trio.sleep(pause)
        raise AssertionError("unreachable")


async def consumers(
    dial: str | Iterable[str],
    name: str = "",
    *,
    timeout: float = 5.0,
    tls: TLS | None = None,
    trust: Choice | None = None,
) -> list[messages.ConsumerInfo]:
    """Return the state of a server's consumers, or of one, by partition. Raises NotFound, TimedOut, Lost."""
    async with Req(dial=dial, tls=tls, trust=chosen(trust, tls)) as req:
        body = await req.arequest(messages.REQUESTS.encode(messages.InfoRequest(name)), timeout=timeout)
        return list(messages.parse_reply(body, messages.Infos).infos)


class _Batches:
    """Iterator over the batches of a consumer. A class, as an abandoned async generator would warn."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> DeliveryBatch:
        return await self._consumer.receive_batch()


def _least(left: float | None, most: float) -> float:
    return most if left is None else max(0.0, min(left, most))


def _options(
    start: Literal["earliest", "latest"] | int | None, start_time: int | None, given: dict[str, Any]
) -> messages.Options | None:
    """Return the options for creating the consumer; None if none was given. Raises ConfigError."""
    if start is None and start_time is None and not given:
        return None
    if (topics := given.get("topics")) is not None:
        given = given | {"topics": tuple(topics)}
    if start_time is not None:
        return messages.Options("time", start_time, **given)
    return (
        messages.Options("offset", start, **given)
        if isinstance(start, int)
        else messages.Options(start or "earliest", **given)
    )
