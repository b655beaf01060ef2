"""What makes a written message that message: query, batch, partition and the number of its first row. Pure.

::

    id of a message = query (16 bytes) batch:u64 partition:u32 n:u64        36 bytes, big-endian

A task that Spark runs again writes the same rows of the same partition of the same batch, so its messages have the same
ids, and whoever keeps the first of each id has each message once. That holds as far as the rows come again in the same
order: they do when they come from a journal, and not always after a shuffle. A DataFrame whose rows know better has a
column ``id``; those are the ids then.
"""

from __future__ import annotations

import hashlib
import struct
import uuid
from typing import Final, NamedTuple

from nngkit.errors import BadMessage

__all__ = ["LENGTH", "MessageId", "query_key", "split"]

_FORM: Final = struct.Struct(">16sQIQ")
LENGTH: Final = _FORM.size  # bytes


class MessageId(NamedTuple):
    """Where a message comes from; `number` is that of its first row in the partition."""

    query: bytes
    batch: int
    partition: int
    number: int

    def pack(self) -> bytes:
        """The id."""
        return _FORM.pack(*self)


def query_key(name: str) -> bytes:
    """The 16 bytes of a query: those of Spark's own id for it, or of what somebody called it."""
    try:
        return uuid.UUID(name).bytes
    except ValueError:
        return hashlib.sha256(name.encode()).digest()[:16]


def split(message: bytes) -> tuple[MessageId, bytes]:
    """A message that was written ``withIds``: where it comes from, and what it says.

    >>> split(MessageId(bytes(16), 3, 0, 7).pack() + b"hello")[1]
    b'hello'
    """
    if len(message) < LENGTH:
        raise BadMessage("message with an id", f"{len(message)} bytes are too few")
    return MessageId(*_FORM.unpack(message[:LENGTH])), message[LENGTH:]
