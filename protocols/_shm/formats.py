"""Bytes of the greeting, of the side channel and of frames that refer to shared memory. Pure.

::

    greeting = "nngkit-shm" 00 01        the dialer's first bytes on the stream, with one end of the side channel

    side channel (a SOCK_SEQPACKET pair; both directions, as each end may send and receive bodies):
    S  segment: u32  size: u64  share: u64   with its descriptor, before the first frame that names the segment;
                                             share: bytes that the reader may keep before it copies instead
    F  segment: u32                          the sender has dropped it
    R  use: u64 ...                          the reader no longer looks at these uses

    frame = 02 length: u64 header  segment: u32 offset: u64 size: u64 use: u64      (header: of the protocol)

A use is one slot sent to one peer: its number is that of the message on the connection. Big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from nngkit.errors import BadMessage

GREETING: Final = b"nngkit-shm\0\1"
REFERENCE: Final = struct.Struct(">IQQQ")  # segment, offset, size, use
MOST_USES: Final = 400  # of one release
SEGMENT, DROPPED, RELEASED = b"S", b"F", b"R"

_SEGMENT = struct.Struct(">cIQQ")
_DROPPED = struct.Struct(">cI")
LARGEST: Final = 1 + 8 * MOST_USES  # bytes of a message of the side channel


def segment(number: int, size: int, share: int) -> bytes:
    """Return the message that introduces a segment."""
    return _SEGMENT.pack(SEGMENT, number, size, share)


def dropped(number: int) -> bytes:
    """Return the message that a segment was dropped."""
    return _DROPPED.pack(DROPPED, number)


def released(uses: Sequence[int]) -> bytes:
    """Return the message that releases uses."""
    return RELEASED + struct.pack(f">{len(uses)}Q", *uses)


def read(message: bytes) -> tuple[int, ...]:
    """Return the fields of a message behind its kind. Raises BadMessage."""
    kind, size = message[:1], len(message)
    if kind == SEGMENT and size == _SEGMENT.size:
        return _SEGMENT.unpack(message)[1:]
    if kind == DROPPED and size == _DROPPED.size:
        return _DROPPED.unpack(message)[1:]
    count, rest = divmod(size - 1, 8)
    if kind == RELEASED and not rest and 0 < count <= MOST_USES:
        return struct.unpack_from(f">{count}Q", message, 1)
    raise BadMessage("shm", f"{size} bytes that begin with {kind!r} are no message of the side channel")
