"""What an update in Yjs's first format says, read strictly before the engine sees it. Pure.

::

    update = varuint clients  (varuint structs  varuint client  varuint clock  struct*)*  deletes
    struct = info byte  [origin id] [right origin id] [parent: root name or id  [key]]  content
    deletes = varuint clients  (varuint client  varuint ranges  (varuint clock  varuint length)*)*

Why not leave it to the engine (pycrdt 0.14.13, measured): it takes no notice of bytes behind the end, an array of a
million levels in a value ends the process (its decoder recurses), and an update that lacks what it builds on is kept
inside as pending, where no call of pycrdt sees it, and spoils the document when the rest comes.

Refused besides what is malformed: XML, subdocuments, moves, weak links, embedded objects and the JSON content of old
Yjs, none of which this project's documents hold. Formatting of a text is let in, and has no meaning here.

`in_ascii` rewrites an update so that each UTF-16 unit of text is an "x": yjs.py says what for.
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

from nngkit.envelope import MAX_DEPTH

__all__ = ["Pairs", "Parsed", "in_ascii", "missing", "parse", "read_state", "uint"]

_CLOCKS: Final = 2**31  # the engine counts in 32 bits; a document of two thousand million characters is refused
_CLIENTS: Final = 2**53
_KINDS: Final = {2: "JSON of old Yjs", 5: "embedded object", 9: "subdocument", 11: "move"}
_PAIR: Final = re.compile("[\U00010000-\U0010ffff]")
_TYPES: Final = 3  # 0 array, 1 map, 2 text; behind them XML and weak links


@dataclass(frozen=True, slots=True)
class Parsed:
    """`ends`: the clock behind each client's structs. `starts`: where each run of them begins, and must connect.

    `needs`: the clock behind the highest that is built on or deleted, by client. `pairs`: each client's items that
    have characters of two UTF-16 units. `cuts`: the clients, and the clocks, before which it has items cut in two.
    """

    ends: dict[int, int]
    starts: tuple[tuple[int, int], ...]
    needs: dict[int, int]
    pairs: dict[int, list[TextItem]]
    cuts: tuple[array[int], array[int]]


class TextItem:
    """A text with characters of two UTF-16 units, from `clock` on."""

    __slots__ = ("_seconds", "_text", "clock", "end")

    def __init__(self, clock: int, end: int, text: str) -> None:
        self.clock = clock
        self.end = end
        self._text = text
        self._seconds: array[int] | None = None  # where the second units are; most items are never cut

    def splits(self, clock: int) -> bool:
        """Whether a cut before `clock` goes through a character."""
        if not self.clock < clock < self.end:
            return False
        if self._seconds is None:
            found = enumerate(_PAIR.finditer(self._text))
            self._seconds = array("I", (self.clock + match.start() + before + 1 for before, match in found))
            self._text = ""
        at = bisect_left(self._seconds, clock)
        return at < len(self._seconds) and self._seconds[at] == clock


def missing(update: Parsed, state: Mapping[int, int]) -> str | None:
    """What `update` builds on and neither it nor `state` (the clock behind each client's last) has; None: connects."""
    for client, clock in update.starts:
        if clock > state.get(client, 0):
            return f"client {client} from {state.get(client, 0)} to {clock}"
    for client, clock in update.needs.items():
        have = max(state.get(client, 0), update.ends.get(client, 0))
        if clock > have:
            return f"client {client} from {have} to {clock}"
    return None


def parse(data: bytes) -> Parsed:
    """Read an update. ValueError says what is wrong and where."""
    return _UpdateReader(data, rewrite=False).update()


class Pairs:
    """Where in the items of a document there are characters of two UTF-16 units, which no update may cut in two.

    The engine cuts them nevertheless, and what it encodes afterwards is not an update any more (measured).
    """

    def __init__(self) -> None:
        self._items: dict[int, list[TextItem]] = {}  # each client's by clock: connected updates come in that order

    def note(self, update: Parsed, state: Mapping[int, int]) -> None:
        """Add those of an update that `state` has not."""
        for client, items in update.pairs.items():
            have = state.get(client, 0)
            self._items.setdefault(client, []).extend(item for item in items if item.end > have)

    def cut(self, update: Parsed, state: Mapping[int, int]) -> str | None:
        """Where an update cuts one in two; None: nowhere."""
        if not self._items and not update.pairs:
            return None
        # What is half here already is cut where it ends here.
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
    """The same update with "x" for each UTF-16 unit of its texts. ValueError as `parse`."""
    reader = _UpdateReader(data, rewrite=True)
    reader.update()
    return b"".join(reader.out) + data[reader.copied :]


def read_state(data: bytes) -> dict[int, int]:
    """A state vector: the clock behind each client's last. ValueError."""
    reader = _UpdateReader(data, rewrite=False)
    state = {}
    for _ in range(reader.uint()):
        client = reader.uint(_CLIENTS)
        state[client] = reader.uint(_CLOCKS)
    reader.end()
    return state


def uint(number: int) -> bytes:
    """A varuint: seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class _UpdateReader:
    __slots__ = ("at", "copied", "cut_clients", "cut_clocks", "data", "out", "pairs", "rewrite")

    def __init__(self, data: bytes, *, rewrite: bool) -> None:
        self.data = data
        self.at = 0
        self.rewrite = rewrite
        self.out: list[bytes] = []
        self.cut_clients = array("Q")
        self.cut_clocks = array("I")
        self.pairs: dict[int, list[TextItem]] = {}
        self.copied = 0  # all before this is in `out`

    def wrong(self, why: str) -> NoReturn:
        raise ValueError(f"not an update: {why} at byte {self.at} of {len(self.data)}")

    def end(self) -> None:
        if self.at != len(self.data):
            self.wrong(f"{len(self.data) - self.at} bytes behind the end")

    def byte(self) -> int:
        try:
            value = self.data[self.at]
        except IndexError:
            self.wrong("cut off")
        self.at += 1
        return value

    def uint(self, limit: int = _CLOCKS) -> int:
        data, at = self.data, self.at  # a client has eight bytes, and nearly every item names one
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
                        self.wrong("a number over 53 bits")
        except IndexError:
            self.at = at
            self.wrong("cut off")
        self.at = at
        if value >= limit:
            self.wrong(f"a number of {value}, the limit is {limit - 1}")
        return value

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            self.wrong("cut off")
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
                self.wrong(f"client {client} comes twice")
            if not count:
                self.wrong(f"no structs of client {client}")
            connected = False
            for _ in range(count):
                info = self.byte()
                kind = info & 0x1F
                if kind == 10:  # a gap: what is in it must be here already
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
        return Parsed(ends, tuple(starts), needs, self.pairs, (self.cut_clients, self.cut_clocks))

    def length(self, clock: int) -> int:
        """A run's length, read; the clock behind it."""
        count = self.uint()
        if not count:
            self.wrong("a run of no length")
        if clock + count >= _CLOCKS:
            self.wrong("a clock over 31 bits")
        return clock + count

    def id(self, client: int, clock: int, needs: dict[int, int], behind: int = 0) -> None:
        on, at = self.uint(_CLIENTS), self.uint()
        self.cut_clients.append(on)
        self.cut_clocks.append(at + behind)
        if on == client:
            if at >= clock:
                self.wrong("an item that builds on itself or a later one")
        elif at >= needs.get(on, 0):
            needs[on] = at + 1

    def item(self, info: int, kind: int, client: int, clock: int, needs: dict[int, int]) -> int:
        """One item; the clock behind it."""
        if info & 0x80:
            self.id(client, clock, needs, 1)
        if info & 0x40:
            self.id(client, clock, needs)
        if not info & 0xC0:
            parent = self.uint()
            if parent == 1:
                self.string()
            elif parent == 0:
                self.id(client, clock, needs)
            else:
                self.wrong("a parent that is neither root nor item")
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
                self.wrong("XML or another type that documents here do not hold")
        else:
            self.wrong(_KINDS.get(kind, f"content of kind {kind}"))
        if not count:
            self.wrong("an item of no length")
        if clock + count >= _CLOCKS:
            self.wrong("a clock over 31 bits")
        return clock + count

    def text(self, client: int, clock: int) -> int:
        """Text, read and rewritten; its length in UTF-16 units."""
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
        """One value of lib0's "any"."""
        if depth > MAX_DEPTH:
            self.wrong(f"values nested over {MAX_DEPTH} deep")
        match self.byte():
            case 127 | 126 | 121 | 120:  # undefined, null, false, true
                pass
            case 125:  # a whole number, with its sign in the first byte
                while self.byte() > 0x7F:
                    pass
            case 124:
                self.take(4)
            case 123:
                self.take(8)
            case 122:
                if self.take(8) == b"\x7f" + b"\xff" * 7:
                    self.wrong("2**63-1, which the engine sends on as another number,")
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
