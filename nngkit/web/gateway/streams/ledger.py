"""Streams as the records of a journal's partition describe them, and which change may follow. Pure.

A change of a stream is one record of the journal: its topic is the stream's name, its value what is appended, and the
header "nngkit.stream" has the `Change` as JSON. As one record is stored whole or not at all, an append, the state of
its producer and the closing are one. `apply` takes the records in their order, at the start all of them; the entries of
a stream then say which record has which positions.

1. Positions grow by the size of what is appended: bytes, or messages of a JSON stream.
2. A fork has the positions of its source below `base`, and its own from there on.
3. A stream that is deleted while others branch from it is kept for them, and its name stays taken.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from nngkit.web.gateway.problems import Problem
from nngkit.web.gateway.streams.asked import JSON, Producer, bad, essence, moment
from nngkit.web.gateway.streams.offsets import token

HEADER: Final = "nngkit.stream"
MOST_PRODUCERS: Final = 10_000
"""Of one stream; the one that appended least lately is forgotten."""
CLOSED: Final = ("Stream-Closed", "true")


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """Change of a stream by a record. `size`: what its value adds to the position; `weight`: bytes of the value."""

    op: Literal["create", "append", "delete"]
    size: int = 0
    weight: int = 0
    closed: bool = False
    type: str = ""
    """Of "create", as the following: the media type, and how long the stream lasts."""
    ttl: int | None = None
    expires: str | None = None
    source: str = ""
    """Name of the stream that it branches from; where: a position, and messages or bytes past it."""
    base: int = 0
    sub: int = 0
    seq: str | None = None
    """Of "append", as the following: Stream-Seq, and the producer."""
    producer: str = ""
    epoch: int = 0
    number: int = 0


_DECODER: Final = msgspec.json.Decoder(Change)


def encoded(change: Change) -> bytes:
    """Return a change as it is stored."""
    return msgspec.json.encode(change)


def decoded(data: bytes) -> Change:
    """Return a stored change. Raises ValueError."""
    return _DECODER.decode(data)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one record's value: from `start` to `stop` - 1, of `size`; bytes, or messages.

    `weight`: bytes of the value.
    """

    record: int
    start: int
    stop: int
    size: int
    weight: int


@dataclass(eq=False)
class Stream:
    """A stream. `id`: the number of the record that created it; `touched`: the last read or write, for its TTL."""

    name: str
    id: int
    type: str
    ttl: int | None
    expires: float | None
    shown_expires: str | None
    source: Stream | None
    base: int
    sub: int
    touched: float
    tail: int = 0
    closed: bool = False
    closer: Producer | None = None
    seq: str | None = None
    forks: int = 0
    deleted: bool = False
    producers: OrderedDict[str, tuple[int, int]] = field(default_factory=OrderedDict)
    ends: array[int] = field(default_factory=lambda: array("q"))
    """Of each record that appended, the position after it; `records`: its number, `weights`: the bytes of its value."""
    records: array[int] = field(default_factory=lambda: array("q"))
    weights: array[int] = field(default_factory=lambda: array("q"))

    @property
    def is_json(self) -> bool:
        """True if it consists of messages."""
        return essence(self.type) == JSON

    def left(self, now: float) -> float | None:
        """Return the seconds until it expires; None if it does not."""
        ends = self.touched + self.ttl if self.ttl is not None else self.expires
        return None if ends is None else ends - now

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """Yield the parts of records that have the positions `start` to `stop` - 1, of its sources too."""
        owners: list[tuple[Stream, int]] = []
        owner: Stream | None = self
        while owner is not None:
            owners.append((owner, stop))
            if start >= owner.base:
                break
            stop = min(stop, owner.base)
            owner = owner.source
        for each, end in reversed(owners):
            at = max(start, each.base)
            number = bisect_right(each.ends, at)
            while at < end and number < len(each.ends):
                first = each.ends[number - 1] if number else each.base
                until = min(each.ends[number], end)
                size, weight = each.ends[number] - first, each.weights[number]
                yield Piece(each.records[number], at - first, until - first, size, weight)
                at = until
                number += 1

    def boundary(self, at: int) -> int:
        """Return the position at which the record that has the position `at` ends; `at` itself at the tail."""
        for piece in self.pieces(at, self.tail):
            return at + piece.size - piece.start
        return at

    # Which change may follow

    def closed_problem(self) -> Problem:
        """Return the refusal of an append to a closed stream."""
        headers = (CLOSED, ("Stream-Next-Offset", token(self.tail)))
        return Problem(409, "closed", f"{self.name} is closed", headers=headers, ran=False)

    def judge(self, producer: Producer | None) -> bool:
        """Return True if a producer's request is to be done, False if it has been. Raises Problem."""
        if producer is None:
            return True
        epoch, last = self.producers.get(producer.id, (-1, -1))
        if producer.epoch < epoch:
            why = f"the producer's epoch is {epoch}"
            raise Problem(403, "fenced", why, headers=(("Producer-Epoch", str(epoch)),), ran=False)
        if producer.epoch > epoch:
            if epoch >= 0 and producer.number != 0:
                raise bad("an epoch begins with Producer-Seq 0")
            last = -1
        if producer.number <= last:
            return False
        if producer.number > last + 1:
            headers = (("Producer-Expected-Seq", str(last + 1)), ("Producer-Received-Seq", str(producer.number)))
            raise Problem(409, "gap", f"Producer-Seq {last + 1} is missing", headers=headers, ran=False)
        return True

    def check_sequence(self, seq: str | None) -> None:
        """Raise Problem unless a writer's sequence goes on."""
        if seq is not None and self.seq is not None and seq.encode() <= self.seq.encode():
            raise Problem(409, "sequence", f"Stream-Seq is not over {self.seq!r}", ran=False)


class Ledger:
    """The streams by name."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}

    def apply(self, name: str, record: int, change: Change, now: float) -> Stream | None:
        """Take in a record; return its stream. A change of a stream that is not there is ignored."""
        if change.op == "create":
            return self._create(name, record, change, now)
        stream = self.streams.get(name)
        if stream is None:
            return None
        if change.op == "delete":
            self._delete(stream)
            return stream
        producer = Producer(change.producer, change.epoch, change.number) if change.producer else None
        if producer is not None:
            stream.producers[producer.id] = producer.epoch, producer.number
            stream.producers.move_to_end(producer.id)
            if len(stream.producers) > MOST_PRODUCERS:
                stream.producers.popitem(last=False)
        if change.seq is not None:
            stream.seq = change.seq
        if change.closed:
            stream.closed, stream.closer = True, producer
        self._extend(stream, record, change)
        stream.touched = now
        return stream

    def _create(self, name: str, record: int, change: Change, now: float) -> Stream:
        source = self.streams.get(change.source) if change.source else None
        if source is not None:
            source.forks += 1
        expires = None if change.expires is None else moment(change.expires)
        base = change.base + change.sub
        stream = Stream(
            name, record, change.type, change.ttl, expires, change.expires, source, base, change.sub, now, tail=base
        )
        stream.closed = change.closed
        self._extend(stream, record, change)
        self.streams[name] = stream
        return stream

    def _extend(self, stream: Stream, record: int, change: Change) -> None:
        if change.size:
            stream.tail += change.size
            stream.ends.append(stream.tail)
            stream.records.append(record)
            stream.weights.append(change.weight)

    def _delete(self, stream: Stream) -> None:
        stream.deleted = True
        each: Stream | None = stream
        while each is not None and each.deleted and not each.forks:
            self.streams.pop(each.name, None)
            each = each.source
            if each is not None:
                each.forks -= 1
