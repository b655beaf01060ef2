"""Values that `nngkit.envelope` accepts and refuses; hostile cases are numbered by the order of this list."""

from __future__ import annotations

import struct
import sys
import time
from contextlib import suppress
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit import envelope
from nngkit.errors import BadMessage, TooLarge

TRACED = sys.gettrace() is not None  # coverage makes everything slow
INTEGERS = st.integers(-(2**64), 2**64 - 1)
LEAVES = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=40)


def head(major: int, number: int) -> bytes:
    """Return the longest form of a CBOR item's head."""
    return bytes([major << 5 | 27]) + struct.pack(">Q", number)


def colliding_ints(count: int) -> bytes:
    """Return a map whose integer keys all have the hash 0: quadratic to build as a dict."""
    return head(5, count) + b"".join(cbor2.dumps(n * (2**61 - 1)) + b"\0" for n in range(1, count + 1))


def colliding_floats(count: int) -> bytes:
    return head(5, count) + b"".join(b"\xfb" + struct.pack(">d", n * 2.0**61) + b"\0" for n in range(count))


HOSTILE = {
    "nothing at all": b"",
    "a byte behind the value": b"\x01\x02",
    "a cut-off integer": b"\x19\x01",
    "a cut-off text": b"\x65abc",
    "a cut-off array": b"\x82\x01",
    "a cut-off map": b"\xa1\x61a",
    "an array that claims 2^63 items": head(4, 2**63),
    "an array that claims 2^28 items": b"\x9a\x10\x00\x00\x00",
    "a map that claims 2^63 pairs": head(5, 2**63),
    "a byte string that claims 2^63 bytes": head(2, 2**63),
    "a text that claims 2^64-40 bytes": head(3, 2**64 - 40),
    "text that is not UTF-8": b"\x62\xff\xfe",
    "text with a surrogate": b"\x63\xed\xa0\x80",
    "an array of indefinite length": b"\x9f\x01\xff",
    "a map of indefinite length": b"\xbf\x61a\x01\xff",
    "a text of indefinite length": b"\x7f\x61a\xff",
    "bytes of indefinite length": b"\x5f\x41a\xff",
    "a break without a beginning": b"\xff",
    "a reserved head": b"\x1c",
    "a simple value": b"\xf0",
    "a simple value in two bytes": b"\xf8\xff",
    "undefined": b"\xf7",
    "undefined within an array": b"\x81\xf7",
    "a key twice": b"\xa2\x61a\x01\x61a\x02",
    "an integer key": b"\xa1\x01\x02",
    "a bytes key": b"\xa1\x41a\x02",
    "an array key": b"\xa1\x80\x02",
    "a null key": b"\xa1\xf6\x02",
    "33 arrays in each other": b"\x81" * 33 + b"\x01",
    "33 maps in each other": b"\xa1\x61a" * 33 + b"\x01",
    "60,000 arrays in each other": b"\x81" * 60_000,
    "a date": cbor2.dumps(cbor2.CBORTag(0, "2026-01-01T00:00:00Z")),
    "a big integer": cbor2.dumps(2**70),
    "a fraction with a zero below": cbor2.dumps(cbor2.CBORTag(30, [1, 0])),
    "a decimal with a huge exponent": cbor2.dumps(cbor2.CBORTag(4, [10**9, 1])),
    "a regular expression": cbor2.dumps(cbor2.CBORTag(35, "(a+)+$")),
    "a cycle": b"\xd8\x1c\x81\xd8\x1d\x00",
    "a set": b"\xd9\x01\x02\x81\x01",
    "a self-described value": b"\xd9\xd9\xf7\x01",
    "an unknown tag": b"\xda\xff\xff\xff\xff\x01",
    "60,000 tags on each other": b"\xc1" * 60_000,
    "colliding integer keys": colliding_ints(5_000),
    "colliding float keys": colliding_floats(6_000),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_are_a_bad_message_within_a_tenth_of_a_second(data: bytes) -> None:
    started = time.process_time()
    with pytest.raises(BadMessage) as caught:
        envelope.decode(data, what="test message", peer="tcp://192.0.2.1:5555")
    assert time.process_time() - started < 0.1 or TRACED
    assert caught.value.what == "test message"
    assert caught.value.peer == "tcp://192.0.2.1:5555"
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("data", [colliding_ints(100_000), colliding_floats(100_000)], ids=["integers", "floats"])
def test_a_megabyte_of_colliding_keys_within_the_limit_is_refused_as_fast(data: bytes) -> None:
    started = time.process_time()
    with pytest.raises(BadMessage):
        envelope.decode(data, what="test message", limit=4 * 1024 * 1024)
    assert time.process_time() - started < 0.1 or TRACED


def test_the_heaviest_valid_64_kib_are_read_in_a_tenth_of_a_second() -> None:
    data = cbor2.dumps([0] * (envelope.CONTROL_LIMIT - 3))
    assert len(data) == envelope.CONTROL_LIMIT
    started = time.process_time()
    envelope.decode(data, what="test message")
    assert time.process_time() - started < 0.1 or TRACED


def test_every_tag_is_refused() -> None:
    # content that one tag's decoder refuses by itself another accepts
    contents = (b"\x01", b"\x61a", b"\x41a", b"\x82\x01\x01")
    for number in (*range(65_536), 2**32 - 1, 2**64 - 1):
        for content in contents if number < 300 else contents[:1]:
            with pytest.raises(BadMessage):
                envelope.decode(head(6, number) + content, what="test message")


def test_a_message_over_the_limit_is_too_large_before_it_is_read() -> None:
    with pytest.raises(TooLarge) as caught:
        envelope.decode(b"\x81" * 11, what="test message", limit=10, peer="peer-1")
    assert (caught.value.size, caught.value.limit, caught.value.peer) == (11, 10, "peer-1")


def test_an_error_repeats_a_peers_text_shortened_and_printable() -> None:
    key = "\x1b[2J" + "k" * 5_000
    with pytest.raises(BadMessage) as caught:
        envelope.decode(b"\xa2" + (cbor2.dumps(key) + b"\x01") * 2, what="test message")
    assert caught.value.why.isprintable()
    assert len(caught.value.why) <= 120


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_a_bad_message(data: bytes) -> None:
    try:
        value = envelope.decode(data, what="test message")
    except BadMessage:
        return
    again = envelope.decode(envelope.encode(value), what="test message")
    assert again == value or "nan" in repr(value)


@pytest.mark.slow
@given(VALUES)
def test_an_encoded_value_is_decoded_unchanged(value: object) -> None:
    again = envelope.decode(envelope.encode(value), what="test message", limit=10_000_000)
    assert again == value
    assert repr(again) == repr(value) or isinstance(value, (dict, list))  # 1 is not 1.0 is not True


@pytest.mark.slow
@given(VALUES, st.integers(0, 255), st.integers(0, 10_000))
def test_one_changed_byte_is_a_value_or_a_bad_message(value: object, byte: int, where: int) -> None:
    data = bytearray(envelope.encode(value))
    data[where % len(data)] = byte
    with suppress(BadMessage):
        envelope.decode(bytes(data), what="test message", limit=10_000_000)


@given(st.dictionaries(st.text(), INTEGERS))
def test_equal_maps_have_equal_bytes(value: dict[str, int]) -> None:
    backwards = dict(reversed(value.items()))
    assert envelope.encode(backwards) == envelope.encode(value)


@pytest.mark.parametrize("number", [2**64 - 1, -(2**64), 0])
def test_the_largest_integers_are_encoded_and_decoded(number: int) -> None:
    for value in (number, [number], {"n": number}, [[number]]):
        assert envelope.decode(envelope.encode(value), what="number") == value


def test_tuples_are_arrays() -> None:
    assert envelope.decode(envelope.encode((1, (2, "x"))), what="test message") == [1, [2, "x"]]


def test_the_maximum_depth_is_encoded_and_decoded() -> None:
    value: object = 1
    for _ in range(envelope.MAX_DEPTH):
        value = [value]
    assert envelope.decode(envelope.encode(value), what="test message") == value


@pytest.mark.parametrize(
    "value",
    [{1: 2}, {b"k": 1}, {1, 2}, object, 2**64, -(2**64) - 1, "\ud800", bytearray(b"x"), [1j]],
    ids=repr,
)
def test_values_that_a_peer_would_refuse_are_not_encoded(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        envelope.encode(value)


def test_a_recursive_value_is_not_encoded() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(ValueError, match="depth"):
        envelope.encode(value)


def test_a_value_over_the_readers_limit_is_not_encoded() -> None:
    with pytest.raises(TooLarge):
        envelope.encode(b"x" * 100, limit=50)


def test_a_value_that_is_not_a_map_is_a_bad_message() -> None:
    with pytest.raises(BadMessage, match="list instead of a map"):
        envelope.as_map([], what="m")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "'v' is missing"),
        ({"v": None}, "must be int, not null"),
        ({"v": True}, "must be int, not bool"),
        ({"v": "1"}, "must be int, not str"),
        ({"v": 0}, "out of range"),
        ({"v": 3}, "version 3 is newer than the supported version 2"),
    ],
)
def test_a_version_that_is_not_ours_is_refused(fields: dict[str, Any], why: str) -> None:
    envelope.check_version({"v": 1}, 2, what="test message")
    envelope.check_version({"v": 2}, 2, what="test message")
    with pytest.raises(BadMessage, match=why) as caught:
        envelope.check_version(fields, 2, what="test message", peer="peer-1")
    assert caught.value.peer == "peer-1"
