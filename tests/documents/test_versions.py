"""Version vectors: comparison, pruning, and hostile input."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit import envelope
from nngkit.documents.versions import (
    EPOCHS,
    EPOCHS_KEPT,
    ORIGIN,
    STREAMS,
    EditStream,
    Oldest,
    Versions,
    covers,
    digest,
    from_wire,
    is_old,
    merge,
    prune,
    stream_from,
    to_wire,
)
from nngkit.errors import BadMessage

FEW = st.builds(EditStream, st.sampled_from([b"aaaaaaaa", b"bbbbbbbb", b"cccccccc"]), st.integers(0, 40))
VECTORS = st.dictionaries(FEW, st.integers(1, 5), max_size=30)
ANY = st.dictionaries(
    st.builds(EditStream, st.binary(min_size=ORIGIN, max_size=ORIGIN), st.integers(0, EPOCHS)), st.integers(1, EPOCHS)
)


def pruned(versions: Versions, keep: EditStream | None = None) -> Versions:
    left = dict(versions)
    prune(left, keep)
    return left


@given(VECTORS, VECTORS, VECTORS)
def test_merge_is_a_join(a: Versions, b: Versions, c: Versions) -> None:
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, a) == a
    assert covers(merge(a, b), a)
    assert covers(a, b) == (merge(a, b) == a)


@given(ANY)
def test_versions_round_trip_with_equal_digests(versions: Versions) -> None:
    wire = envelope.decode(envelope.encode(to_wire(versions)), what="test")
    assert from_wire(wire, what="test") == versions
    assert digest(dict(reversed(versions.items()))) == digest(versions)
    assert len(digest(versions)) == 8


@given(VECTORS, VECTORS)
def test_different_versions_have_different_digests(a: Versions, b: Versions) -> None:
    assert (digest(a) == digest(b)) == (a == b)


@given(VECTORS, VECTORS)
def test_pruning_is_independent_of_order(a: Versions, b: Versions) -> None:
    assert pruned(merge(pruned(a), pruned(b))) == pruned(merge(a, b))


@given(VECTORS, FEW)
def test_stream_is_old_if_it_would_be_pruned_again(versions: Versions, stream: EditStream) -> None:
    prune(versions)
    again = pruned(merge(versions, {stream: 1}))
    assert is_old(stream, versions) == (stream not in again)


def test_newest_epochs_of_an_origin_are_kept() -> None:
    versions = {EditStream(b"aaaaaaaa", epoch): 1 for epoch in range(EPOCHS_KEPT + 5)}
    other = EditStream(b"bbbbbbbb", 0)
    assert set(pruned(versions | {other: 1})) == {
        other,
        *(EditStream(b"aaaaaaaa", epoch) for epoch in range(5, EPOCHS_KEPT + 5)),
    }


def many(count: int = STREAMS) -> Versions:
    return {EditStream(number.to_bytes(ORIGIN, "big"), 1000 + number): 1 for number in range(count)}


def test_newest_streams_are_kept() -> None:
    assert pruned(many(STREAMS + 10)) == dict(list(many(STREAMS + 10).items())[10:])
    assert is_old(EditStream(b"aaaaaaaa", 999), many())
    assert not is_old(EditStream(b"aaaaaaaa", 999), many(STREAMS - 1))
    assert not is_old(EditStream(b"aaaaaaaa", 10**6), many())


def test_own_stream_is_never_pruned_and_displaces_none() -> None:
    me = EditStream(b"mmmmmmmm", 1)
    left = pruned(many() | {me: 58}, me)
    assert left == many() | {me: 58}
    assert pruned(left) == many()
    assert from_wire(to_wire(left), what="test") == left  # one more than STREAMS is allowed
    # ... and streams that are old beside it are old elsewhere too
    for epoch in (1, 999, 1000, 10**6):
        assert Oldest(left).excludes(EditStream(b"aaaaaaaa", epoch)) == is_old(EditStream(b"aaaaaaaa", epoch), many())


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        "x",
        [1],
        [[]],
        [[b"aaaaaaaa", 1]],
        [[b"aaaaaaaa", 1, 1, 1]],
        [[b"aaaaaaa", 1, 1]],
        [["aaaaaaaa", 1, 1]],
        [[b"aaaaaaaa", -1, 1]],
        [[b"aaaaaaaa", 2**53, 1]],
        [[b"aaaaaaaa", True, 1]],
        [[b"aaaaaaaa", 1.0, 1]],
        [[b"aaaaaaaa", 1, 0]],
        [[b"aaaaaaaa", 1, 2**53]],
        [[b"aaaaaaaa", 1, True]],
        [[b"aaaaaaaa", 1, 1], [b"aaaaaaaa", 1, 2]],
        to_wire(many(STREAMS + 2)),
    ],
    ids=str,
)
def test_invalid_versions_are_rejected(value: Any) -> None:
    with pytest.raises(BadMessage) as refused:
        from_wire(value, what="test", peer="tcp://10.0.0.9:1")
    assert "tcp://10.0.0.9:1" in str(refused.value)


def test_oldest_is_fast_for_many_streams() -> None:
    bounds = Oldest(many())
    chance = random.Random(1)
    strangers = [EditStream(chance.randbytes(ORIGIN), chance.randrange(5000)) for _ in range(100_000)]
    started = time.process_time()
    old = sum(map(bounds.excludes, strangers))
    assert 10_000 < old < 90_000
    assert time.process_time() - started < 5.0  # a scan of all 1,024 for each took 30 s


def test_a_stream_is_a_list_of_an_origin_and_an_epoch() -> None:
    assert stream_from([b"a" * 8, 1], what="record") == EditStream(b"a" * 8, 1)
    for wrong in ((b"a" * 8, 1), [b"a" * 8], [b"a" * 8, 1, 1], [b"a" * 7, 1], [b"a" * 8, -1], [b"a" * 8, True]):
        with pytest.raises(BadMessage, match="record: a stream must be"):
            stream_from(wrong, what="record")
