"""Accounting of slots in shared memory, against a model of what is in use; bytes of the side channel."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.errors import BadMessage
from nngkit.protocols._shm import formats
from nngkit.protocols._shm.slots import LEAST, MOST_SEGMENTS, Place, Slots, slot_size

MIB = 1 << 20


def take(slots: Slots, size: int) -> Place | None:
    noted: list[Place] = []
    return noted[0] if slots.take(size, noted) else None


@given(st.integers(1, 1 << 34))
def test_a_slot_holds_its_body_and_wastes_little(size: int) -> None:
    slot = slot_size(size)
    assert slot >= size
    assert slot % LEAST == 0
    assert slot - size < max(LEAST, size / 4 + 1)
    assert slot_size(slot) == slot


@given(
    st.integers(1, 64).map(lambda count: count * MIB // 2),
    st.lists(st.tuples(st.sampled_from("tttgd"), st.integers(1, 4 * MIB), st.integers(0, 1 << 20)), max_size=120),
)
def test_slots_in_use_never_overlap_and_dead_ones_never_return(limit: int, steps: list[tuple[str, int, int]]) -> None:
    slots = Slots(limit)
    used: list[Place] = []
    dead: set[tuple[int, int]] = set()
    known: set[int] = set()
    dropped: set[int] = set()
    for what, size, which in steps:
        if what == "t":
            place = take(slots, size)
            if place is None:
                assert slot_size(size) > limit or used
                continue
            assert place.size >= size
            assert place.offset + place.size <= slots.segments[place.segment].size
            for other in used:
                apart = place.offset + place.size <= other.offset or other.offset + other.size <= place.offset
                assert other.segment != place.segment or apart
            assert (place.segment, place.offset) not in dead
            assert place.segment not in dropped
            used.append(place)
        elif used:
            place = used.pop(which % len(used))
            slots.give(place, dead=what == "d")
            slots.give(place)  # given twice has no effect
            if what == "d":
                dead.add((place.segment, place.offset))
        known |= slots.segments.keys()
        dropped = known - slots.segments.keys()
        assert not {place.segment for place in used} & dropped
        assert slots.total <= limit
        assert len(slots.segments) <= MOST_SEGMENTS
        assert slots.used == len(used)
    for place in used:
        slots.give(place)
    whole = take(slots, limit // 2)
    assert whole is not None or slot_size(limit // 2) > limit


def test_small_slots_share_a_segment_and_large_ones_do_not() -> None:
    slots = Slots(64 * MIB)
    small = [take(slots, 32 * 1024) for _ in range(64)]
    assert {place.segment for place in small if place} == {1}
    large = [take(slots, 8 * MIB) for _ in range(7)]
    assert len({place.segment for place in large if place}) == 7
    assert take(slots, 8 * MIB) is None
    assert take(slots, 4096) is not None  # what is left of the limit, with fewer slots than normally


# ---- bytes of the side channel ---------------------------------------------------------------------------------------

USES = st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=formats.MOST_USES)


@given(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1), USES)
def test_messages_of_the_side_channel_are_as_documented(number: int, size: int, share: int, uses: list[int]) -> None:
    segment, dropped, released = formats.segment(number, size, share), formats.dropped(number), formats.released(uses)
    assert segment == b"S" + struct.pack(">IQQ", number, size, share)
    assert dropped == b"F" + struct.pack(">I", number)
    assert released == b"R" + b"".join(use.to_bytes(8, "big") for use in uses)
    assert [formats.read(each) for each in (segment, dropped, released)] == [(number, size, share), (number,), (*uses,)]
    assert max(map(len, (segment, dropped, released))) <= formats.LARGEST


@given(st.sampled_from([b"S", b"F", b"R", b"", b"X"]), st.binary(max_size=40))
def test_other_bytes_of_the_side_channel_are_refused(kind: bytes, rest: bytes) -> None:
    lengths = {b"S": len(rest) == 20, b"F": len(rest) == 4, b"R": len(rest) % 8 == 0 and rest != b""}
    if lengths.get(kind, False):
        assert formats.read(kind + rest)
    else:
        with pytest.raises(BadMessage, match="no message of the side channel"):
            formats.read(kind + rest)


def test_a_release_has_at_most_four_hundred_uses() -> None:
    assert len(formats.read(formats.released(range(400)))) == 400
    with pytest.raises(BadMessage):
        formats.read(formats.released(range(401)))
