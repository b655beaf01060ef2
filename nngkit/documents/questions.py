"""State of other peers as a replica knows it, and the questions it asks them. Values; pure. `replica.py` decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from nngkit.documents import versions as vectors
from nngkit.documents.messages import Range
from nngkit.documents.versions import Stream, Versions

__all__ = ["NEVER", "Ask", "AskAll", "AskEdits", "Decisions", "Gap", "Offer", "Peer"]

NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class AskEdits:
    """Ask `peer` for these; then call `heard` and `answered`, or `failed`."""

    peer: Stream
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class AskAll:
    """Ask `peer` for all that is lacking here; then call `merged` and `caught_up`, `lacking`, or `failed`.

    `whole`: as if there were nothing.
    """

    peer: Stream
    whole: bool


@dataclass(frozen=True, slots=True)
class Offer:
    """Give `peer` what it lacks (`lacks`), as it cannot ask us; then call `offered`, or `failed`.

    `whole`: everything, as what it lacks was not taken.
    """

    peer: Stream
    whole: bool = False


Ask = AskEdits | AskAll | Offer


@dataclass(frozen=True, slots=True)
class Decisions:
    """Actions to perform. `look`: call `settled` with the content's digest. `wake`: when to evaluate again."""

    asks: list[Ask]
    look: bool
    wake: float


@dataclass(slots=True)
class Peer:
    """What is known of another peer, as far as one document goes."""

    askable: bool
    claims: Versions = field(default_factory=dict)
    versions: bytes | None = None
    content: bytes | None = None
    told_at: float = -NEVER  # when it told us these two
    asked_at: float | None = None
    all_asked_at: float = -NEVER  # when it was last asked for all it has
    caught: float = -NEVER  # all that it had then is here
    absent: bool = False  # it said that it has no such document, and has not spoken of it since
    failures: int = 0
    not_before: float = 0.0
    fruitless: tuple[bytes, bytes | None] | None = None  # digests, ours and its, with which asking brought nothing
    offered: Versions | None = None
    spoke: bool = False  # whether it has said what it has

    def claim(self, versions: Mapping[Stream, int]) -> None:
        """It says, or shows, that it has these."""
        for stream, seq in versions.items():
            if seq > self.claims.get(stream, 0) and len(self.claims) < 2 * vectors.STREAMS:
                self.claims[stream] = seq


@dataclass(slots=True)
class Gap:
    """Edits of one stream that are missing: `at` is how far we were when it was last looked at; `peer` was asked."""

    due: float
    at: int
    tries: int = 0
    lost: bool = False  # nobody keeps them one by one
    peer: Stream | None = None  # who was asked last
