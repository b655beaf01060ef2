"""The output formats, for every byte string: parsing the output returns the message."""

from __future__ import annotations

import ast

from hypothesis import given
from hypothesis import strategies as st

from nngkit.cli.cat.formats import FORMATTERS, msgpack


@given(st.binary(max_size=300))
def test_quoted_and_hex_are_literals_of_the_message(body: bytes) -> None:
    for program in ("nngcat", "nanocat"):
        for form in ("quoted", "hex"):
            line = FORMATTERS[program][form](body)
            assert line.endswith(b'"\n')
            assert line.count(b"\n") == 1
            assert ast.literal_eval("b" + line.decode("ascii")) == body


@given(st.binary(max_size=300))
def test_ascii_has_a_character_for_each_byte(body: bytes) -> None:
    line = FORMATTERS["nngcat"]["ascii"](body)
    assert FORMATTERS["nanocat"]["ascii"](body) == line + b"\n"
    assert len(line) == len(body)
    assert all(32 <= shown < 127 for shown in line)
    assert all(
        shown == byte or (shown == ord(".") and not 32 <= byte < 127) for shown, byte in zip(line, body, strict=True)
    )


@given(st.binary(max_size=70_000))
def test_msgpack_uses_the_shortest_length(body: bytes) -> None:
    line = msgpack(body)
    width = {0xC4: 1, 0xC5: 2, 0xC6: 4}[line[0]]
    assert int.from_bytes(line[1 : 1 + width], "big") == len(body)
    assert line[1 + width :] == body
    assert width == 1 or len(body) >= 1 << 4 * width


@given(st.binary(max_size=300))
def test_raw_is_unchanged_and_no_is_empty(body: bytes) -> None:
    for program in ("nngcat", "nanocat"):
        assert FORMATTERS[program]["raw"](body) == body
        assert FORMATTERS[program]["no"](body) == b""
