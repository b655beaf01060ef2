"""Search a damaged store file for sealed rows, without SQLite. Pure: bytes in, rows out.

A damaged root page makes all pages below it unreachable for SQLite, though they are intact. A row is recognizable by
its seal at any position, so the tree is not needed: each page of the database and of its log is searched for the
pattern of a row, and a match with a valid seal is a row::

    [bytes of payload][key][bytes of header][0][type and length of body] body ...[overflow page]

(https://www.sqlite.org/fileformat2.html, "B-tree Cell Format"; the numbers are SQLite's varints). This also finds old
rows, in free or rewritten pages; the caller knows from the heads which are current.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from nngkit.documents.store.row_format import TABLES, Table, Unsound, unseal

PAGE: Final = 4096  # bytes: SQLite's default since 2016, and the machine's page
_LOG_HEADER, _FRAME = 32, 24  # bytes, in the log
_SALTS = slice(8, 16)  # of a frame; equal for all frames since the last restart of the log
_LARGEST_LOCAL = PAGE - 35  # bytes of payload that stay in the leaf
_LEAST_LOCAL = (PAGE - 12) * 32 // 255 - 23
_TAGS = {table.tag[0]: table for table in TABLES}
_HEADERS = re.compile(
    rb"(?:\x03\x00[\x00-\x7f]|\x04\x00[\x80-\xff][\x00-\x7f]|\x05\x00[\x80-\xff]{2}[\x00-\x7f]"
    rb"|\x06\x00[\x80-\xff]{3}[\x00-\x7f]|\x07\x00[\x80-\xff]{4}[\x00-\x7f])(?=[" + bytes(_TAGS) + rb"])"
)

SealedRow = tuple[Table, int, bytes]  # table, key, content
_Pages = Callable[[int], bytes]


def rows(database: bytes, log: bytes) -> Iterator[SealedRow]:
    """Yield all rows with a valid seal, newest first: from the log, the database, and the outdated part of the log.

    A row may occur several times. Of those with equal keys the first is the newest, unless their content tells more.
    """
    new, old = _frames(log)
    latest = dict(new)  # the last frame of each page

    def from_database(number: int) -> bytes:
        return database[(number - 1) * PAGE : number * PAGE] if number > 0 else b""

    def from_both(number: int) -> bytes:
        return latest.get(number) or from_database(number)

    count = -(-len(database) // PAGE)
    for _, page in reversed(new):
        yield from _search(page, from_both, from_database)
    for number in range(1, count + 1):
        yield from _search(from_database(number), from_database, from_both)
    older = dict(old)
    for _, page in reversed(old):
        yield from _search(page, lambda number: older.get(number) or from_database(number), from_both)


def _frames(log: bytes) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    """Return page numbers and contents of the log's frames: those since its last restart, and outdated ones."""
    new: list[tuple[int, bytes]] = []
    old: list[tuple[int, bytes]] = []
    salts = log[16:24]  # of the header
    for start in range(_LOG_HEADER, len(log), _FRAME + PAGE):
        head = log[start : start + _FRAME]
        frame = (int.from_bytes(head[:4], "big"), log[start + _FRAME : start + _FRAME + PAGE])
        (new if head[_SALTS] == salts else old).append(frame)
    return new, old


def _search(page: bytes, *overflow: _Pages) -> Iterator[SealedRow]:
    for found in _HEADERS.finditer(page):
        header = found.group()
        serial, _ = _varint(header, 2)
        if serial < 12 or serial % 2:  # not a blob
            continue
        size = len(header) + (serial - 12) // 2
        table = _TAGS[page[found.end()]]
        for key in _keys(page, found.start(), _varint_of(size)):
            for pages in overflow:
                payload = _payload(page, found.start(), size, pages)
                try:
                    yield table, key, unseal(table, key, payload[len(header) :])
                except Unsound:
                    continue
                break


def _keys(page: bytes, end: int, size: bytes) -> Iterator[int]:
    """Yield candidates for the key that ends at `end`: a varint of 1 to 9 bytes after the payload's `size`."""
    for start in range(end - 1, max(end - 10, -1), -1):
        if page[max(start - len(size), 0) : start] == size:
            key, after = _varint(page, start)
            if after == end:
                yield key


def _payload(page: bytes, start: int, size: int, pages: _Pages) -> bytes:
    """Return `size` bytes from `start` on, following the overflow pages; fewer if the chain breaks."""
    if size <= _LARGEST_LOCAL:
        return page[start : start + size]
    local = _LEAST_LOCAL + (size - _LEAST_LOCAL) % (PAGE - 4)
    if local > _LARGEST_LOCAL:
        local = _LEAST_LOCAL
    parts = [page[start : start + local]]
    left = size - local
    next_page = page[start + local : start + local + 4]
    while left > 0:
        part = pages(int.from_bytes(next_page, "big"))
        if len(part) <= 4:
            break
        parts.append(part[4 : 4 + left])
        left -= PAGE - 4
        next_page = part[:4]
    return b"".join(parts)


def _varint(data: bytes, start: int) -> tuple[int, int]:
    """Return SQLite's varint at `start`, and its end: 7 bits per byte, highest first; a ninth byte has 8.

    A byte below 0x80 is within the data: the last one of a row's header is.
    """
    value = 0
    for at in range(start, start + 8):
        value = value << 7 | data[at] & 0x7F
        if data[at] < 0x80:
            return value, at + 1
    return value << 8 | data[start + 8], start + 9


def _varint_of(value: int) -> bytes:
    """Encode a varint below 2^56, as all sizes are."""
    parts = [value & 0x7F]
    while value := value >> 7:
        parts.append(value & 0x7F | 0x80)
    return bytes(reversed(parts))
