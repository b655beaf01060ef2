"""A replica's decisions, and its state of other peers. Values; pure. `replica.py` decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nngkit.documents import versions as vectors
from nngkit.documents.sync.messages import Range
from nngkit.documents.versions import EditStream, Versions

NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class AskEdits:
    """Ask `peer` for these edits; then call `heard` and `answered`, or `failed`."""

    peer: EditStream
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class AskAll:
    """Ask `peer` for all missing edits; then call `merged` and `caught_up`, `unknown_document`, or `failed`.

    `whole`: ask as if the local document were empty.
    """

    peer: EditStream
    whole: bool


@dataclass(frozen=True, slots=True)
class Offer:
    """Push to `peer` what it misses (`missing_at_peer`), as it cannot ask us; then call `offered`, or `failed`.

    `whole`: everything, because the missing part was not accepted.
    """

    peer: EditStream
    whole: bool = False


Ask = AskEdits | AskAll | Offer


@dataclass(frozen=True, slots=True)
class Decisions:
    """Actions. `needs_digest`: call `settled` with the content digest. `wake`: when to evaluate again."""

    asks: list[Ask]
    needs_digest: bool
    wake: float


@dataclass(slots=True)
class PeerState:
    """State of another peer with respect to one document.

    `askable`: it has a REP socket. Under a trust, `gives`: it may change the document; `carries`: it may speak for
    others. `source`: it is asked for edits.
    """

    askable: bool
    source: bool
    gives: bool = True
    carries: bool = True
    claims: Versions = field(default_factory=dict)
    versions: bytes | None = None
    content: bytes | None = None
    reported_at: float = -NEVER  # when it reported these two
    asked_at: float | None = None
    all_asked_at: float = -NEVER  # when it was last asked for everything
    caught_up_at: float = -NEVER  # everything that it had then is here
    absent: bool = False  # it does not have the document, as far as it said
    failures: int = 0
    not_before: float = 0.0
    fruitless: tuple[bytes, bytes | None] | None = None  # our digest and its, with which asking brought nothing
    offered: Versions | None = None
    reported: bool = False  # it has reported versions

    def claim(self, versions: Mapping[EditStream, int]) -> None:
        """Record that the peer has these versions."""
        for stream, seq in versions.items():
            if seq > self.claims.get(stream, 0) and len(self.claims) < 2 * vectors.STREAMS:
                self.claims[stream] = seq


@dataclass(slots=True)
class Gap:
    """Missing edits of one stream. `at`: our version when it was last checked; `peer`: asked last."""

    due: float
    at: int
    tries: int = 0
    lost: bool = False  # no peer has them one by one any more
    peer: EditStream | None = None
