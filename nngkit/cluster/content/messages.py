"""Messages about documents and shared objects between the nodes of a cluster, as values, and their encoding. Pure.

Three kinds carry content: fragments (a change), documents (the full state), and requests for either.

::

    broadcast    Fragment, FragmentPart, Presence           of documents
                 OrderedFragments, Gather, Positions        of shared objects, by the host
    to the host  Opened, Closing, Changes, Offer
    by the host  Partner, Behind
    unicast      Heartbeat, FullDocumentRequest, FragmentRequest, FullObjectRequest, ChunkRequest
    replies      Document, Fragments, FullObject, MissingFragments, Chunk, NotOpen

    >>> decode(encode(Closing("minutes")))
    Closing(name='minutes')

A message is a CBOR array that begins with its kind. `content` is a message of `nngkit.documents.sync.wire`, so edits,
version vectors and manifests have one encoding in the project. Decoding validates hostile input: BadMessage, TooLarge.
Knows neither time nor the content of updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from nngkit import envelope
from nngkit.documents.sync.wire_reader import WireReader
from nngkit.documents.versions import EditStream, Versions, to_wire
from nngkit.errors import BadMessage

__all__ = [
    "BODY_LIMIT",
    "FRAGMENT_LIMIT",
    "MOST_ENTRIES",
    "MOST_PARTS",
    "START",
    "Behind",
    "Changes",
    "Chunk",
    "ChunkRequest",
    "Closing",
    "Document",
    "Entry",
    "Fragment",
    "FragmentPart",
    "FragmentRequest",
    "Fragments",
    "FullDocumentRequest",
    "FullObject",
    "FullObjectRequest",
    "Gather",
    "Heartbeat",
    "Message",
    "MissingFragments",
    "NotOpen",
    "Offer",
    "Opened",
    "OrderedFragments",
    "Partner",
    "Position",
    "Positions",
    "Presence",
    "Send",
    "decode",
    "encode",
    "pack",
    "parse",
]

BODY_LIMIT: Final = 1 << 20  # bytes of a message: the largest, a reply with fragments, has two of 256 KiB and room
FRAGMENT_LIMIT: Final = 256 * 1024  # bytes of one change of a shared object; a larger one is better a full state
MOST_ENTRIES: Final = 1024  # changes in one message; more of them, of 100 bytes, fill a read buffer anyway
MOST_PARTS: Final = 1024  # parts of a large edit: 256 MiB, as `max_document` of a DocumentPeer
MOST_POSITIONS: Final = 512  # shared objects in one message of the host
MOST_NODE: Final = 64  # bytes of a node's id, as in the mesh
_WHAT: Final = "documents message"


class Position(NamedTuple):
    """State of a shared object: the number of the last change, in the order of one host's reign.

    Tuples compare as reigns follow each other. Number 0 is the begin of a reign, with the content of its base.
    """

    term: int
    epoch: int
    number: int


START: Final = Position(0, 0, 0)  # an object as its program made it


class Entry(NamedTuple):
    """A change in the host's order: number `n` of the writer `origin`, `epoch`."""

    origin: str
    epoch: int
    n: int
    data: bytes


class Fragment(NamedTuple):
    """Edits of a document; content: Updates."""

    name: str
    content: bytes


class FragmentPart(NamedTuple):
    """One part of an edit that is too large for a Fragment. Part 0 has the dependencies."""

    name: str
    stream: EditStream
    seq: int
    part: int
    parts: int
    deps: Versions
    data: bytes


class Presence(NamedTuple):
    """Awareness state; content: Aware."""

    name: str
    content: bytes


class Opened(NamedTuple):
    """The sender has the document open, and asks for a partner to compare with, other than `avoid`.

    `filled`: it has compared with one before, or was the one that others compared with.
    """

    name: str
    parent: str
    avoid: str
    filled: bool


class Partner(NamedTuple):
    """Node to compare states with; "" makes the receiver the reference. `holders`: nodes that have it."""

    name: str
    node: str
    holders: int


class Closing(NamedTuple):
    """The sender closes the document."""

    name: str


class Heartbeat(NamedTuple):
    """State of the sender's copy; content: a Heartbeat with one document. `answer`: one is wanted."""

    name: str
    content: bytes
    answer: bool


class FullDocumentRequest(NamedTuple):
    """Request for the full document, or all that is missing at a state; content: Want."""

    number: int
    name: str
    content: bytes


class FragmentRequest(NamedTuple):
    """Request for single edits; content: Nack."""

    number: int
    name: str
    content: bytes


class Document(NamedTuple):
    """The full document, or all that was missing; content: Diff."""

    number: int
    name: str
    content: bytes


class Fragments(NamedTuple):
    """The requested edits; content: Resent."""

    number: int
    name: str
    content: bytes


