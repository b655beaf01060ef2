"""Version vectors: which edits a document contains. Pure.

Each start of a peer begins a stream of edits, numbered from 1 in each document. A document contains a prefix of each
stream, so one number per stream describes it, its version vector::

    >>> a, b = EditStream(b"aaaaaaaa", 1), EditStream(b"bbbbbbbb", 1)
    >>> covers({a: 3, b: 1}, {a: 2})
    True
    >>> merge({a: 3}, {a: 2, b: 1}) == {a: 3, b: 1}
    True

The engine's own state vector is not enough: it counts insertions, not deletions, so two replicas may agree on it and
still differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Protocol, TypeAlias

from msgspec import Meta

from nngkit import envelope
from nngkit.errors import BadMessage
from nngkit.messages import Natural, Row, Wired

ORIGIN: Final = 8  # bytes: 64 random bits; among a million peers, two collide with a probability of 3 in 100 million
EPOCHS: Final = 2**53 - 1  # the largest integer that JavaScript represents exactly; applies to sequence numbers too
STREAMS: Final = 1024  # streams that a vector keeps, the newest: 20 KiB on the wire
EPOCHS_KEPT: Final = 16  # streams that a vector keeps of one origin, the newest; a script adds one at each run

Origin: TypeAlias = Annotated[bytes, Meta(min_length=ORIGIN, max_length=ORIGIN)]
Seq: TypeAlias = Annotated[int, Meta(ge=1, le=EPOCHS)]


class EditStream(NamedTuple):
    """The edits of one peer between two starts. `origin` belongs to its store; `epoch` is new at each start."""

    origin: Origin
    epoch: Natural

    def __str__(self) -> str:
        return f"{self.origin.hex()}@{self.epoch}"


class Harmful(ValueError):
    """An update that damages the engine, which no peer makes by mistake; the content may have had to be rebuilt."""


Versions = dict[EditStream, int]
"""The number of the last edit of each stream in the document; all edits before it are in it too. Never 0."""


if TYPE_CHECKING:
    WireVersions: TypeAlias = Versions
else:

    class WireVersions(Wired):
        """Versions that are `to_wire` in a message."""

        form = Annotated[tuple[tuple[Origin, Natural, Seq], ...], Meta(max_length=STREAMS + 1)]

        @staticmethod
        def read(value):
            try:
                return from_wire(value, what="versions")
            except BadMessage as error:
                raise ValueError(error.why) from None

        @staticmethod
        def write(value):
            return to_wire(value) if value else []

    WireVersions.register(dict)


class Edit(Row, frozen=True):
    """The update of one transaction.

    `deps`: versions of other streams in the document then, unless an earlier edit of the same stream named them.
    """

    payload: bytes
    deps: WireVersions


class EditLog(Protocol):
    """Log of one document's edits. Its methods never wait and never raise."""

    def append(self, stream: EditStream, seq: int, edit: Edit) -> None:
        """Append an edit."""

    def append_merge(self, update: bytes, versions: Versions) -> None:
        """Append an update after which the document has all of `versions`."""


def covers(a: Mapping[EditStream, int], b: Mapping[EditStream, int]) -> bool:
    """Return True if `a` includes everything in `b`."""
    return all(a.get(stream, 0) >= seq for stream, seq in b.items())


def merge(a: Mapping[EditStream, int], b: Mapping[EditStream, int]) -> Versions:
    """Return the union of two vectors."""
    merged = dict(a)
    for stream, seq in b.items():
        if seq > merged.get(stream, 0):
            merged[stream] = seq
    return merged


def digest(versions: Mapping[EditStream, int]) -> bytes:
    """Return 8 bytes that are equal for equal versions."""
    return hashlib.sha256(envelope.encode(to_wire(versions))).digest()[:8]


class Oldest:
    """The streams that are too old for `versions`: `prune` would drop them again. Build it once for many queries."""

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
        """Return True if `stream`, not in the vector, is too old: its edits count as included in the content."""
        if stream.epoch < self._of_origin.get(stream.origin, 0):
            return True
        return self._of_all is not None and (stream.epoch, stream.origin) < self._of_all


def is_old(stream: EditStream, versions: Mapping[EditStream, int]) -> bool:
    """Return True if `stream` is too old for `versions`. For many queries, use Oldest."""
    return stream not in versions and Oldest(versions).excludes(stream)


def prune(versions: Versions, keep: EditStream | None = None) -> None:
    """Drop the oldest streams, beyond EPOCHS_KEPT of one origin and STREAMS in all.

    `keep` is never dropped and not counted. Epochs grow with time, so replicas with equal vectors drop the same
    streams. A late edit of a dropped stream is found by the content digest, not by its number. `keep` is the caller's
    own stream: without it, it would number from 1 again.
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
    """Return `[[origin, epoch, seq], ...]`, sorted."""
    return sorted([stream.origin, stream.epoch, seq] for stream, seq in versions.items())


# The same few streams are in every message: a cached object is found faster than made, and saves memory.
_known_stream = lru_cache(4 * STREAMS)(EditStream)


def from_wire(value: Any, *, what: str, peer: str | None = None) -> Versions:
    """Decode `to_wire`: at most STREAMS, plus the sender's own if that is too old for them. Raises BadMessage."""
    if type(value) is not list or len(value) > STREAMS + 1:
        raise BadMessage(what, f"versions must be a list of at most {STREAMS + 1}", peer)
    versions: Versions = {}
    for entry in value:
        if type(entry) is not list or len(entry) != 3:
            raise BadMessage(what, "a version must be [origin, epoch, seq]", peer)
        origin, epoch, seq = entry
        # The checks of stream_from and seq_from, inlined: a heartbeat has up to 32 of these, and is frequent.
        if type(origin) is bytes and len(origin) == ORIGIN and type(epoch) is int and 0 <= epoch <= EPOCHS:
            stream = _known_stream(origin, epoch)
        else:
            stream = stream_from(entry[:2], what=what, peer=peer)
        if stream in versions:
            raise BadMessage(what, f"duplicate stream {stream}", peer)
        versions[stream] = seq if type(seq) is int and 1 <= seq <= EPOCHS else seq_from(seq, what=what, peer=peer)
    return versions


def stream_from(value: Any, *, what: str, peer: str | None = None) -> EditStream:
    """Read `[origin, epoch]`. Raises BadMessage."""
    if type(value) is list and len(value) == 2:
        origin, epoch = value
        if type(origin) is bytes and len(origin) == ORIGIN and type(epoch) is int and 0 <= epoch <= EPOCHS:
            return _known_stream(origin, epoch)
    raise BadMessage(what, f"a stream must be [{ORIGIN} bytes, integer below 2^53]", peer)


def seq_from(value: Any, *, what: str, peer: str | None = None) -> int:
    """Read the sequence number of an edit. Raises BadMessage."""
    if type(value) is int and 1 <= value <= EPOCHS:
        return value
    raise BadMessage(what, "a sequence number must be 1 to 2^53-1", peer)
