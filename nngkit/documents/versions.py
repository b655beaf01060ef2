"""Versions: how much of whose edits a document has. Pure.

Every start of a peer is a stream of edits, numbered from 1 in each document; to have number n of a stream is to have
all before it. What a document has is one number a stream, its version vector::

    >>> a, b = Stream(b"aaaaaaaa", 1), Stream(b"bbbbbbbb", 1)
    >>> covers({a: 3, b: 1}, {a: 2})
    True
    >>> merge({a: 3}, {a: 2, b: 1}) == {a: 3, b: 1}
    True

Why not the engine's own state vector: it counts what was inserted, not what was deleted. Two replicas may agree on it
and differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from nngkit import envelope
from nngkit.errors import BadMessage

__all__ = [
    "EPOCHS",
    "ORIGIN",
    "STREAMS",
    "Stream",
    "Versions",
    "covers",
    "digest",
    "from_wire",
    "merge",
    "seq_from",
    "stream_from",
    "to_wire",
]

ORIGIN: Final = 8  # bytes: 64 random bits; two of a million peers share one with a chance of 3 in 100 million
EPOCHS: Final = 2**53 - 1  # the largest whole number that JavaScript counts exactly; of seqs too
STREAMS: Final = 4096  # entries of one vector on the wire: 80 KiB; a document that was opened more often is refused


class Stream(NamedTuple):
    """The edits of one peer from one start to the next: `origin` stays with its store, `epoch` is new at each start."""

    origin: bytes
    epoch: int

    def __str__(self) -> str:
        return f"{self.origin.hex()}@{self.epoch}"


Versions = dict[Stream, int]
"""The number of the last edit that is in the document, with all before it, for each stream. Never 0."""


def covers(a: Mapping[Stream, int], b: Mapping[Stream, int]) -> bool:
    """Whether all that is in `b` is in `a`."""
    return all(a.get(stream, 0) >= seq for stream, seq in b.items())


def merge(a: Mapping[Stream, int], b: Mapping[Stream, int]) -> Versions:
    """What is in either."""
    merged = dict(a)
    for stream, seq in b.items():
        if seq > merged.get(stream, 0):
            merged[stream] = seq
    return merged


def digest(versions: Mapping[Stream, int]) -> bytes:
    """8 bytes, the same for equal versions."""
    return hashlib.sha256(envelope.encode(to_wire(versions))).digest()[:8]


def to_wire(versions: Mapping[Stream, int]) -> list[list[Any]]:
    """`[[origin, epoch, seq], ...]`, sorted."""
    return sorted([stream.origin, stream.epoch, seq] for stream, seq in versions.items())


def from_wire(value: Any, *, what: str, peer: str | None = None) -> Versions:
    """What `to_wire` made of it. Raises BadMessage."""
    if type(value) is not list or len(value) > STREAMS:
        raise BadMessage(what, f"versions are a list of at most {STREAMS}", peer)
    versions: Versions = {}
    for entry in value:
        if type(entry) is not list or len(entry) != 3:
            raise BadMessage(what, "a version is [origin, epoch, seq]", peer)
        stream = stream_from(entry[:2], what=what, peer=peer)
        if stream in versions:
            raise BadMessage(what, f"stream {stream} comes twice", peer)
        versions[stream] = seq_from(entry[2], what=what, peer=peer)
    return versions


def stream_from(value: Any, *, what: str, peer: str | None = None) -> Stream:
    """`[origin, epoch]` as a Stream. Raises BadMessage."""
    if type(value) is list and len(value) == 2:
        origin, epoch = value
        if type(origin) is bytes and len(origin) == ORIGIN and type(epoch) is int and 0 <= epoch <= EPOCHS:
            return Stream(origin, epoch)
    raise BadMessage(what, f"a stream is [{ORIGIN} bytes, whole number below 2^53]", peer)


def seq_from(value: Any, *, what: str, peer: str | None = None) -> int:
    """`value` as the number of an edit. Raises BadMessage."""
    if type(value) is int and 1 <= value <= EPOCHS:
        return value
    raise BadMessage(what, "an edit's number is from 1 to 2^53-1", peer)
