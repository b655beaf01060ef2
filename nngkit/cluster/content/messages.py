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
version vectors and manifests have one encoding in the project. Decoding validates hostile input: BadMessage, TooLarge;
items that a later version has appended to any row are ignored.
Knows neither time nor the content of updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from nngkit import envelope
from nngkit.documents.sync.messages import Doc, TransferId
from nngkit.documents.versions import EditStream, WireVersions
from nngkit.messages import MOST_NUMBER, Flag, Natural, Row, Rows

BODY_LIMIT: Final = 1 << 20  # bytes of a message: the largest, a reply with fragments, has two of 256 KiB and room
FRAGMENT_LIMIT: Final = 256 * 1024  # bytes of one change of a shared object; a larger one is better a full state
MOST_ENTRIES: Final = 1024  # changes in one message; more of them, of 100 bytes, fill a read buffer anyway
MOST_PARTS: Final = 1024  # parts of a large edit: 256 MiB, as `max_document` of a DocumentPeer
MOST_POSITIONS: Final = 512  # shared objects in one message of the host
MOST_NODE: Final = 64  # bytes of a node's id, as in the mesh


Node: TypeAlias = Annotated[str, Meta(max_length=MOST_NODE)]
Nth: TypeAlias = Annotated[int, Meta(ge=1, le=MOST_NUMBER)]


class Message(Row, frozen=True):
    """A message about documents or shared objects."""


class Position(Row, frozen=True, order=True):
    """State of a shared object: the number of the last change, in the order of one host's reign.

    They compare as reigns follow each other. Number 0 is the begin of a reign, with the content of its base.
    """

    term: Natural
    epoch: Natural
    number: Natural

    def at(self, number: int) -> Position:
        """Return the position of another change of the same reign."""
        return Position(self.term, self.epoch, number)


START: Final = Position(0, 0, 0)  # an object as its program made it


class Entry(Row, frozen=True):
    """A change in the host's order: number `n` of the writer `origin`, `epoch`."""

    origin: Node
    epoch: Natural
    n: Nth
    data: bytes


class Fragment(Message, frozen=True, tag=0):
    """Edits of a document; content: Updates."""

    name: Doc
    content: bytes


class FragmentPart(Message, frozen=True, tag=1):
    """One part of an edit that is too large for a Fragment. Part 0 has the dependencies."""

    name: Doc
    stream: EditStream
    seq: Nth
    part: Natural
    parts: Annotated[int, Meta(ge=1, le=MOST_PARTS)]
    deps: WireVersions
    data: bytes

    def check(self) -> None:
        """Raise ValueError unless it is one of its parts."""
        if self.part >= self.parts:
            raise ValueError("the index of a part is out of range")


class Presence(Message, frozen=True, tag=2):
    """Awareness state; content: Aware."""

    name: Doc
    content: bytes


class Opened(Message, frozen=True, tag=3):
    """The sender has the document open, and asks for a partner to compare with, other than `avoid`.

    `filled`: it has compared with one before, or was the one that others compared with.
    """

    name: Doc
    parent: Node
    avoid: Node
    filled: Flag


class Partner(Message, frozen=True, tag=4):
    """The node to compare with; "": the receiver is the one that others compare with. `holders`: nodes that have it."""

    name: Doc
    node: Node
    holders: Natural


class Closing(Message, frozen=True, tag=5):
    """The sender closes the document."""

    name: Doc


class Heartbeat(Message, frozen=True, tag=6):
    """State of the sender's copy; content: a Heartbeat with one document. `answer`: one is wanted."""

    name: Doc
    content: bytes
    answer: Flag


class _Numbered(Message, frozen=True):
    number: Natural
    name: Doc
    content: bytes


class FullDocumentRequest(_Numbered, frozen=True, tag=7):
    """Request for the full document, or all that is missing at a state; content: Want."""


class FragmentRequest(_Numbered, frozen=True, tag=8):
    """Request for single edits; content: Nack."""


class Document(_Numbered, frozen=True, tag=9):
    """The full document, or all that was missing; content: Diff."""


