"""Messages between the peers of a document. Pure; docs/wire.md is the protocol, `wire.py` encodes and decodes.

On the BUS, which may lose messages: `Updates`, `Heartbeat`, `Aware`, `Bye`. Over REQ/REP, which is reliable: `Hello`,
`Nack`, `Want`, `Pull`, `Give`, `Have`, `Proof`, and their replies `Welcome`, `Resent`, `Diff`, `Chunks`, `Given`,
`Has`, `Prove` and `Refused`. All but `Updates` begin with `sender`, the stream of the sending peer. Sender and receiver
both enforce the limits below.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, field

from nngkit.documents.names import LONGEST, check_name
from nngkit.documents.versions import Edit, EditStream, Origin, Seq, WireVersions
from nngkit.envelope import shown
from nngkit.errors import ConfigError
from nngkit.messages import ADDRESS, ANY_TEXT, Fields, Natural, Row, always

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


def _check_doc(name: str) -> None:
    try:
        check_name(name)
    except ConfigError as refused:
        raise ValueError(shown(refused)) from None


def _check_heads(versions: Sized) -> None:
    if len(versions) > HEADS:
        raise ValueError(f"{len(versions)} streams, over the limit of {HEADS}")


Doc: TypeAlias = Annotated[str, Meta(min_length=1, max_length=LONGEST, extra={"check": _check_doc})]
Text: TypeAlias = Annotated[str, Meta(max_length=TEXT, extra=ANY_TEXT)]
"""Text for people, of a peer: `envelope.shown` makes a printable line of it."""
Version: TypeAlias = Annotated[int, Meta(ge=1, le=VERSION)]
Token: TypeAlias = Text | None
"""Null, and ignored: of earlier versions, which sent the token itself."""
Nonce: TypeAlias = Annotated[bytes, Meta(min_length=32, max_length=32)]
Heads: TypeAlias = Annotated[WireVersions, Meta(extra={"check": _check_heads})]
TransferId: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
Sha256: TypeAlias = Annotated[bytes, Meta(min_length=32, max_length=32)]
Index: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_CHUNKS - 1)]
Addresses: TypeAlias = Annotated[
    tuple[Annotated[str, Meta(max_length=TEXT, extra=ADDRESS)], ...], Meta(max_length=ADDRESSES)
]


class Range(Row, frozen=True):
    """Edits `first` to `last` of a stream."""

    origin: Origin
    epoch: Natural
    first: Seq
    last: Seq

    @property
    def stream(self) -> EditStream:
        """The stream of the edits."""
        return EditStream(self.origin, self.epoch)

    def check(self) -> None:
        """Refuse one that ends before it begins."""
        if self.first > self.last:
            raise ValueError("a range ends before it begins")


class Updates(Row, frozen=True, tag=0):
    """Edits `first`, `first + 1`, ... of `stream`. On the BUS, and in the reply to a Nack."""

    stream: EditStream
    doc: Doc
    first: Seq
    edits: Annotated[tuple[Edit, ...], Meta(min_length=1, max_length=EDITS)]

    def check(self) -> None:
        """Refuse numbers that not every reader has exactly."""
        if self.first + len(self.edits) > 2**53:
            raise ValueError("the sequence numbers exceed 2^53")


class DocumentHeartbeat(Row, frozen=True):
    """The sender's state of one document: digests while it is quiet, else the streams that changed recently."""

    doc: Doc
    versions: Annotated[bytes, Meta(min_length=8, max_length=8)] | None
    content: Annotated[bytes, Meta(min_length=16, max_length=16)] | None
    heads: Heads


class Client(Row, frozen=True):
    """The sender's engine client id in a document, to attribute edits."""

    doc: Doc
    client: Natural


class Refusal(Row, frozen=True):
    """The first edit of a present peer's stream that the sender's content could not take."""

    doc: Doc
    origin: Origin
    epoch: Natural
    seq: Seq
    why: Text


class About(Fields, frozen=True, omit_defaults=True):
    """Description of the sender in a heartbeat.

    `repair`: its REP addresses. `relay`: it forwards messages of others.
    """

    v: Version = always(VERSION)
    name: Text | None = None
    repair: Addresses = ()
    relay: bool = False
    clients: Annotated[tuple[Client, ...], Meta(max_length=DOCUMENTS)] = field(name="client", default=())
    refused: Annotated[tuple[Refusal, ...], Meta(max_length=DOCUMENTS)] = ()


class Heartbeat(Row, frozen=True, tag=1):
    """Presence of the sender, and its state of some documents."""

    sender: EditStream
    about: About
    docs: Annotated[tuple[DocumentHeartbeat, ...], Meta(max_length=DOCUMENTS)]


class Aware(Row, frozen=True, tag=2):
    """Awareness state of `sender` in a document; `state` None: removed. A larger `clock` is newer."""

    sender: EditStream
    doc: Doc
    clock: Natural
    state: Annotated[bytes, Meta(max_length=AWARENESS_LIMIT)] | None


class Bye(Row, frozen=True, tag=3):
    """The sender leaves."""

    sender: EditStream


class Introduction(Fields, frozen=True, omit_defaults=True):
    """Description of the sender in a hello. `store`: the origin that has to answer, None: any."""

    v: Version = always(VERSION)
    name: Text | None = None
    docs: Annotated[tuple[Doc, ...], Meta(max_length=DOCUMENTS)] = field(name="documents", default=())
    store: Origin | None = None


