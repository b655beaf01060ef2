"""Ids of written messages: query, batch, partition, and the number of the first row. Pure.

::

    id of a message = query (16 bytes) batch:u64 partition:u32 n:u64        36 bytes, big-endian

A retried task writes the same rows of the same partition of the same batch, so its messages have the same ids, and a
receiver that keeps the first message of each id gets each message once. This holds if the rows come in the same order
again: they do when read from a journal, and not always after a shuffle. A DataFrame with ids of its own provides
them in a column ``id``.
"""

from __future__ import annotations

import hashlib
import struct
import uuid
from typing import Final, NamedTuple

from nngkit.errors import BadMessage

_FORM: Final = struct.Struct(">16sQIQ")
LENGTH: Final = _FORM.size  # bytes


class MessageId(NamedTuple):
    """Decoded id; `number` is that of the message's first row in the partition."""

    query: bytes
    batch: int
    partition: int
    number: int

    def pack(self) -> bytes:
        """Return the encoded id."""
        return _FORM.pack(*self)


def query_key(name: str) -> bytes:
    """Return the 16 bytes of a query: Spark's UUID for it, or a hash of any other name."""
    try:
        return uuid.UUID(name).bytes
    except ValueError:
        return hashlib.sha256(name.encode()).digest()[:16]


def split(message: bytes) -> tuple[MessageId, bytes]:
    """Split a message written ``withIds`` into its id and its value. Raises BadMessage.

    >>> split(MessageId(bytes(16), 3, 0, 7).pack() + b"hello")[1]
    b'hello'
    """
    if len(message) < LENGTH:
        raise BadMessage("message with an id", f"too short: {len(message)} bytes")
    return MessageId(*_FORM.unpack(message[:LENGTH])), message[LENGTH:]
