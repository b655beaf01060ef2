"""Frames of the mesh. Pure: bytes in and out.

::

    data      D1 | length of the origin | sequence, 8 bytes | epoch, 8 bytes | origin | body
    control   a CBOR map: digest, answer (a digest that ends an answer), ask

Integers are big-endian. Epoch and origin are adjacent: together they are the key of a stream, one slice. A frame is the
same at every hop, so a node keeps and relays what it received. docs/wire.md has the CDDL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final, Literal, NamedTuple

from nngkit.envelope import as_map, check_version, decode, encode, field
from nngkit.errors import BadMessage

__all__ = [
    "DATA",
    "MOST_LINES",
    "MOST_NUMBER",
    "MOST_ORIGIN",
    "MOST_RANGES",
    "PREFIX",
    "Ask",
    "Digest",
    "Line",
    "control",
    "data_frame",
    "key_of",
    "pack_ask",
    "pack_digest",
    "read_key",
]

DATA: Final = 0xD1  # first byte of a data frame; a CBOR map begins with A0 to BF
MOST_ORIGIN: Final = 64  # bytes of an id
MOST_NUMBER: Final = (1 << 53) - 1  # a million messages/s for 285 years; every CBOR reader has these integers
MOST_LINES: Final = 400  # 64 KiB of CBOR with ids of 64 bytes hold them
MOST_RANGES: Final = 64  # ranges of one ask
PREFIX: Final = 18  # bytes of a data frame before the origin
VERSION: Final = 1
_WHAT: Final = "mesh frame"

_HEAD = Struct("!BBQQ")
_KEY = Struct("!Q")


class Line(NamedTuple):
    """State of one stream at a neighbour.

    It keeps some or all of ``floor`` to ``head``; below ``next`` it misses nothing any more. ``age``: seconds since the
    first message of the stream.
    """

    origin: str
    epoch: int
    floor: int
    next: int
    head: int
    age: float


class Digest(NamedTuple):
    """State of a neighbour's streams. ``answer``: it ends the answer to an ask. ``last``: a greeting is complete.

    ``every``: seconds between its digests; None for a version that does not say.
    """

    id: str
    epoch: int
    lines: tuple[Line, ...]
    answer: bool
    last: bool
    every: float | None = None


class Ask(NamedTuple):
    """Request for missing messages of one stream, ranges with both ends included."""

    origin: str
    epoch: int
    ranges: tuple[tuple[int, int], ...]


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


def pack_digest(
    id: str, epoch: int, lines: Iterable[Line], *, every: float | None = None, answer: bool = False, last: bool = False
) -> bytes:
    """Return the frame of a digest of at most MOST_LINES lines. ``every``: seconds between digests."""
    rows = [[line.origin, line.epoch, line.floor, line.next, line.head, int(line.age * 1000)] for line in lines]
    kind = "answer" if answer else "digest"
    told = {} if every is None else {"every": float(every)}
    return encode({"v": VERSION, "k": kind, "id": id, "epoch": epoch, "lines": rows, "last": last, **told})


def pack_ask(origin: str, epoch: int, ranges: Sequence[tuple[int, int]]) -> bytes:
    """Return the frame of a request for at most MOST_RANGES ranges."""
    return encode({"v": VERSION, "k": "ask", "origin": origin, "epoch": epoch, "ranges": [list(one) for one in ranges]})


def control(frame: bytes) -> Digest | Ask | None:
    """Return a control frame's content; None for a kind that a later version has added. Raises BadMessage, TooLarge."""
    fields = as_map(decode(frame, what=_WHAT), what=_WHAT)
    check_version(fields, VERSION, what=_WHAT)
    kind: Literal["digest", "answer", "ask"] | str = field(fields, "k", str, what=_WHAT, max_len=16)
    epoch = field(fields, "epoch", int, what=_WHAT, low=0, high=MOST_NUMBER)
    if kind in ("digest", "answer"):
        rows = field(fields, "lines", list, what=_WHAT, max_len=MOST_LINES)
        last = field(fields, "last", bool, what=_WHAT, default=False)
        every = field(fields, "every", float, what=_WHAT, default=None, low=0)
        return Digest(_origin(fields, "id"), epoch, tuple(map(_line, rows)), kind == "answer", last, every)
    if kind == "ask":
        ranges = field(fields, "ranges", list, what=_WHAT, max_len=MOST_RANGES)
        return Ask(_origin(fields, "origin"), epoch, tuple(map(_range, ranges)))
    return None


def _origin(fields: dict[str, Any], name: str) -> str:
    return _checked_origin(field(fields, name, str, what=_WHAT, max_len=MOST_ORIGIN))


def _checked_origin(origin: str) -> str:
    if not origin or not origin.isprintable():
        raise BadMessage(_WHAT, "an id is empty or not printable")
    return origin


def _line(row: Any) -> Line:
    if type(row) is not list or len(row) != 6 or type(row[0]) is not str or len(row[0].encode()) > MOST_ORIGIN:
        raise BadMessage(_WHAT, "a line of a digest is not an origin and five integers")
    _numbers(row[1:])
    origin, epoch, floor, after, head, age = row
    if not 1 <= floor <= after <= head + 1:
        raise BadMessage(_WHAT, "a line of a digest contradicts itself")
    return Line(_checked_origin(origin), epoch, floor, after, head, age / 1000)


def _range(pair: Any) -> tuple[int, int]:
    if type(pair) is not list or len(pair) != 2:
        raise BadMessage(_WHAT, "a range is not two integers")
    _numbers(pair)
    first, last = pair
    if not 1 <= first <= last:
        raise BadMessage(_WHAT, "a range contradicts itself")
    return first, last


def _numbers(values: Sequence[Any]) -> None:
    if any(type(value) is not int or not 0 <= value <= MOST_NUMBER for value in values):
        raise BadMessage(_WHAT, "a number is not an integer from 0 to 2^53 - 1")
