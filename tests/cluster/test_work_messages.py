"""Messages about jobs survive the wire, and hostile rows are refused."""

from __future__ import annotations

from typing import Any

import pytest

from nngkit.cluster.jobs.messages import (
    Accepted,
    Block,
    Cancel,
    Demand,
    Finished,
    Grant,
    Holding,
    JobParts,
    JobProgress,
    Lost,
    Message,
    Missing,
    Part,
    Parts,
    Progress,
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
    pack,
)
from nngkit.cluster.jobs.reading import parse
from nngkit.envelope import decode, encode
from nngkit.errors import BadMessage

MESSAGES: list[Message] = [
    Submit(1, 2, [SubmitGroup(Spec("a"), [2, 3], [b"x", b"y"], None), SubmitGroup(Spec("b", 3), [4], [b""], [b"k"])]),
    Received(1, 2, [3]),
    Cancel(1, [3]),
    Waiting(1, 2, [3]),
    Accepted(1, 7, [2, 3], [70, 71], 10, 20),
    Accepted(1, 7, [2, 3], [71, 5], 10, 20),
    Starting([Ref(70, 7, 2, 0)]),
    Start([Ref(70, 7, 2, 2)]),
    Finished(1, [2], [b"r"], [(3, 2, "ValueError", "why", 3, "w")]),
    Missing(1, 7, [2]),
    Refused(1, [(2, "too large")]),
    JobParts(1, [(2, 1, 0, b"part")]),
    JobProgress(1, [(2, 1, 0.5)]),
    Demand([(0, ["a", "b"], 4, 4), (1, None, -2, 0)]),
    Results("w", 7, [9, 10], [1, 1], [b"", b"r"], [3, 4], [(11, 1, True, "ValueError", "why", 5)]),
    Holding([Ref(1, 2, 3, 4)]),
    Lost([Ref(1, 2, 3, 4)]),
    Returned([Ref(1, 2, 3, 4)]),
    Parts([Part(1, 2, 3, 0, b"part")]),
    Progress([(1, 2, 3, 0.5)]),
    Grant(7, [Block(0, "a", 30.0, False, [9, 10], [1, 2], [1, 1], [b"x", b"y"])]),
    Grant(7, [Block(0, "a", 30.0, False, [9], [1], [1], [b"x"], 60.0)]),
    Submit(1, 2, [SubmitGroup(Spec("a", timeout=60.0), [2], [b"x"], None)]),
    Stop([Ref(1, 2, 3, 4)]),
    Taken([1], [2]),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_the_same_after_the_wire(message: Message) -> None:
    assert parse(decode(encode(pack(message)), what="message"), "ada") == message


def test_without_a_timeout_rows_are_as_before_there_was_one_and_later_fields_are_ignored() -> None:
    submit, grant = MESSAGES[0], Grant(7, [Block(0, "a", 30.0, False, [9], [1], [1], [b"x"])])
    row = pack(submit)
    assert len(row[3][0][0]) == 7
    row[3][0][0] += [None, "later"]
    assert parse(row, "ada") == submit
    row = pack(grant)
    assert len(row[2][0]) == 8
    row[2][0] += [None, "later"]
    assert parse(row, "ada") == grant


def test_a_kind_of_a_later_version_is_none() -> None:
    assert parse([99, "new"], "ada") is None


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
