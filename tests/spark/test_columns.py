"""Columns of headers and version vectors, beside a loop that takes each value apart for itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nngkit import envelope
from nngkit.documents.versions import EPOCHS, EditStream, Versions, from_wire, to_wire
from nngkit.errors import NngkitError
from nngkit.spark.jobs.columns import Vectors, eights, headers_of, numbers, read_vectors

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SIZES = st.sampled_from([0, 1, 23, 24, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, EPOCHS])
STREAMS = st.builds(EditStream, st.binary(min_size=8, max_size=8), SIZES)
VERSIONS = st.dictionaries(STREAMS, SIZES.filter(bool), max_size=6)


def by_row(found: Vectors, rows: int) -> list[Versions | None]:
    """Return the vector of each row; None for a refused one."""
    result: list[Versions | None] = [None if refused else {} for refused in found.refused.tolist()]
    assert len(result) == rows
    entries = zip(found.row.tolist(), found.origin.tolist(), found.epoch.tolist(), found.seq.tolist(), strict=True)
    for row, origin, epoch, seq in entries:
        versions = result[row]
        assert versions is not None
        versions[EditStream(origin.to_bytes(8, "big"), epoch)] = seq
    return result


@pytest.mark.slow
@given(st.lists(st.none() | VERSIONS), st.integers(0, 3), st.booleans())
def test_vectors_are_read_as_they_were_written(given_: list[Versions | None], skipped: int, is_large: bool) -> None:
    data = [None if each is None else envelope.encode(to_wire(each)) for each in given_]
    column = pa.array(data, pa.large_binary() if is_large else pa.binary())[skipped:]
    assert by_row(read_vectors(column), len(column)) == [each or {} for each in given_[skipped:]]


def edited(data: bytes, place: int, byte: int, how: str) -> bytes:
    at = place % (len(data) + 1)
    return data[:at] + (b"" if how == "cut" else bytes([byte])) + (data[at:] if how == "insert" else data[at + 1 :])


@pytest.mark.slow
@given(
    st.lists(st.tuples(VERSIONS, st.integers(0), st.integers(0, 255), st.sampled_from(["cut", "insert", "replace"])))
)
@example([({EditStream(b"a" * 8, 1): 1}, 0, 0x82, "replace")])  # two entries announced, one there
@example([({EditStream(b"a" * 8, 1): 1}, 0, 0x9F, "replace")])  # of indefinite length
@example([({EditStream(b"a" * 8, 1): 1}, 12, 0x1F, "replace")])
def test_a_damaged_vector_is_refused_or_means_the_same_as_elsewhere(given_: list[Any]) -> None:
    data = [edited(envelope.encode(to_wire(each)), place, byte, how) for each, place, byte, how in given_]
    for found, each in zip(by_row(read_vectors(pa.array(data, pa.binary())), len(data)), data, strict=True):
        if found is not None and each:
            assert from_wire(envelope.decode(each, what="v"), what="v") == found


def test_lists_that_are_not_sorted_or_name_a_stream_twice_are_refused() -> None:
    a, b = [b"a" * 8, 1, 1], [b"b" * 8, 1, 1]
    lists = [[a, b], [b, a], [a, a], [a, [b"a" * 8, 2, 1]], [[b"a" * 8, 2, 1], a], [a, b, b]]
    column = pa.array([envelope.encode(each) for each in lists], pa.binary())
    assert read_vectors(column).refused.tolist() == [False, True, True, False, True, True]


@given(st.lists(st.binary(max_size=40)))
def test_any_bytes_are_refused_where_others_raise(data: list[bytes]) -> None:
    found = by_row(read_vectors(pa.array(data, pa.binary())), len(data))
    for versions, each in zip(found, data, strict=True):
        try:
            expected = from_wire(envelope.decode(each, what="v"), what="v") if each else {}
        except NngkitError:
            assert versions is None
        else:
            assert versions in (None, expected)


@given(
    st.lists(st.none() | st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.binary(max_size=2)), max_size=4)),
    st.integers(0, 3),
)
def test_headers_are_the_first_of_their_name(given_: list[Any], skipped: int) -> None:
    column = pa.array(given_, HEADERS)[skipped:]
    for name, found in zip("abx", headers_of(column, "a", "b", "x"), strict=True):
        expected = [next((value for key, value in each or () if key == name), None) for each in given_[skipped:]]
        assert found.to_pylist() == expected


@given(st.lists(st.none() | st.binary(max_size=9) | st.binary(min_size=8, max_size=8)), st.integers(0, 3))
def test_numbers_have_eight_bytes(given_: list[bytes | None], skipped: int) -> None:
    column = pa.array(given_, pa.binary())[skipped:]
    values = [int.from_bytes(each, "big") if each and len(each) == 8 else -1 for each in given_[skipped:]]
    assert numbers(column).tolist() == [-1 if each >= 2**63 else each for each in values]
    found, right = eights(column)
    assert np.where(right, found, 0).tolist() == [max(each, 0) for each in values]
    assert right.tolist() == [each >= 0 for each in values]
