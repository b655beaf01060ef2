"""Sink: `df.write.format("nng")` and `writeStream`, to PULL or SUB sockets, or acknowledged by a recorder's REP.

::

    rows.writeStream.format("nng").option("protocol", "req").option("dial", "tcp://host:7000").start()

==========  ==============================================================================================
protocol    guarantee once a task has finished
==========  ==============================================================================================
``req``     every row is on the recorder's disk; retries may duplicate rows, which their ids reveal (at least once)
``push``    a peer, or the connection to one, accepted every row (lost with a peer that crashes)
``pub``     every row was published to the connected subscribers (best effort)
==========  ==============================================================================================

Columns: ``value`` (binary or string) is required; ``key``, ``topic`` and ``headers`` are sent with ``req``; ids.py
explains ``id`` (binary). Others are rejected rather than dropped silently.

Workers are forked, and NNG does not survive a fork, so it is imported in `write`, after the fork. A worker keeps its
sockets for the next batch.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from nngkit.errors import ConfigError, TimedOut
from nngkit.spark.reading.ids import MessageId, query_key
from nngkit.spark.reading.options import WriteOptions
from nngkit.spark.reading.worker import freeze

if TYPE_CHECKING:
    import pyarrow as pa

    from nngkit.protocols import Pub, Push, Req

BATCH: Final = "streaming.sql.batchId"  # local properties of a task: its micro-batch and its query
QUERY: Final = "sql.streaming.queryId"
TEXT: Final = ("string", "binary")
ACCEPTED: Final = {
    "value": TEXT,
    "key": TEXT,
    "topic": ("string",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "id": ("binary",),
}
ONLY_REQ: Final = ("key", "topic", "headers", "id")
PACK: Final = 512  # rows passed to the socket at once


class Sent(WriterCommitMessage):
    """Result of a task: the numbers of rows and messages written."""

    def __init__(self, rows: int, messages: int) -> None:
        self.rows = rows
        self.messages = messages


class OutputRow(NamedTuple):
    """One row; `number` is its index in the partition."""

    number: int
    value: bytes
    key: bytes | None
    topic: str | None
    headers: tuple[tuple[str, bytes], ...]
    id: bytes | None


@dataclass(frozen=True)
class _Sink:
    options: WriteOptions
    columns: tuple[str, ...]
    query: str  # of a batch write; a stream has Spark's

    @classmethod
    def _checked(cls, options: WriteOptions, schema: StructType) -> tuple[str, ...]:
        fields = {field.name: field.dataType.simpleString() for field in schema.fields}
        if "value" not in fields:
            raise ConfigError("columns", f"no column value among {', '.join(fields)}")
        for name, kind in fields.items():
            if name not in ACCEPTED:
                raise ConfigError("columns", f"unknown column {name}; accepted are {', '.join(ACCEPTED)}", name)
            if kind not in ACCEPTED[name]:
                raise ConfigError("columns", f"{name} is a {kind}, not a {' or a '.join(ACCEPTED[name])}", kind)
            if name in ONLY_REQ and options.protocol != "req":
                raise ConfigError("columns", f"{name} is for req only: {options.protocol} sends values", name)
        return tuple(fields)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Write one task's rows. Runs in a worker."""
        context = TaskContext.get()
        assert context is not None
        query = query_key(context.getLocalProperty(QUERY) or self.query)
        batch = int(context.getLocalProperty(BATCH) or 0)

        def origin(number: int) -> bytes:
            return MessageId(query, batch, context.partitionId(), number).pack()

        socket = _socket(self.options)
        if self.options.protocol == "req":
            import trio

            freeze()
            return trio.run(_request, socket, self._rows(iterator), origin, self.options)
        freeze()
        return _send(socket, self._messages(iterator, origin), self.options)

    def _messages(self, batches: Iterable[pa.RecordBatch], origin: Callable[[int], bytes]) -> Iterator[list[bytes]]:
        """Yield a list of values a batch, for PUSH and PUB: an object a row would cost more than sending it."""
        import pyarrow as pa

        number = 0
        for batch in batches:
            column = batch.column(self.columns.index("value"))
            if column.null_count:
                _refuse_nothing(number + column.is_null().to_pylist().index(True))
            values = column.cast(pa.binary()).to_pylist()
            if self.options.with_ids:
                values = [origin(row) + value for row, value in enumerate(values, number)]
            number += len(values)
            yield values

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[OutputRow]:
        number = 0
        for batch in batches:
            columns = {name: column.to_pylist() for name, column in zip(self.columns, batch.columns, strict=True)}
            nothing: list[Any] = [None] * batch.num_rows
            for value, key, topic, headers, id_ in zip(
                columns["value"],
                columns.get("key", nothing),
                columns.get("topic", nothing),
                columns.get("headers", nothing),
                columns.get("id", nothing),
                strict=True,
            ):
                if value is None:
                    _refuse_nothing(number)
                yield OutputRow(
                    number,
                    value.encode() if isinstance(value, str) else value,
                    key.encode() if isinstance(key, str) else key,
                    topic,
                    tuple((each["key"], each["value"] or b"") for each in headers or () if each["key"] != "id"),
                    id_,
                )
                number += 1


