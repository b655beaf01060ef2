"""What peers of a document say to each other, as values. Pure; `wire.py` makes bytes of them (docs/wire.md).

On the BUS, which may lose anything: `Updates`, `Beat`, `Aware`, `Bye`. Over REQ/REP, for what has to arrive: `Hello`,
`Nack`, `Want`, `Pull`, `Give`, `Have`, and their replies `Welcome`, `Resent`, `Diff`, `Chunks`, `Given`, `Has` and
`Refused`. All but `Updates` begin with `sender`, the stream of who speaks. The limits stand here because who sends and
who reads both keep them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from nngkit.documents.versions import Stream, Versions

__all__ = [
    "ADDRESSES",
    "AWARENESS_LIMIT",
    "BUS_LIMIT",
    "CHUNKS",
    "DOCUMENTS",
    "EDITS",
    "HEADS",
    "LONGEST_WAIT",
    "MANY_DOCUMENTS",
    "MOST_CHUNKS",
    "RANGES",
    "REPLY_LIMIT",
    "REQUEST_LIMIT",
    "TEXT",
    "VERSION",
    "Aware",
    "Beat",
    "BusMessage",
    "Bye",
    "Chunks",
    "Diff",
    "DocBeat",
    "Edit",
    "Give",
    "Given",
    "Has",
    "Have",
    "Hello",
    "Manifest",
    "Nack",
    "Pull",
    "Range",
    "Refused",
    "Reply",
    "Request",
    "Resent",
    "Updates",
    "Want",
    "Welcome",
]

VERSION: Final = 1
BUS_LIMIT: Final = 256 * 1024  # bytes of a message on the BUS; what is larger is asked for over REQ/REP
REPLY_LIMIT: Final = 4 << 20  # bytes of a reply: 8 chunks of 256 KiB with room
REQUEST_LIMIT: Final = 4 << 20  # bytes of a request: what a page gives; more it gives in parts
AWARENESS_LIMIT: Final = 16 * 1024  # bytes of who is here; a cursor takes 100
DOCUMENTS: Final = 64  # documents in one beat
HEADS: Final = 32  # streams in a beat's list of what changed lately
EDITS: Final = 256  # edits in one message
RANGES: Final = 64  # ranges in one nack
MANY_DOCUMENTS: Final = 1024  # in a welcome
ADDRESSES: Final = 8
CHUNKS: Final = 8  # in one reply
MOST_CHUNKS: Final = 4096  # in one transfer: 1 GiB of 256 KiB, the most that anything here may claim
LONGEST_WAIT: Final = 30.0  # seconds that one `Have` may wait
TEXT: Final = 1024  # bytes of a name, token, address or reason


@dataclass(frozen=True, slots=True)
class Edit:
    """One transaction's update, and what of other streams was in the document then and in no earlier `deps`."""

    payload: bytes
    deps: Versions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Updates:
    """Edits `first`, `first + 1`, ... of `stream`. BUS; also what a nack is answered with."""

    stream: Stream
    doc: str
    first: int
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class DocBeat:
    """What the sender has of one document: digests while it is quiet, and the streams that changed lately."""

    doc: str
    versions: bytes | None
    content: bytes | None
    heads: Versions


@dataclass(frozen=True, slots=True)
class Beat:
    """The sender is there, may be asked at `repair`, and has this of some of its documents.

    `relay`: it passes on what others say. `clients`: the engine's client id in each document, for who wrote what.
    """

    sender: Stream
    docs: tuple[DocBeat, ...] = ()
    name: str | None = None
    repair: tuple[str, ...] = ()
    relay: bool = False
    clients: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Aware:
    """Who is at work in a document, and where; `state` None: not any more. Larger `clock`s are newer."""

    sender: Stream
    doc: str
    clock: int
    state: bytes | None


@dataclass(frozen=True, slots=True)
class Bye:
    """The sender leaves."""

    sender: Stream


@dataclass(frozen=True, slots=True)
class Range:
    """Edits `first` to `last` of `stream`."""

    stream: Stream
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Hello:
    """Request to join, for the BUS addresses and documents. `store`: origin of the only store to answer; None: any."""

    sender: Stream
    token: str | None = None
    name: str | None = None
    docs: tuple[str, ...] = ()
    store: bytes | None = None


@dataclass(frozen=True, slots=True)
class Nack:
    """Some edits did not come: once more, please."""

    sender: Stream
    token: str | None
    doc: str
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Want:
    """All that I lack, please: `state` is the engine's state vector, None where there is nothing yet."""

    sender: Stream
    token: str | None
    doc: str
    state: bytes | None
    versions: Versions


@dataclass(frozen=True, slots=True)
class Pull:
    """Some chunks of a transfer."""

    sender: Stream
    token: str | None
    transfer: bytes
    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Give:
    """What you may lack of mine, from one who cannot be asked; `deps`: what it builds on."""

    sender: Stream
    token: str | None
    doc: str
    update: bytes
    versions: Versions
    deps: Versions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Have:
    """Have you got these (`durable`: on your disk)? Say so when you have, at the latest after `wait` seconds."""

    sender: Stream
    token: str | None
    doc: str
    versions: Versions
    durable: bool
    wait: float


@dataclass(frozen=True, slots=True)
class Welcome:
    """`bus`: addresses to dial; `docs`: what is there."""

    sender: Stream
    bus: tuple[str, ...]
    docs: tuple[str, ...]
    max_update: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Resent:
    """The edits of a nack; `rest`: some are not kept any more, a Want brings what they did."""

    sender: Stream
    doc: str
    updates: tuple[Updates, ...]
    rest: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a transfer will bring: `size` bytes in chunks of `chunk_size`, each with its hash, and the hash of all."""

    transfer: bytes
    size: int
    chunk_size: int
    sha256: bytes
    chunks: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """An update with all that the asker lacked, or the manifest of its transfer; with it, it has `versions`."""

    sender: Stream
    doc: str
    body: bytes | Manifest
    versions: Versions


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of a transfer; none: it is not kept any more."""

    sender: Stream
    transfer: bytes
    chunks: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class Given:
    """What was given is in; `versions`: all that is here now."""

    sender: Stream
    doc: str
    versions: Versions


@dataclass(frozen=True, slots=True)
class Has:
    """Whether what was asked about is here."""

    sender: Stream
    doc: str
    yes: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Why not.

    `code` is "store", "token", "version", "name", "unknown-document", "busy", "behind", "bad" or "too-large".
    """

    sender: Stream
    code: str
    why: str


BusMessage = Updates | Beat | Aware | Bye
Request = Hello | Nack | Want | Pull | Give | Have
Reply = Welcome | Resent | Diff | Chunks | Given | Has | Refused
