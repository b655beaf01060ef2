"""The list of a partition's segments: in blocks or not, it is the same list."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nngkit.journal.manifest import Lost, Manifest
from nngkit.journal.segments import MERGE, PACK, Block, Segment, Segments, decode_entries, encode_block


def segment(first: int, end: int, size: int = 1000) -> Segment:
    file = f"{first:020}-{end:020}.parquet"
    return Segment(file, first, end, end - first, size, first, first * 1000, end * 1000, {"a": end - first})


class Files:
    """Blocks that were written; reads are counted."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.reads = 0

    def write(self, entries: Sequence[Segment]) -> Block:
        block, data = encode_block(entries)
        self.data[block.file] = data
        return block

    def __call__(self, block: Block) -> Sequence[Segment]:
        self.reads += 1
        return decode_entries(self.data[block.file], block)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 300), st.booleans()),
        st.tuples(st.just("merge"), st.integers(0, 1 << 20), st.integers(2, 100)),
        st.tuples(st.just("retire"), st.integers(0, 20), st.just(0)),
    ),
    max_size=20,
)


@settings(max_examples=60)
@given(steps, st.data())
def test_a_list_in_blocks_is_the_same_list(taken: list[tuple[str, int, int]], data: st.DataObject) -> None:
    files, known = Files(), list[Segment]()
    segments, at = Segments(load=files), 0
    for what, number, more in taken:
        if what == "add":
            for each in range(number):
                at += 5 * (more and not each)  # a gap of lost records
                known.append(segment(at, at + 10))
                segments = segments.added(known[-1])
                at += 10
        elif what == "merge" and len(known) > 1:
            place = number % (len(known) - 1)
            run = known[place : place + more]
            into = segment(run[0].first, run[-1].end, sum(each.bytes for each in run))
            known[place : place + more] = [into]
            segments = segments.merged(run, into, files.write)
        elif what == "retire" and number and len(known) > number:
            known = known[number:]
            segments = segments.since(known[0].first)
        segments = segments.packed(files.write)
        assert len(segments.recent) < PACK
    assert list(segments) == known
    assert len(segments) == len(known)
    assert segments.bytes == sum(each.bytes for each in known)
    first = data.draw(st.integers(-5, at + 5))
    stop = data.draw(st.integers(first, at + 50))
    low = data.draw(st.one_of(st.none(), st.integers(0, at * 1000)))
    found = list(segments.covering(first, stop, low))
    inside = [each for each in known if each.first < stop and first < each.end]
    assert [each for each in inside if low is None or each.max_time >= low] == [
        each for each in found if isinstance(each, Segment) and each in inside and (low is None or each.max_time >= low)
    ]
    covered = [each for each in found if isinstance(each, Block)]
    assert all(low is not None and each.max_time < low for each in covered)
    part = pickle.loads(pickle.dumps(segments.within(first, stop))).attached(files)
    assert [each for each in part if each.first < stop and first < each.end] == inside
    if known:
        assert segments[-1] == known[-1]
        assert segments[0] == known[0]


@pytest.mark.slow
def test_a_hundred_thousand_segments_are_a_hundred_lines_and_a_new_one_reads_little() -> None:
    files = Files()
    segments = Segments((segment(10 * each, 10 * each + 10) for each in range(100_000)), load=files)
    segments = segments.packed(files.write)
    assert len(segments.blocks) <= 100_000 // (PACK * MERGE) + 1 + MERGE
    assert files.reads == 0
    for each in range(100_000, 100_000 + PACK * MERGE):
        segments = segments.added(segment(10 * each, 10 * each + 10)).packed(files.write)
    assert len(segments.blocks) + len(segments.recent) < 100_000 // (PACK * MERGE) + MERGE + PACK
    assert files.reads <= 2 * MERGE  # when small blocks become a large one


def test_manifest_is_read_as_it_was_written_with_a_line_for_each_block() -> None:
    files = Files()
    segments = Segments((segment(10 * each, 10 * each + 10) for each in range(1000)), load=files).packed(files.write)
    manifest = Manifest(3, "local", 0, 10_005, segments, (Lost(10_000, 10_005, 'a "reason"'),))
    data = manifest.encode()
    assert Manifest.decode(data, "m") == manifest
    assert data.count(b"\n") < 100
    assert b'"version": 2' in data
    assert b'"version": 1' in replace(manifest, segments=Segments(segments.recent)).encode()  # for older readers


def test_block_that_is_not_what_the_manifest_says_is_refused() -> None:
    block, data = encode_block([segment(0, 10), segment(10, 20)])
    assert decode_entries(data, block) == (segment(0, 10), segment(10, 20))
    with pytest.raises(ValueError, match="checksum"):
        decode_entries(data.replace(b'"rows": 10', b'"rows": 11', 1), block)
