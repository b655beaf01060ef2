"""The list of a partition's segments: the newest one by one, older ones in blocks that are read when they are needed.

A block is an immutable file with the entries of neighbouring segments. The manifest has a line for each block, with its
range of offsets and times, so that sealing, polling and planning cost the same with a hundred segments and with a
hundred thousand. `PACK` recent entries make a block, and `MERGE` small blocks one larger block, as in a log-structured
merge tree: the manifest has about a line for each `PACK * MERGE` segments.

`Segments` is immutable; its loader is the only thing that reads. Does not know: storage, partitions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, islice, pairwise
from typing import Any, Final, TypeAlias, overload

from nngkit.journal.files import BLOCK
from nngkit.journal.record import crc32c

PACK: Final = 64  # recent segments that make a block
MERGE: Final = 16  # small blocks that make one


@dataclass(frozen=True, slots=True)
class Segment:
    """Parquet file with the records `first` to `end` - 1: `rows` of them, fewer after damage.

    Times are microseconds since 1970. `topics`: rows by topic. `crc32c`: checksum of the file.
    """

    file: str
    first: int
    end: int
    rows: int
    bytes: int
    crc32c: int
    min_time: int
    max_time: int
    topics: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """File with the entries of `count` neighbouring segments, and their sums and bounds.

    `crc32c`: checksum of the block's file. `whole`: its segments have no gap between them.
    """

    file: str
    first: int
    end: int
    count: int
    rows: int
    bytes: int
    crc32c: int
    min_time: int
    max_time: int
    whole: bool


Load: TypeAlias = Callable[[Block], Sequence[Segment]]
"""Reads a block's entries. Raises Damaged, OSError."""


class Segments(Sequence[Segment]):
    """Segments by offset: those in `blocks`, then `recent` ones. Those that end at or before `start` do not count."""

    __slots__ = ("_load", "blocks", "recent", "start")

    def __init__(
        self, recent: Iterable[Segment] = (), blocks: Iterable[Block] = (), start: int = 0, load: Load | None = None
    ) -> None:
        self.recent = tuple(recent)
        self.blocks = tuple(blocks)
        self.start = start
        self._load = load

    def __reduce__(self) -> tuple[Any, ...]:  # a loader holds storage; the receiver has its own
        return Segments, (self.recent, self.blocks, self.start)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Segments):
            return NotImplemented
        return (self.recent, self.blocks, self.start) == (other.recent, other.blocks, other.start)

    def __hash__(self) -> int:
        return hash((self.blocks, len(self.recent), self.start))

    def __repr__(self) -> str:
        return f"<Segments: {len(self.blocks)} blocks, {len(self.recent)} recent>"

    def __len__(self) -> int:
        return sum(block.count for block in self.blocks) + len(self.recent) - len(self._gone())

    def __iter__(self) -> Iterator[Segment]:
        for block in self.blocks:
            yield from (each for each in self.entries(block) if each.end > self.start)
        yield from (each for each in self.recent if each.end > self.start)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        if isinstance(index, slice):
            return list(self)[index]
        if index < 0:
            if -index <= len(self.recent):
                return self.recent[index]
            index += len(self)
        if index < 0:
            raise IndexError(index)
        for each in islice(self, index, None):
            return each
        raise IndexError(index)

    @property
    def bytes(self) -> int:
        """Size of all segments."""
        total = sum(each.bytes for each in self.blocks) + sum(each.bytes for each in self.recent)
        return total - sum(each.bytes for each in self._gone())

    def entries(self, block: Block) -> Sequence[Segment]:
        """Read a block. Raises Damaged, OSError."""
        assert self._load is not None, "these segments were sent without their loader"
        return self._load(block)

    def attached(self, load: Load) -> Segments:
        """Return these segments with a loader."""
        return Segments(self.recent, self.blocks, self.start, load)

    def covering(
        self, first: int, stop: int, low: int | None = None, high: int | None = None
    ) -> Iterator[Segment | Block]:
        """Yield the segments with offsets from `first` on and below `stop`.

        A block without gaps that has no record from `low` on, or none before `high`, is yielded instead of its
        segments.
        """
        for block in self.blocks:
            if block.first < stop and first < block.end:
                outside = (low is not None and block.max_time < low) or (high is not None and block.min_time >= high)
                if outside and block.whole:
                    yield block
                    continue
                yield from (each for each in self.entries(block) if each.first < stop and first < each.end)
        yield from (each for each in self.recent if each.first < stop and first < each.end)

    def within(self, first: int, stop: int) -> Segments:
        """Return the blocks and recent segments that may have offsets from `first` on and below `stop`."""
        return Segments(
            (each for each in self.recent if each.first < stop and first < each.end),
            (each for each in self.blocks if each.first < stop and first < each.end),
            self.start,
            self._load,
        )

    def added(self, segment: Segment) -> Segments:
        """Return these segments and one behind them."""
        return Segments((*self.recent, segment), self.blocks, self.start, self._load)

    def since(self, start: int) -> Segments:
        """Return the segments that end after `start`."""
        return Segments(
            (each for each in self.recent if each.end > start),
            (each for each in self.blocks if each.end > start),
            start,
            self._load,
        )

    def merged(self, run: Sequence[Segment], into: Segment, write: Callable[[Sequence[Segment]], Block]) -> Segments:
        """Return these segments with `into` in place of its parts, the neighbours `run`."""
        first, stop = run[0].first, run[-1].end
        gone = {each.file for each in run}
        touched = [each for each in self.blocks if each.first < stop and first < each.end]
        recent = [each for each in self.recent if each.file not in gone]
        if not touched:
            return Segments(sorted((*recent, into), key=_first), self.blocks, self.start, self._load)
        rest = [each for block in touched for each in self.entries(block) if each.file not in gone]
        kept = sorted((*(each for each in rest if each.end > self.start), into), key=_first)
        blocks = sorted((*(each for each in self.blocks if each not in touched), write(kept)), key=_first)
        return Segments(recent, blocks, self.start, self._load)

    def packed(self, write: Callable[[Sequence[Segment]], Block]) -> Segments:
        """Return the same segments with few recent ones: the others in blocks, and small blocks in larger ones."""
        blocks, recent = list(self.blocks), self.recent
        while len(recent) >= PACK:
            count = PACK * MERGE if len(recent) >= PACK * MERGE else PACK
            blocks.append(write(recent[:count]))
            recent = recent[count:]
        while (run := _small(blocks)) is not None:
            entries = [each for block in blocks[run] for each in self.entries(block) if each.end > self.start]
            blocks[run] = [write(entries)]
        return Segments(recent, blocks, self.start, self._load)

    def _gone(self) -> list[Segment]:
        """Return the entries that do not count any more, of the first block and the recent ones."""
        gone = [each for each in self.recent if each.end <= self.start]
        for block in self.blocks[:1]:
            if block.first < self.start:
                gone += [each for each in self.entries(block) if each.end <= self.start]
        return gone


