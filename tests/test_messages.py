"""Declared messages: what is written is read, and what is wrong is named."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, defstruct

from nngkit.envelope import decode, encode
from nngkit.errors import BadMessage, TooLarge
from nngkit.messages import (
    ADDRESS,
    ANY_TEXT,
    MOST_NUMBER,
    Fields,
    Flag,
    Maps,
    Natural,
    Row,
    Rows,
    Seconds,
    always,
    packed,
)

Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=8)]


class Label(Row, frozen=True):
    term: Natural
    name: Id | None


class Hello(Row, frozen=True, tag=0):
    id: Id
    purpose: Literal["join", "look"]
    labels: Annotated[tuple[Label, ...], Meta(max_length=3)]
    voters: Annotated[dict[Id, Annotated[str, Meta(max_length=20, extra=ADDRESS)]], Meta(max_length=2)]
    facts: Annotated[dict[str, Any], Meta(extra=packed(16))]
    pair: tuple[Natural, Id] = (0, "x")
    data: Annotated[bytes, Meta(max_length=4)] = b""


class Bye(Row, frozen=True, tag=7):
    why: Annotated[str, Meta(max_length=16, extra=ANY_TEXT)]
    age: float
    final: Flag = False


Message: TypeAlias = Hello | Bye
ROWS: Final = Rows[Message]("greeting", Hello, Bye)


class Position(Fields, frozen=True, tag="position"):
    number: Natural
    age: Seconds


class Page(Fields, frozen=True, tag="page", omit_defaults=True):
    items: tuple[tuple[int, bytes], ...]
    more: Flag = False


MAPS: Final = Maps[Position | Page]("query", Position, Page, version=2, limit=200)


class State(Fields, frozen=True):
    interval: Annotated[float, Meta(ge=0.001, le=3600)]


STATES: Final = Maps[State]("state", State)

ids = st.text("abcdefgh", min_size=1, max_size=8)
hellos = st.builds(
    Hello,
    ids,
    st.sampled_from(["join", "look"]),
    st.lists(st.builds(Label, st.integers(0, MOST_NUMBER), st.none() | ids), max_size=3).map(tuple),
    st.dictionaries(ids, st.just("tcp://a:1"), max_size=2),
    st.dictionaries(st.sampled_from("ab"), st.booleans()),
    st.tuples(st.integers(0, 9), ids),
    st.binary(max_size=4),
)
byes = st.builds(Bye, st.text(max_size=4), st.floats(allow_nan=False, allow_infinity=False), st.booleans())


@given(hellos | byes, st.lists(st.integers(-9, 9), max_size=3))
def test_a_row_is_read_as_it_was_written_and_further_items_are_ignored(message: Message, more: list[int]) -> None:
    row: Any = decode(encode([*ROWS.pack(message), *more]), what="row", limit=1 << 20)
    assert ROWS.parse(row, "b") == message


def test_rows_of_later_versions() -> None:
    assert ROWS.parse([8, "what", 3], "b") is None
    assert ROWS.parse([7, "", 1], "b") == Bye("", 1.0, final=False)
    rows: list[Any] = [None, {}, [], ["x"], [True], [-1]]
    for row in rows:
        with pytest.raises(BadMessage):
            ROWS.parse(row, "b")


GOOD: Final[list[Any]] = [0, "a", "join", [[1, "n"]], {"v": "tcp://a:1"}, {"k": 1}, [1, "x"], b"1234"]


@pytest.mark.parametrize(
    ("at", "wrong", "named"),
    [
        (1, "", "'id'"),
        (1, "123456789", "'id'"),
        (1, "ääääa", "'id': it has over 8 bytes"),
        (1, "a\n", "'id': it is not printable"),
        (1, b"a", "'id'"),
        (2, "else", "'purpose'"),
        (3, [[1, None]] * 4, "'labels'"),
        (3, [[-1, None]], r"'labels\[0\]\[0\]'"),
        (3, [[MOST_NUMBER + 1, None]], r"'labels\[0\]\[0\]'"),
        (3, [[1 << 63, None]], r"'labels\[0\]\[0\]'"),
        (3, [[True, None]], r"'labels\[0\]\[0\]'"),
        (3, [[1.5, None]], r"'labels\[0\]\[0\]'"),
        (3, [[1, "\x1b"]], "'labels': field 'name': it is not printable"),
        (4, {"a": "tcp://a", "b": "", "c": ""}, "'voters'"),
        (4, {"a": "tcp://a b"}, "'voters': it is no address"),
        (4, {"\n": "tcp://a"}, "'voters': it is not printable"),
        (5, {"k": "x" * 20}, "'facts': it has over 16 bytes"),
        (5, {"k": [0] * 4, "l": [-(1 << 64)]}, "'facts': it has over 16 bytes"),
        (6, [1], "'pair'"),
        (6, [1, "\n"], "'pair': it is not printable"),
        (7, b"12345", "'data'"),
        (7, "MTIz", "'data'"),  # no base64
    ],
)
def test_what_is_wrong_is_named(at: int, wrong: Any, named: str) -> None:
    assert isinstance(ROWS.parse(GOOD, "b"), Hello)
    with pytest.raises(BadMessage, match=named) as told:
        ROWS.parse([*GOOD[:at], wrong, *GOOD[at + 1 :]], "peer b")
    assert told.value.peer == "peer b"
    assert "greeting" in str(told.value)
    assert "Hello" in str(told.value)


leaves = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=40)


@given(st.recursive(leaves, st.lists))
def test_a_value_of_exactly_the_limit_is_read(value: Any) -> None:
    size = len(encode({"": value}))
    for most in (size, size - 1):
        facts = Annotated[dict[str, Any], Meta(extra=packed(most))]
        fact = defstruct("Fact", [("facts", facts)], bases=(Row,), frozen=True, tag=1)
        if most == size:
            assert Rows[Any]("fact", fact).parse([1, {"": value}]) == fact({"": value})
        else:
            with pytest.raises(BadMessage, match=f"over {most} bytes"):
                Rows[Any]("fact", fact).parse([1, {"": value}])


def test_what_is_missing_is_an_error_without_a_default() -> None:
    assert ROWS.parse(GOOD[:6]) == Hello("a", "join", (Label(1, "n"),), {"v": "tcp://a:1"}, {"k": 1})
    with pytest.raises(BadMessage, match="Hello"):
        ROWS.parse(GOOD[:5])


@pytest.mark.parametrize("age", [float("nan"), float("inf"), "1", None])
def test_floats_are_finite_and_integers_pass_for_them(age: Any) -> None:
    assert ROWS.parse([7, "\n", 2], None) == Bye("\n", 2.0)
    with pytest.raises(BadMessage, match="'age'"):
        ROWS.parse([7, "\n", age], None)


def test_maps_have_version_and_type() -> None:
    assert decode(MAPS.encode(Position(7, 0.5)), what="x") == {"v": 2, "type": "position", "number": 7, "age": 0.5}
    assert decode(MAPS.encode(Page(((1, b"x"),))), what="x") == {"v": 2, "type": "page", "items": [[1, b"x"]]}
    assert MAPS.decode(encode({"v": 1, "type": "position", "number": 7, "age": 1, "new": None})) == Position(7, 1.0)
    assert MAPS.decode(MAPS.encode(Page(((1, b"x"),), more=True))) == Page(((1, b"x"),), more=True)
    assert STATES.decode(STATES.encode(State(1.5))) == State(1.5)
    assert decode(STATES.encode(State(1.5)), what="x") == {"interval": 1.5}
    with pytest.raises(TooLarge):
        MAPS.encode(Page(((1, bytes(300)),)))
    with pytest.raises(TooLarge):
        MAPS.decode(bytes(300))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (7, "int instead of a map"),
        ({"type": "position", "number": 1, "age": 1}, "'v' is missing"),
        ({"v": 3, "type": "position", "number": 1, "age": 1}, "version 3 is newer"),
        ({"v": 1, "number": 1, "age": 1}, "'type' is missing"),
        ({"v": 1, "type": "else", "number": 1, "age": 1}, "unknown type 'else'"),
        ({"v": 1, "type": "position", "number": 1}, "age"),
        ({"v": 1, "type": "position", "number": 1, "age": -1}, "'age'"),
        ({"v": 1, "type": "position", "number": "1", "age": 1}, "'number'"),
        ({"v": 1, "type": "page", "items": [[1]]}, r"'items\[0\]'"),
    ],
)
def test_what_is_wrong_in_a_map_is_named(fields: Any, named: str) -> None:
    with pytest.raises(BadMessage, match=named):
        MAPS.decode(encode(fields), "b")


json = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 64), (1 << 64) - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=20,
)


@given(st.lists(json, max_size=9), st.integers(0, 8))
def test_nothing_but_a_message_or_bad_message_comes_out(items: list[Any], kind: int) -> None:
    try:
        found = ROWS.parse([kind, *items], "b")
    except BadMessage:
        return
    assert found is None or ROWS.parse(decode(encode(ROWS.pack(found)), what="row", limit=1 << 24)) == found


class Call(Fields, frozen=True, tag="call", omit_defaults=True):
    body: Any
    ran: Flag = always(True)
    note: Id = ""
    v: Natural = 1


CALLS: Final = Maps[Call]("call", Call, version=2)


def test_values_of_any_type_are_written_as_they_are() -> None:
    assert CALLS.pack(Call([b"x"])) == {"v": 1, "type": "call", "body": [b"x"], "ran": True}
    assert CALLS.pack(Call(1, ran=False, note="n", v=2)) == {
        "v": 2,
        "type": "call",
        "body": 1,
        "ran": False,
        "note": "n",
    }
    for body in (bytearray(b"x"), {1: 2}, {1, 2}):
        with pytest.raises(TypeError):
            CALLS.encode(Call(body))


def test_kinds_that_are_none_of_these() -> None:
    other = {"v": 9, "type": "later"}
    assert CALLS.decode_known(encode(other)) is None
    assert CALLS.decode_known(CALLS.encode(Call(1))) == Call(1)
    with pytest.raises(BadMessage, match="version 9"):
        CALLS.decode(encode(other))
    with pytest.raises(BadMessage, match="version 3"):
        CALLS.decode_known(encode({"v": 3, "type": "call", "body": 1}))


class Part(Row, frozen=True):
    data: bytes


class Parts(Row, frozen=True, tag="parts"):
    parts: tuple[Part, ...]
    flat: list[bytes]


PARTS: Final = Rows[Parts]("parts", Parts, version=3)


def test_rows_with_a_version_before_the_kind() -> None:
    message = Parts((Part(b"x"), Part(b"")), [b"y"])
    assert PARTS.pack(message) == [3, "parts", [[b"x"], [b""]], [b"y"]]
    assert PARTS.decode(encode([3, "parts", [[b"x", 1], [b""]], [b"y"]])) == message
    assert PARTS.parse([3, "later"]) is None
    wrong: list[Any] = [[], [2, "parts", []], [3], [3, 7], [3, "later"], "parts"]
    for row in wrong:
        with pytest.raises(BadMessage):
            PARTS.decode(encode(row))


def test_a_class_that_contains_itself_is_refused() -> None:
    with pytest.raises(TypeError, match="contains itself"):
        Rows[Any]("tree", Node)


class Node(Row, frozen=True, tag=1):
    inner: tuple[Node, ...]
