"""Text positions, from Python code points to the engine's UTF-8 bytes and back; and deltas between texts. Pure.

>>> p = Positions("aé😀b")
>>> [p.to_bytes(i) for i in range(5)]
[0, 1, 3, 7, 8]
>>> p.to_index(3)
2
>>> p.to_index(4)
Traceback (most recent call last):
ValueError: byte 4 is inside a character

pycrdt counts UTF-8 bytes, and accepts positions inside a character, so this module converts all positions. A non-ASCII
text has a mirror of its characters: blocks of about 1,000 code points in groups of about 100 blocks, so that an edit
scans two short lists and encodes at most one block. An ASCII text needs none: a byte is a code point.

A delta describes the change of a text from its beginning: `Keep` a number of code points, `Insert` a string, `Delete` a
number of code points; the rest stays. For arrays, with items, and a tuple of values in place of the string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

BLOCK: Final = 1024  # code points: splitting and encoding a block costs about 1 us
GROUP: Final = 128  # blocks: with the list of groups, a text of 10 MB scans 2 x 100 numbers


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep the next `count` code points (items)."""

    count: int


@dataclass(frozen=True, slots=True)
class Insert:
    """Insert a string (in an array, a tuple of values)."""

    value: Any


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the next `count` code points (items)."""

    count: int


Delta: TypeAlias = tuple[Keep | Insert | Delete, ...]
Splice: TypeAlias = tuple[int, int, str]
"""Code point index, number of deleted code points, inserted string."""


class _Group:
    __slots__ = ("blocks", "chars", "size", "sizes")

    def __init__(self, blocks: list[str]) -> None:
        self.blocks = blocks
        self.sizes = [len(block.encode()) for block in blocks]
        self.chars = sum(map(len, blocks))
        self.size = sum(self.sizes)


class Positions:
    """The characters of one text. `len()` counts code points, `size` UTF-8 bytes."""

    def __init__(self, text: str = "") -> None:
        blocks = [text[i : i + BLOCK] for i in range(0, len(text), BLOCK)] or [""]
        self._groups = [_Group(blocks[i : i + GROUP]) for i in range(0, len(blocks), GROUP)]
        self._chars = len(text)
        # of the last lookup: group, block in it, code points and bytes before the block
        self._last: tuple[int, int, int, int] | None = None
        self.size = sum(group.size for group in self._groups)

    def __len__(self) -> int:
        return self._chars

    def __str__(self) -> str:
        return "".join(block for group in self._groups for block in group.blocks)

    def _find(self, index: int) -> tuple[int, int, int, int]:
        """Return group, block, code point within the block, bytes before the block; at a border, the earlier block."""
        if self._last is not None:  # consecutive edits stay in a block, and each edit looks up twice
            g, b, start, before = self._last
            if start < index <= start + len(self._groups[g].blocks[b]):
                return g, b, index - start, before
        at = index
        before = g = 0
        for g, group in enumerate(self._groups):  # noqa: B007
            if index <= group.chars:
                break
            index -= group.chars
            before += group.size
        group = self._groups[g]
        b = 0
        for b, block in enumerate(group.blocks):
            if index <= len(block):
                break
            index -= len(block)
            before += group.sizes[b]
        self._last = g, b, at - index, before
        return g, b, index, before

    def to_bytes(self, index: int) -> int:
        """Return the UTF-8 offset of code point `index`, 0 to `len()`."""
        g, b, inside, before = self._find(index)
        block = self._groups[g].blocks[b]
        if self._groups[g].sizes[b] == len(block):
            return before + inside
        return before + len(block[:inside].encode())

    def to_index(self, offset: int) -> int:
        """Return the code point at a UTF-8 offset. Raises ValueError inside a character or beyond the end."""
        left, chars = offset, 0
        for group in self._groups:
            if left > group.size:
                left -= group.size
                chars += group.chars
                continue
            for block, size in zip(group.blocks, group.sizes, strict=True):
                if left > size:
                    left -= size
                    chars += len(block)
                    continue
                if size == len(block):
                    return chars + left
                try:
                    return chars + len(block.encode()[:left].decode())
                except UnicodeDecodeError:
                    raise ValueError(f"byte {offset} is inside a character") from None
        raise ValueError(f"byte {offset} is beyond the end")

    def text(self, start: int, stop: int) -> str:
        """Return the characters from `start` to before `stop`."""
        if stop <= start:
            return ""
        g, b, inside, _ = self._find(start)
        need = stop - start
        parts: list[str] = []
        while need > 0:
            part = self._groups[g].blocks[b][inside : inside + need]
            parts.append(part)
            need -= len(part)
            inside = 0
            b += 1
            if b == len(self._groups[g].blocks):
                g, b = g + 1, 0
        return "".join(parts)

    def insert(self, index: int, text: str) -> None:
        """Insert `text` before code point `index`, 0 to `len()`."""
        g, b, inside, _ = self._find(index)
        group = self._groups[g]
        block = group.blocks[b]
        self._put(g, b, block[:inside] + text + block[inside:])

    def delete(self, start: int, stop: int) -> None:
        """Delete the characters from `start` to before `stop`."""
        while start < stop:
            g, b, inside, _ = self._find(start)
            block = self._groups[g].blocks[b]
            if inside == len(block):  # at a border, the text is in the next block
                g, b = (g, b + 1) if b + 1 < len(self._groups[g].blocks) else (g + 1, 0)
                inside = 0
                block = self._groups[g].blocks[b]
            end = min(len(block), inside + stop - start)
            self._put(g, b, block[:inside] + block[end:])
            stop -= end - inside

    def _put(self, g: int, b: int, text: str) -> None:
        """Replace block `b` of group `g` by `text`; split it if long, remove it if empty."""
        group = self._groups[g]
        size = len(text.encode())
        chars_more, size_more = len(text) - len(group.blocks[b]), size - group.sizes[b]
        if self._last is not None and self._last[:2] != (g, b):
            self._last = None
        if 0 < len(text) <= 2 * BLOCK:
            group.blocks[b], group.sizes[b] = text, size
        else:
            self._last = None
            pieces = [text[i : i + BLOCK] for i in range(0, len(text), BLOCK)]
            group.blocks[b : b + 1] = pieces
            group.sizes[b : b + 1] = [len(piece.encode()) for piece in pieces]
        group.chars += chars_more
        group.size += size_more
        self._chars += chars_more
        self.size += size_more
        if len(group.blocks) > 2 * GROUP:
            cuts = range(0, len(group.blocks), GROUP)
            self._groups[g : g + 1] = [_Group(group.blocks[i : i + GROUP]) for i in cuts]
        elif not group.blocks:
            if len(self._groups) > 1:
                del self._groups[g]
            else:
                self._groups = [_Group([""])]

    def follow(self, delta: Iterable[Keep | Insert | Delete]) -> Delta:
        """Apply a delta that counts bytes; return it counted in code points."""
        out: list[Keep | Insert | Delete] = []
        index = offset = 0
        for part in delta:
            match part:
                case Keep(count):
                    offset += count
                    after = self.to_index(offset)
                    out.append(Keep(after - index))
                    index = after
                case Insert(value):
                    self.insert(index, value)
                    index += len(value)
                    offset += len(value.encode())
                    out.append(part)
                case Delete(count):
                    after = self.to_index(offset + count)
                    self.delete(index, after)
                    out.append(Delete(after - index))
        return tuple(out)


def delta_of(edit: Splice) -> Delta:
    """Convert one splice to a delta."""
    index, deleted, inserted = edit
    delta: list[Keep | Insert | Delete] = [Keep(index)] if index else []
    if inserted:
        delta.append(Insert(inserted))
    if deleted:
        delta.append(Delete(deleted))
    return tuple(delta)


def composed(edits: Sequence[Splice]) -> Delta:
    """Compose consecutive splices into one delta. Joins halves, so n splices cost n log n."""
    if len(edits) <= 1:
        return delta_of(edits[0]) if edits else ()
    half = len(edits) // 2
    return compose(composed(edits[:half]), composed(edits[half:]))


def compose(first: Delta, second: Delta) -> Delta:
    """Return the delta that does `first`, then `second`. Texts only."""
    out: list[Keep | Insert | Delete] = []
    a, b = list(reversed(first)), list(reversed(second))
    while a or b:
        if b and isinstance(b[-1], Insert):
            append(out, b.pop())
        elif not b or (a and isinstance(a[-1], Delete)):  # b has ended: the rest of a stands
            append(out, a.pop())
        else:  # b keeps or deletes what a keeps (implicitly, once a has ended) or inserted
            mine = a.pop() if a else Keep(_length(b[-1]))
            theirs = b.pop()
            n = min(_length(mine), _length(theirs))
            if _length(mine) > n:
                a.append(_behind(mine, n))
            if _length(theirs) > n:
                b.append(_behind(theirs, n))
            if isinstance(theirs, Keep):
                append(out, Insert(mine.value[:n]) if isinstance(mine, Insert) else Keep(n))
            elif isinstance(mine, Keep):
                append(out, Delete(n))
    while out and isinstance(out[-1], Keep):
        out.pop()
    return tuple(out)


def _length(part: Keep | Insert | Delete) -> int:
    return len(part.value) if isinstance(part, Insert) else part.count


def _behind(part: Keep | Insert | Delete, n: int) -> Keep | Insert | Delete:
    return Insert(part.value[n:]) if isinstance(part, Insert) else type(part)(part.count - n)


def append(out: list[Keep | Insert | Delete], part: Keep | Insert | Delete) -> None:
    """Append `part`, merged with one of its kind.

    Inserts go before adjacent deletes, so equal changes are equal deltas.
    """
    if not _length(part):
        return
    last = out[-1] if out else None
    if isinstance(part, Insert) and isinstance(last, Delete):
        out.pop()
        append(out, part)
        out.append(last)
    elif isinstance(part, Insert) and isinstance(last, Insert):
        out[-1] = Insert(last.value + part.value)
    elif not isinstance(part, Insert) and not isinstance(last, Insert) and type(last) is type(part):
        out[-1] = type(part)(_length(last) + part.count)
    else:
        out.append(part)
