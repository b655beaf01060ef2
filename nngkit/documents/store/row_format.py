"""Format of a store's file: rows of a number and bytes, each with a seal. Pure: no SQLite, no clock.

::

    table      key              content
    facts      1                origin and last epoch of the store; numbers of documents and of appends
    facts      from 2 on        an origin and its owner: the name under a trust that introduced it
    heads      document         the extent of a document: first and last record, snapshot
    names      document         its name again, on another page: it survives a loss of the heads
    records    document, n      an edit, or a merge; n counts from 1 without gaps
    contents   document, k      a snapshot, or the content of a saved version
    saved      document, i      name, time and versions of a saved version
    past       document, chunk  history: author, time and size of records that are in the snapshot

A row ends with a *seal*: 8 bytes of BLAKE2b over table, key and content. It detects flipped bits, which SQLite does
not, and rows under a wrong key; and it identifies a row at any position in a file, which recovery is based on. Missing
rows are detected by their numbers: they have no gaps, and heads and facts tell where they end.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import Any, Final

from nngkit import envelope
from nngkit.documents.records import Entry, Merge, Record, Saved
from nngkit.documents.versions import ORIGIN, STREAMS, EditStream, Versions, from_wire, to_wire
from nngkit.errors import BadMessage, NngkitError

SCHEMA: Final = 1  # incremented with every change that an older nngkit would misread
CHUNK: Final = 1024  # entries per row of history: about 8 KiB
LARGEST: Final = 512 << 20  # bytes of one row: SQLite's own limit is 1 GB
DOCUMENTS: Final = 1 << 22  # limit given by the key
_NUMBERS: Final = 40  # bits of a key for the number within a document: 10^12 records
_SEAL: Final = 8  # bytes: with 4, one in 4 billion damaged rows would pass, and recovery tries millions of places
_EDIT, _DIFF = 1, 2
_RECORD = struct.Struct(f">BQ{ORIGIN}sQQI")  # kind, milliseconds since 1970, origin, epoch, seq, bytes of deps
_LENGTH = struct.Struct(">I")
_ENTRY = struct.Struct(f">{ORIGIN}sQQQQ")  # origin, epoch, seq, milliseconds, size
_NO_STREAM: Final = EditStream(bytes(ORIGIN), 0)
_VERSIONS: Final = 64 << 20  # bytes of versions: two million streams, far beyond any document that can be opened


class Unsound(NngkitError):
    """A row was altered; the store raises StoreDamaged with the file."""


class Table(str):
    """Name of a table; rows begin with its first letter."""

    __slots__ = ()

    @property
    def tag(self) -> bytes:
        return self[0].encode()


FACTS, HEADS, NAMES, RECORDS = Table("facts"), Table("heads"), Table("names"), Table("records")
CONTENTS, SAVED, PAST = Table("contents"), Table("saved"), Table("past")
TABLES: Final = (FACTS, HEADS, NAMES, RECORDS, CONTENTS, SAVED, PAST)


def key(document: int, number: int) -> int:
    """Return the key of a document's row `number`."""
    return document << _NUMBERS | number


def unkey(key: int) -> tuple[int, int]:
    """Split a key into document and number."""
    return key >> _NUMBERS, key & ((1 << _NUMBERS) - 1)


def seal(table: Table, key: int, content: bytes) -> bytes:
    """Return the bytes of a row."""
    return b"".join((table.tag, content, _seal(table.tag, key, content)))


def unseal(table: Table, key: int, body: object) -> bytes:
    """Return the content of a row. Raises Unsound."""
    if type(body) is not bytes or len(body) <= _SEAL:
        raise Unsound("is too short")
    content = body[1:-_SEAL]
    if body[:1] != table.tag or body[-_SEAL:] != _seal(table.tag, key, content):
        raise Unsound("its checksum is wrong")
    return content


def _seal(tag: bytes, key: int, content: bytes) -> bytes:
    digest = blake2b(tag + key.to_bytes(8, "big"), digest_size=_SEAL)
    digest.update(content)
    return digest.digest()


# ---- facts and heads -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Facts:
    """Metadata of the whole file. ``file``: random id, shared by copies; a recovered file gets a new one."""

    origin: bytes
    epoch: int
    file: bytes
    documents: int = 0
    ticket: int = 0


@dataclass(slots=True)
class Head:
    """Metadata of one document. Its records are ``first`` to ``last``; those up to ``through`` are in the snapshot.

    ``snapshot``: number of its content, 0 for none. ``contents``, ``saved``: the highest numbers in use. ``past``:
    first record of the history, which ends before ``first``. ``log`` and ``size``: bytes of the records after the
    snapshot, and of the snapshot. ``ticket``: of the append that wrote this.
    """

    name: str
    first: int = 1
    last: int = 0
    through: int = 0
    snapshot: int = 0
    contents: int = 0
    saved: int = 0
    past: int = 1
    log: int = 0
    size: int = 0
    ticket: int = 0


def encode_facts(facts: Facts) -> bytes:
    return envelope.encode(astuple(facts))


def decode_facts(content: bytes) -> Facts:
    return Facts(*_list(content, (bytes, int, bytes, int, int)))


def encode_owner(origin: bytes, name: str) -> bytes:
    return envelope.encode([origin, name])


def decode_owner(content: bytes) -> tuple[bytes, str]:
    origin, name = _list(content, (bytes, str))
    return origin, name


def encode_head(head: Head) -> bytes:
    return envelope.encode(astuple(head))


