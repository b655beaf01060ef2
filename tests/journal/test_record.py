"""Binary format of a log: records round-trip, and every change is detected."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.errors import ConfigError
from nngkit.journal.record import (
    Head,
    LogHeader,
    RawRecord,
    decode_headers,
    decode_origin,
    encode_headers,
    encode_origin,
    frame,
    resume,
    walk,
)

SALT = 5
names = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=20)


@given(
    st.integers(0, 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1),
    names,
    names,
    st.none() | names,
    st.none() | st.binary(max_size=40),
    st.lists(st.tuples(names, st.binary(max_size=20)), max_size=3),
    st.binary(max_size=200),
)
def test_record_round_trips(
    offset: int,
    timestamp: int,
    topic: str,
    protocol: str,
    peer: str | None,
    key: bytes | None,
    headers: list[tuple[str, bytes]],
    value: bytes,
) -> None:
    origin = encode_origin(topic[:10], protocol[:5], peer)
    data = frame(offset, timestamp, origin, key, encode_headers(headers), value, salt=SALT)
    found = walk(data, 0, offset=offset, salt=SALT)
    assert found.rows == [(offset, timestamp, origin, key, encode_headers(headers), value)]
    assert (found.position, found.fault) == (len(data), None)
    assert decode_origin(origin) == (topic[:10], protocol[:5], peer)
    assert list(decode_headers(encode_headers(headers))) == headers


def some(count: int) -> tuple[bytes, list[int], list[RawRecord]]:
    """Return encoded records, the position of each, and their decoded form."""
    parts, places, at = [], [], 0
    for offset in range(count):
        part = frame(offset, offset, encode_origin("t", "sub", None), b"k", b"", b"value %d" % offset, salt=SALT)
        places.append(at)
        parts.append(part)
        at += len(part)
    data = b"".join(parts)
    return data, places, walk(data, 0, offset=0, salt=SALT).rows


def test_every_single_bit_flip_is_detected_and_earlier_records_kept() -> None:
    data, places, rows = some(6)
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        found = walk(bytes(changed), 0, offset=0, salt=SALT)
        hit = max(number for number, place in enumerate(places) if place <= bit // 8)
        assert found.fault is not None
        assert found.rows == rows[:hit]


def test_every_cut_keeps_the_intact_records_before_it() -> None:
    data, places, rows = some(6)
    ends = [*places[1:], len(data)]
    for cut in range(len(data)):
        found = walk(data[:cut], 0, offset=0, salt=SALT)
        assert found.rows == rows[: sum(end <= cut for end in ends)]
        assert (found.fault is None) == (cut in (0, *ends))


def test_intact_records_are_found_behind_damage() -> None:
    data, places, _ = some(200)
    chance = random.Random(1)
    for _ in range(200):
        hit = chance.randrange(199)
        changed = bytearray(data)
        changed[chance.randrange(places[hit], places[hit + 1])] ^= 0xFF
        assert resume(bytes(changed), places[hit], offset=hit, salt=SALT) == (places[hit + 1], hit + 1)
    assert resume(data[: places[100] - 3], places[99], offset=99, salt=SALT) is None


def test_record_inside_a_value_is_not_taken_for_one_of_the_log() -> None:
    origin = encode_origin("t", "sub", None)
    forged = frame(1, 0, origin, None, b"", b"forged", salt=SALT + 1)
    real = frame(0, 0, origin, None, b"", forged * 3, salt=SALT)
    torn = real[:-1]
    assert resume(torn, 0, offset=0, salt=SALT) is None
    assert resume(torn, 0, offset=0, salt=SALT + 1) is not None


@given(st.binary(max_size=300), st.integers(0, 3))
def test_arbitrary_bytes_never_raise(data: bytes, offset: int) -> None:
    walk(data, 0, offset=offset, salt=SALT)
    resume(data, 0, offset=offset, salt=SALT)
    for decode in (decode_headers, decode_origin, LogHeader.decode, Head.decode):
        try:
            decode(data)
        except (ValueError, UnicodeDecodeError):
            continue


def test_header_of_another_version_is_rejected_with_both_versions() -> None:
    header = LogHeader(3, SALT, 100, 5)
    assert LogHeader.decode(header.encode()) == header
    from nngkit.journal.record import crc32c

    other = bytearray(header.encode()[:-4])
    other[9] = 2
    with pytest.raises(ValueError, match="format version 2; this nngkit reads version 1"):
        LogHeader.decode(bytes(other) + crc32c(0, bytes(other)).to_bytes(4, "big"))


def test_head_round_trips_and_every_change_is_detected() -> None:
    head = Head(1, 2, 3, 4)
    assert Head.decode(head.encode()) == head
    for bit in range(Head.size * 8):
        changed = bytearray(head.encode())
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"not a head|checksum"):
            Head.decode(bytes(changed))


@pytest.mark.parametrize("topic", ["", "a\nb", "x" * 2000])
def test_topic_must_be_printable_and_bounded(topic: str) -> None:
    with pytest.raises(ConfigError, match="topic"):
        encode_origin(topic, "sub", None)