class Hello(Row, frozen=True, tag=4):
    """Request BUS addresses and document names."""

    sender: EditStream
    token: Token
    about: Introduction


class Nack(Row, frozen=True, tag=5):
    """Request missing edits again."""

    sender: EditStream
    token: Token
    doc: Doc
    ranges: Annotated[tuple[Range, ...], Meta(min_length=1, max_length=RANGES)]


class Want(Row, frozen=True, tag=6):
    """Request all missing edits. `state`: the engine's state vector, None if the document is empty."""

    sender: EditStream
    token: Token
    doc: Doc
    state: bytes | None
    versions: WireVersions


class Pull(Row, frozen=True, tag=8):
    """Request chunks of a transfer."""

    sender: EditStream
    token: Token
    transfer: TransferId
    indexes: Annotated[tuple[Index, ...], Meta(min_length=1, max_length=CHUNKS)]


class Give(Row, frozen=True, tag=10):
    """Push an update, from a peer that has no REP socket. `deps`: its dependencies."""

    sender: EditStream
    token: Token
    doc: Doc
    update: bytes
    versions: WireVersions
    deps: WireVersions = field(default_factory=dict)


class Have(Row, frozen=True, tag=12):
    """Ask whether the peer has `versions`, with `durable` on disk. It replies once it has, or after `wait` seconds."""

    sender: EditStream
    token: Token
    doc: Doc
    versions: WireVersions
    durable: bool
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)]


class Proof(Row, frozen=True, tag=16):
    """Prove the token, or a name, after a Prove with `nonce`; the reply is a Welcome. `own`: random.

    `proof`: a MAC (proofs.py), or with the `certificate` of a guest's pass a signature (nngkit.trust.guests).
    """

    sender: EditStream
    nonce: Nonce
    own: Nonce
    proof: Annotated[bytes, Meta(min_length=32, max_length=64)]
    about: Introduction
    certificate: Annotated[bytes, Meta(max_length=4096)] = b""


class Invitation(Fields, frozen=True, omit_defaults=True):
    """`bus`: addresses to dial; `docs`: documents of the sender; `max_update`: bytes accepted in a Give.

    `mac`: the sender has the token too; in reply to a Proof.
    """

    max_update: Annotated[int, Meta(ge=1)]
    v: Version = always(VERSION)
    bus: Addresses = always(())
    docs: Annotated[tuple[Doc, ...], Meta(max_length=MANY_DOCUMENTS)] = always((), name="documents")
    name: Text | None = None
    mac: Sha256 | None = None


class Welcome(Row, frozen=True, tag=4):
    """Reply to a Hello."""

    sender: EditStream
    about: Invitation


class Resent(Row, frozen=True, tag=5):
    """Reply to a Nack. `rest`: some edits are not kept any more; a Want brings their content."""

    sender: EditStream
    doc: Doc
    updates: Annotated[tuple[Updates, ...], Meta(max_length=RANGES * EDITS)]
    rest: bool


class Manifest(Row, frozen=True):
    """Description of a transfer: `size` bytes in chunks of `chunk_size`, the hash of each, and of the whole."""

    transfer: TransferId
    size: Annotated[int, Meta(ge=1, le=MOST_CHUNKS * BUS_LIMIT)]
    chunk_size: Annotated[int, Meta(ge=1024, le=BUS_LIMIT)]
    sha256: Sha256
    chunks: Annotated[tuple[Sha256, ...], Meta(min_length=1, max_length=MOST_CHUNKS)]

    def check(self) -> None:
        """Refuse one whose chunks are not its size."""
        if len(self.chunks) != -(-self.size // self.chunk_size):
            raise ValueError(f"{len(self.chunks)} chunks of {self.chunk_size} bytes are not {self.size} bytes")


class Diff(Row, frozen=True, tag=7):
    """Reply to a Want: an update, or the manifest of its transfer; with it, the document has `versions`."""

    sender: EditStream
    doc: Doc
    body: bytes | Manifest
    versions: WireVersions


class Chunk(Row, frozen=True):
    """A chunk of a transfer."""

    index: Index
    data: bytes


class Chunks(Row, frozen=True, tag=9):
    """Chunks of a transfer; empty if it is not kept any more."""

    sender: EditStream
    transfer: TransferId
    chunks: Annotated[tuple[Chunk, ...], Meta(max_length=CHUNKS)]


class Given(Row, frozen=True, tag=11):
    """Reply to a Give: it is applied; `versions`: all that the document has now."""

    sender: EditStream
    doc: Doc
    versions: WireVersions


class Has(Row, frozen=True, tag=13):
    """Reply to a Have."""

    sender: EditStream
    doc: Doc
    yes: bool


class Prove(Row, frozen=True, tag=14):
    """Reply to a request on a connection that has to send a `Proof` of `nonce` first."""

    sender: EditStream
    nonce: Nonce


class Refused(Row, frozen=True, tag=15):
    """Refusal of a request, with the reason.

    `code` is "store", "token", "version", "name", "unknown-document", "busy", "behind", "bad", "too-large" or "refused"
    (the content cannot take the edits).
    """

    sender: EditStream
    code: Text
    why: Text


VERSION_WHAT: Final = "documents protocol version"
"""`what` of the BadMessage for a newer protocol version."""

BusMessage = Updates | Heartbeat | Aware | Bye
SyncRequest = Hello | Nack | Want | Pull | Give | Have | Proof
SyncReply = Welcome | Resent | Diff | Chunks | Given | Has | Prove | Refused
