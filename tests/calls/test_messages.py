"""Messages of calls: what is encoded decodes to the same, and hostile bytes raise BadMessage or TooLarge."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit import envelope
from nngkit.calls.messages import (
    REPLIES,
    REQUESTS,
    CallRequest,
    CancelRequest,
    Codec,
    DoneReply,
    ErrorReply,
    InfoRequest,
    MoreRequest,
    PartsReply,
    PingRequest,
    ResultReply,
    StatsRequest,
    check_codec,
    parse_reply,
    parse_request,
)
from nngkit.errors import BadMessage, ConfigError, RemoteError, TooLarge

LIMIT = 1 << 20
CODECS: tuple[Codec, ...] = ("cbor", "json")
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts
bodies = st.recursive(
    leaves.filter(lambda value: value not in (float("inf"), float("-inf"))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=30)
headers = st.none() | st.dictionaries(names, texts, min_size=1, max_size=4)
ids = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=64)
requests = st.one_of(
    st.builds(CallRequest, ids, bodies, texts, st.none() | st.floats(0, 1e6), st.booleans(), headers),
    st.builds(MoreRequest, ids),
    st.builds(CancelRequest, ids),
    st.sampled_from([PingRequest(), InfoRequest(), StatsRequest()]),
)
replies = st.one_of(
    st.builds(ResultReply, bodies, headers),
    st.builds(PartsReply, st.lists(bodies, max_size=5).map(tuple), st.booleans(), headers),
    st.just(DoneReply()),
    st.builds(ErrorReply, texts.filter(bool), texts, st.booleans(), texts, bodies, headers),
)


usual_ids = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=30)
nested = st.integers(28, 33).map(lambda depth: json.loads("[" * depth + "]" * depth))
values = texts | st.binary(max_size=30) | st.integers(20, 300).map(lambda size: "x" * size)
many = st.integers(20, 66).map(lambda count: {f"n{number}": "" for number in range(count)})
usual_headers = st.none() | st.dictionaries(names, values, min_size=1, max_size=4) | many
usual_bodies = bodies | st.binary(max_size=300) | nested
usual = st.one_of(
    st.builds(
        CallRequest,
        usual_ids,
        usual_bodies,
        st.just("") | usual_ids,
        st.floats(0, 2e9) | st.none(),
        st.booleans(),
        usual_headers,
    ),
    st.builds(ResultReply, usual_bodies, usual_headers),
    st.builds(PartsReply, st.lists(usual_bodies, max_size=30).map(tuple), st.booleans(), usual_headers),
)


def _parsed(parse: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return parse(data)
    except (BadMessage, TooLarge) as error:
        return str(error)


@given(message=usual, data=st.data())
def test_the_usual_messages_are_written_and_read_as_by_the_general_writer_and_reader(message: Any, data: Any) -> None:
    """Their readers and writers take other ways, which may not be seen: whole, cut, with bytes changed or put in."""
    is_call = isinstance(message, CallRequest)
    kinds = REQUESTS if is_call else REPLIES
    try:
        written = message.encode("cbor")
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            envelope.encode(kinds.pack(message))
        return
    assert written == envelope.encode(kinds.pack(message))
    changed = bytearray(written)
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(changed)))
        change: bytes = data.draw(
            st.binary(max_size=3)
            | st.sampled_from([b"dtypedcall", b"fmethod", b"dbody", b"gheaders", b"\xfb", b"\xa1aaab"])
        )
        changed[at : at + data.draw(st.integers(0, 3))] = change
    parse = parse_request if is_call else parse_reply

    def generally(each: bytes) -> Any:
        return kinds.parse(envelope.decode(each, what=kinds.what, limit=LIMIT))

    for each in (written, bytes(changed)):
        assert _parsed(lambda one: parse(one, "cbor", limit=LIMIT), each) == _parsed(generally, each)


@pytest.mark.parametrize("codec", CODECS)
@given(message=requests)
def test_a_request_decodes_to_itself(codec: Codec, message: Any) -> None:
    assert parse_request(message.encode(codec), codec, limit=LIMIT) == message


@pytest.mark.parametrize("codec", CODECS)
@given(message=replies)
def test_a_reply_decodes_to_itself(codec: Codec, message: Any) -> None:
    assert parse_reply(message.encode(codec), codec, limit=LIMIT) == message


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_bad_message(codec: Codec, data: bytes) -> None:
    for parse in (parse_request, parse_reply):
        with pytest.raises(BadMessage):
            parse(data, codec, limit=LIMIT, peer="tcp://10.0.0.1:9")


WRONG_REQUESTS: list[dict[str, Any]] = [
    {},
    {"v": 1},
    {"v": 2, "type": "ping"},
    {"v": 1, "type": "paint"},
    {"v": 1, "type": "call", "body": 1},
    {"v": 1, "type": "call", "id": "", "body": 1},
    {"v": 1, "type": "call", "id": "i" * 65, "body": 1},
    {"v": 1, "type": "call", "id": 1, "body": 1},
    {"v": 1, "type": "call", "id": "a"},
    {"v": 1, "type": "call", "id": "a", "body": 1, "timeout": -1},
    {"v": 1, "type": "call", "id": "a", "body": 1, "timeout": "1"},
    {"v": 1, "type": "call", "id": "a", "body": 1, "timeout": True},
    {"v": 1, "type": "call", "id": "a", "body": 1, "method": "m" * 129},
    {"v": 1, "type": "call", "id": "a", "body": 1, "stream": 1},
    {"v": 1, "type": "more"},
    {"v": 1, "type": "cancel", "id": None},
]
WRONG_REPLIES: list[dict[str, Any]] = [
    {"v": 1, "type": "result"},
    {"v": 1, "type": "parts", "parts": [0] * 65, "end": True},
    {"v": 1, "type": "parts", "parts": [], "end": 0},
    {"v": 1, "type": "parts", "end": True},
    {"v": 1, "type": "error", "kind": "failed", "ran": True},
    {"v": 1, "type": "error", "kind": "k" * 65, "message": "", "ran": True},
    {"v": 1, "type": "error", "kind": "failed", "message": "", "ran": 1},
    {"v": 1, "type": "thanks"},
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("fields", WRONG_REQUESTS)
def test_a_wrong_request_is_refused(codec: Codec, fields: dict[str, Any]) -> None:
    data = cbor2.dumps(fields) if codec == "cbor" else json.dumps(fields).encode()
    with pytest.raises(BadMessage):
        parse_request(data, codec, limit=LIMIT)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("fields", WRONG_REPLIES)
def test_a_wrong_reply_is_refused(codec: Codec, fields: dict[str, Any]) -> None:
    data = cbor2.dumps(fields) if codec == "cbor" else json.dumps(fields).encode()
    with pytest.raises(BadMessage):
        parse_reply(data, codec, limit=LIMIT)


@pytest.mark.parametrize("text", [b"[" * 5000, b'{"v":1,"type":"result","body":NaN}', b"\xff", b'{"v":1e999}'])
def test_json_is_limited_as_cbor_is(text: bytes) -> None:
    with pytest.raises(BadMessage):
        parse_reply(text, "json", limit=LIMIT)
    deep: list[Any] = []
    for _ in range(40):
        deep = [deep]
    with pytest.raises(BadMessage, match="depth"):
        parse_reply(json.dumps({"v": 1, "type": "result", "body": deep}).encode(), "json", limit=LIMIT)


@pytest.mark.parametrize("codec", CODECS)
def test_the_size_is_limited_both_ways(codec: Codec) -> None:
    with pytest.raises(TooLarge):
        ResultReply("x" * 100).encode(codec, 100)
    with pytest.raises(TooLarge):
        parse_reply(ResultReply("x" * 100).encode(codec), codec, limit=100)


def test_bytes_are_for_cbor() -> None:
    assert parse_reply(ResultReply(b"\0").encode("cbor"), "cbor", limit=LIMIT) == ResultReply(b"\0")
    with pytest.raises(TypeError):
        ResultReply(b"\0").encode("json")


def test_an_error_reply_becomes_the_callers_exception() -> None:
    told = ErrorReply("failed", "ValueError: no", error="ValueError", data=[1]).exception("tcp://10.0.0.1:9")
    assert isinstance(told, RemoteError)
    assert str(told) == "tcp://10.0.0.1:9: ValueError: no"
    assert (told.kind, told.error, told.data, told.ran) == ("failed", "ValueError", [1], True)
    assert str(ErrorReply("busy", "64 calls wait", ran=False).exception()) == "busy: 64 calls wait"
    assert len(parse_error("x" * 5000).message) == 1024


def parse_error(message: str) -> ErrorReply:
    reply = parse_reply(ErrorReply("failed", message).encode("cbor"), "cbor", limit=LIMIT)
    assert isinstance(reply, ErrorReply)
    return reply


def test_a_codec_is_cbor_json_or_none() -> None:
    assert [check_codec(codec) for codec in (None, "cbor", "json")] == [None, "cbor", "json"]
    with pytest.raises(ConfigError, match="'xml'"):
        check_codec("xml")
