"""Many small messages in one: ``batch=`` at both ends of PUSH/PULL, PAIR, BUS and PUB/SUB.

::

    with Push(listen="tcp://127.0.0.1:0", batch=True) as push, Pull(dial=push.address, batch=True) as pull:
        push.send(b"small")     # sent with the next ones, after a millisecond at the latest
        push.flush()            # or now
        pull.recv()

Each message costs a call, a frame and a queue entry at both ends, whatever its size; a batch costs that once. On the
wire a batch is one CBOR array of byte strings (docs/wire.md). On PUB/SUB it holds messages of one topic. The topic
comes first, so that subscribers match it as in any message, and its length comes last::

    batch = [* bstr]                          PUSH, PAIR, BUS
    batch = topic  [* bstr]  length: u32      PUB   (with sequence=True the trailer of pubsub.py, which has it too)

Plain bytes do not show whether they are a batch, so both ends need ``batch=``: a receiver with it refuses anything else
(BadMessage), one without receives the bytes as they are. A batch is accepted whole or not at all.

Pure: no socket, no clock.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final

import cbor2

from nngkit.cbor import REFUSED, decode_one, innermost
from nngkit.errors import BadMessage, ConfigError, TooLarge

MOST_ITEMS: Final = 65536  # messages in a batch: an array of empty ones costs its reader eight times its bytes
HEAD: Final = 5  # maximum bytes of CBOR heads: of a byte string up to 4 GiB, and of the array
MOST_TOPIC: Final = 4096  # bytes of a topic that a receiver allows on top
STRIDES: Final = 32  # items unpacked in one step; more is no faster
BYTES_ONLY: Final = frozenset((bytes,))
_U32 = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Batch:
    """When a batch is sent: at ``items`` messages, at ``size`` bytes, or ``delay`` seconds after its first message.

    At the defaults the message rate no longer grows with the size of a batch (docs/benchmarks.md). A message of more
    than ``size`` bytes is sent alone. Raises ConfigError.
    """

    items: int = 1024
    size: int = 64 * 1024
    delay: float = 0.001

    @property
    def overhead(self) -> int:
        """Maximum bytes that headers and a topic add to ``size``."""
        return HEAD * (self.items + 1) + MOST_TOPIC

    def __post_init__(self) -> None:
        for what, most in (("items", MOST_ITEMS), ("size", 1 << 30)):
            value = getattr(self, what)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise ConfigError(f"batch {what}", f"{value!r} is not an integer from 1 to {most}", value)
        if not isinstance(self.delay, (int, float)) or isinstance(self.delay, bool) or not 0 < self.delay <= 3600:
            raise ConfigError("batch delay", f"{self.delay!r} is not over 0 and at most 3600 seconds", self.delay)


def pack(items: Sequence[bytes]) -> bytes:
    """Return the array of ``items``, at least one."""
    sizes = set(map(len, items))
    if len(sizes) > 1:
        packed: bytes = cbor2.dumps(items)
        return packed
    # messages of equal size, the usual case, have equal heads: joining on the head gives the same bytes faster
    head = _head(0x40, sizes.pop())
    return b"".join((_head(0x80, len(items)), head, head.join(items)))


def unpack(packed: bytes, *, largest: int, peer: str | None = None) -> list[bytes]:
    """Return the items given to ``pack``. Raises BadMessage, and TooLarge if one is over ``largest`` bytes."""
    items = _unpack_equal(packed) or _unpack_any(packed, peer)
    if len(packed) > largest and (size := max(map(len, items))) > largest:
        raise TooLarge(size, largest, peer)
    return items


def count(packed: bytes, start: int = 0) -> int:
    """Return the number of messages in the array, of our making, at ``start``."""
    return max(1, _read_head(packed, start, 0x80)[0])


def count_topic(body: bytes) -> int:
    """Return the number of messages in a batch, of our making, that begins with a topic."""
    return count(body, _U32.unpack_from(body, len(body) - _U32.size)[0])


def _head(major: int, number: int) -> bytes:
    """Return CBOR's head of a byte string of ``number`` bytes (major 0x40) or an array of as many items (0x80)."""
    if number < 24:
        return bytes((major | number,))
    width = 1 if number < 1 << 8 else 2 if number < 1 << 16 else 4 if number < 1 << 32 else 8
    return bytes((major | 23 + width.bit_length(),)) + number.to_bytes(width, "big")


def _read_head(packed: bytes, at: int, major: int) -> tuple[int, int]:
    """Return the number in the head at ``at`` and the head's end; (-1, at) if it is not of ``major``, or incomplete."""
    if at >= len(packed) or packed[at] & 0xE0 != major:
        return -1, at
    short = packed[at] & 0x1F
    if short < 24:
        return short, at + 1
    end = at + 1 + (1 << short - 24)
    if short > 27 or end > len(packed):
        return -1, at
    return int.from_bytes(packed[at + 1 : end], "big"), end


def _unpack_equal(packed: bytes) -> list[bytes] | None:
    """Return the items if all are of equal size, else None; it does not read each head."""
    count, start = _read_head(packed, 0, 0x80)
    size, body = _read_head(packed, start, 0x40)
    stride = body - start + size
    if count < 1 or size < 1 or count > MOST_ITEMS or start + count * stride != len(packed):
        return None
    for at in range(start, body):  # one byte of the head, in all items
        if packed[at::stride] != packed[at : at + 1] * count:
            return None
    each = _strider(body - start, size)
    whole = count // STRIDES * STRIDES
    view = memoryview(packed)
    items = list(chain.from_iterable(each.iter_unpack(view[start : start + whole * stride])))
    items += [packed[at : at + size] for at in range(start + whole * stride + body - start, len(packed), stride)]
    return items


@lru_cache(256)
def _strider(head: int, size: int) -> struct.Struct:
    """Return a Struct that unpacks ``STRIDES`` items of ``size`` bytes with their heads."""
    return struct.Struct(f"{head}x{size}s" * STRIDES)


def _unpack_any(packed: bytes, peer: str | None) -> list[bytes]:
    try:
        items = decode_one(packed, max_depth=2)
    except REFUSED as error:
        raise BadMessage("batch", innermost(error), peer) from error
    if type(items) is not list:
        raise BadMessage("batch", f"{type(items).__name__} instead of an array", peer)
    if not 1 <= len(items) <= MOST_ITEMS:
        raise BadMessage("batch", f"{len(items)} messages, not 1 to {MOST_ITEMS}", peer)
    if not BYTES_ONLY.issuperset(map(type, items)):
        odd = next(type(item).__name__ for item in items if type(item) is not bytes)
        raise BadMessage("batch", f"{odd} instead of a byte string", peer)
    return items


def pack_topic(topic: bytes, items: Sequence[bytes]) -> bytes:
    """Return a batch of one topic."""
    return b"".join((topic, pack(items), _U32.pack(len(topic))))


def split_topic(body: bytes, peer: str | None = None) -> tuple[bytes, bytes]:
    """Return topic and array of a batch of one topic; the array is not checked. Raises BadMessage."""
    if len(body) < _U32.size:
        raise BadMessage("batch", f"{len(body)} bytes, too short for a topic length", peer)
    length = _U32.unpack_from(body, len(body) - _U32.size)[0]
    if length > len(body) - _U32.size:
        raise BadMessage("batch", f"topic of {length} bytes in a message of {len(body)}", peer)
    return body[:length], body[length : -_U32.size]
