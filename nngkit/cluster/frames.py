"""Frames between neighbours of a cluster. Pure: bytes in and out.

::

    D1 ...                       a message to all nodes: nngkit.mesh.wire
    A0 to BF                     a CBOR map: a digest or an ask of the mesh
    80 to 9F                     a CBOR array: [channel, ...], for the neighbour itself
    D2 | channel | length of to | length of sender | epoch, 8 bytes | to | sender | CBOR array
                                 a routed frame: up and down the tree to one node; `to` "" is the host

A routed frame is forwarded as it is; only its head is read on the way. The body of a message to all nodes begins with
its kind: its length in one byte, then the text. docs/wire.md has the CDDL.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from msgspec import Meta

from nngkit.envelope import decode, encode
from nngkit.errors import BadMessage, ConfigError
from nngkit.mesh.wire import MOST_ORIGIN
from nngkit.messages import ANY_TEXT, MOST_NUMBER, Flag, Natural, Row, Rows

VERSION: Final = 1
ROUTED: Final = 0xD2  # first byte; the mesh has D1
MOST_KIND: Final = 64  # bytes of a kind
DOCUMENTS: Final = "\x00documents"  # kind of the documents' messages; a program's kinds are printable
_HEAD: Final = struct.Struct("!BBBBQ")
_WHAT: Final = "cluster frame"

Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MOST_ORIGIN)]
"""Id of a node in a message, as `check_id` has it."""
Kind: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MOST_KIND)]
"""Kind, or another name, in a message, as `check_kind` has it."""
Nonce: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=64)]
Shown: TypeAlias = Annotated[bytes, Meta(max_length=1024)]


class Channel(IntEnum):
    """First item of a local frame, and the second byte of a routed one: the part of a node that it is for."""

    PLACE = 0
    ELECTION = 1
    WORK = 2
    DOCUMENTS = 3
    LETTERS = 4
    QUERY = 5
    PROOF = 11
    CHALLENGE = 12
    HEARTBEAT = 13
    REFUSE = 14
    HELLO = 15


class Greeting(Row, frozen=True, tag=Channel.HELLO.value):
    """First frame of a link in each direction: who the neighbour is. `voter`: a link between voters, for elections.

    Behind the kind, its row has the version of the sender. `token`, `ticket`: versions before proofs sent them.
    """

    cluster: Kind
    id: Id
    epoch: Natural
    voter: Flag
    token: Annotated[str, Meta(extra=ANY_TEXT)] | None = None
    ticket: Annotated[str, Meta(extra=ANY_TEXT)] | None = None


class Challenge(Row, frozen=True, tag=Channel.CHALLENGE.value):
    """Answer to a Greeting where a token or a ticket is demanded: prove it for this number.

    `id`, `epoch`: the sender's. `shown`: content of the sender's own ticket, empty if it has the token.
    """

    id: Id
    epoch: Natural
    nonce: Nonce
    shown: Shown


class Proof(Row, frozen=True, tag=Channel.PROOF.value):
    """Answer to a Challenge, and of the acceptor to that. `shown`: as in a Challenge; None: the sender has neither."""

    nonce: Nonce
    shown: Shown | None
    mac: Annotated[bytes, Meta(max_length=64)]


class Refusal(Row, frozen=True, tag=Channel.REFUSE.value):
    """Answer to a Greeting that is not accepted; the link ends."""

    why: Annotated[str, Meta(extra=ANY_TEXT)]


FirstFrame: TypeAlias = Greeting | Challenge | Proof | Refusal
"""Frame of a link before its parts may use it."""
GREETINGS: Final = Rows[FirstFrame]("greeting", Greeting, Challenge, Proof, Refusal)


class Routed(NamedTuple):
    """Head of a routed frame; its content begins at `start`."""

    channel: int
    to: str
    sender: str
    epoch: int
    start: int


def check_id(id: str, what: str = "id") -> str:
    """Return the id of a node: printable text of 1 to 64 bytes. Raises ConfigError."""
    return check_kind(id, what)


def check_kind(kind: str, what: str = "kind") -> str:
    """Return a kind of messages or jobs, or another name: printable text of 1 to 64 bytes. Raises ConfigError."""
    if not isinstance(kind, str) or not kind or not kind.isprintable() or len(kind.encode()) > MOST_KIND:
        raise ConfigError(what, f"{kind!r} is not printable text of 1 to {MOST_KIND} bytes", kind)
    return kind


def as_bytes(what: str, value: object) -> bytes:
    """Return a bytes-like object as bytes. Raises TypeError for others, as an int: bytes(5) is five zeros."""
    try:
        return value if type(value) is bytes else bytes(memoryview(value))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} must be bytes, not {type(value).__name__}") from None


# ---- frames for the neighbour


def local_frame(channel: Channel, row: Sequence[object]) -> bytes:
    """Return a frame for the neighbour itself."""
    return encode([int(channel), *row])


def parse_local(frame: bytes, *, limit: int, peer: str | None = None) -> list[Any]:
    """Return the array of a frame for the neighbour: its channel and the rest. Raises BadMessage, TooLarge."""
    row = decode(frame, what=_WHAT, limit=limit, peer=peer)
    if type(row) is not list or not row or type(row[0]) is not int:
        raise BadMessage(_WHAT, "not an array that begins with a channel", peer)
    return row


HEARTBEAT_FRAME: Final = local_frame(Channel.HEARTBEAT, ())
"""Sign of life on a link of two voters."""


def greeting_frame(greeting: FirstFrame) -> bytes:
    """Return one of the first frames of a link."""
    if isinstance(greeting, Refusal):
        greeting = Refusal(greeting.why[:500])
    kind, *items = GREETINGS.pack(greeting)
    return encode([kind, VERSION, *items] if isinstance(greeting, Greeting) else [kind, *items])


def parse_greeting(row: list[Any], peer: str | None) -> FirstFrame:
    """Return the content of one of the first frames of a link. Raises BadMessage, which names a newer version."""
    match row:
        case [Channel.HELLO, int(version), *items]:
            if version > VERSION:
                raise BadMessage("greeting", f"version {version} is newer than the supported version {VERSION}", peer)
            row = [Channel.HELLO.value, *items]
        case [Channel.HELLO, *_]:
            raise BadMessage("greeting", "it has no version", peer)
    greeting = GREETINGS.parse(row, peer)
    if greeting is None:
        raise BadMessage("greeting", "a link begins with a Greeting", peer)
    return greeting


# ---- routed frames


def routed_frame(channel: Channel, to: str, sender: str, epoch: int, row: Sequence[object]) -> bytes:
    """Return a frame for one node: `to`, or the host if that is ""."""
    target, source = to.encode(), sender.encode()
    head: bytes = _HEAD.pack(ROUTED, channel, len(target), len(source), epoch)
    return head + target + source + encode(row)


def parse_routed(frame: bytes, peer: str | None = None) -> Routed:
    """Return the head of a routed frame. Raises BadMessage."""
    try:
        _, channel, target, source, epoch = _HEAD.unpack_from(frame)
        middle = _HEAD.size + target
        start = middle + source
        to, sender = frame[_HEAD.size : middle].decode(), frame[middle:start].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise BadMessage(_WHAT, "the head of a routed frame is cut or not UTF-8", peer) from error
    if start >= len(frame) or not source or max(target, source) > MOST_ORIGIN or epoch > MOST_NUMBER:
        raise BadMessage(_WHAT, "the head of a routed frame contradicts itself", peer)
    return Routed(channel, to, sender, epoch, start)


# ---- messages to all nodes


def pack_body(kind: str, payload: bytes) -> bytes:
    """Return the body of a message to all nodes."""
    name = kind.encode()
    return bytes((len(name),)) + name + payload


def parse_body(body: bytes) -> tuple[str, bytes]:
    """Return kind and payload. Raises BadMessage."""
    end = 1 + body[0] if body else 0
    if not 1 < end <= len(body):
        raise BadMessage(_WHAT, "a message has no kind")
    try:
        return body[1:end].decode(), body[end:]
    except UnicodeDecodeError:
        raise BadMessage(_WHAT, "a kind is not UTF-8") from None
