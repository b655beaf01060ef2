"""Tables of a document peer: its open documents with the rate of their edits, and the other peers.

A document that is opened is a new row, and so is a peer that comes; the row of one that left is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial

from nngkit.documents import DocumentPeer
from nngkit.web.status.feed import Section
from nngkit.web.status.sections import RateOf, poll


@dataclass(frozen=True, slots=True)
class OpenDocument:
    """An open document, the edits in it, and the number of peers that have it open."""

    document: str
    edits: int
    peers: int


@dataclass(frozen=True, slots=True)
class OtherPeer:
    """Another peer; of its documents their number, as not all may know the names. `round_trip`: seconds."""

    stream: str
    name: str | None
    address: str | None
    documents: int
    round_trip: float
    askable: bool
    relay: bool


def sections(peer: DocumentPeer, names: Callable[[], Iterable[str]]) -> list[Section]:
    """Return the tables of a peer. `names`: the documents that are shown."""
    rate_of = RateOf()

    def documents() -> dict[str, object]:
        rows = document_rows(peer, names())
        rates = rate_of({row.document: row.edits for row in rows})
        return {row.document: {**asdict(row), "edits_per_second": rates[row.document]} for row in rows}

    return [
        Section({"documents": "Open documents."}, partial(poll, documents)),
        Section(
            {"peers": "Peers of which a message came within the last three seconds."},
            partial(poll, lambda: {row.stream: asdict(row) for row in peer_rows(peer)}),
        ),
    ]


def document_rows(peer: DocumentPeer, names: Iterable[str]) -> list[OpenDocument]:
    """Return those of these documents that are open."""
    there = Counter(name for other in peer.peers for name in other.documents)
    opened = peer.documents
    return [
        OpenDocument(name, sum(peer.versions(name).values()), there[name]) for name in sorted(names) if name in opened
    ]


def peer_rows(peer: DocumentPeer) -> list[OtherPeer]:
    """Return the other peers."""
    return [
        OtherPeer(
            str(other.stream),
            other.name,
            other.address,
            len(other.documents),
            round(other.round_trip, 4),
            other.askable,
            other.relay,
        )
        for other in peer.peers
    ]
