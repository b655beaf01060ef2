"""Files that an export adds to a table and removes from it, and in which commits. Pure.

Files are compared by partition and offset range. The ranges of the table's files and of the journal's segments are
grouped where they overlap:

==================================  ============================================================================
group                               action
==================================  ============================================================================
segments only                       add them
the same range in both              keep it; in place, take the name that the journal has given it
segments cover the table's files    replace: the journal has merged segments
files only, or more than segments   keep them: the journal has retired segments; with `follow`, remove or replace
neither covers the other            refuse: it is not the journal that was exported
==================================  ============================================================================

So a segment is never in the table twice, whatever was committed before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nngkit.errors import ConfigError
from nngkit.journal.files import PENDING

ADVICE: Final = "export this journal to a new folder"


@dataclass(frozen=True, slots=True, order=True)
class File:
    """Parquet file with the records `first` to `end` - 1 of `partition`. `size` is in bytes; `path` is its name."""

    partition: int
    first: int
    end: int
    size: int
    path: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A partition of the journal: offsets from `start` are retained, those below `end` are in `files`, or lost."""

    start: int
    end: int
    files: tuple[File, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Files of one commit, and the `offsets` up to which the table then goes."""

    add: tuple[File, ...]
    remove: tuple[File, ...]
    offsets: dict[int, int]

    @property
    def changes_rows(self) -> bool:
        """False if the added files have the offsets of the removed ones, and no others."""
        return _spans(self.add) != _spans(self.remove)


@dataclass(frozen=True, slots=True)
class Plan:
    """One export: the segments to `add`, the table's files to `remove`, and the `offsets` up to which it then goes.

    `kept`: files of the table whose segments the journal no longer lists.
    """

    add: tuple[File, ...]
    remove: tuple[File, ...]
    kept: tuple[File, ...]
    offsets: dict[int, int]

    def commits(self, before: Mapping[int, int]) -> list[Commit]:
        """Return the commits: of removed and merged files, then of new ones. `before`: the offsets of the table.

        They are separate, as readers of a table's changes may skip commits that remove files.
        """
        if not self.remove:
            return [Commit(self.add, (), self.offsets)] if self.add else []
        news = tuple(each for each in self.add if not any(_overlap(each, other) for other in self.remove))
        if not news:
            return [Commit(self.add, self.remove, self.offsets)]
        merged = tuple(each for each in self.add if each not in news)
        reached = dict(before)
        for each in merged:
            reached[each.partition] = max(reached.get(each.partition, 0), each.end)
        return [Commit(merged, self.remove, reached), Commit(news, (), self.offsets)]


def decide(table: Iterable[File], journal: Mapping[int, Listed], offsets: Mapping[int, int], *, follow: bool) -> Plan:
    """Return what brings `table` to the state of `journal`.

    `offsets`: by partition, up to where the table was exported. `follow`: remove what the journal no longer lists.
    Raises ConfigError if the table's files cannot be of this journal.
    """
    there: dict[int, list[File]] = {}
    for each in table:
        there.setdefault(each.partition, []).append(each)
    add: list[File] = []
    remove: list[File] = []
    kept: list[File] = []
    reached = dict(offsets)
    for partition in sorted({*there, *journal, *offsets}):
        listed = journal.get(partition)
        if listed is None or listed.end < offsets.get(partition, 0):
            ends = "is missing" if listed is None else f"ends at {listed.end}"
            raise ConfigError(
                "journal",
                f"partition {partition} {ends}, and the table has its offsets up to {offsets.get(partition, 0)}: it is "
                f"another journal, or an older copy; {ADVICE}",
                partition,
            )
        for files, segments in _groups(there.get(partition, []), listed.files):
            keep, out, new = _resolved(files, segments, listed.start, follow=follow)
            kept += keep
            remove += out
            add += new
        ends_at = [each.end for each in listed.files]
        reached[partition] = max([offsets.get(partition, 0), *ends_at])
    return Plan(tuple(sorted(add)), tuple(sorted(remove)), tuple(sorted(kept)), dict(sorted(reached.items())))


def _groups(files: Sequence[File], segments: Sequence[File]) -> Iterator[tuple[list[File], list[File]]]:
    """Yield files and segments in groups that overlap within, and not with each other."""
    marked = sorted([*((each, True) for each in files), *((each, False) for each in segments)])
    group: tuple[list[File], list[File]] = ([], [])
    behind = -1
    for each, in_table in marked:
        if each.first >= behind and (group[0] or group[1]):
            yield group
            group = ([], [])
        group[0 if in_table else 1].append(each)
        behind = max(behind, each.end)
    if group[0] or group[1]:
        yield group


def _resolved(
    files: list[File], segments: list[File], start: int, *, follow: bool
) -> tuple[list[File], list[File], list[File]]:
    """Return the table's files that stay although the journal lists them no more, those to remove, those to add."""
    if not files:
        return [], [], segments
    if not segments:
        return ([], files, []) if follow else (files, [], [])
    if _ranges(files) == _ranges(segments):
        for file, segment in zip(files, segments, strict=True):
            if file.size != segment.size:
                raise _other(file, segment, f"they have {file.size} and {segment.size} bytes")
        # In place, a merged segment has its final name an hour later, and the first one for another hour.
        moved = any(
            file.path.endswith(PENDING) and not segment.path.endswith(PENDING)
            for file, segment in zip(files, segments, strict=True)
        )
        return ([], files, segments) if moved else ([], [], [])
    if _covered(files, segments):
        return [], files, segments
    if follow and _covered([each for each in files if each.end > start], segments, above=start):
        return [], files, segments
    if not follow and _covered(segments, files):
        return files, [], []
    raise _other(files[0], segments[0], "their offsets overlap, and neither has all of the other's")


def _overlap(one: File, other: File) -> bool:
    return one.partition == other.partition and one.first < other.end and other.first < one.end


def _spans(files: Iterable[File]) -> list[list[int]]:
    """Return [partition, first, end] of the offsets of sorted files, joined where one ends as the next begins."""
    spans: list[list[int]] = []
    for each in files:
        if spans and spans[-1][0] == each.partition and each.first <= spans[-1][2]:
            spans[-1][2] = each.end
        else:
            spans.append([each.partition, each.first, each.end])
    return spans


def _ranges(files: Iterable[File]) -> list[tuple[int, int]]:
    return [(each.first, each.end) for each in files]


def _covered(files: Iterable[File], by: Iterable[File], *, above: int = 0) -> bool:
    """Return True if the offsets of `files`, from `above` on, are all in `by`, which is sorted, without overlaps."""
    spans = _spans(by)
    return all(any(first <= max(each.first, above) and each.end <= end for _, first, end in spans) for each in files)


def _other(file: File, segment: File, why: str) -> ConfigError:
    return ConfigError(
        "journal",
        f"{segment.path}: not what the table has as {file.path}: {why}; it is another journal, or an older copy; "
        f"{ADVICE}",
        segment.path,
    )
