"""Messages between the peers of a document, as values. Pure; `wire.py` holds their encoding, docs/wire.md the protocol.

On the BUS, which may lose messages: `Updates`, `Heartbeat`, `Aware`, `Bye`. Over REQ/REP, which is reliable: `Hello`,
`Nack`, `Want`, `Pull`, `Give`, `Have`, and their replies `Welcome`, `Resent`, `Diff`, `Chunks`, `Given`, `Has` and
`Refused`. All but `Updates` begin with `sender`, the stream of the sending peer. Sender and receiver both enforce the
limits below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from nngkit.documents.sync.refused import RefusedEdit
from nngkit.documents.versions import Edit, EditStream, Versions

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
    "BusMessage",
    "Bye",
    "Chunks",
    "Diff",
    "DocumentHeartbeat",
    "Give",
    "Given",
    "Has",
    "Have",
    "Heartbeat",
    "Hello",
    "Manifest",
    "Nack",
    "Pull",
    "Range",
    "Refused",
    "Resent",
    "SyncReply",
    "SyncRequest",
    "Updates",
    "Want",
    "Welcome",
]

VERSION: Final = 1
BUS_LIMIT: Final = 256 * 1024  # bytes of a BUS message; larger edits are transferred over REQ/REP
REPLY_LIMIT: Final = 4 << 20  # bytes of a reply: 8 chunks of 256 KiB, and room
REQUEST_LIMIT: Final = 4 << 20  # bytes of a request; larger pushes are split
AWARENESS_LIMIT: Final = 16 * 1024  # bytes of an awareness state; a cursor takes 100
DOCUMENTS: Final = 64  # documents in one heartbeat
HEADS: Final = 32  # streams in the list of recent changes of a heartbeat
EDITS: Final = 256  # edits in one message
RANGES: Final = 64  # ranges in one nack
MANY_DOCUMENTS: Final = 1024  # documents in a welcome
ADDRESSES: Final = 8
CHUNKS: Final = 8  # chunks in one reply
MOST_CHUNKS: Final = 4096  # chunks in one transfer: 1 GiB of 256 KiB, the largest transfer anywhere
LONGEST_WAIT: Final = 30.0  # seconds: cap on the `wait` of a `Have`
TEXT: Final = 1024  # bytes of a name, token, address or reason


@dataclass(frozen=True, slots=True)
class Updates:
    """Edits `first`, `first + 1`, ... of `stream`. On the BUS, and in the reply to a Nack."""

    stream: EditStream
    doc: str
    first: int
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class DocumentHeartbeat:
    """The sender's state of one document: digests while it is quiet, else the streams that changed recently."""

    doc: str
    versions: bytes | None
    content: bytes | None
    heads: Versions


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Presence of the sender, its REP addresses in `repair`, and its state of some documents.

    `relay`: it forwards messages of others. `clients`: its engine client id in each document, to attribute edits.
    `refused`: documents, and the first edit of a present peer that the sender's content could not take.
    """

    sender: EditStream
    docs: tuple[DocumentHeartbeat, ...] = ()
    name: str | None = None
    repair: tuple[str, ...] = ()
    relay: bool = False
    clients: tuple[tuple[str, int], ...] = ()
    refused: tuple[tuple[str, RefusedEdit], ...] = ()


@dataclass(frozen=True, slots=True)
class Aware:
    """Awareness state of `sender` in a document; `state` None: removed. A larger `clock` is newer."""

    sender: EditStream
    doc: str
    clock: int
    state: bytes | None


@dataclass(frozen=True, slots=True)
class Bye:
    """The sender leaves."""

    sender: EditStream


@dataclass(frozen=True, slots=True)
class Range:
    """Edits `first` to `last` of `stream`."""

    stream: EditStream
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Hello:
    """Request BUS addresses and document names. `store`: the origin that has to answer, None: any."""

    sender: EditStream
    token: str | None = None
    name: str | None = None
    docs: tuple[str, ...] = ()
    store: bytes | None = None


@dataclass(frozen=True, slots=True)
class Nack:
    """Request missing edits again."""

    sender: EditStream
    token: str | None
    doc: str
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Want:
    """Request all missing edits. `state`: the engine's state vector, None if the document is empty."""

    sender: EditStream
    token: str | None
    doc: str
    state: bytes | None
    versions: Versions


@dataclass(frozen=True, slots=True)
class Pull:
    """Request chunks of a transfer."""

    sender: EditStream
    token: str | None
    transfer: bytes
    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Give:
    """Push an update, from a peer that has no REP socket. `deps`: its dependencies."""

    sender: EditStream
    token: str | None
    doc: str
    update: bytes
    versions: Versions
    deps: Versions = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Have:
    """Ask whether the peer has `versions`, with `durable` on disk. It replies once it has, or after `wait` seconds."""

    sender: EditStream
    token: str | None
    doc: str
    versions: Versions
    durable: bool
    wait: float


@dataclass(frozen=True, slots=True)
class Welcome:
    """`bus`: addresses to dial; `docs`: documents of the sender; `max_update`: bytes accepted in a Give."""

    sender: EditStream
    bus: tuple[str, ...]
    docs: tuple[str, ...]
    max_update: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Resent:
    """Reply to a Nack. `rest`: some edits are not kept any more; a Want brings their content."""

    sender: EditStream
    doc: str
    updates: tuple[Updates, ...]
    rest: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """Description of a transfer: `size` bytes in chunks of `chunk_size`, the hash of each, and of the whole."""

    transfer: bytes
    size: int
    chunk_size: int
    sha256: bytes
    chunks: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """Reply to a Want: an update, or the manifest of its transfer; with it, the document has `versions`."""

    sender: EditStream
    doc: str
    body: bytes | Manifest
    versions: Versions


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of a transfer; empty if it is not kept any more."""

    sender: EditStream
    transfer: bytes
    chunks: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class Given:
    """Reply to a Give: it is applied; `versions`: all that the document has now."""

    sender: EditStream
    doc: str
    versions: Versions


@dataclass(frozen=True, slots=True)
class Has:
    """Reply to a Have."""

    sender: EditStream
    doc: str
    yes: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Refusal of a request, with the reason.

    `code` is "store", "token", "version", "name", "unknown-document", "busy", "behind", "bad", "too-large" or "refused"
    (the content cannot take the edits).
    """

    sender: EditStream
    code: str
    why: str


BusMessage = Updates | Heartbeat | Aware | Bye
SyncRequest = Hello | Nack | Want | Pull | Give | Have
SyncReply = Welcome | Resent | Diff | Chunks | Given | Has | Refused
