"""Files that an export adds and removes: by offset ranges, whatever the journal has merged or retired."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.errors import ConfigError
from nngkit.lakehouse.plan import File, Listed, Plan, decide


def file(first: int, end: int, *, size: int | None = None, partition: int = 0) -> File:
    path = f"partition-{partition:05}/{first:020}-{end:020}.parquet"
    return File(partition, first, end, end - first if size is None else size, path)


def listed(*files: File, start: int = 0, end: int | None = None) -> dict[int, Listed]:
    return {0: Listed(start, max((each.end for each in files), default=start) if end is None else end, files)}


def ranges(files: tuple[File, ...]) -> list[tuple[int, int]]:
    return [(each.first, each.end) for each in files]


def test_a_new_segment_is_added_and_a_known_one_is_not() -> None:
    plan = decide([file(0, 10)], listed(file(0, 10), file(10, 25)), {0: 10}, follow=False)
    assert plan == Plan((file(10, 25),), (), (), {0: 25})


def test_merged_segments_replace_those_in_the_table_also_if_they_reach_further() -> None:
    before = [file(0, 10), file(10, 20), file(20, 30)]
    plan = decide(before, listed(file(0, 20), file(20, 40)), {0: 30}, follow=False)
    assert ranges(plan.remove) == [(0, 10), (10, 20), (20, 30)]
    assert ranges(plan.add) == [(0, 20), (20, 40)]


def test_merged_segments_are_a_commit_before_that_of_new_ones() -> None:
    before = [file(0, 10), file(10, 20)]
    plan = decide(before, listed(file(0, 20), file(20, 25)), {0: 20}, follow=False)
    merging, adding = plan.commits({0: 20})
    assert (ranges(merging.add), merging.remove, merging.offsets) == ([(0, 20)], tuple(before), {0: 20})
    assert not merging.changes_rows
    assert (ranges(adding.add), adding.remove, adding.offsets) == ([(20, 25)], (), {0: 25})
    assert adding.changes_rows


def test_a_retired_segment_stays_unless_retention_is_followed() -> None:
    journal = listed(file(10, 20), start=10)
    kept = decide([file(0, 10), file(10, 20)], journal, {0: 20}, follow=False)
    assert kept.commits({0: 20}) == []
    assert ranges(kept.kept) == [(0, 10)]
    assert ranges(decide([file(0, 10), file(10, 20)], journal, {0: 20}, follow=True).remove) == [(0, 10)]


def test_a_merged_file_of_which_a_part_is_retired_stays_whole_unless_retention_is_followed() -> None:
    journal = listed(file(10, 20), start=10)
    assert decide([file(0, 20)], journal, {0: 20}, follow=False).commits({0: 20}) == []
    plan = decide([file(0, 20)], journal, {0: 20}, follow=True)
    assert (ranges(plan.remove), ranges(plan.add)) == ([(0, 20)], [(10, 20)])


@pytest.mark.parametrize(
    ("table", "journal", "says"),
    [
        ([file(0, 10)], {}, "partition 0 is missing"),
        ([file(0, 10)], listed(file(0, 5)), "ends at 5"),
        ([file(0, 10)], listed(file(0, 10, size=9)), "they have 10 and 9 bytes"),
        ([file(0, 10)], listed(file(5, 15)), "their offsets overlap"),
    ],
)
def test_another_journal_is_refused(table: list[File], journal: dict[int, Listed], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        decide(table, journal, {0: 10}, follow=False)
    assert "another journal" in str(caught.value)


@dataclass
class Model:
    """A journal that seals, merges and retires, and the table of its exports."""

    segments: list[File] = field(default_factory=list)
    start: int = 0
    end: int = 0
    table: list[File] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)

    def seal(self, size: int) -> None:
        self.segments.append(file(self.end, self.end + size))
        self.end += size

    def merge(self, at: int, count: int) -> None:
        at %= max(1, len(self.segments))
        if len(some := self.segments[at : at + count]) > 1:
            self.segments[at : at + count] = [file(some[0].first, some[-1].end)]

    def lose(self, size: int) -> None:
        self.end += size  # offsets without a record

    def retire(self, count: int) -> None:
        for each in self.segments[:count]:
            self.start = each.end
        del self.segments[:count]

    def export(self, *, follow: bool) -> None:
        journal = {0: Listed(self.start, self.end, tuple(self.segments))}
        plan = decide(self.table, journal, self.offsets, follow=follow)
        for commit in plan.commits(self.offsets):
            assert set(commit.remove) <= set(self.table)
            before = {offset for each in self.table for offset in range(each.first, each.end)}
            self.table = sorted({*self.table} - {*commit.remove}) + list(commit.add)
            after = {offset for each in self.table for offset in range(each.first, each.end)}
            assert commit.changes_rows or before == after
            assert commit.offsets[0] >= max(after, default=-1) + 1
            self.offsets = commit.offsets
        assert self.offsets.get(0, 0) == plan.offsets[0]
        assert decide(self.table, journal, self.offsets, follow=follow).commits(self.offsets) == []


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("seal"), st.integers(1, 5)),
        st.tuples(st.just("merge"), st.integers(0, 9), st.integers(2, 4)),
        st.tuples(st.just("lose"), st.integers(1, 3)),
        st.tuples(st.just("retire"), st.integers(1, 2)),
        st.tuples(st.just("export")),
    ),
    max_size=30,
)


@given(OPERATIONS, st.booleans())
def test_the_table_has_each_offset_of_the_journal_once_after_any_history(
    operations: list[tuple[str, *tuple[int, ...]]], follow: bool
) -> None:
    model, sealed = Model(), set[int]()
    exported: set[int] = set()
    for name, *arguments in [*operations, ("export",)]:
        if name == "export":
            model.export(follow=follow)
            offsets = [offset for each in model.table for offset in range(each.first, each.end)]
            there = {offset for each in model.segments for offset in range(each.first, each.end)}
            assert len(offsets) == len(set(offsets)), "an offset is in the table twice"
            assert there <= set(offsets)
            exported |= set(offsets)
            assert set(offsets) == (there if follow else exported)
            sealed |= there
        else:
            getattr(model, name)(*arguments)
    assert exported >= sealed
