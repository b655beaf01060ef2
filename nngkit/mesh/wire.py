"""Frames of the mesh. Pure: bytes in and out.

::

    data      D1 | length of the origin | sequence, 8 bytes | epoch, 8 bytes | origin | body
    control   a CBOR map: digest, answer (a digest that ends an answer), ask

Integers are big-endian. Epoch and origin are adjacent: together they are the key of a stream, one slice. A frame is the
same at every hop, so a node keeps and relays what it received. docs/wire.md has the CDDL.
"""

from __future__ import annotations

from struct import Struct
from typing import Annotated, Final, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from nngkit.errors import BadMessage
from nngkit.messages import MOST_NUMBER, Fields, Flag, Maps, Natural, Row, Seconds

DATA: Final = 0xD1  # first byte of a data frame; a CBOR map begins with A0 to BF
MOST_ORIGIN: Final = 64  # bytes of an id
MOST_LINES: Final = 400  # 64 KiB of CBOR with ids of 64 bytes hold them
MOST_RANGES: Final = 64  # ranges of one ask
PREFIX: Final = 18  # bytes of a data frame before the origin
_WHAT: Final = "mesh frame"

_HEAD = Struct("!BBQQ")
_KEY = Struct("!Q")


Origin: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MOST_ORIGIN)]


class Line(Row, frozen=True):
    """State of one stream at a neighbour.

    It keeps some or all of ``floor`` to ``head``; below ``next`` it misses nothing any more. ``age``: milliseconds
    since the first message of the stream.
    """

    origin: Origin
    epoch: Natural
    floor: Annotated[int, Meta(ge=1, le=MOST_NUMBER)]
    next: Natural
    head: Natural
    age: Natural


class Digest(Fields, frozen=True, tag_field="k", tag="digest"):
    """State of a neighbour's streams. ``last``: a greeting is complete.

    ``every``: seconds between its digests; unset for a version that does not say.
    """

    id: Origin
    epoch: Natural
    lines: Annotated[tuple[Line, ...], Meta(max_length=MOST_LINES)]
    last: Flag = False
    every: Seconds | UnsetType = UNSET


class Answer(Digest, frozen=True, tag="answer"):
    """Digest that ends the answer to an ask."""


class Ask(Fields, frozen=True, tag_field="k", tag="ask"):
    """Request for missing messages of one stream, ranges with both ends included."""

    origin: Origin
    epoch: Natural
    ranges: Annotated[tuple[tuple[Natural, Natural], ...], Meta(max_length=MOST_RANGES)]


Control: TypeAlias = Digest | Answer | Ask

CONTROL: Final = Maps[Control]("mesh frame", Digest, Answer, Ask, version=1)


def key_of(origin: str, epoch: int) -> bytes:
    """Return the key of a stream: its bytes in a data frame."""
    return _KEY.pack(epoch) + origin.encode()


def read_key(key: bytes) -> tuple[str, int]:
    """Return the origin and the epoch. Raises BadMessage."""
    try:
        origin = key[8:].decode()
    except UnicodeDecodeError:
        raise BadMessage(_WHAT, "the origin is not UTF-8") from None
    epoch: int = _KEY.unpack_from(key)[0]
    if not origin or len(key) - 8 > MOST_ORIGIN or not origin.isprintable() or epoch > MOST_NUMBER:
        raise BadMessage(_WHAT, "the origin is empty, too long or not printable, or the epoch is absurd")
    return origin, epoch


def data_frame(key: bytes, sequence: int, body: bytes) -> bytes:
    """Return the frame of one message."""
    head: bytes = _HEAD.pack(DATA, len(key) - 8, sequence, 0)
    return head[:10] + key + body


def control(frame: bytes) -> Control | None:
    """Return a control frame's content; None for a kind that a later version has added. Raises BadMessage, TooLarge."""
    content = CONTROL.decode_known(frame)
    if isinstance(content, Ask):
        if any(not 1 <= first <= last for first, last in content.ranges):
            raise BadMessage(_WHAT, "a range contradicts itself")
    elif content is not None and any(not line.floor <= line.next <= line.head + 1 for line in content.lines):
        raise BadMessage(_WHAT, "a line of a digest contradicts itself")
    return content
