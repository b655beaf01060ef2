"""Splitting input into messages, for every input in any pieces; templates."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.cli.cat.command_line.plan import Received
from nngkit.cli.cat.formats import msgpack
from nngkit.cli.cat.rendering import parse_template, template, unescape
from nngkit.cli.cat.splitting import Delimited, Malformed, Records, Splitter


def fed(splitter: Splitter, data: bytes, cuts: list[int]) -> list[bytes]:
    """Return its messages for `data`, split at those places."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    messages = []
    for begin, end in itertools.pairwise(places):
        messages += splitter.feed(data[begin:end])
    return messages + splitter.finish()


@given(
    st.lists(st.binary(max_size=20)), st.sampled_from([b"\n", b"\0", b"\r\n", b"--", b"aab"]), st.lists(st.integers(0))
)
def test_joined_messages_are_split_again_however_they_arrive(
    parts: list[bytes], delimiter: bytes, cuts: list[int]
) -> None:
    data = b"".join(part + delimiter for part in parts)
    expected = data.split(delimiter)[:-1]
    assert fed(Delimited(delimiter), data, cuts) == expected + ([rest] if (rest := data.split(delimiter)[-1]) else [])


@given(st.binary(max_size=60), st.lists(st.integers(0)))
def test_the_last_line_needs_no_delimiter(data: bytes, cuts: list[int]) -> None:
    *lines, last = data.split(b"\n")
    assert fed(Delimited(b"\n"), data, cuts) == lines + ([last] if last else [])


@given(st.lists(st.binary(max_size=300)), st.lists(st.integers(0)))
def test_records_reads_the_msgpack_format(bodies: list[bytes], cuts: list[int]) -> None:
    assert fed(Records(), b"".join(map(msgpack, bodies)), cuts) == bodies


HEADS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}


@given(st.lists(st.tuples(st.sampled_from([0xA0, *HEADS]), st.binary(max_size=31))), st.lists(st.integers(0)))
def test_records_reads_every_form_of_a_string(strings: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b""
    for tag, body in strings:
        width = HEADS.get(tag)
        data += (bytes([tag]) + len(body).to_bytes(width, "big") if width else bytes([tag + len(body)])) + body
    assert fed(Records(), data, cuts) == [body for _, body in strings]


@given(st.binary(max_size=40), st.lists(st.integers(0)))
def test_malformed_records_are_rejected(data: bytes, cuts: list[int]) -> None:
    try:
        bodies = fed(Records(), data, cuts)
    except Malformed:
        return
    assert sum(map(len, bodies)) < max(1, len(data))


def test_a_record_over_the_limit_is_rejected_at_once() -> None:
    with pytest.raises(Malformed, match="more than 1073741824 bytes at byte 2"):
        Records().feed(b"\xc4\x00\xc6\xff\xff\xff\xff")


@given(st.binary(max_size=60))
def test_escapes_can_express_every_byte(data: bytes) -> None:
    assert unescape("".join(f"\\x{byte:02x}" for byte in data)) == data


@given(st.text(max_size=40))
def test_a_template_is_parsed_or_rejected(text: str) -> None:
    try:
        parts = parse_template(text)
    except ValueError:
        return
    assert isinstance(template(parts, (b"",))(Received(b"x", 0.0, None)), bytes)


@given(st.binary(max_size=60), st.binary(max_size=5))
def test_tokens_are_filled_in(body: bytes, topic: bytes) -> None:
    line = template(parse_template(r"{{{size}}} {topic}|{body}\n{time}{peer}"), (b"", topic))
    matched = topic if body.startswith(topic) else b""
    expected = b"{%d} " % len(body) + matched + b"|" + body + b"\n1970-01-01T00:00:01.500000Z"
    assert line(Received(body, 1.5, None)) == expected
