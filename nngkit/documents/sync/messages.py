"""Messages between the peers of a document. Pure; docs/wire.md is the protocol, `wire.py` encodes and decodes.

On the BUS, which may lose messages: `Updates`, `Heartbeat`, `Aware`, `Bye`. Over REQ/REP, which is reliable: `Hello`,
`Nack`, `Want`, `Pull`, `Give`, `Have`, and their replies `Welcome`, `Resent`, `Diff`, `Chunks`, `Given`, `Has` and
`Refused`. All but `Updates` begin with `sender`, the stream of the sending peer. Sender and receiver both enforce the
limits below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field
from msgspec.structs import astuple

from nngkit.documents.names import check_name
from nngkit.documents.sync.refused import RefusedEdit
from nngkit.documents.versions import EPOCHS, ORIGIN, Edit, EditStream, WireVersions
from nngkit.envelope import shown
from nngkit.errors import ConfigError
from nngkit.messages import ADDRESS, ANY_TEXT, Fields, Natural, Row, Wired, always

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


Doc: TypeAlias = Annotated[str, Meta(extra={"check": _check_doc})]
Seq: TypeAlias = Annotated[int, Meta(ge=1, le=EPOCHS)]
Token: TypeAlias = Annotated[str, Meta(max_length=TEXT, extra=ANY_TEXT)] | None
Origin: TypeAlias = Annotated[bytes, Meta(min_length=ORIGIN, max_length=ORIGIN)]
TransferId: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
Sha256: TypeAlias = Annotated[bytes, Meta(min_length=32, max_length=32)]
Index: TypeAlias = Annotated[int, Meta(ge=0, le=MOST_CHUNKS - 1)]
Addresses: TypeAlias = Annotated[
    tuple[Annotated[str, Meta(max_length=TEXT, extra=ADDRESS)], ...], Meta(max_length=ADDRESSES)
]


@dataclass(frozen=True, slots=True)
class Range:
    """Edits `first` to `last` of `stream`."""

    stream: EditStream
    first: int
    last: int


class RangeRow(Row, frozen=True):
    """A range on the wire."""

    origin: Origin
    epoch: Natural
    first: Seq
    last: Seq

    def check(self) -> None:
        """Refuse one that ends before it begins."""
        if self.first > self.last:
            raise ValueError("a range ends before it begins")


class ChunkRow(Row, frozen=True):
    """A chunk on the wire."""

    index: Index
    data: bytes


class ClientRow(Row, frozen=True):
    """A document, and the engine's client id in it, on the wire."""

    doc: Doc
    client: Natural


if TYPE_CHECKING:
    Line: TypeAlias = str
    Heads: TypeAlias = WireVersions
    WireRange: TypeAlias = Range
    Chunk: TypeAlias = tuple[int, bytes]
    Client: TypeAlias = tuple[str, int]
    Refusal: TypeAlias = tuple[str, RefusedEdit]
else:

    class Line(Wired):
        """Text for people; as read, it is one printable line."""

        @classmethod
        def read(cls, value):
            if type(value) is not str or len(value.encode(errors="replace")) > TEXT:
                raise ValueError(f"it is no text of at most {TEXT} bytes")
            return shown(value)

    class Heads(WireVersions):
        """Versions of the streams that changed recently."""

        MOST = HEADS

    class WireRange(Wired):
        """A range among the items of a message."""

        row = RangeRow

        @staticmethod
        def make(origin, epoch, first, last):
            return Range(EditStream(origin, epoch), first, last)

        @staticmethod
        def write(value):
            return [*value.stream, value.first, value.last]

    class Chunk(Wired):
        """A chunk and its index."""

        row = ChunkRow

    class Client(Wired):
        """A document and a client id."""

        row = ClientRow

    class RefusalRow(Row, frozen=True):
        """A refused edit on the wire."""

        doc: Doc
        origin: Origin
        epoch: Natural
        seq: Seq
        why: Line

    class Refusal(Wired):
        """A document and a refused edit."""

        row = RefusalRow

        @staticmethod
        def make(doc, origin, epoch, seq, why):
            return doc, RefusedEdit(EditStream(origin, epoch), seq, why)

        @staticmethod
        def write(value):
            doc, one = value
            return [doc, *one.stream, one.seq, one.why]

    for kind, of in ((Line, str), (Heads, dict), (WireRange, Range), (Chunk, tuple), (Client, tuple), (Refusal, tuple)):
        kind.register(of)


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


class Aware(Row, frozen=True, tag=2):
    """Awareness state of `sender` in a document; `state` None: removed. A larger `clock` is newer."""

    sender: EditStream
    doc: Doc
    clock: Natural
    state: Annotated[bytes, Meta(max_length=AWARENESS_LIMIT)] | None


class Bye(Row, frozen=True, tag=3):
    """The sender leaves."""

    sender: EditStream


