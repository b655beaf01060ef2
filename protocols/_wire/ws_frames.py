"""Frames of RFC 6455 as pure functions: read, written, masked; runs of equal length at a time.

::

    82  length: 1, 3 or 9 bytes  [mask: 4 bytes]  body

``scan`` is the fast path: it reads whole binary frames, those of equal length in one step. ``other_frame`` reads every
kind of frame, control frames and fragments included, and raises Fault for what RFC 6455 forbids.

May not know: the handshake, the state of a connection, sockets, time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from nngkit.errors import BadMessage, TooLarge

MOST_FRAME_HEAD: Final = 14  # bytes
MOST_FRAME: Final = 1 << 20  # bytes of a frame that NNG accepts (WS_DEF_MAXRXFRAME)
TRANSLATED: Final = 2048  # bytes from which `translate` unmasks faster than one integer
FIRST_RUN: Final = 16  # frames tried at first as a run of equal length; a vain try costs as much as three frames
MOST_RUN: Final = 1024  # and at most: 20 KiB of small frames, which stay in the cache
STRIDES: Final = 32  # bodies unpacked in one step; more is no faster

FIN, CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x80, 0, 1, 2, 8, 9, 10
WHOLE: Final = FIN | BINARY
MASKED: Final = 0x80
NORMAL, PROTOCOL_ERROR, UNSUPPORTED, TOO_BIG = 1000, 1002, 1003, 1009  # close codes, RFC 6455, 7.4.1

_u16 = struct.Struct(">H").unpack_from
_u64 = struct.Struct(">Q").unpack_from
_integer = int.from_bytes


class Fault(Exception):
    """Invalid frame: the close ``code`` for the peer, and the ``error`` for the caller."""

    def __init__(self, code: int, error: BadMessage | TooLarge) -> None:
        super().__init__(str(error))
        self.code = code
        self.error = error


def bad(why: str, code: int = PROTOCOL_ERROR) -> Fault:
    """Return the Fault of a frame that is invalid because of ``why``."""
    return Fault(code, BadMessage("WebSocket frame", why))


# ---- reading ---------------------------------------------------------------------------------------------------------


def scan(data: bytes, at: int, most: int, items: list[bytes], limit: int, masked: int) -> tuple[int, int]:
    """Append whole binary messages, from ``at`` on; return the next frame's position and the bytes it needs.

    These are 0 if the frame is there but of another kind or invalid, or if ``most`` is reached. ``limit``: bytes of a
    body; ``masked``: MASKED if frames must be masked, else 0.
    """
    end, add = len(data), items.append
    key = 4 if masked else 0
    room = most - len(items)
    last, window = -1, FIRST_RUN
    while room > 0:
        left = end - at
        if left < 2:
            return at, 2
        size = data[at + 1] ^ masked
        if data[at] != WHOLE or size > 127:
            return at, 0
        start = at + 2 + key
        if size > 125:
            wide = size == 127
            if left < (10 if wide else 4):
                return at, 10 if wide else 4
            (size,) = _u64(data, at + 2) if wide else _u16(data, at + 2)
            start += 8 if wide else 2
            if size < (65536 if wide else 126):
                return at, 0
        if size > limit:
            return at, 0
        stop = start + size
        if stop > end:
            return at, stop - at
        if size == last and size < 126 and room > 3 and left >= 4 * (stop - at):
            stride = stop - at
            count = _same(data, at, stride, min(window, room))
            stop = at + count * stride
            items += _uncover(data[at:stop], count, size) if masked else _bodies(data[at:stop], count, 2, size)
            at = stop
            room -= count
            window, last = (min(window * 8, MOST_RUN), size) if count == window else (FIRST_RUN, -1)
            continue
        if not masked:
            add(data[start:stop])
        elif size < TRANSLATED:
            cover = (data[start - 4 : start] * (size // 4 + 1))[:size]
            whole = _integer(data[start:stop], "little") ^ _integer(cover, "little")
            add(whole.to_bytes(size, "little"))
        else:
            add(apply_mask(data[start:stop], data[start - 4 : start]))
        last = size
        room -= 1
        at = stop
    return at, 0


def other_frame(
    data: bytes, at: int, inside: bool, gathered: int, limit: int, headroom: int, masked: int
) -> tuple[int, bytes, int]:
    """Return first byte, body and end of the frame at ``at``, of any kind.

    The end is beyond ``data`` if the frame is incomplete. ``inside``: a message has begun, with ``gathered`` bytes so
    far. ``limit``: bytes of a message, with ``headroom`` for protocol headers. Raises Fault as soon as the bytes show
    it.
    """
    left = len(data) - at
    if left < 2:
        return 0, b"", at + 2
    first, size = data[at], data[at + 1]
    opcode, final = first & 0x0F, first & FIN
    if first & 0x70:
        raise bad("reserved bits are set")
    if size & 0x80 != masked:
        raise bad("unmasked frame from a client" if masked else "masked frame from a server")
    size &= 0x7F
    if opcode in (CLOSE, PING, PONG):
        if not final or size > 125:
            raise bad("fragmented control frame" if not final else "control frame over 125 bytes")
    elif opcode == TEXT:
        raise bad("text message", UNSUPPORTED)
    elif opcode == (BINARY if inside else CONTINUATION):
        raise bad("new message inside a fragmented one" if inside else "continuation without a message")
    elif opcode > BINARY:
        raise bad(f"unknown opcode {opcode}")
    start = at + 2
    if size > 125:
        width, least = (2, 126) if size == 126 else (8, 65536)
        start += width
        if left < 2 + width:
            return first, b"", start
        size = _integer(data[start - width : start], "big")
        if size < least:
            raise bad(f"length {size} encoded in {width} bytes")
    if opcode < CLOSE and gathered + size > limit:
        raise Fault(TOO_BIG, TooLarge(gathered + size, limit - headroom))
    start += 4 if masked else 0
    stop = start + size
    if stop > len(data):
        return first, b"", stop
    body = data[start:stop]
    return first, apply_mask(body, data[start - 4 : start]) if masked else body, stop


def join_large(parts: Sequence[bytes | bytearray], over: int, masked: int) -> tuple[bytes, bytes]:
    """Return the body of the large frame at the start of ``parts``, and the ``over`` bytes after it."""
    first, *middle, last = parts
    start = 2 + (0, 2, 8)[max(first[1] & 0x7F, 125) - 125]
    key = bytes(first[start : start + 4]) if masked else b""
    cut = len(last) - over
    body = b"".join((memoryview(first)[start + len(key) :], *middle, memoryview(last)[:cut]))
    return apply_mask(body, key) if key else body, bytes(last[cut:])


def _same(data: bytes, at: int, stride: int, most: int) -> int:
    """Return how many whole frames from ``at`` on have the first one's head, up to ``most``; at least 1."""
    count = min((len(data) - at) // stride, most)
    stop = at + count * stride
    for place in (at, at + 1):
        column = data[place:stop:stride]
        count = min(count, len(column) - len(column.lstrip(data[place : place + 1])))
    return count


@lru_cache(256)
def _strider(head: int, size: int) -> struct.Struct:
    return struct.Struct(f"{head}x{size}s" * STRIDES)


def _bodies(run: bytes, count: int, head: int, size: int) -> list[bytes]:
    """Return the bodies of ``count`` frames of equal length, which make up ``run``."""
    stride = head + size
    middle = count // STRIDES * STRIDES * stride
    items = list(chain.from_iterable(_strider(head, size).iter_unpack(memoryview(run)[:middle])))
    items += [run[start : start + size] for start in range(middle + head, len(run) + 1, stride)]
    return items


def _uncover(run: bytes, count: int, size: int) -> list[bytes]:
    """Like ``_bodies`` for masked frames, unmasked as one integer."""
    stride = 6 + size
    cover = bytearray(len(run))
    for place in range(4):
        column = run[2 + place :: stride]
        for start in range(6 + place, stride, 4):
            cover[start::stride] = column
    return _bodies(_xor(run, cover), count, 6, size)


# ---- writing ---------------------------------------------------------------------------------------------------------


@lru_cache(512)
def frame_head(first: int, size: int, masked: int) -> bytes:
    """Return the head of a frame, without the mask."""
    if size < 126:
        return bytes((first, masked | size))
    if size < 65536:
        return bytes((first, masked | 126)) + size.to_bytes(2, "big")
    return bytes((first, masked | 127)) + size.to_bytes(8, "big")


def fragments(body: bytes) -> Iterable[tuple[int, bytes]]:
    """Yield first byte and body of each fragment of a message that is too large for one frame."""
    final = (len(body) - 1) // MOST_FRAME * MOST_FRAME
    for at in range(0, final + 1, MOST_FRAME):
        yield (CONTINUATION if at else BINARY) | (FIN if at == final else 0), body[at : at + MOST_FRAME]


def masked_run(bodies: Sequence[bytes], size: int, keys: bytes) -> bytes:
    """Return masked frames of bodies of equal ``size``, under 126 bytes; ``keys``: four bytes for each."""
    head = frame_head(WHOLE, size, MASKED) + bytes(4)
    stride = 6 + size
    runs = []
    for at in range(0, len(bodies), MOST_RUN):
        some = bodies[at : at + MOST_RUN]
        plain = head + head.join(some)
        cover = bytearray(len(plain))
        for place in range(4):
            column = keys[4 * at + place : 4 * (at + len(some)) : 4]
            for start in range(2 + place, stride, 4):
                cover[start::stride] = column
        runs.append(_xor(plain, cover))
    return b"".join(runs)


# ---- masks -----------------------------------------------------------------------------------------------------------


def _xor(one: bytes | bytearray, other: bytes | bytearray) -> bytes:
    return (_integer(one, "little") ^ _integer(other, "little")).to_bytes(len(one), "little")


@lru_cache(256)
def _table(key: int) -> bytes:
    return _xor(bytes(range(256)), bytes((key,)) * 256)


def apply_mask(body: bytes, key: bytes) -> bytes:
    """Return ``body`` masked or unmasked with ``key``."""
    size = len(body)
    if size < TRANSLATED:
        return _xor(body, (key * (size // 4 + 1))[:size])
    masked = bytearray(body)
    for place in range(4):
        masked[place::4] = masked[place::4].translate(_table(key[place]))
    return bytes(masked)
