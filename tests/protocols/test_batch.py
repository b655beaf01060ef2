"""Bytes of a batch: those that cbor2 writes, decoded whole or not at all."""

from __future__ import annotations

import struct

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nngkit.errors import BadMessage, ConfigError, TooLarge
from nngkit.protocols import Batch
from nngkit.protocols.batch import MOST_ITEMS, count, count_topic, pack, pack_topic, split_topic, unpack

LARGEST = 1 << 20

any_items = st.lists(st.binary(max_size=300), min_size=1, max_size=100)
equal_items = st.tuples(st.integers(0, 300), st.integers(1, 100)).flatmap(
    lambda shape: st.lists(st.binary(min_size=shape[0], max_size=shape[0]), min_size=shape[1], max_size=shape[1])
)


@given(any_items | equal_items)
@example([b""])
@example([b"", b""])
@example([b"x" * 23] * 23)
@example([b"x" * 24] * 24)
@example([b"x" * 255] * 255)
@example([b"x" * 256] * 256)
@example([b"P" * 16] * 64)  # bodies that look like heads
@example([b"x" * 65536, b"y" * 65536])
@example([b"z"] * 65535)
def test_a_batch_is_one_cbor_array_of_byte_strings(items: list[bytes]) -> None:
    packed = pack(items)
    assert packed == cbor2.dumps(items)
    assert unpack(packed, largest=LARGEST) == items


@pytest.mark.parametrize("number", [1, 23, 24, 255, 256, 65_535, 65_536])
def test_the_messages_of_a_batch_are_counted_without_unpacking_it(number: int) -> None:
    assert count(pack([b"x"] * number)) == number
    assert count_topic(pack_topic(b"topic", [b"x"] * number)) == number
    assert Batch(items=number).overhead == 5 * (number + 1) + 4096


@given(any_items | equal_items, st.integers(0, 40), st.binary(max_size=3))
def test_a_damaged_batch_is_decoded_or_refused(items: list[bytes], at: int, patch: bytes) -> None:
    packed = pack(items)
    damaged = packed[:at] + patch + packed[at + len(patch) :]
    try:
        found = unpack(damaged, largest=LARGEST)
    except BadMessage:
        return
    assert found == cbor2.loads(damaged)
    assert len(cbor2.dumps(found)) <= len(damaged)  # no bytes follow it


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        found = unpack(data, largest=LARGEST)
    except BadMessage:
        return
    assert all(type(item) is bytes for item in found)
    assert found == cbor2.loads(data)


@pytest.mark.parametrize(
    ("packed", "why"),
    [
        (b"", "premature end"),
        (b"\x65plain", "str instead of an array"),
        (b"\x80", "0 messages"),
        (b"\x81\x41aX", "1 bytes after the value"),
        (b"\x82\x41a", "premature end"),
        (b"\x81\x61a", "str instead of a byte string"),
        (b"\x82\x41a\x01", "int instead of a byte string"),
        (b"\x81\x81\x41a", "list instead of a byte string"),
        (b"\x9f\x41a\xff", "indefinite"),
        (b"\x81\x5f\x41a\xff", "indefinite"),
        (b"\x81\xc2\x41a", "tags are not allowed"),
        (b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff\x41a", "end of stream"),
        (b"\x9a\x7f\xff\xff\xff" + b"\x40" * 100, "end of stream"),
        (b"\x9a\x00\x01\x00\x01" + b"\x40" * 65537, f"{MOST_ITEMS + 1} messages"),
        (b"\x81\x5b\xff\xff\xff\xff\xff\xff\xff\xff", ""),
    ],
)
def test_a_malformed_batch_is_refused_with_the_reason(packed: bytes, why: str) -> None:
    with pytest.raises(BadMessage, match=r"bad batch from tcp://10\.0\.0\.1:9") as wrong:
        unpack(packed, largest=LARGEST, peer="tcp://10.0.0.1:9")
    assert why in wrong.value.why


def test_an_item_over_the_limit_refuses_the_batch() -> None:
    packed = pack([b"x", b"y" * 101, b"z"])
    assert len(unpack(packed, largest=101)) == 3
    with pytest.raises(TooLarge) as wrong:
        unpack(packed, largest=100, peer="here")
    assert (wrong.value.size, wrong.value.limit, wrong.value.peer) == (101, 100, "here")


@given(st.binary(max_size=50), any_items)
def test_the_topic_comes_first_and_its_length_last(topic: bytes, items: list[bytes]) -> None:
    body = pack_topic(topic, items)
    assert body == topic + cbor2.dumps(items) + struct.pack(">I", len(topic))
    found, packed = split_topic(body)
    assert (found, unpack(packed, largest=LARGEST)) == (topic, items)


@pytest.mark.parametrize("body", [b"", b"abc", struct.pack(">I", 1), b"ab" + struct.pack(">I", 3)])
def test_an_impossible_topic_length_is_refused(body: bytes) -> None:
    with pytest.raises(BadMessage, match="bad batch"):
        split_topic(body, "here")


@pytest.mark.parametrize(
    "wrong",
    [
        {"items": 0},
        {"items": MOST_ITEMS + 1},
        {"items": 1.5},
        {"items": True},
        {"size": 0},
        {"size": "64k"},
        {"delay": 0},
        {"delay": -1},
        {"delay": 3601},
        {"delay": float("nan")},
        {"delay": "1ms"},
    ],
)
def test_invalid_settings_are_config_errors(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Batch(**wrong)
