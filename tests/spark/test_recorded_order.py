"""Documents in order, beside a loop over their updates, and beside the general way."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nngkit.documents.versions import EditStream, Versions
from nngkit.spark.jobs.causal import Update, in_order
from nngkit.spark.jobs.recorded_order import Edits, Entries, Found, find

STREAMS = [EditStream(bytes([number]) * 8, 1) for number in range(3)]


class Row(NamedTuple):
    """`stream` None: a merge to `versions`."""

    stream: int | None
    number: int
    deps: dict[int, int]
    versions: dict[int, int]
    refused: bool = False


VECTORS = st.dictionaries(st.integers(0, 2), st.integers(1, 4), max_size=2)
EDITS = st.builds(Row, st.integers(0, 2), st.integers(0, 5), VECTORS, st.just({}))
MERGES = st.builds(Row, st.none(), st.just(0), st.just({}) | VECTORS, VECTORS)


@st.composite
def documents(draw: st.DrawFn) -> list[list[Row]]:
    """Draw documents that are in order or nearly so: random ones hardly ever are."""
    found = []
    for _ in range(draw(st.integers(0, 5))):
        rows: list[Row] = []
        have: dict[int, int] = {}
        if draw(st.booleans()):
            have = draw(VECTORS)
            rows.append(Row(None, 0, {}, dict(have)))
        for _ in range(draw(st.integers(0, 8))):
            stream = draw(st.integers(0, 2))
            have[stream] = have.get(stream, 0) + 1
            seen = {other: draw(st.integers(1, have[other])) for other in have if draw(st.booleans())}
            rows.append(Row(stream, have[stream], seen, {}))
        for _ in range(draw(st.integers(0, 2))):  # changes
            at = draw(st.integers(0, len(rows)))
            what = draw(st.sampled_from(["insert", "drop", "swap", "repeat", "refuse"]))
            if what == "insert":
                rows.insert(at, draw(EDITS | MERGES))
            elif rows[at : at + 1]:
                row = rows[at]
                if what == "drop":
                    rows.remove(row)
                elif what == "swap":
                    rows.append(rows.pop(at))
                elif what == "repeat":
                    rows.append(row)
                else:
                    rows[at] = row._replace(refused=True)
        if rows:
            found.append(rows)
    return found


def columns(given_: list[list[Row]]) -> tuple[Edits, Entries, Entries]:
    flat = [(doc, row) for doc, rows in enumerate(given_) for row in rows]
    edits = Edits(
        np.array([doc for doc, _ in flat], dtype=np.int64),
        np.array([-1 if row.stream is None else row.stream for _, row in flat], dtype=np.int64),
        np.array([row.number for _, row in flat], dtype=np.int64),
        np.array([row.refused for _, row in flat], dtype=bool),
    )

    def entries(name: str) -> Entries:
        told = [(at, *entry) for at, (_, row) in enumerate(flat) for entry in getattr(row, name).items()]
        return Entries(*np.array(told, dtype=np.int64).reshape(-1, 3).T)

    return edits, entries("deps"), entries("versions")


def one_by_one(rows: list[Row]) -> tuple[dict[int, int], list[int]] | None:
    """Return the versions and the applied rows of a document in order, None for another; by a loop over the rows."""
    have: dict[int, int] = {}
    applied = []
    for at, row in enumerate(rows):
        if row.refused or (row.stream is None and (at or row.deps)):
            return None
        if row.stream is None:
            have = dict(row.versions)
        elif row.number <= have.get(row.stream, 0):
            continue
        elif row.number != have.get(row.stream, 0) + 1 or any(
            have.get(other, 0) < least for other, least in row.deps.items() if other != row.stream
        ):
            return None
        else:
            have[row.stream] = row.number
        applied.append(at)
    return have, applied


def outcome(found: Found, given_: list[list[Row]]) -> list[tuple[dict[int, int], list[int]] | None]:
    result: list[tuple[dict[int, int], list[int]] | None] = []
    first = 0
    for doc, rows in enumerate(given_):
        applied = np.flatnonzero(found.applied[first : first + len(rows)]).tolist()
        first += len(rows)
        entries = zip(found.doc.tolist(), found.stream.tolist(), found.last.tolist(), strict=True)
        versions = {stream: last for of, stream, last in entries if of == doc}
        result.append((versions, applied) if found.in_order[doc] else None)
        assert found.in_order[doc] or not (versions or applied)
    return result


@pytest.mark.slow
@settings(max_examples=500)
@given(documents())
def test_documents_in_order_are_those_of_a_loop_over_their_updates(given_: list[list[Row]]) -> None:
    edits, deps, versions = columns(given_)
    assert outcome(find(edits, len(given_), deps, versions), given_) == [one_by_one(rows) for rows in given_]


@given(documents())
def test_the_general_way_applies_a_document_in_order_as_it_was_recorded(given_: list[list[Row]]) -> None:
    edits, deps, versions = columns(given_)
    for rows, each in zip(given_, outcome(find(edits, len(given_), deps, versions), given_), strict=True):
        if each is None:
            continue
        updates = [
            Update(
                None if row.stream is None else STREAMS[row.stream],
                row.number,
                row.number,
                _named(row.deps),
                b"%d" % at,
                _named(row.versions),
            )
            for at, row in enumerate(rows)
        ]
        ordered = in_order(updates, {})
        last, applied = each
        assert [int(update.update) for update in ordered.ready] == applied
        assert (ordered.versions, ordered.held) == (_named(last), [])


def _named(versions: dict[int, int]) -> Versions:
    return {STREAMS[stream]: number for stream, number in versions.items()}
