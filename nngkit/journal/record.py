"""Binary format of a log's records. Pure: no file, no clock. The only user of the CRC.

All integers are big-endian; each record begins with its length::

    log     = magic:8  version:u16  zero:u16  partition:u32  salt:u32  first:i64  created:i64  crc:u32
    record  = length:u32  crc:u32  offset:i64  timestamp:i64  origin:u16  key:i32  headers:u32  value:u32
              origin  key  headers  value                  (the four numbers are the bytes of these; key -1: null)
    origin  = topic: u16 and text   protocol: u8 and text   peer: the rest, empty for none
    headers = (name: u16 and text   value: u32 and bytes)*
    head    = magic:8  salt:u32  first:i64  end:i64  position:i64  crc:u32

`length` counts the bytes after `crc`, and the four sizes in the record must add up to it. This detects any single bit
flip in these five numbers; CRC32C detects any burst of up to 32 bits in the rest, and all but one in 2**32 of other
changes. A record's CRC continues from its log's `salt`, which is random: bytes of another log, or a record that a
peer sends inside a value, are never taken for a record of this log.

    >>> data = frame(0, 1, encode_origin("t", "sub", None), None, b"", b"hello", salt=7)
    >>> walk(data, 0, offset=0, salt=7).rows
    [(0, 1, b'\\x00\\x01t\\x03sub', None, b'', b'hello')]
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from google_crc32c import extend  # Apache-2.0; has wheels for every platform of pynng's wheels

from nngkit.errors import ConfigError, TooLarge

crc32c: Final = extend
VERSION: Final = 1
LARGEST: Final = (1 << 30) + (1 << 20)  # bytes of a record: the largest message of a socket, plus 1 MiB
MOST_TOPIC: Final = 1024  # bytes
EARLIEST: Final = -62_135_596_800_000_000  # microseconds since 1970: the years 1 to 9999, which are what Python,
LATEST: Final = 253_402_300_799_999_999  # Delta Lake and ISO 8601 have; a time in nanoseconds is far beyond
_LOG_MAGIC: Final = b"NNGKITJ\n"
_HEAD_MAGIC: Final = b"NNGJHEAD"
_LOG: Final = struct.Struct(">8sHHIIqq")
_HEAD: Final = struct.Struct(">8sIqqq")
_CRC: Final = struct.Struct(">I")
_FIXED: Final = struct.Struct(">qqHiII")
_START: Final = struct.Struct(">II")
_SEEN: Final = struct.Struct(">IIqq")  # first fields of a record: length, checksum, offset, timestamp
_WHOLE: Final = struct.Struct(">IIqqHiII")
_U16: Final = struct.Struct(">H")
START: Final = _START.size
FIXED: Final = _FIXED.size
NULL: Final = -1

RawRecord: TypeAlias = tuple[int, int, bytes, bytes | None, bytes, bytes]
"""offset, timestamp, origin, key, headers, value: a decoded record, with origin and headers still encoded."""
Headers: TypeAlias = tuple[tuple[str, bytes], ...]
WHO: Final = "nngkit.who"
"""Header that a recorder with a trust sets: the name of the peer, as its pass proves it."""


class Record(NamedTuple):
    """Record of a journal. `timestamp`: time of receipt by the recorder, in microseconds since 1970."""

    key: bytes | None
    value: bytes
    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: Headers
    protocol: str
    peer: str | None

    @property
    def who(self) -> str | None:
        """Name of the peer, as its pass proved it to the recorder; None without a trust. Its header is `WHO`."""
        return next((value.decode() for name, value in self.headers if name == WHO), None)


def encode_origin(topic: str, protocol: str, peer: str | None) -> bytes:
    """Encode a record's source, the same for all records of one stream and peer. Raises ConfigError."""
    name = topic.encode() if topic.isprintable() else b""  # lone surrogates are not printable
    if not 1 <= len(name) <= MOST_TOPIC:
        raise ConfigError("topic", f"{topic!r} is not 1 to {MOST_TOPIC} bytes of printable text", topic)
    way = protocol.encode(errors="replace")
    if not 1 <= len(way) <= 32:
        raise ConfigError("protocol", f"{protocol!r} is not 1 to 32 bytes of text", protocol)
    # a socket's peer address is short; the 4 KiB cap bounds the argument of put()
    return b"".join((_U16.pack(len(name)), name, bytes((len(way),)), way, (peer or "").encode(errors="replace")[:4096]))


