"""Records as a Consumer receives them, in batches of columns and single, each with its acknowledgement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nngkit.fanout.durable.acknowledgements import Acknowledgements
from nngkit.fanout.durable.messages import Columns
from nngkit.fanout.durable.partition import Runs, runs_of


class DeliveryBatch:
    """Records of one partition, in offset order. Attributes are columns; iterating yields each Delivery."""

    __slots__ = ("_acks", "_columns", "_values", "offsets", "partition", "timestamps")

    def __init__(self, acks: Acknowledgements, columns: Columns) -> None:
        self._acks = acks
        self._columns = columns
        self._values: list[bytes] | None = None
        self.partition = columns.partition
        self.offsets: Any = columns.offsets
        """Offsets, an array of integers."""
        self.timestamps: Any = columns.times
        """Times of receipt by the recorder, in microseconds since 1970."""

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        return f"<DeliveryBatch of {len(self)} from offset {self.offsets[0]} of partition {self.partition}>"

    @property
    def values(self) -> list[bytes]:
        """The records' values."""
        if self._values is None:
            self._values = self._columns.values()
        return self._values

    @property
    def keys(self) -> list[bytes | None]:
        """The records' keys."""
        return self._columns.keys()

    @property
    def topics(self) -> list[str]:
        """The records' topics."""
        columns = self._columns
        if columns.topic_of is None:
            return columns.topics * len(self)
        return [columns.topics[number] for number in columns.topic_of]

    def __iter__(self) -> Iterator[Delivery]:
        columns, keys = self._columns, self._columns.keys()
        counts = columns.counts or [1] * len(self)
        headers = columns.headers or [()] * len(self)
        for offset, time, topic, key, value, pairs, count in zip(
            self.offsets, self.timestamps, self.topics, keys, self.values, headers, counts, strict=True
        ):
            fixed = tuple((name, data) for name, data in pairs)
            yield Delivery(self._acks, self.partition, offset, time, topic, key, value, fixed, count)

    async def ack(self) -> None:
        """Acknowledge all records; return when that is on disk. Raises NotStored, TimedOut, Closed."""
        await self._acks.ack(self.partition, runs_of(self.offsets))

    def ack_soon(self) -> None:
        """Acknowledge all records in the background; `Consumer.flush` waits for it."""
        self._acks.ack_soon(self.partition, runs_of(self.offsets))

    async def nak(self, delay: float = 0.0) -> None:
        """Return all records, to be delivered again after `delay` seconds."""
        await self._acks.settle("nak", self.partition, runs_of(self.offsets), delay)


@dataclass(slots=True, eq=False, repr=False)
class Delivery:
    """Delivered record. `deliveries`: 1 for the first time. `timestamp`: microseconds since 1970."""

    _acks: Acknowledgements
    partition: int
    offset: int
    timestamp: int
    topic: str
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    deliveries: int

    def __repr__(self) -> str:
        return f"<Delivery {self.deliveries} of offset {self.offset} of partition {self.partition}, {self.topic}>"

    async def ack(self) -> None:
        """Acknowledge the record; return when that is on disk. It is then never delivered again.

        Without a reply it is unknown whether it was stored, and the record may be delivered again. Raises NotStored,
        TimedOut, Closed.
        """
        await self._acks.ack(self.partition, [(self.offset, 1)])

    def ack_soon(self) -> None:
        """Acknowledge the record in the background, with others; `Consumer.flush` waits for it."""
        self._acks.ack_soon(self.partition, [(self.offset, 1)])

    async def nak(self, delay: float = 0.0) -> None:
        """Return the record, to be delivered again after `delay` seconds."""
        await self._acks.settle("nak", self.partition, [(self.offset, 1)], delay)

    async def term(self) -> None:
        """Settle the record without success: it is never delivered again. Return when that is on disk."""
        await self._acks.settle("term", self.partition, [(self.offset, 1)])

    async def progress(self) -> None:
        """Ask for another `ack_wait` before the record is delivered again."""
        await self._acks.settle("progress", self.partition, [(self.offset, 1)])


def runs_in(records: Delivery | DeliveryBatch) -> Runs:
    """Return the offsets of a record or a batch."""
    return [(records.offset, 1)] if isinstance(records, Delivery) else runs_of(records.offsets)
