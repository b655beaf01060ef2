"""Minimal edits between two texts, in code points, and rebasing edits over those of others. Pure.

>>> edits("sea lion", "See lions")
[(0, 1, 'S'), (2, 1, 'e'), (8, 0, 's')]
>>> applied("sea lion", edits("sea lion", "See lions"))
'See lions'

An edit is (position, deleted, inserted); positions are those of the old text, and do not overlap. Up to MOST differing
code points the result is minimal (E. Myers' algorithm, 1986); beyond that whole lines are compared, and then everything
between the first and the last difference is replaced: the cost is bounded for every pair of texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nngkit.documents.engine.codepoints import Delete, Delta, Insert, Keep, Splice

MOST: Final = 600  # differences searched: steps and memory grow with the square; 0.1 s


def edits(old: str, new: str) -> list[Splice]:
    """Return the edits that turn `old` into `new`, in order of position."""
    start, end = _alike(old, new)
    before, after = old[start : len(old) - end], new[start : len(new) - end]
    found: list[Splice] = []
    if not (before and after):
        found = [(0, len(before), after)] if before or after else []
    elif (same := matches(before, after)) is not None:
        found = _between(before, after, same)
    else:
        lines_before, lines_after = before.splitlines(keepends=True), after.splitlines(keepends=True)
        same = matches(lines_before, lines_after)
        found = [(0, len(before), after)] if same is None else _by_lines(lines_before, lines_after, same)
    return [(at + start, deleted, inserted) for at, deleted, inserted in found]


def _alike(old: str, new: str) -> tuple[int, int]:
    """Return the lengths of the common start and end."""
    start = _same_start(old, new)
    most = min(len(old), len(new)) - start
    end = _same_start(old[len(old) - most :][::-1], new[len(new) - most :][::-1])
    return start, end


def _same_start(one: str, other: str) -> int:
    low, high = 0, len(one)
    while low < high:  # bisection compares slices in C, faster than a loop over characters
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _between(old: str, new: str, same: list[tuple[int, int]]) -> list[Splice]:
    found: list[Splice] = []
    i = j = 0
    for at, there in [*same, (len(old), len(new))]:
        if at > i or there > j:
            found.append((i, at - i, new[j:there]))
        i, j = at + 1, there + 1
    return found


def _by_lines(old: list[str], new: list[str], same: list[tuple[int, int]]) -> list[Splice]:
    found: list[Splice] = []
    i = j = at = 0
    for row, there in [*same, (len(old), len(new))]:
        before, after = "".join(old[i:row]), "".join(new[j:there])
        if before or after:
            inside = matches(before, after) if before and after else None
            pieces = [(0, len(before), after)] if inside is None else _between(before, after, inside)
            found += [(at + place, deleted, inserted) for place, deleted, inserted in pieces]
        at += len(before) + (len(old[row]) if row < len(old) else 0)
        i, j = row + 1, there + 1
    return found


def matches(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[int, int]] | None:
    """Return index pairs of a longest common subsequence; None if more than MOST items differ."""
    reach = {1: 0}  # by diagonal (old index minus new index): furthest old index
    trace: list[dict[int, int]] = []
    for count in range(MOST + 1):
        trace.append(dict(reach))
        for k in range(-count, count + 1, 2):
            down = k == -count or (k != count and reach.get(k - 1, -1) < reach.get(k + 1, -1))
            x = reach[k + 1] if down else reach[k - 1] + 1
            y = x - k
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x += 1
                y += 1
            reach[k] = x
            if x >= len(old) and y >= len(new):
                return _walked(trace, len(old), len(new))
    return None


def _walked(trace: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for count in range(len(trace) - 1, -1, -1):
        reach, k = trace[count], x - y
        down = k == -count or (k != count and reach.get(k - 1, -1) < reach.get(k + 1, -1))
        before = k + 1 if down else k - 1
        from_x = reach[before] if count else 0
        from_y = from_x - before if count else 0
        while x > from_x and y > from_y and x > 0 and y > 0:
            x, y = x - 1, y - 1
            found.append((x, y))
        x, y = from_x, from_y
    return found[::-1]


def applied(text: str, made: Sequence[Splice]) -> str:
    """Return `text` after the edits, whose positions refer to the original text."""
    for at, deleted, inserted in reversed(made):
        text = text[:at] + inserted + text[at + deleted :]
    return text


def joined(old: str, made: Sequence[Splice]) -> list[Splice]:
    """Join neighbouring edits that keep no more between them than either changes.

    >>> joined("four", [(0, 1, "h"), (3, 1, "se")]), joined("four", [(0, 1, "p"), (3, 1, "")])
    ([(0, 1, 'h'), (3, 1, 'se')], [(0, 1, 'p'), (3, 1, '')])
    >>> joined("four", [(0, 0, "\\n"), (1, 3, "ive")])
    [(0, 4, '\\nfive')]
    """
    found: list[Splice] = []
    for edit in made:
        found.append(edit)
        while len(found) > 1 and _belong(*found[-2:]):
            (at, deleted, inserted), (then, more, text) = found[-2:]
            found[-2:] = [(at, then + more - at, inserted + old[at + deleted : then] + text)]
    return found


def _belong(one: Splice, other: Splice) -> bool:
    kept = other[0] - one[0] - one[1]
    return kept <= max(one[1], len(one[2])) and kept <= max(other[1], len(other[2]))


def rebased(made: Sequence[Splice], theirs: Delta) -> list[Splice]:
    """Rebase edits of a text over the concurrent change `theirs`; return them in order of position.

    Text deleted by both is deleted once, insertions of both are kept, theirs first at the same place.
    """
    found: list[Splice] = []
    walk = _Walk(theirs)
    for at, deleted, inserted in made:
        pieces = walk.delete(at, deleted)
        place = walk.place(at + deleted) if deleted == 0 or not pieces else pieces[0][0]
        if inserted and pieces and pieces[0][0] == place:
            found.append((place, pieces[0][1], inserted))
            pieces = pieces[1:]
        elif inserted:
            found.append((place, 0, inserted))
        found += [(where, count, "") for where, count in pieces]
    return sorted(found, key=lambda edit: edit[0])


class _Walk:
    """Map positions of the old text to the new one, by runs."""

    def __init__(self, theirs: Delta) -> None:
        self._runs: list[tuple[int, int, int]] = []  # old start, old end, new start
        old = new = 0
        for step in theirs:
            match step:
                case Keep(count):
                    self._runs.append((old, old + count, new))
                    old, new = old + count, new + count
                case Insert(value):
                    new += len(value)
                case Delete(count):
                    old += count
        self._runs.append((old, 1 << 62, new))

    def place(self, at: int) -> int:
        """Return the new position of `at`, after insertions of others there."""
        for start, end, new in self._runs:
            if at < start:
                return new
            if at < end:
                return new + at - start
        raise AssertionError("the last run has no end")

    def delete(self, at: int, count: int) -> list[tuple[int, int]]:
        """Return position and length of the pieces left of `count` code points from `at`."""
        pieces = []
        for start, end, new in self._runs:
            low, high = max(at, start), min(at + count, end)
            if low < high:
                pieces.append((new + low - start, high - low))
        return pieces