class NotOpen(NamedTuple):
    """Reply: the node does not have the document, or the shared object."""

    number: int
    name: str


class ChunkRequest(NamedTuple):
    """Request for a chunk of a large document, by the name of its transfer."""

    transfer: bytes
    chunk: int


class Chunk(NamedTuple):
    """A chunk; empty if the transfer is not kept any more."""

    transfer: bytes
    chunk: int
    data: bytes


class Changes(NamedTuple):
    """Changes `first`, `first + 1` ... of a writer, for the host of `reign`. `after`: those already in its content."""

    name: str
    reign: Position
    epoch: int
    after: int
    first: int
    fragments: tuple[bytes, ...]


class Behind(NamedTuple):
    """The host has the writer's changes up to `last`, and received later ones."""

    name: str
    epoch: int
    last: int


class OrderedFragments(NamedTuple):
    """Changes in the order of a reign, from `first` on. Number 0 has no entry: it begins the reign, at `base`."""

    name: str
    first: Position
    base: Position | None
    entries: tuple[Entry, ...]


class FullObjectRequest(NamedTuple):
    """Request for what is missing at `position`; START: for the full state."""

    number: int
    name: str
    position: Position


class MissingFragments(NamedTuple):
    """The changes that were missing, up to some size; `head`: the sender's position."""

    number: int
    name: str
    head: Position
    runs: tuple[OrderedFragments, ...]


class FullObject(NamedTuple):
    """The full state of a shared object; content: a Diff without versions."""

    number: int
    name: str
    position: Position
    content: bytes


class Gather(NamedTuple):
    """A new host is at `position`, and asks the nodes that are ahead of it, before it begins the reign."""

    name: str
    term: int
    epoch: int
    position: Position


class Offer(NamedTuple):
    """The sender's copy is at `position`, ahead of the new host's."""

    name: str
    position: Position


class Positions(NamedTuple):
    """Positions of the host's shared objects."""

    of: tuple[tuple[str, Position], ...]


Message: TypeAlias = (
    Fragment
    | FragmentPart
    | Presence
    | Opened
    | Partner
    | Closing
    | Heartbeat
    | FullDocumentRequest
    | FragmentRequest
    | Document
    | Fragments
    | NotOpen
    | ChunkRequest
    | Chunk
    | Changes
    | Behind
    | OrderedFragments
    | FullObjectRequest
    | MissingFragments
    | FullObject
    | Gather
    | Offer
    | Positions
)

Send: TypeAlias = Callable[[str | None, Message], None]
"""Send a message to a node; "": to the host; None: to all nodes."""


def encode(message: Message) -> bytes:
    """Return a message as bytes."""
    return envelope.encode(pack(message))


def decode(body: bytes, peer: str | None = None) -> Message | None:
    """Return the message in `body`; None for a kind of a newer version. Raises BadMessage, TooLarge."""
    return parse(envelope.decode(body, what=_WHAT, limit=BODY_LIMIT, peer=peer), peer)


def pack(message: Message) -> list[Any]:
    """Return a message as an array of what CBOR has."""
    kind = _NUMBERS[type(message)]
    match message:
        case FragmentPart():
            return [kind, message.name, list(message.stream), *message[2:5], to_wire(message.deps), message.data]
        case OrderedFragments():
            return [kind, *_plain(message)]
        case MissingFragments(number, name, head, runs):
            return [kind, number, name, list(head), [_plain(run) for run in runs]]
        case Changes(name, reign):
            return [kind, name, list(reign), *message[2:]]
        case FullObjectRequest(number, name, position):
            return [kind, number, name, list(position)]
        case FullObject(number, name, position, content):
            return [kind, number, name, list(position), content]
        case Gather(name, term, epoch, position):
            return [kind, name, term, epoch, list(position)]
        case Offer(name, position):
            return [kind, name, list(position)]
        case Positions(of):
            return [kind, [[name, list(position)] for name, position in of]]
        case _:
            return [kind, *message]


def _plain(run: OrderedFragments) -> list[Any]:
    base = None if run.base is None else list(run.base)
    return [run.name, list(run.first), base, [list(entry) for entry in run.entries]]


def parse(row: object, peer: str | None = None) -> Message | None:
    """Return the message of an array; None for a kind of a newer version. Raises BadMessage."""
    if type(row) is not list or not row or type(row[0]) is not int:
        raise BadMessage(_WHAT, "it must be a list that begins with a kind", peer)
    read = _READERS.get(row[0])
    if read is None:
        return None
    reader = WireReader(row, _WHAT, peer)
    reader.at = 1
    return read(reader)


def _node(reader: WireReader) -> str:
    node = reader.text(MOST_NODE)
    if not node.isprintable():
        raise reader.bad(f"item {reader.at} is not a printable id")
    return node


