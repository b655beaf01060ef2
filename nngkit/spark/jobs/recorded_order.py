"""Find the documents whose updates are applicable in the order in which they were recorded. Pure: numpy columns.

A recorder stores updates as they come, so that is the rule. For these documents, nothing is left to do but to hand the
updates to the engine; the others go the general way (causal.py), which decides update by update.

A document is *in order* if each of its updates has the number after that of the update before it in its stream, or was
recorded before; if all of its dependencies are recorded before it; and if it has no merge but as its first row, without
dependencies: the snapshot of an earlier run, or the state of the peer from which the recorder got the document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]


class Edits(NamedTuple):
    """Rows of updates, grouped by document, each document in the order of the journal.

    `doc` and `stream` are codes from 0, ascending for `doc`; `stream` is -1 for a merge. `number` is that of the update
    in its stream, from 1. `refused`: rows that cannot be judged here; their documents are not in order.
    """

    doc: Int64s
    stream: Int64s
    number: Int64s
    refused: Bools


class Entries(NamedTuple):
    """Entries of version vectors: of an update's dependencies, or of a merge's versions; `row` is a row of Edits."""

    row: Int64s
    stream: Int64s
    number: Int64s


class Found(NamedTuple):
    """`applied`: rows to apply, of documents in order. `in_order`: by document code.

    `doc`, `stream`, `last`: the version vectors of documents in order afterwards, by document.
    """

    applied: Bools
    in_order: Bools
    doc: Int64s
    stream: Int64s
    last: Int64s


def find(edits: Edits, docs: int, deps: Entries, versions: Entries) -> Found:
    """Find the documents in order among `docs`, the number of codes."""
    rows = len(edits.doc)
    streams = 1 + max(
        (int(each.max()) for each in (edits.stream, deps.stream, versions.stream) if len(each)), default=0
    )
    in_order = np.ones(docs, dtype=bool)
    in_order[edits.doc[edits.refused]] = False
    is_merge = edits.stream < 0
    later = np.flatnonzero(is_merge[1:] & (edits.doc[1:] == edits.doc[:-1])) + 1
    in_order[edits.doc[later]] = False
    in_order[edits.doc[deps.row[is_merge[deps.row]]]] = False

    # A series is a stream within a document. Its updates follow one another in `by_series`.
    places = np.flatnonzero(~is_merge)
    key = edits.doc[places] * streams + edits.stream[places]
    by_series = np.argsort(key, kind="stable")
    key, places = key[by_series], places[by_series]
    known, series = np.unique(np.concatenate([key, _key(edits, versions, streams)]), return_inverse=True)
    of_update, of_base = series[: len(key)], series[len(key) :]
    base = np.zeros(len(known), dtype=np.int64)
    base[of_base] = versions.number

    # Relative to the base, numbers that can be in order are below the number of rows: a higher one is a gap.
    relative = np.clip(edits.number[places] - base[of_update], 0, rows + 2)
    begun = np.maximum.accumulate(relative + of_update * (rows + 3))  # the highest so far: series do not overlap
    highest = begun - of_update * (rows + 3)
    before = np.where(np.diff(of_update, prepend=-1) == 0, np.concatenate([[0], highest[:-1]]), 0)
    fresh = relative > before
    gap = fresh & (relative != before + 1)
    in_order[edits.doc[places[gap]]] = False
    last = base.copy()
    np.maximum.at(last, of_update, np.where(fresh, base[of_update] + relative, 0))

    # Update n of a series in order is at place first + n - base - 1 of the fresh ones.
    applied = is_merge.copy()
    applied[places[fresh]] = True
    counts = np.bincount(of_update[fresh], minlength=len(known))
    first = np.cumsum(counts) - counts
    fresh_places = places[fresh]
    needing = np.flatnonzero(applied[deps.row] & ~is_merge[deps.row] & (deps.stream != edits.stream[deps.row]))
    wanted = _key(edits, deps, streams)[needing]
    if len(wanted):
        found = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        least = deps.number[needing] - base[found]
        there = (known[found] == wanted) & (least <= counts[found])
        place = first[found] + np.where(there, least, 1) - 1
        in_time = (least <= 0) | (fresh_places[np.clip(place, 0, len(fresh_places) - 1)] < deps.row[needing])
        in_order[edits.doc[deps.row[needing[~(there & in_time)]]]] = False

    applied &= in_order[edits.doc]
    doc, stream = known // streams, known % streams
    kept = in_order[doc] & (last > 0)
    return Found(applied, in_order, doc[kept], stream[kept], last[kept])


def _key(edits: Edits, entries: Entries, streams: int) -> Int64s:
    """Return the document and the stream of each entry as one number, which orders by document."""
    return edits.doc[entries.row] * streams + entries.stream