def decode_origin(data: bytes) -> tuple[str, str, str | None]:
    """Return topic, protocol, peer. Raises ValueError for malformed data."""
    try:
        at = 2 + _U16.unpack_from(data)[0]
        end = at + 1 + data[at]
    except (struct.error, IndexError) as error:
        raise ValueError("truncated origin") from error
    if end > len(data):
        raise ValueError("truncated origin")
    return data[2:at].decode(), data[at + 1 : end].decode(), data[end:].decode(errors="replace") or None


def held_bytes(data: bytes) -> bytes:
    """Return a bytes-like object as bytes, which its owner cannot change before they are written. Raises TypeError."""
    return data if isinstance(data, bytes) else bytes(memoryview(data))


def encode_headers(headers: Mapping[str, bytes] | Iterable[tuple[str, bytes]] | None) -> bytes:
    """Encode headers as in Kafka: ordered names and bytes, names may repeat. Raises ConfigError."""
    if not headers:
        return b""
    parts = []
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        try:
            text = name.encode()
        except UnicodeEncodeError as error:
            raise ConfigError("headers", f"{name[:40]!r}: a lone surrogate is not a character", name[:40]) from error
        if len(text) > 0xFFFF:
            raise ConfigError("headers", "a name is longer than 65535 bytes", name[:40])
        held = held_bytes(value)
        parts += [_U16.pack(len(text)), text, _CRC.pack(len(held)), held]
    return b"".join(parts)


def decode_headers(data: bytes) -> Headers:
    """Decode headers. Raises ValueError for malformed data."""
    found, at = [], 0
    try:
        while at < len(data):
            start = at + 2 + _U16.unpack_from(data, at)[0]
            end = start + 4 + _CRC.unpack_from(data, start)[0]
            if end > len(data):
                raise ValueError("truncated headers")
            found.append((data[at + 2 : start].decode(), data[start + 4 : end]))
            at = end
    except struct.error as error:
        raise ValueError("truncated headers") from error
    return tuple(found)


def frame(
    offset: int, timestamp: int, origin: bytes, key: bytes | None, headers: bytes, value: bytes, *, salt: int
) -> bytes:
    """Encode a record. Raises TooLarge."""
    if key is None:
        fixed = _FIXED.pack(offset, timestamp, len(origin), NULL, len(headers), len(value))
        body = b"".join((fixed, origin, headers, value))
    else:
        fixed = _FIXED.pack(offset, timestamp, len(origin), len(key), len(headers), len(value))
        body = b"".join((fixed, origin, key, headers, value))
    if len(body) > LARGEST:
        raise TooLarge(len(body), LARGEST)
    return _START.pack(len(body), crc32c(salt, body)) + body


@dataclass(frozen=True, slots=True)
class Walk:
    """Intact records, the position after the last one, and why none follows there (None: the walk ended)."""

    rows: list[RawRecord]
    position: int
    fault: str | None


def walk(data: bytes, position: int, *, offset: int, salt: int, stop: int | None = None, most: int = 1 << 62) -> Walk:
    """Decode up to `most` records from `position` up to the byte `stop`; the first must have `offset`.

    `data` is bytes or a memory map. Stops before the first record that is not intact; never raises.
    """
    rows: list[RawRecord] = []
    add, unpack = rows.append, _WHOLE.unpack_from
    at = position
    stop = len(data) if stop is None else stop
    fault = None
    while at < stop and most > 0:
        if at + _WHOLE.size > stop:
            fault = f"{stop - at} bytes are too few for a record"
            break
        length, crc, number, timestamp, origin_size, key_size, headers_size, value_size = unpack(data, at)
        end = at + START + length
        sizes = FIXED + origin_size + headers_size + value_size + (key_size if key_size > 0 else 0)
        if sizes != length or key_size < NULL or length > LARGEST:
            fault = f"inconsistent lengths ({length} and {sizes})"
            break
        if end > stop:
            fault = f"a record of {length} bytes is cut off after {stop - at - START}"
            break
        if crc32c(salt, data[at + START : end]) != crc:
            fault = "checksum mismatch"
            break
        if number != offset:
            fault = f"offset {number} instead of {offset}"
            break
        at += _WHOLE.size
        origin = data[at : at + origin_size]
        at += origin_size
        key = None
        if key_size >= 0:
            key = data[at : at + key_size]
            at += key_size
        headers = data[at : at + headers_size] if headers_size else b""
        at += headers_size
        add((number, timestamp, origin, key, headers, data[at:end]))
        at = end
        offset += 1
        most -= 1
    return Walk(rows, at, fault)


