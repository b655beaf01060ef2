"""Strict parser of Yjs updates, format version 1: validates them before the engine reads them. Pure.

::

    update = varuint clients  (varuint structs  varuint client  varuint clock  struct*)*  deletes
    struct = info byte  [origin id] [right origin id] [parent: root name or id  [key]]  content
    deletes = varuint clients  (varuint client  varuint ranges  (varuint clock  varuint length)*)*

The engine does not validate enough (pycrdt 0.14.13, measured): it ignores trailing bytes; a value nested a million
levels deep ends the process (its decoder recurses); and an update whose dependencies are missing is kept as pending,
which no call of pycrdt shows, and corrupts the document when the rest arrives.

Rejected besides malformed data: XML, subdocuments, moves, weak links, embedded objects and the JSON content of old Yjs;
documents of this project hold none of them. Text formatting is accepted, and ignored.

`in_ascii` replaces each UTF-16 unit of text by an "x": see yjs_cursors.py.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Final, NoReturn

from nngkit.documents.versions import Harmful
from nngkit.envelope import MAX_DEPTH

_CLOCKS: Final = 2**31  # the engine counts in 32 bits; a document of 2 billion characters is rejected
_CLIENTS: Final = 2**53
_KINDS: Final = {2: "JSON of old Yjs", 5: "embedded object", 9: "subdocument", 11: "move"}
_PARENTS: Final = (7, 0, 1, 10)  # a shared type; deleted with its content; deleted; not in the update
_PAIR: Final = re.compile("[\U00010000-\U0010ffff]")
_TYPES: Final = 3  # 0 array, 1 map, 2 text; above them XML and weak links


@dataclass(frozen=True, slots=True)
class Parsed:
    """`ends`: the clock after each client's structs.

    `starts`: the beginning of each run of structs, which must connect. `needs`: for each client, the clock after the
    highest item that is referenced or deleted. `pairs`: each client's items with characters of two UTF-16 units.
    `cuts`: clients, and clocks before which their items are split.
    """

    ends: dict[int, int]
    starts: tuple[tuple[int, int], ...]
    needs: dict[int, int]
    pairs: dict[int, list[TextItem]]
    cuts: tuple[array[int], array[int]]


class TextItem:
    """A text item from `clock` on with characters of two UTF-16 units."""

    __slots__ = ("_seconds", "_text", "clock", "end")

    def __init__(self, clock: int, end: int, text: str) -> None:
        self.clock = clock
        self.end = end
        self._text = text
        self._seconds: array[int] | None = None  # clocks of the second units; lazy, as most items are never split

    def splits(self, clock: int) -> bool:
        """Return True if a split before `clock` would cut a character."""
        if not self.clock < clock < self.end:
            return False
        if self._seconds is None:
            found = enumerate(_PAIR.finditer(self._text))
            self._seconds = array("I", (self.clock + match.start() + before + 1 for before, match in found))
            self._text = ""
        at = bisect_left(self._seconds, clock)
        return at < len(self._seconds) and self._seconds[at] == clock


def missing(update: Parsed, state: Mapping[int, int]) -> str | None:
    """Describe a dependency of `update` that is neither in it nor in `state` (the clock after each client's last)."""
    for client, clock in update.starts:
        if clock > state.get(client, 0):
            return f"client {client} from {state.get(client, 0)} to {clock}"
    for client, clock in update.needs.items():
        have = max(state.get(client, 0), update.ends.get(client, 0))
        if clock > have:
            return f"client {client} from {have} to {clock}"
    return None


def parse(data: bytes) -> Parsed:
    """Parse an update. Raises ValueError with the reason and the offset."""
    return _UpdateReader(data, rewrite=False).update()


class Pairs:
    """Characters of two UTF-16 units in the items of a document, which no update may split.

    The engine accepts positions that split them, and then encodes invalid updates (measured).
    """

    def __init__(self) -> None:
        self._items: dict[int, list[TextItem]] = {}  # each client's by clock: connected updates arrive in that order

    def note(self, update: Parsed, state: Mapping[int, int]) -> None:
        """Add the items of an update that are not in `state`."""
        for client, items in update.pairs.items():
            have = state.get(client, 0)
            self._items.setdefault(client, []).extend(item for item in items if item.end > have)

    def cut(self, update: Parsed, state: Mapping[int, int]) -> str | None:
        """Describe where an update splits a character; None: nowhere."""
        if not self._items and not update.pairs:
            return None
        # An item that is partly here is split where the local part ends.
        for client, clock in chain(zip(*update.cuts, strict=True), state.items() if update.pairs else ()):
            for items in (self._items.get(client), update.pairs.get(client)):
                if items:
                    at = bisect_right(items, clock, key=attrgetter("clock")) - 1
                    if at >= 0 and items[at].splits(clock):
                        return f"half a character of client {client} at {clock}"
        return None


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def in_ascii(data: bytes) -> bytes:
    """Return the same update with "x" for each UTF-16 unit of text. Raises ValueError as `parse`."""
    reader = _UpdateReader(data, rewrite=True)
    reader.update()
    return b"".join(reader.out) + data[reader.copied :]


def read_state(data: bytes) -> dict[int, int]:
    """Parse a state vector: the clock after each client's last item. Raises ValueError."""
    reader = _UpdateReader(data, rewrite=False)
    state = {}
    for _ in range(reader.uint()):
        client = reader.uint(_CLIENTS)
        state[client] = reader.uint(_CLOCKS)
    reader.end()
    return state


def uint(number: int) -> bytes:
    """Encode a varuint: seven bits per byte, lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class _UpdateReader:
    __slots__ = ("at", "copied", "cut_clients", "cut_clocks", "data", "items", "out", "pairs", "parents", "rewrite")

    def __init__(self, data: bytes, *, rewrite: bool) -> None:
        self.data = data
        self.at = 0
        self.rewrite = rewrite
        self.out: list[bytes] = []
        self.cut_clients = array("Q")
        self.cut_clocks = array("I")
        self.pairs: dict[int, list[TextItem]] = {}
        self.items: dict[int, tuple[array[int], bytearray]] = {}  # each client's: clocks where they begin, and kinds
        self.parents: list[tuple[int, int]] = []  # items that are used as parents
        self.copied = 0  # everything before it is in `out`

    def wrong(self, why: str) -> NoReturn:
        raise ValueError(f"not an update: {why} at byte {self.at} of {len(self.data)}")

    def end(self) -> None:
        if self.at != len(self.data):
            self.wrong(f"{len(self.data) - self.at} trailing bytes")

    def byte(self) -> int:
        try:
            value = self.data[self.at]
        except IndexError:
            self.wrong("truncated")
        self.at += 1
        return value

    def uint(self, limit: int = _CLOCKS) -> int:
        data, at = self.data, self.at  # inlined: a client id has eight bytes, and nearly every item has one
        try:
            value = data[at]
            at += 1
            if value > 0x7F:
                value &= 0x7F
                shift = 7
                while True:
                    more = data[at]
                    at += 1
                    value |= (more & 0x7F) << shift
                    if more <= 0x7F:
                        break
                    shift += 7
                    if shift > 56:
                        self.at = at
                        self.wrong("an integer over 53 bits")
        except IndexError:
            self.at = at
            self.wrong("truncated")
        self.at = at
        if value >= limit:
            self.wrong(f"the integer {value}, over the limit of {limit - 1},")
        return value

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            self.wrong("truncated")
        self.at += count
        return self.data[self.at - count : self.at]

    def string(self) -> str:
        raw = self.take(self.uint())
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.wrong("text that is not UTF-8")

    def update(self) -> Parsed:
        ends: dict[int, int] = {}
        starts: list[tuple[int, int]] = []
        needs: dict[int, int] = {}
        for _ in range(self.uint()):
            count, client, clock = self.uint(), self.uint(_CLIENTS), self.uint()
            if client in ends:
                self.wrong(f"duplicate client {client}")
            if not count:
                self.wrong(f"no structs of client {client}")
            connected = False
            clocks, kinds = self.items[client] = array("I"), bytearray()
            for _ in range(count):
                info = self.byte()
                kind = info & 0x1F
                clocks.append(clock)
                kinds.append(kind)
                if kind == 10:  # a gap: its items must be in the document already
                    clock = self.length(clock)
                    connected = False
                    continue
                if not connected:
                    starts.append((client, clock))
                    connected = True
                clock = self.length(clock) if kind == 0 else self.item(info, kind, client, clock, needs)
            ends[client] = clock
        for _ in range(self.uint()):
            client = self.uint(_CLIENTS)
            for _ in range(self.uint()):
                start = self.uint()
                clock = self.length(start)
                self.cut_clients.extend((client, client))
                self.cut_clocks.extend((start, clock))
                if clock > needs.get(client, 0):
                    needs[client] = clock
        self.end()
        self.check_parents(ends)
        return Parsed(ends, tuple(starts), needs, self.pairs, (self.cut_clients, self.cut_clocks))

    def length(self, clock: int) -> int:
        """Read the length of a run; return the clock after it."""
        count = self.uint()
        if not count:
            self.wrong("an empty run")
        if clock + count >= _CLOCKS:
            self.wrong("a clock over 31 bits")
        return clock + count

    def check_parents(self, ends: Mapping[int, int]) -> None:
        """Refuse an item inside another that is no shared type: it would damage the engine."""
        for client, clock in self.parents:
            if clock < ends.get(client, 0):
                clocks, kinds = self.items[client]
                at = bisect_right(clocks, clock) - 1
                if at >= 0 and kinds[at] not in _PARENTS:
                    raise Harmful(f"not an update: item {clock} of client {client} has others inside, but is no type")

    def id(self, client: int, clock: int, needs: dict[int, int], behind: int = 0) -> tuple[int, int]:
        on, at = self.uint(_CLIENTS), self.uint()
        self.cut_clients.append(on)
        self.cut_clocks.append(at + behind)
        if on == client:
            if at >= clock:
                self.wrong("an item that references itself or a later one")
        elif at >= needs.get(on, 0):
            needs[on] = at + 1
        return on, at

    def item(self, info: int, kind: int, client: int, clock: int, needs: dict[int, int]) -> int:
        """Read one item; return the clock after it."""
        if info & 0x80:
            self.id(client, clock, needs, 1)
        if info & 0x40:
            self.id(client, clock, needs)
        if not info & 0xC0:
            parent = self.uint()
            if parent == 1:
                self.string()
            elif parent == 0:
                self.parents.append(self.id(client, clock, needs))
            else:
                self.wrong("a parent that is neither a root nor an item")
            if info & 0x20:
                self.string()
        count = 1
        if kind == 4:
            count = self.text(client, clock)
        elif kind == 8:
            count = self.uint()
            for _ in range(count):
                self.any(0)
        elif kind == 1:
            return self.length(clock)
        elif kind == 3:
            self.take(self.uint())
        elif kind == 6:
            self.string()
            self.string()
        elif kind == 7:
            if self.uint() >= _TYPES:
                self.wrong("XML or another unsupported type")
        else:
            self.wrong(_KINDS.get(kind, f"content of kind {kind}"))
        if not count:
            self.wrong("an empty item")
        if clock + count >= _CLOCKS:
            self.wrong("a clock over 31 bits")
        return clock + count

    def text(self, client: int, clock: int) -> int:
        """Read text, and rewrite it if requested; return its length in UTF-16 units."""
        before = self.at
        text = self.string()
        count = len(text) if text.isascii() else _units(text)
        if count != len(text):
            self.pairs.setdefault(client, []).append(TextItem(clock, clock + count, text))
        if self.rewrite:
            self.out += (self.data[self.copied : before], uint(count), b"x" * count)
            self.copied = self.at
        return count

    def any(self, depth: int) -> None:
        """Read one value in lib0's "any" encoding."""
        if depth > MAX_DEPTH:
            self.wrong(f"values nested more than {MAX_DEPTH} deep")
        match self.byte():
            case 127 | 126 | 121 | 120:  # undefined, null, false, true
                pass
            case 125:  # an integer, with its sign in the first byte
                while self.byte() > 0x7F:
                    pass
            case 124:
                self.take(4)
            case 123:
                self.take(8)
            case 122:
                if self.take(8) == b"\x7f" + b"\xff" * 7:
                    self.wrong("2**63-1, which the engine would send as another number,")
            case 119:
                self.string()
            case 118:
                for _ in range(self.uint()):
                    self.string()
                    self.any(depth + 1)
            case 117:
                for _ in range(self.uint()):
                    self.any(depth + 1)
            case 116:
                self.take(self.uint())
            case other:
                self.wrong(f"a value of kind {other}")
