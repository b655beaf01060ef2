"""Letters between nodes over a tree that loses frames while it changes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.cluster.node.letters import Letter, LetterLimits, Letters
from nngkit.errors import BadMessage, Full


def carry(rows: list[tuple[str, list[Any]]], sender: str, epoch: int, to: Letters, now: float = 0.0) -> list[Letter]:
    return [letter for _, row in rows for letter in to.receive(sender, epoch, row, now)]


def test_letters_come_in_order_and_are_forgotten_when_acknowledged() -> None:
    a, b = Letters(1), Letters(2)
    for number in range(3):
        assert a.send("b", "chat", b"%d" % number, 0.0) == number + 1
    letters = carry(a.take(), "a", 1, b)
    assert [(one.body, one.number) for one in letters] == [(b"0", 1), (b"1", 2), (b"2", 3)]
    assert {one.kind for one in letters} == {"chat"}
    assert a.unacknowledged("b") == 3
    carry(b.take(), "b", 2, a)
    assert a.unacknowledged("b") == 0
    a.attached(5.0)
    assert a.take() == []


@given(st.integers(0, 10_000), st.floats(0.0, 0.9))
def test_each_letter_comes_once_and_in_order_over_a_lossy_way(seed: int, loss: float) -> None:
    rng = Random(seed)
    a, b = Letters(1), Letters(2)
    heard: list[bytes] = []
    now, sent = 0.0, 0
    for _ in range(60):
        now += 0.25
        if sent < 40:
            a.send("b", "n", b"%d" % sent, now)
            sent += 1
        a.tick(now)
        heard += [one.body for one in carry([row for row in a.take() if rng.random() >= loss], "a", 1, b)]
        carry([row for row in b.take() if rng.random() >= loss], "b", 2, a)
    assert heard == [b"%d" % number for number in range(len(heard))]
    for _ in range(3):  # nothing is lost any more
        now += 1.0
        a.tick(now)
        heard += [one.body for one in carry(a.take(), "a", 1, b)]
        carry(b.take(), "b", 2, a)
    assert heard == [b"%d" % number for number in range(sent)]
    assert a.given_up == 0


def test_a_receiver_that_was_restarted_gets_what_is_not_acknowledged() -> None:
    a, b = Letters(1), Letters(2)
    for number in range(4):
        a.send("b", "n", b"%d" % number, 0.0)
    rows = a.take()
    carry(rows[:2], "a", 1, b)
    carry(b.take(), "b", 2, a)
    again = Letters(3)
    a.attached(1.0)
    assert [one.body for one in carry(a.take(), "a", 1, again)] == [b"2", b"3"]


def test_an_acknowledgement_of_an_earlier_run_is_ignored() -> None:
    a = Letters(7)
    a.send("b", "n", b"x", 0.0)
    a.receive("b", 2, [1, 57, 6], 0.0)
    assert a.unacknowledged("b") == 1


def test_letters_that_are_not_acknowledged_are_given_up_and_counted() -> None:
    a = Letters(1, LetterLimits(patience=3.0, waiting=2))
    a.send("b", "n", b"1", 0.0)
    a.send("b", "n", b"2", 2.0)
    with pytest.raises(Full):
        a.send("b", "n", b"3", 2.0)
    a.tick(3.5)
    assert (a.given_up, a.unacknowledged("b")) == (1, 1)
    b = Letters(2)
    assert [one.body for one in carry(a.take()[-1:], "a", 1, b)] == [b"2"]  # the receiver does not wait for the first


@pytest.mark.parametrize(
    "row",
    [
        [],
        [0],
        [0, 1, 2, "n", b""],
        [0, 0, 0, "n", b""],
        [0, 1, 1, "", b""],
        [0, 1, 1, "n" * 65, b""],
        [0, 1, 1, "n", ""],
        [-1],
        ["x"],
    ],
)
def test_rows_that_are_no_letters_are_refused(row: list[Any]) -> None:
    with pytest.raises(BadMessage):
        Letters(1).receive("b", 1, row, 0.0)


def test_kinds_and_items_of_a_later_version_are_ignored() -> None:
    letters = Letters(1)
    assert letters.receive("b", 1, [2, "what"], 0.0) == []
    assert letters.receive("b", 1, [0, 1, 1, "n", b"x", "more"], 0.0) == [Letter("b", 1, 1, "n", b"x")]


def test_receivers_that_have_acknowledged_hold_up_no_other() -> None:
    a = Letters(1, LetterLimits(receivers=3, patience=3.0))
    for number in range(10):
        sent = a.send(f"guest {number}", "n", b"", 0.0)
        a.receive(f"guest {number}", 2, [1, sent, 1], 0.0)
    for number in range(3):
        a.send(f"gone {number}", "n", b"", 0.0)
    assert not a.room("there")
    with pytest.raises(Full, match="3 nodes have messages to acknowledge"):
        a.send("there", "n", b"", 0.0)
    assert a.room("gone 1")
    a.tick(3.0)
    assert (a.given_up, a.room("there"), a.wake_at) == (3, True, float("inf"))
    assert len(a._out) + len(a._idle) <= 6


@pytest.mark.parametrize("seed", range(20))
def test_a_forgotten_receiver_takes_each_letter_once_and_in_order(seed: int) -> None:
    """Frames and acknowledgements are lost, doubled and late; a receiver is forgotten between two letters to it."""
    rng = Random(seed)
    a = Letters(1, LetterLimits(receivers=2, patience=1e9))
    others = {name: Letters(2) for name in "bcdef"}
    sent: dict[str, list[bytes]] = {name: [] for name in others}
    heard: dict[str, list[bytes]] = {name: [] for name in others}
    under_way: list[tuple[str, str, int, list[Any]]] = []
    now = 0.0
    for step in range(1500):
        now += 0.3
        name = rng.choice("bcdef")
        if step < 1000 and a.room(name):
            sent[name].append(b"%d" % step)
            a.send(name, "n", sent[name][-1], now)
        a.tick(now)
        under_way += [(to, "a", 1, row) for to, row in a.take()]
        for each, letters in others.items():
            under_way += [(to, each, 2, row) for to, row in letters.take()]
        for _ in range(min(len(under_way), rng.randrange(12) if step < 1000 else 100)):
            to, sender, epoch, row = under_way.pop(rng.randrange(min(len(under_way), 8)))
            if step < 1000 and rng.random() < 0.1:
                continue
            if rng.random() < 0.1:
                under_way.append((to, sender, epoch, row))
            letters = a if to == "a" else others[to]
            heard.get(to, []).extend(one.body for one in letters.receive(sender, epoch, row, now))
    assert heard == sent
    assert a._unused > 1  # some were forgotten
    assert not a._out


def test_the_runs_of_senders_that_are_remembered_are_capped() -> None:
    b = Letters(2, LetterLimits(senders=10))
    for number in range(100):
        b.receive("a", number, [0, 1, 1, "n", b""], 0.0)
    assert len(b._next) == 10