def decode_head(content: bytes) -> Head:
    return Head(*_list(content, (str, *[int] * 10)))


def _list(content: bytes, kinds: tuple[type, ...]) -> list[Any]:
    value = _decode(content, envelope.CONTROL_LIMIT)
    if type(value) is not list or tuple(map(type, value)) != kinds:
        raise Unsound("has unexpected fields")
    return value


def _decode(content: bytes, limit: int) -> Any:
    try:
        return envelope.decode(content, what="row", limit=limit)
    except NngkitError as error:
        raise Unsound(str(error)) from error


# ---- versions, of which a stored document may have more than a message can hold --------------------------------------


def encode_versions(versions: Mapping[EditStream, int]) -> list[list[Any]]:
    wire = to_wire(versions)
    return [wire[start : start + STREAMS] for start in range(0, len(wire), STREAMS)]


def decode_versions(value: object) -> Versions:
    if type(value) is not list:
        raise Unsound("has no versions")
    versions: Versions = {}
    try:
        for part in value:
            versions.update(from_wire(part, what="row"))
    except BadMessage as error:
        raise Unsound(error.why) from error
    return versions


# ---- records ---------------------------------------------------------------------------------------------------------


def encode_record(record: Record, milliseconds: int) -> bytes:
    deps = envelope.encode(to_wire(record.deps)) if record.deps else b""
    head = _RECORD.pack(_EDIT, milliseconds, *record.stream, record.seq, len(deps))
    return b"".join((head, deps, record.update))


def encode_merge(merge: Merge, base: Mapping[EditStream, int] | None, milliseconds: int) -> bytes:
    """`base`: versions of the document before the merge, its dependencies; None if unknown."""
    parts = [encode_versions(merge.versions), None if base is None else encode_versions(base)]
    said = envelope.encode(parts)
    return b"".join((_RECORD.pack(_DIFF, milliseconds, *_NO_STREAM, 0, len(said)), said, merge.update))


def decode_record(content: bytes) -> Record | Merge:
    kind, _, origin, epoch, seq, said = _head(content)
    start = _RECORD.size + said
    deps, update = content[_RECORD.size : start], content[start:]
    if kind == _EDIT:
        return Record(EditStream(origin, epoch), seq, update, decode_versions([_decode(deps, said)]) if deps else {})
    return Merge(update, decode_versions(_parts(deps)[0]))


def base_of(content: bytes) -> Versions | None:
    """Return the dependencies of a merge; None if unknown."""
    said = _head(content)[5]
    base = _parts(content[_RECORD.size : _RECORD.size + said])[1]
    return None if base is None else decode_versions(base)


def entry_of(content: bytes) -> Entry:
    """Return the history entry of a record."""
    kind, milliseconds, origin, epoch, seq, said = _head(content)
    stream = EditStream(origin, epoch) if kind == _EDIT else None
    return Entry(stream, seq, milliseconds / 1000, len(content) - _RECORD.size - said)


def _head(content: bytes) -> tuple[int, int, bytes, int, int, int]:
    if len(content) < _RECORD.size:
        raise Unsound("is too short")
    head: tuple[int, int, bytes, int, int, int] = _RECORD.unpack_from(content)
    if head[0] not in (_EDIT, _DIFF) or len(content) < _RECORD.size + head[5]:
        raise Unsound("is neither an edit nor a merge")
    return head


def _parts(said: bytes) -> list[Any]:
    parts = _decode(said, _VERSIONS)
    if type(parts) is not list or len(parts) != 2:
        raise Unsound("has no versions")
    return parts


# ---- contents, saved versions, history -------------------------------------------------------------------------------


def encode_content(update: bytes, versions: Mapping[EditStream, int]) -> bytes:
    said = envelope.encode(encode_versions(versions))
    return b"".join((_LENGTH.pack(len(said)), said, update))


def decode_content(content: bytes) -> tuple[bytes, Versions]:
    if len(content) < _LENGTH.size:
        raise Unsound("is too short")
    start = _LENGTH.size + _LENGTH.unpack_from(content)[0]
    return content[start:], decode_versions(_decode(content[_LENGTH.size : start], _VERSIONS))


def encode_saved(saved: Saved, number: int) -> bytes:
    said = [saved.name, int(saved.time * 1000), saved.size, number, encode_versions(saved.versions)]
    return envelope.encode(said)


def decode_saved(content: bytes) -> tuple[Saved, int]:
    """Return a saved version, and the number of its content."""
    value = _decode(content, _VERSIONS)
    if type(value) is not list or tuple(map(type, value)) != (str, int, int, int, list):
        raise Unsound("has unexpected fields")
    name, milliseconds, size, number, versions = value
    return Saved(name, milliseconds / 1000, size, decode_versions(versions)), number


def encode_history(entries: Iterable[Entry]) -> bytes:
    def packed(entry: Entry) -> bytes:
        return _ENTRY.pack(*(entry.stream or _NO_STREAM), entry.seq, round(entry.time * 1000), entry.size)

    return zlib.compress(b"".join(map(packed, entries)), 1)


def decode_history(content: bytes) -> list[Entry]:
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(content, CHUNK * _ENTRY.size)
    except zlib.error as error:
        raise Unsound(str(error)) from error
    if not unpacking.eof or len(data) % _ENTRY.size:
        raise Unsound("has an unexpected length")
    return [
        Entry(EditStream(origin, epoch) if seq else None, seq, milliseconds / 1000, size)
        for origin, epoch, seq, milliseconds, size in _ENTRY.iter_unpack(data)
    ]