@dataclass(frozen=True, slots=True)
class Hello:
    """Request BUS addresses and document names. `store`: the origin that has to answer, None: any."""

    sender: EditStream
    token: str | None = None
    name: str | None = None
    docs: tuple[str, ...] = ()
    store: bytes | None = None


class Nack(Row, frozen=True, tag=5):
    """Request missing edits again."""

    sender: EditStream
    token: Token
    doc: Doc
    ranges: Annotated[tuple[WireRange, ...], Meta(min_length=1, max_length=RANGES)]


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


@dataclass(frozen=True, slots=True)
class Welcome:
    """`bus`: addresses to dial; `docs`: documents of the sender; `max_update`: bytes accepted in a Give."""

    sender: EditStream
    bus: tuple[str, ...]
    docs: tuple[str, ...]
    max_update: int
    name: str | None = None


class Resent(Row, frozen=True, tag=5):
    """Reply to a Nack. `rest`: some edits are not kept any more; a Want brings their content."""

    sender: EditStream
    doc: Doc
    updates: Annotated[tuple[Updates, ...], Meta(max_length=RANGES * EDITS)]
    rest: bool


class Manifest(Row, frozen=True):
    """Description of a transfer: `size` bytes in chunks of `chunk_size`, the hash of each, and of the whole."""

    transfer: TransferId
    size: Seq
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


class Refused(Row, frozen=True, tag=15):
    """Refusal of a request, with the reason.

    `code` is "store", "token", "version", "name", "unknown-document", "busy", "behind", "bad", "too-large" or "refused"
    (the content cannot take the edits).
    """

    sender: EditStream
    code: Line
    why: Line


class About(Fields, frozen=True, omit_defaults=True):
    """Description of the sender in a heartbeat."""

    v: int = always(VERSION)
    name: Line | None = None
    repair: Addresses = ()
    relay: bool = False
    clients: Annotated[tuple[Client, ...], Meta(max_length=DOCUMENTS)] = field(name="client", default=())
    refused: Annotated[tuple[Refusal, ...], Meta(max_length=DOCUMENTS)] = ()


class HeartbeatRow(Row, frozen=True, tag=1):
    """A heartbeat on the wire."""

    sender: EditStream
    about: About
    docs: Annotated[tuple[DocumentHeartbeat, ...], Meta(max_length=DOCUMENTS)]

    @classmethod
    def of(cls, value: Heartbeat) -> HeartbeatRow:
        """Return the row of a heartbeat."""
        about = About(VERSION, value.name, value.repair, value.relay, value.clients, value.refused)
        return cls(value.sender, about, value.docs)

    def value(self) -> Heartbeat:
        """Return the heartbeat."""
        _, *about = astuple(self.about)
        return Heartbeat(self.sender, self.docs, *about)


class Introduction(Fields, frozen=True, omit_defaults=True):
    """Description of the sender in a hello."""

    v: int = always(VERSION)
    name: Line | None = None
    docs: Annotated[tuple[Doc, ...], Meta(max_length=DOCUMENTS)] = field(name="documents", default=())
    store: Origin | UnsetType = UNSET


class HelloRow(Row, frozen=True, tag=4):
    """A hello on the wire."""

    sender: EditStream
    token: Token
    about: Introduction

    @classmethod
    def of(cls, value: Hello) -> HelloRow:
        """Return the row of a hello."""
        store = UNSET if value.store is None else value.store
        return cls(value.sender, value.token, Introduction(VERSION, value.name, value.docs, store))

    def value(self) -> Hello:
        """Return the hello."""
        about = self.about
        return Hello(self.sender, self.token, about.name, about.docs, None if about.store is UNSET else about.store)


class Invitation(Fields, frozen=True):
    """Description of the sender in a welcome."""

    max_update: Annotated[int, Meta(ge=1)]
    v: int = VERSION
    bus: Addresses = ()
    docs: Annotated[tuple[Doc, ...], Meta(max_length=MANY_DOCUMENTS)] = field(name="documents", default=())
    name: Line | UnsetType = UNSET


class WelcomeRow(Row, frozen=True, tag=4):
    """A welcome on the wire."""

    sender: EditStream
    about: Invitation

    @classmethod
    def of(cls, value: Welcome) -> WelcomeRow:
        """Return the row of a welcome."""
        name = UNSET if value.name is None else value.name
        return cls(value.sender, Invitation(value.max_update, VERSION, value.bus, value.docs, name))

    def value(self) -> Welcome:
        """Return the welcome."""
        about = self.about
        name = None if about.name is UNSET else about.name
        return Welcome(self.sender, about.bus, about.docs, about.max_update, name)


VERSION_WHAT: Final = "documents protocol version"
"""`what` of the BadMessage for a newer protocol version."""

BusMessage = Updates | Heartbeat | Aware | Bye
SyncRequest = Hello | Nack | Want | Pull | Give | Have
SyncReply = Welcome | Resent | Diff | Chunks | Given | Has | Refused
