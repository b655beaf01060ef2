"""Encoding and decoding of ingest requests and replies."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit import envelope
from nngkit.errors import BadMessage, NotStored
from nngkit.journal.ingest import Stored, encode_refusal, encode_request, encode_stored, parse_reply, parse_request


def test_request_round_trips() -> None:
    asked = parse_request(encode_request(b"id", [b"a", b"b"], key=b"k", headers={"h": b"1"}, topic="eu"))
    assert (asked.id, asked.values, asked.key, asked.headers, asked.topic) == (
        b"id",
        [b"a", b"b"],
        b"k",
        (("h", b"1"),),
        "eu",
    )
    assert asked.headers_of(1) == (("id", b"id\0\0\0\1"), ("h", b"1"))
    assert parse_request(encode_request(b"", [b"a"])).headers_of(0) == ()


@given(st.integers(0, 99_999), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_reply_round_trips_and_equals_the_envelope_encoding(partition: int, first: int, end: int) -> None:
    stored = Stored(partition, first, end)
    assert parse_reply(encode_stored(stored)) == stored
    assert encode_stored(stored) == envelope.encode([1, partition, first, end])


def test_refusal_raises_not_stored_with_the_reason() -> None:
    with pytest.raises(NotStored, match="the disk is full"):
        parse_reply(encode_refusal("the disk is full"))


def test_a_header_name_may_repeat_and_keeps_its_place() -> None:
    pairs = (("trace", b"a"), ("span", b""), ("trace", b"b"))
    assert parse_request(encode_request(b"", [b"v"], headers=pairs)).headers == pairs
    # Without a repeated name, the form that every recorder reads.
    assert encode_request(b"", [b"v"], headers=pairs[:2]) == encode_request(b"", [b"v"], headers=dict(pairs[:2]))


def test_bytes_match_the_wire_document() -> None:
    page = (Path(__file__).parents[2] / "docs" / "wire.md").read_text().partition("## Journal: ingest")[2]
    shown = dict(re.findall(r"^([a-z-]+) +?= ([0-9a-f]{8,})$", page, re.MULTILINE))
    request = encode_request(b"order 7", [b"first", b"second"], key=b"k", headers={"h": b"v"}, topic="eu")
    assert {name: bytes.fromhex(digits) for name, digits in shown.items()} == {
        "request": request,
        "stored": encode_stored(Stored(0, 41, 43)),
        "not-stored": encode_refusal("No space left on device"),
    }


GOOD: list[Any] = [1, b"id", [b"a"], None, None, None]


@pytest.mark.parametrize(
    ("place", "value", "why"),
    [
        (0, 2, "kind '2'"),
        (1, b"x" * 65, "id"),
        (1, "id", "id"),
        (2, [], "'values'"),
        (2, ["a"], "bytes"),
        (2, b"a", "'values'"),
        (3, "k", "key"),
        (4, {"h": "text"}, "headers"),
        (4, {"id": b"mine"}, "reserved"),
        (4, [["h", b"1"], ["id", b"mine"]], "reserved"),
        (4, [["h", "text"]], "headers"),
        (4, [["h", b"1", b"2"]], "headers"),
        (4, ["hv"], "headers"),
        (4, "h", "headers"),
        (5, "", "topic"),
        (5, "a\nb", "topic"),
    ],
)
def test_malformed_request_is_rejected(place: int, value: Any, why: str) -> None:
    fields = [*GOOD]
    fields[place] = value
    with pytest.raises(BadMessage, match=why):
        parse_request(envelope.encode(fields))


@given(st.binary(max_size=100))
def test_arbitrary_bytes_raise_only_declared_errors(data: bytes) -> None:
    for parse in (parse_request, parse_reply):
        try:
            parse(data)
        except (BadMessage, NotStored):
            continue


@pytest.mark.parametrize("place", range(2, 4))
def test_a_reply_with_a_negative_number_is_rejected(place: int) -> None:
    fields: list[Any] = [1, 0, 5, 9]
    fields[place] = -1
    with pytest.raises(BadMessage):
        parse_reply(envelope.encode(fields))