class Fragments(_Numbered, frozen=True, tag=10):
    """The requested edits; content: Resent."""


class NotOpen(Message, frozen=True, tag=11):
    """Reply: the node does not have the document, or the shared object."""

    number: Natural
    name: Doc


class ChunkRequest(Message, frozen=True, tag=12):
    """Request for a chunk of a large document, by the name of its transfer."""

    transfer: TransferId
    chunk: Natural


class Chunk(Message, frozen=True, tag=13):
    """A chunk; empty if the transfer is not kept any more."""

    transfer: TransferId
    chunk: Natural
    data: bytes


class Changes(Message, frozen=True, tag=20):
    """Changes `first`, `first + 1` ... of a writer, for the host of `reign`. `after`: those already in its content."""

    name: Doc
    reign: Position
    epoch: Natural
    after: Natural
    first: Nth
    fragments: Annotated[
        tuple[Annotated[bytes, Meta(max_length=FRAGMENT_LIMIT)], ...], Meta(min_length=1, max_length=MOST_ENTRIES)
    ]


class Behind(Message, frozen=True, tag=21):
    """The host has the writer's changes up to `last`, and received later ones."""

    name: Doc
    epoch: Natural
    last: Natural


class Run(Row, frozen=True):
    """Changes in the order of a reign, from `first` on. Number 0 has no entry: it begins the reign, at `base`."""

    name: Doc
    first: Position
    base: Position | None
    entries: Annotated[tuple[Entry, ...], Meta(max_length=MOST_ENTRIES)]

    def check(self) -> None:
        """Raise ValueError unless it begins as it says."""
        if (self.base is None) != (self.first.number > 0) or (self.base is not None and self.base >= self.first):
            raise ValueError("a reign begins with number 0 and an earlier base")


class OrderedFragments(Run, Message, frozen=True, tag=22):
    """Changes that the host has ordered."""


class FullObjectRequest(Message, frozen=True, tag=23):
    """Request for what is missing at `position`; START: for the full state."""

    number: Natural
    name: Doc
    position: Position


class MissingFragments(Message, frozen=True, tag=24):
    """The changes that were missing, up to some size; `head`: the sender's position."""

    number: Natural
    name: Doc
    head: Position
    runs: Annotated[tuple[Run, ...], Meta(max_length=MOST_ENTRIES)]

    def check(self) -> None:
        """Raise ValueError if a run is about another object."""
        if any(run.name != self.name for run in self.runs):
            raise ValueError("a run is about another object")


class FullObject(Message, frozen=True, tag=25):
    """The full state of a shared object; content: a Diff without versions."""

    number: Natural
    name: Doc
    position: Position
    content: bytes


class Gather(Message, frozen=True, tag=26):
    """A new host is at `position`, and asks the nodes that are ahead of it, before it begins the reign."""

    name: Doc
    term: Natural
    epoch: Natural
    position: Position


class Offer(Message, frozen=True, tag=27):
    """The sender's copy is at `position`, ahead of the new host's."""

    name: Doc
    position: Position


class ObjectPosition(Row, frozen=True):
    """Position of a shared object."""

    name: Doc
    position: Position


class Positions(Message, frozen=True, tag=28):
    """Positions of the host's shared objects."""

    of: Annotated[tuple[ObjectPosition, ...], Meta(max_length=MOST_POSITIONS)]


Reply: TypeAlias = Document | Fragments | NotOpen | FullObject | MissingFragments
"""Replies to a request for content."""

KINDS: Final = Rows[Message]("documents message", Message)
pack = KINDS.pack
parse = KINDS.parse

Send: TypeAlias = Callable[[str | None, Message], None]
"""Send a message to a node; "": to the host; None: to all nodes."""


def encode(message: Message) -> bytes:
    """Return a message as bytes."""
    return envelope.encode(pack(message))


def decode(body: bytes, peer: str | None = None) -> Message | None:
    """Return the message in `body`; None for a kind of a newer version. Raises BadMessage, TooLarge."""
    return parse(envelope.decode(body, what=KINDS.what, limit=BODY_LIMIT, peer=peer), peer)
