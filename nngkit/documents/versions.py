"""Versions: how much of whose edits a document has. Pure.

Every start of a peer is a stream of edits, numbered from 1 in each document; to have number n of a stream is to have
all before it. What a document has is one number a stream, its version vector::

    >>> a, b = EditStream(b"aaaaaaaa", 1), EditStream(b"bbbbbbbb", 1)
    >>> covers({a: 3, b: 1}, {a: 2})
    True
    >>> merge({a: 3}, {a: 2, b: 1}) == {a: 3, b: 1}
    True

Why not the engine's own state vector: it counts what was inserted, not what was deleted. Two replicas may agree on it
and differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from nngkit import envelope
from nngkit.errors import BadMessage

__all__ = [
    "EPOCHS",
    "EPOCHS_KEPT",
    "ORIGIN",
    "STREAMS",
    "Edit",
    "EditStream",
    "Oldest",
    "Versions",
    "covers",
    "digest",
    "from_wire",
    "is_old",
    "merge",
    "prune",
    "seq_from",
    "stream_from",
    "to_wire",
]

ORIGIN: Final = 8  # bytes: 64 random bits; two of a million peers share one with a chance of 3 in 100 million
EPOCHS: Final = 2**53 - 1  # the largest whole number that JavaScript counts exactly; of seqs too
STREAMS: Final = 1024  # streams that a vector keeps, the newest: 20 KiB on the wire
EPOCHS_KEPT: Final = 16  # streams of one origin that a vector keeps, the newest; a script is one a run


class EditStream(NamedTuple):
    """The edits of one peer from one start to the next: `origin` stays with its store, `epoch` is new at each start."""

    origin: bytes
    epoch: int

    def __str__(self) -> str:
        return f"{self.origin.hex()}@{self.epoch}"


Versions = dict[EditStream, int]
"""The number of the last edit that is in the document, with all before it, for each stream. Never 0."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One transaction's update, and what of other streams was in the document then and in no earlier `deps`."""

    payload: bytes
    deps: Versions = field(default_factory=dict)


def covers(a: Mapping[EditStream, int], b: Mapping[EditStream, int]) -> bool:
    """Whether all that is in `b` is in `a`."""
    return all(a.get(stream, 0) >= seq for stream, seq in b.items())


def merge(a: Mapping[EditStream, int], b: Mapping[EditStream, int]) -> Versions:
    """What is in either."""
    merged = dict(a)
    for stream, seq in b.items():
        if seq > merged.get(stream, 0):
            merged[stream] = seq
    return merged


def digest(versions: Mapping[EditStream, int]) -> bytes:
    """8 bytes, the same for equal versions."""
    return hashlib.sha256(envelope.encode(to_wire(versions))).digest()[:8]


class Oldest:
    """Which streams are too old for `versions`: `prune` would let go of them again. Made once, asked often."""

    __slots__ = ("_of_all", "_of_origin")

    def __init__(self, versions: Collection[EditStream]) -> None:
        epochs: dict[bytes, list[int]] = {}
        for stream in versions:
            epochs.setdefault(stream.origin, []).append(stream.epoch)
        full = {origin: sorted(several) for origin, several in epochs.items() if len(several) >= EPOCHS_KEPT}
        self._of_origin = {origin: several[-EPOCHS_KEPT] for origin, several in full.items()}
        self._of_all: tuple[int, bytes] | None = None
        if len(versions) >= STREAMS:
            self._of_all = sorted((stream.epoch, stream.origin) for stream in versions)[-STREAMS]

    def excludes(self, stream: EditStream) -> bool:
        """Whether what came of `stream`, which is not in the vector, is in the content all the same."""
        if stream.epoch < self._of_origin.get(stream.origin, 0):
            return True
        return self._of_all is not None and (stream.epoch, stream.origin) < self._of_all


def is_old(stream: EditStream, versions: Mapping[EditStream, int]) -> bool:
    """Whether `stream` is too old for `versions`; see Oldest, for who asks often."""
    return stream not in versions and Oldest(versions).excludes(stream)


def prune(versions: Versions, keep: EditStream | None = None) -> None:
    """Let go of the oldest streams beyond EPOCHS_KEPT of one origin and STREAMS in all; of `keep` not, besides those.

    Epochs grow with time, so replicas that have the same let go of the same. What a late edit of such a stream brings
    is found by the content's digest and not by its number. `keep`: who lets go of its own stream numbers from 1 again.
    """
    if len(versions) <= EPOCHS_KEPT:
        return
    counts: dict[bytes, int] = {}
    kept = 0
    for stream in sorted(versions, key=lambda s: (s.epoch, s.origin), reverse=True):
        counts[stream.origin] = counts.get(stream.origin, 0) + 1
        if kept >= STREAMS or counts[stream.origin] > EPOCHS_KEPT:
            if stream != keep:
                del versions[stream]
        else:
            kept += 1


def to_wire(versions: Mapping[EditStream, int]) -> list[list[Any]]:
    """`[[origin, epoch, seq], ...]`, sorted."""
    return sorted([stream.origin, stream.epoch, seq] for stream, seq in versions.items())


# The same few streams are in every message: one object for each is found faster than made, and is less memory.
_known_stream = lru_cache(4 * STREAMS)(EditStream)


def from_wire(value: Any, *, what: str, peer: str | None = None) -> Versions:
    """What `to_wire` made of it: STREAMS, and the sender's own where that is too old for them. Raises BadMessage."""
    if type(value) is not list or len(value) > STREAMS + 1:
        raise BadMessage(what, f"versions are a list of at most {STREAMS + 1}", peer)
    versions: Versions = {}
    for entry in value:
        if type(entry) is not list or len(entry) != 3:
            raise BadMessage(what, "a version is [origin, epoch, seq]", peer)
        origin, epoch, seq = entry
        # as stream_from and seq_from do, which say what is wrong: a beat has up to 32 of these, and beats are many
        if type(origin) is bytes and len(origin) == ORIGIN and type(epoch) is int and 0 <= epoch <= EPOCHS:
            stream = _known_stream(origin, epoch)
        else:
            stream = stream_from(entry[:2], what=what, peer=peer)
        if stream in versions:
            raise BadMessage(what, f"stream {stream} comes twice", peer)
        versions[stream] = seq if type(seq) is int and 1 <= seq <= EPOCHS else seq_from(seq, what=what, peer=peer)
    return versions


def stream_from(value: Any, *, what: str, peer: str | None = None) -> EditStream:
    """`[origin, epoch]` as a EditStream. Raises BadMessage."""
    if type(value) is list and len(value) == 2:
        origin, epoch = value
        if type(origin) is bytes and len(origin) == ORIGIN and type(epoch) is int and 0 <= epoch <= EPOCHS:
            return _known_stream(origin, epoch)
    raise BadMessage(what, f"a stream is [{ORIGIN} bytes, whole number below 2^53]", peer)


def seq_from(value: Any, *, what: str, peer: str | None = None) -> int:
    """`value` as the number of an edit. Raises BadMessage."""
    if type(value) is int and 1 <= value <= EPOCHS:
        return value
    raise BadMessage(what, "an edit's number is from 1 to 2^53-1", peer)