def _first(each: Segment | Block) -> int:
    return each.first


def _small(blocks: Sequence[Block]) -> slice | None:
    """Return the newest `MERGE` neighbours that are not more than one large block together."""
    before = list(accumulate((each.count for each in blocks), initial=0))
    for end in range(len(blocks), MERGE - 1, -1):
        if before[end] - before[end - MERGE] <= PACK * MERGE:
            return slice(end - MERGE, end)
    return None


def entry(each: Segment | Block) -> str:
    """Return a segment or block as a line of JSON."""
    return _block_entry(each) if isinstance(each, Block) else _entry(each)


@lru_cache(maxsize=4096)  # each is written again whenever a segment is sealed
def _block_entry(block: Block) -> str:
    return _entry(block)


def _entry(each: Segment | Block) -> str:
    return json.dumps({name: getattr(each, name) for name in each.__slots__}, ensure_ascii=False)


def encode_block(segments: Sequence[Segment]) -> tuple[Block, bytes]:
    """Return a block of these segments, and its content."""
    data = "".join(f"{entry(each)}\n" for each in segments).encode()
    crc = crc32c(0, data)
    first, end = segments[0].first, segments[-1].end
    block = Block(
        f"{first:020}-{end:020}-{crc:08x}{BLOCK}",
        first,
        end,
        len(segments),
        sum(each.rows for each in segments),
        sum(each.bytes for each in segments),
        crc,
        min(each.min_time for each in segments),
        max(each.max_time for each in segments),
        all(before.end == after.first for before, after in pairwise(segments)),
    )
    return block, data


def decode_entries(data: bytes, block: Block) -> tuple[Segment, ...]:
    """Parse a block's content. Raises ValueError if it is not what the manifest says."""
    if (crc := crc32c(0, data)) != block.crc32c:
        raise ValueError(f"checksum {crc:08x}, but {block.crc32c:08x} in the manifest")
    return tuple(Segment(**each) for each in json.loads(b"[" + b",".join(data.splitlines()) + b"]"))