def _refuse_nothing(number: int) -> NoReturn:
    raise ConfigError("columns", f"row {number} has a null value")


class BatchSink(_Sink, DataSourceArrowWriter):
    """`df.write.format("nng")`."""

    @classmethod
    def of(cls, options: WriteOptions, schema: StructType, overwrite: bool) -> BatchSink:
        """Check the columns. Raises ConfigError if they cannot be sent."""
        if overwrite:
            raise ConfigError("mode", "sent messages cannot be overwritten: use mode('append')")
        return cls(options, cls._checked(options, schema), options.query or str(uuid.uuid4()))


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """`df.writeStream.format("nng")`."""

    @classmethod
    def of(cls, options: WriteOptions, schema: StructType, overwrite: bool) -> StreamSink:
        """Check the columns. Raises ConfigError if they cannot be sent."""
        if overwrite:
            raise ConfigError("outputMode", "sent messages cannot be revoked: use outputMode('append') or update")
        return cls(options, cls._checked(options, schema), "")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: a finished task has sent. Runs in a process of its own that lives as long as the query."""
        freeze()


# ---- in the worker ---------------------------------------------------------------------------------------------------

_sockets: dict[tuple[int, str, str], Any] = {}


def _socket(options: WriteOptions) -> Any:
    """Return this process's socket to that address."""
    from nngkit import protocols

    key = (os.getpid(), options.protocol, options.dial)
    if key not in _sockets:
        kind: Any = {"push": protocols.Push, "pub": protocols.Pub, "req": protocols.Req}[options.protocol]
        _sockets[key] = kind(dial=options.dial, send_timeout=options.timeout, name="spark")
    return _sockets[key]


def _send(socket: Push | Pub, messages: Iterator[list[bytes]], options: WriteOptions) -> Sent:
    """Send to PULL or SUB; return once everything is written."""
    sent = 0
    # A PUB without a peer drops messages; for a PUSH, this error is clearer than one about a full buffer.
    socket.wait_for_peers(1, timeout=options.timeout)
    for values in messages:
        for begin in range(0, len(values), PACK):
            sent += socket.send_many(values[begin : begin + PACK], timeout=options.timeout)
    if not socket.drain(options.timeout) and options.protocol == "push":
        raise TimedOut(f"{options.dial}: not everything was accepted within {options.timeout:g} s", options.timeout)
    return Sent(sent, sent)


async def _request(socket: Req, rows: Iterator[OutputRow], origin: Any, options: WriteOptions) -> Sent:
    """Send requests to a recorder; return once the last one is on its disk."""
    import trio

    from nngkit.journal.ingest import encode_request, parse_reply

    limit = trio.CapacityLimiter(options.in_flight)
    total, requests = 0, 0

    async def request(borrower: object, body: bytes) -> None:
        try:
            parse_reply(await socket.arequest(body, timeout=options.timeout))
        except TimedOut as error:
            raise TimedOut(f"{options.dial}: not acknowledged within {options.timeout:g} s") from error
        finally:
            limit.release_on_behalf_of(borrower)

    async with trio.open_nursery() as nursery:
        for together in _grouped(rows, options.per_request):
            first = together[0]
            body = encode_request(
                first.id if first.id is not None else origin(first.number),
                [row.value for row in together],
                key=first.key,
                headers=first.headers,
                topic=first.topic or options.topic,
            )
            borrower = object()
            await limit.acquire_on_behalf_of(borrower)
            nursery.start_soon(request, borrower, body)
            total += len(together)
            requests += 1
    return Sent(total, requests)


def _grouped(rows: Iterator[OutputRow], most: int) -> Iterator[Sequence[OutputRow]]:
    """Yield the rows of each request: contiguous, with the same key, topic and headers; alone if they have ids.

    Boundaries depend on the rows alone, so that a retry makes the same requests.
    """
    pack: list[OutputRow] = []
    for row in rows:
        if pack and (
            len(pack) == most
            or row.id is not None
            or (row.key, row.topic, row.headers) != (pack[0].key, pack[0].topic, pack[0].headers)
        ):
            yield pack
            pack = []
        pack.append(row)
    if pack:
        yield pack
