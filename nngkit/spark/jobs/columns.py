"""Headers and version vectors of many records at once: Arrow columns in, Arrow and numpy columns out. Pure.

A loop in Python over a million records takes seconds; a pass of numpy over a column, milliseconds. Bytes that are not
exactly in the expected form are reported by row, so that callers decode these one by one, with all checks
(documents.versions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nngkit.documents.versions import EPOCHS, ORIGIN

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]
    Bytes = npt.NDArray[np.uint8]

SIGNED: Final = (1 << 63) - 1
ENTRY: Final = 4 + ORIGIN  # bytes of an entry of a version vector at least: two heads, the origin, two small integers
PAD: Final = 64  # bytes behind a column's, so that an entry cut off can be read up to its longest form
LIST, UNSIGNED = 4, 0  # major types of CBOR (RFC 8949, 3.1)
THREE, EIGHT_BYTES = 0x83, 0x40 | ORIGIN  # heads: a list of three, a byte string
SIZES: Final = np.array([0] * 24 + [1, 2, 4, 8] + [0] * 4)  # bytes of a head's argument, by the low 5 bits
NONE: Final = (np.zeros(0, dtype=np.int64),) * 4
RESERVED: Final = 28  # low 5 bits from here on: reserved, or of indefinite length


class Vectors(NamedTuple):
    """Entries of version vectors, in the order of their rows; `refused`: rows in another form, without entries.

    `origin` is unsigned, 8 bytes big-endian.
    """

    row: Int64s
    origin: npt.NDArray[np.uint64]
    epoch: Int64s
    seq: Int64s
    refused: Bools


def headers_of(headers: pa.Array, *names: str) -> list[pa.Array]:
    """Return, for each name, the first header of that name of each row, binary; null if there is none."""
    entries = headers.flatten()
    known = pc.struct_field(entries, 0).dictionary_encode()
    codes = {name: code for code, name in enumerate(known.dictionary.to_pylist())}
    code_of = known.indices.fill_null(-1).to_numpy()
    values, parents = pc.struct_field(entries, 1), pc.list_parent_indices(headers).to_numpy()
    found = []
    for name in names:
        at = np.flatnonzero(code_of == codes.get(name, -2))
        place = np.full(len(headers), -1, dtype=np.int64)
        place[parents[at[::-1]]] = at[::-1]  # the first one is written last
        found.append(values.take(pa.array(place, mask=place < 0)))
    return found


def numbers(column: pa.Array) -> Int64s:
    """Return 8 bytes, big-endian, as integers; -1 for null, other lengths, and over 2^63 - 1."""
    found, right = eights(column)
    return np.where(right & (found <= SIGNED), found.astype(np.int64), -1)


def eights(column: pa.Array) -> tuple[npt.NDArray[np.uint64], Bools]:
    """Return the values of 8 bytes, big-endian, 0 for others; and which rows have one."""
    right = np.asarray(pc.fill_null(pc.equal(pc.binary_length(column), 8), False))
    found = np.zeros(len(column), dtype=np.uint64)
    if right.any():
        data, starts, _ = _bytes(column if right.all() else column.filter(right))
        first = int(starts[0])
        found[right] = data[first : first + 8 * len(starts)].view(">u8")
    return found, right


def read_vectors(column: pa.Array) -> Vectors:
    """Read the version vectors in a column of CBOR (documents.versions.to_wire): lists of [origin, epoch, seq].

    Null and empty values have no entries. Integers may be of any length; a list that is not sorted is refused, as a
    stream could be in it twice.
    """
    data, starts, ends = _bytes(column)
    rows = np.flatnonzero((ends > starts) & np.asarray(column.is_valid()))
    end = ends[rows]
    kind, count, at = _head(data, starts[rows])
    right = (kind == LIST) & (count <= ((end - at) // ENTRY).astype(np.uint64))
    left = np.where(right, count, 0).astype(np.int64)  # entries to read
    before = np.zeros((2, len(rows)), dtype=np.uint64)  # origin and epoch of the last entry
    parts: list[tuple[Int64s, ...]] = []
    live = np.flatnonzero(left)
    while len(live):  # the next entry of each row that has one
        here = at[live]
        good = (data[here] == THREE) & (data[here + 1] == EIGHT_BYTES)
        origin = _words(data, here + 2)
        kind, epoch, here = _head(data, here + 2 + ORIGIN)
        good &= (kind == UNSIGNED) & (epoch <= EPOCHS)
        kind, seq, here = _head(data, here)
        good &= (kind == UNSIGNED) & (seq >= 1) & (seq <= EPOCHS) & (here <= end[live])
        if parts:
            last, last_epoch = before[:, live]
            good &= (origin > last) | ((origin == last) & (epoch > last_epoch))
        before[:, live] = origin, epoch
        right[live] &= good
        at[live] = here
        left[live] -= 1
        parts.append((live, origin.view(np.int64), epoch.astype(np.int64), seq.astype(np.int64)))
        live = live[good & (left[live] > 0)]
    right &= at == end
    refused = np.zeros(len(column), dtype=bool)
    refused[rows[~right]] = True
    which, origins_, epochs, seqs = (np.concatenate(each) for each in zip(*parts or [NONE], strict=True))
    order = np.argsort(which, kind="stable")
    order = order[right[which[order]]]
    return Vectors(rows[which[order]], origins_[order].view(np.uint64), epochs[order], seqs[order], refused)


def _head(data: Bytes, at: Int64s) -> tuple[Bytes, npt.NDArray[np.uint64], Int64s]:
    """Return major type, argument and end of the heads at these places; 255 for a head that has no argument."""
    first = data[at]
    low = first & 31
    size = SIZES[low]
    argument = low.astype(np.uint64)
    longer = np.flatnonzero(size)
    argument[longer] = _words(data, at[longer] + 1) >> (64 - 8 * size[longer]).astype(np.uint64)
    return np.where(low < RESERVED, first >> 5, 255).astype(np.uint8), argument, at + 1 + size


def _words(data: Bytes, at: Int64s) -> npt.NDArray[np.uint64]:
    """Return 8 bytes, big-endian, at each of these places."""
    words: npt.NDArray[np.uint64] = data[at[:, None] + np.arange(8)].view(">u8")[:, 0].astype(np.uint64)
    return words


def _bytes(column: pa.Array) -> tuple[Bytes, Int64s, Int64s]:
    """Return the bytes of a binary column, PAD zeros behind them, and the start and end of each value."""
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    _, places, content = column.buffers()
    if not len(column):
        return np.zeros(PAD, dtype=np.uint8), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    edges = np.frombuffer(places, dtype=width)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    if content is None:
        return np.zeros(PAD, dtype=np.uint8), edges[:-1], edges[1:]
    first, last = int(edges[0]), int(edges[-1])
    data = np.concatenate([np.frombuffer(content, dtype=np.uint8)[first:last], np.zeros(PAD, dtype=np.uint8)])
    return data, edges[:-1] - first, edges[1:] - first