def _flag(reader: WireReader) -> bool:
    value: bool = reader.of(bool)
    return value


def _inner(reader: WireReader, value: Any) -> WireReader:
    if type(value) is not list:
        raise reader.bad(f"item {reader.at} must be a list")
    return WireReader(value, reader.what, reader.peer)


def _position(reader: WireReader) -> Position:
    inner = _inner(reader, reader.next())
    return Position(inner.whole(), inner.whole(), inner.whole())


def _part(reader: WireReader) -> FragmentPart:
    name, stream, seq = reader.doc(), reader.stream(), reader.seq()
    index, count = reader.whole(0, MOST_PARTS - 1), reader.whole(1, MOST_PARTS)
    if index >= count:
        raise reader.bad("the index of a part is out of range")
    return FragmentPart(name, stream, seq, index, count, reader.versions(), reader.blob())


def _changes(reader: WireReader) -> Changes:
    name, reign = reader.doc(), _position(reader)
    epoch, after, first = reader.whole(), reader.whole(), reader.whole(1)
    inner = WireReader(reader.entries(MOST_ENTRIES, 1), reader.what, reader.peer)
    fragments = tuple(inner.blob() for _ in inner.items)
    if any(len(data) > FRAGMENT_LIMIT for data in fragments):
        raise reader.bad(f"a change is longer than {FRAGMENT_LIMIT} bytes")
    return Changes(name, reign, epoch, after, first, fragments)


def _ordered(reader: WireReader) -> OrderedFragments:
    name, first = reader.doc(), _position(reader)
    base = None
    if reader.at < len(reader.items) and reader.items[reader.at] is None:
        reader.at += 1
    else:
        base = _position(reader)
    if (base is None) != (first.number > 0) or (base is not None and base >= first):
        raise reader.bad("a reign begins with number 0 and an earlier base")
    entries: list[Entry] = []
    for inner in reader.each(MOST_ENTRIES):
        entries.append(Entry(_node(inner), inner.whole(), inner.whole(1), inner.blob()))
    return OrderedFragments(name, first, base, tuple(entries))


def _missing(reader: WireReader) -> MissingFragments:
    number, name, head = reader.whole(), reader.doc(), _position(reader)
    runs = []
    for inner in reader.each(MOST_ENTRIES):
        run = _ordered(inner)
        if run.name != name:
            raise reader.bad("a run is about another object")
        runs.append(run)
    return MissingFragments(number, name, head, tuple(runs))


def _positions(reader: WireReader) -> Positions:
    found = []
    for inner in reader.each(MOST_POSITIONS):
        found.append((inner.doc(), _position(inner)))
    return Positions(tuple(found))


_KINDS: Final[dict[int, tuple[type[Message], Callable[[WireReader], Message]]]] = {
    0: (Fragment, lambda r: Fragment(r.doc(), r.blob())),
    1: (FragmentPart, _part),
    2: (Presence, lambda r: Presence(r.doc(), r.blob())),
    3: (Opened, lambda r: Opened(r.doc(), _node(r), _node(r), _flag(r))),
    4: (Partner, lambda r: Partner(r.doc(), _node(r), r.whole())),
    5: (Closing, lambda r: Closing(r.doc())),
    6: (Heartbeat, lambda r: Heartbeat(r.doc(), r.blob(), _flag(r))),
    7: (FullDocumentRequest, lambda r: FullDocumentRequest(r.whole(), r.doc(), r.blob())),
    8: (FragmentRequest, lambda r: FragmentRequest(r.whole(), r.doc(), r.blob())),
    9: (Document, lambda r: Document(r.whole(), r.doc(), r.blob())),
    10: (Fragments, lambda r: Fragments(r.whole(), r.doc(), r.blob())),
    11: (NotOpen, lambda r: NotOpen(r.whole(), r.doc())),
    12: (ChunkRequest, lambda r: ChunkRequest(r.blob(16), r.whole())),
    13: (Chunk, lambda r: Chunk(r.blob(16), r.whole(), r.blob())),
    20: (Changes, _changes),
    21: (Behind, lambda r: Behind(r.doc(), r.whole(), r.whole())),
    22: (OrderedFragments, _ordered),
    23: (FullObjectRequest, lambda r: FullObjectRequest(r.whole(), r.doc(), _position(r))),
    24: (MissingFragments, _missing),
    25: (FullObject, lambda r: FullObject(r.whole(), r.doc(), _position(r), r.blob())),
    26: (Gather, lambda r: Gather(r.doc(), r.whole(), r.whole(), _position(r))),
    27: (Offer, lambda r: Offer(r.doc(), _position(r))),
    28: (Positions, _positions),
}
_NUMBERS: Final = {kind: number for number, (kind, _) in _KINDS.items()}
_READERS: Final = {number: read for number, (_, read) in _KINDS.items()}