def seek(
    data: bytes, position: int, *, offset: int, first: int, end: int, stop: int, time: int
) -> tuple[int, int, bool]:
    """Find a record from `first` on, below `end`, with a timestamp of `time` or later, without checking CRCs.

    Returns its position and offset, and True. False: none up to that position, because the log ends there, or because
    that record or the one before it is damaged.
    """
    at = position
    unpack, size = _SEEN.unpack_from, _SEEN.size
    while offset < end and at + size <= stop:
        length, _, number, timestamp = unpack(data, at)
        if number != offset or length < FIXED:
            break
        if timestamp >= time and offset >= first:
            return at, offset, True
        at += START + length
        offset += 1
    return at, offset, False


def resume(data: bytes, position: int, *, offset: int, salt: int) -> tuple[int, int] | None:
    """Return (position, offset) of the next intact record behind damage at `position`; None if there is none.

    `offset` is that of the damaged record. Searches for the six upper bytes that the offsets of the next 65,536 records
    share, and again for the next block, as its border may lie between. A match must be an intact record to count.
    """
    best: tuple[int, int] | None = None
    for upper in (offset >> 16, (offset >> 16) + 1):
        pattern = struct.pack(">Q", upper << 16)[:6]
        at = data.find(pattern, position + 1)
        while at >= 0 and (best is None or at < best[0]):
            start = at - START
            if start > position and at + 8 <= len(data):
                number = struct.unpack_from(">q", data, at)[0]
                if number > offset and walk(data, start, offset=number, salt=salt, most=1).rows:
                    best = (start, number)
                    break
            at = data.find(pattern, at + 1)
    return best


@dataclass(frozen=True, slots=True)
class LogHeader:
    """Header of a log: its partition and first offset. `created`: microseconds since 1970."""

    partition: int
    salt: int
    first: int
    created: int

    size = _LOG.size + _CRC.size

    def encode(self) -> bytes:
        """Return the encoded header."""
        data = _LOG.pack(_LOG_MAGIC, VERSION, 0, self.partition, self.salt, self.first, self.created)
        return data + _CRC.pack(crc32c(0, data))

    @classmethod
    def decode(cls, data: bytes) -> LogHeader:
        """Decode a header. Raises ValueError with the reason, also for another format version."""
        if len(data) < cls.size:
            raise ValueError(f"{len(data)} bytes are too few for a log")
        magic, version, _, partition, salt, first, created = _LOG.unpack_from(data)
        if magic != _LOG_MAGIC:
            raise ValueError("not a log of a journal")
        if crc32c(0, bytes(data[: _LOG.size])) != _CRC.unpack_from(data, _LOG.size)[0]:
            raise ValueError("checksum mismatch in its header")
        if version != VERSION:
            raise ValueError(f"format version {version}; this nngkit reads version {VERSION}")
        return cls(partition, salt, first, created)


@dataclass(frozen=True, slots=True)
class Head:
    """Synced end: in the log `first`, the bytes before `position` hold the offsets below `end`."""

    salt: int
    first: int
    end: int
    position: int

    size = _HEAD.size + _CRC.size

    def encode(self) -> bytes:
        """Return the encoded head."""
        data = _HEAD.pack(_HEAD_MAGIC, self.salt, self.first, self.end, self.position)
        return data + _CRC.pack(crc32c(0, data))

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """Decode a head. Raises ValueError."""
        if len(data) != cls.size or data[:8] != _HEAD_MAGIC:
            raise ValueError("not a head of a journal")
        if crc32c(0, data[: _HEAD.size]) != _CRC.unpack_from(data, _HEAD.size)[0]:
            raise ValueError("checksum mismatch")
        return cls(*_HEAD.unpack_from(data)[1:])
