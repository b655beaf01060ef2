"""Messages about jobs survive the wire, and hostile rows are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from nngkit.cluster.jobs.messages import (
    Accepted,
    Block,
    Cancel,
    Demand,
    Ended,
    Failed,
    Finished,
    Grant,
    Holding,
    JobPart,
    JobParts,
    JobProgress,
    JobProgressed,
    Lost,
    Message,
    Missing,
    NotAccepted,
    Part,
    Parts,
    Progress,
    Progressed,
    Received,
    Ref,
    Refused,
    Results,
    Returned,
    Spec,
    Start,
    Starting,
    Stop,
    Submit,
    SubmitGroup,
    Taken,
    Waiting,
    Wanted,
    pack,
    parse,
)
from nngkit.envelope import decode, encode
from nngkit.errors import BadMessage

WIRE: Final = json.loads((Path(__file__).parent / "jobs_wire_of_0_1.json").read_text())
MESSAGES: list[Message] = [
    Submit(1, 2, [SubmitGroup(Spec("a"), [2, 3], [b"x", b"y"], None), SubmitGroup(Spec("b", 3), [4], [b""], [b"k"])]),
    Received(1, 2, [3]),
    Cancel(1, [3]),
    Waiting(1, 2, [3]),
    Accepted(1, 7, [2, 3], [70, 71], 10, 20),
    Accepted(1, 7, [2, 3], [71, 5], 10, 20),
    Starting([Ref(70, 7, 2, 0)]),
    Start([Ref(70, 7, 2, 2)]),
    Finished(1, [2], [b"r"], [Ended(3, 2, "ValueError", "why", 3, "w")]),
    Missing(1, 7, [2]),
    Refused(1, [NotAccepted(2, "too large")]),
    JobParts(1, [JobPart(2, 1, 0, b"part")]),
    JobProgress(1, [JobProgressed(2, 1, 0.5)]),
    Demand([Wanted(0, ["a", "b"], 4, 4), Wanted(1, None, -2, 0)]),
    Results("w", 7, [9, 10], [1, 1], [b"", b"r"], [3, 4], [Failed(11, 1, True, "ValueError", "why", 5)]),
    Holding([Ref(1, 2, 3, 4)]),
    Lost([Ref(1, 2, 3, 4)]),
    Returned([Ref(1, 2, 3, 4)]),
    Parts([Part(1, 2, 3, 0, b"part")]),
    Progress([Progressed(1, 2, 3, 0.5)]),
    Grant(7, [Block(0, "a", 30.0, False, [9, 10], [1, 2], [1, 1], [b"x", b"y"])]),
    Grant(7, [Block(0, "a", 30.0, False, [9], [1], [1], [b"x"], 60.0)]),
    Submit(1, 2, [SubmitGroup(Spec("a", timeout=60.0), [2], [b"x"], None)]),
    Stop([Ref(1, 2, 3, 4)]),
    Taken([1], [2]),
]


WITH_HEADERS: list[Message] = [
    Submit(1, 2, [SubmitGroup(Spec("a", headers=b"\xa0"), [2], [b"x"], None)]),
    Grant(7, [Block(0, "a", 30.0, False, [9], [1], [1], [b"x"], headers=b"\xa0")]),
    Grant(7, [Block(0, "a", 30.0, False, [9], [1], [1], [b"x"], 60.0, ["ada"], b"\xa0")]),
]
"""Of a later version than 0.1."""


@pytest.mark.parametrize("message", [*MESSAGES, *WITH_HEADERS], ids=lambda message: type(message).__name__)
def test_a_message_is_the_same_after_the_wire(message: Message) -> None:
    assert parse(decode(encode(pack(message)), what="message"), "ada") == message


def test_without_a_timeout_rows_are_as_before_there_was_one_and_later_fields_are_ignored() -> None:
    submit, grant = MESSAGES[0], Grant(7, [Block(0, "a", 30.0, False, [9], [1], [1], [b"x"])])
    row = pack(submit)
    assert len(row[3][0][0]) == 7
    row[3][0][0] += [None, None, "later"]
    assert parse(row, "ada") == submit
    row = pack(grant)
    assert len(row[2][0]) == 8
    row[2][0] += [None, None, None, "later"]
    assert parse(row, "ada") == grant


def test_a_kind_of_a_later_version_is_none() -> None:
    assert parse([99, "new"], "ada") is None


def test_bytes_of_version_0_1_are_read_and_written() -> None:
    found = []
    for name, data in WIRE["messages"]:
        message = parse(decode(bytes.fromhex(data), what="message"), "ada")
        assert message is not None
        assert (type(message).__name__, encode(pack(message)).hex()) == (name, data)
        found.append(message)
    assert found == MESSAGES


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_further_items_of_a_later_version_are_ignored(message: Message) -> None:
    left_out: dict[int, list[Any]] = {8: [None, None, None], 9: [None, None], 4: [0]}
    row = pack(message)
    for at, item in enumerate(row):
        if type(item) is list and item and type(item[0]) is list:
            row[at] = [[*each, *left_out.get(len(each), ()), "later"] for each in item]
    assert parse([*row, "later"], "ada") == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_row_with_any_field_replaced_is_refused_or_valid(message: Message) -> None:
    junk: list[Any] = [
        None,
        -1,
        1 << 60,
        "x" * 5000,
        b"x",
        [],
        [[]],
        [None],
        [-1],
        {},
        1.5,
        float("nan"),
        True,
        [[1, 2]],
    ]

    def variants(value: Any) -> list[Any]:
        found = list(junk)
        if type(value) is list:
            for place, item in enumerate(value):
                found += [[*value[:place], other, *value[place + 1 :]] for other in variants(item)]
            found += [[*value, None], value[:-1]]
        return found

    for row in variants(pack(message)):
        try:
            parsed = parse(row, "ada")
        except BadMessage:
            continue
        if parsed is not None:
            assert parse(decode(encode(pack(parsed)), what="message"), "ada") is not None


def _columns(value: Any) -> list[list[Any]]:
    """Return the lists of single values in a row."""
    if not isinstance(value, list):
        return []
    found = [value] if len(value) > 1 and not isinstance(value[0], list) and len(set(map(type, value))) == 1 else []
    return [*found, *(column for each in value for column in _columns(each))]


@pytest.mark.parametrize(
    "message",
    [
        Submit(1, 2, [SubmitGroup(Spec("a"), [2, 3], [b"x", b"y"], [b"k", b"l"])]),
        Accepted(1, 7, [2, 3], [71, 5], 10, 20),
        Finished(1, [2, 3], [b"x", b"y"], []),
        Results("w", 7, [2, 3], [1, 2], [b"x", b"y"], [5, 6], []),
        Grant(7, [Block(0, "a", 1.0, False, [2, 3], [1, 2], [1, 2], [b"x", b"y"])]),
    ],
    ids=lambda message: type(message).__name__,
)
def test_columns_of_different_lengths_are_refused(message: Message) -> None:
    count = len(_columns(pack(message)))
    assert count >= 2
    for place in range(count):
        row = decode(encode(pack(message)), what="message", limit=1000)
        column = _columns(row)[place]
        column.append(column[-1] + 1 if isinstance(column[-1], int) else column[-1])
        with pytest.raises(BadMessage, match=r"has [123] values instead of [123]"):
            parse(row, "peer")
