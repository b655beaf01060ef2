"""Ordered content of a shared object: one change after the other, those ahead held, and what is kept for others."""

from __future__ import annotations

from typing import Any

import pytest

from nngkit import envelope
from nngkit.cluster.content.messages import FRAGMENT_LIMIT, START, Entry, OrderedFragments, Position
from nngkit.cluster.content.order import HELD_CHANGES, LOG_CHANGES, WRITERS, SharedOrder
from nngkit.errors import BadMessage, TooLarge
from tests.cluster.documents_network import Log

FIRST = Position(1, 1, 0)


class Copy:
    """An order, its object, and what it told."""

    def __init__(self, node: str = "n", obj: Log | None = None, limit: int = 1 << 20) -> None:
        self.log = obj or Log()
        self.confirmed: list[int] = []
        self.reports: list[tuple[str, str]] = []
        self.order = SharedOrder(
            "x",
            node,
            1,
            self.log,
            confirm=self.confirmed.append,
            report=lambda node, why: self.reports.append((node, why)),
            limit=limit,
        )


def host(count: int, size: int = 1) -> Copy:
    """Return a host's copy with `count` changes of the writer w."""
    copy = Copy("host")
    assert copy.order.begin(FIRST) == START
    for n in range(1, count + 1):
        copy.order.append(Entry("w", 1, n, bytes([n % 256]) * size))
    return copy


def run(first: int, *numbers: int) -> OrderedFragments:
    entries = tuple(Entry("w", 1, n, bytes([n])) for n in numbers)
    return OrderedFragments("x", FIRST.at(first), None, entries)


def behind(number: int) -> Copy:
    """Return a copy that has loaded the state at a position of the host."""
    copy = Copy()
    assert copy.order.load("host", FIRST.at(number), host(number).order.full_state())
    return copy


def test_changes_ahead_of_a_missing_one_are_applied_after_it() -> None:
    copy = behind(4)
    copy.order.take(run(6, 6, 7))
    assert copy.order.position.number == 4
    assert copy.order.behind
    copy.order.take(run(5, 5))
    assert copy.order.position.number == 7
    assert not copy.order.behind
    assert copy.log.changes == [bytes([n]) for n in range(1, 8)]


def test_a_repeated_change_is_applied_once() -> None:
    copy = behind(4)
    for _ in range(2):
        copy.order.take(run(5, 5, 6))
    assert copy.log.changes == [bytes([n]) for n in range(1, 7)]
    assert copy.order.applied == 2


def test_an_object_as_its_program_made_it_takes_no_change_before_a_full_state() -> None:
    copy = Copy()
    copy.order.take(OrderedFragments("x", FIRST, START, (Entry("w", 1, 1, b"a"),)))
    assert copy.order.position == START
    assert copy.order.load("host", FIRST, host(0).order.full_state())
    assert copy.order.position == FIRST.at(1)  # held meanwhile
    assert copy.log.changes == [b"a"]


def test_changes_held_ahead_are_capped() -> None:
    copy = behind(1)
    for number in range(3, HELD_CHANGES + 10):
        copy.order.take(run(number, number % 256))
    copy.order.take(run(2, 2))
    assert copy.order.position.number == 2 + HELD_CHANGES
    assert copy.order.known.number == HELD_CHANGES + 9
    assert copy.order.behind  # the rest is requested


def test_the_changes_after_a_position_lead_to_the_same_content() -> None:
    ahead, copy = host(9), behind(4)
    for message in ahead.order.after(copy.order.position) or ():
        copy.order.take(message)
    assert copy.order.position == ahead.order.position
    assert copy.log.changes == ahead.log.changes
    assert ahead.order.after(copy.order.position) == []


def test_changes_after_a_position_are_known_as_far_as_the_log_goes() -> None:
    order = host(LOG_CHANGES + 2).order
    assert order.after(FIRST.at(1)) is None
    assert order.after(FIRST.at(2)) is not None
    assert order.after(Position(1, 2, 3)) is None
    assert order.after(START) is None


def test_changes_after_a_position_are_at_most_256_kib() -> None:
    order = host(5, FRAGMENT_LIMIT // 2).order
    found = order.after(FIRST) or []
    assert [entry.n for message in found for entry in message.entries] == [1]


def test_a_new_reign_leads_on_from_its_base() -> None:
    ahead, copy = host(3), behind(3)
    base = ahead.order.position
    assert ahead.order.begin(Position(2, 5, 0)) == base
    ahead.order.append(Entry("w", 1, 4, b"d"))
    for message in ahead.order.after(base) or ():
        copy.order.take(message)
    assert copy.order.position == Position(2, 5, 1)
    assert copy.log.changes == ahead.log.changes


def test_a_copy_of_a_later_term_is_no_base() -> None:
    copy = host(3)
    assert copy.order.begin(Position(1, 0, 0)) == START
    assert copy.reports == [("host", "x: its copy is of term 1, after term 1")]


def test_own_changes_are_confirmed_once_they_are_in_the_content() -> None:
    copy = Copy("w")
    copy.order.begin(FIRST)
    copy.order.append(Entry("w", 1, 1, b"a"))
    copy.order.append(Entry("w", 2, 1, b"of another run"))
    copy.order.append(Entry("w", 1, 2, b"b"))
    assert copy.confirmed == [1, 2]
    assert copy.order.load("host", Position(2, 1, 0), host(1).order.full_state())
    assert copy.confirmed == [1, 2, 1]  # that state has the first only


def test_the_last_change_of_each_writer_comes_with_the_full_state() -> None:
    copy = behind(7)
    assert copy.order.last("w", 1) == 7
    assert copy.order.last("w", 2) is None


def test_the_writer_that_wrote_least_recently_is_forgotten() -> None:
    order = host(0).order
    for number in range(WRITERS):
        order.append(Entry(f"w{number}", 1, 1, b""))
    order.append(Entry("w0", 1, 2, b""))
    order.append(Entry("new", 1, 1, b""))
    assert [order.last(name, 1) for name in ("w0", "w1", "new")] == [2, None, 1]


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_an_object_that_raises_stays_in_the_order(kind: type[BaseException]) -> None:
    class Broken(Log):
        def update(self, fragment: bytes) -> None:
            raise kind("no")

        def load(self, full: bytes) -> None:
            raise kind("no")

    copy = Copy(obj=Broken())
    copy.order.begin(FIRST)
    copy.order.append(Entry("w", 1, 1, b"a"))
    assert copy.order.position.number == 1
    assert not copy.order.load("m", Position(2, 1, 0), host(1).order.full_state())
    assert copy.order.position.number == 1  # a state that is not taken is no position
    assert copy.order.failures == 2
    assert copy.reports == [
        ("w", f"x: update raised {kind.__name__}: no"),
        ("m", f"x: load raised {kind.__name__}: no"),
    ]


def test_ctrl_c_in_an_object_is_no_failure_of_it() -> None:
    class Interrupted(Log):
        def update(self, fragment: bytes) -> None:
            raise KeyboardInterrupt

    copy = Copy(obj=Interrupted())
    copy.order.begin(FIRST)
    with pytest.raises(KeyboardInterrupt):
        copy.order.append(Entry("w", 1, 1, b"a"))


def test_a_full_state_that_is_not_bytes_is_refused() -> None:
    class Odd(Log):
        def full_state(self) -> Any:
            return 7  # bytes(7) would be seven zeros

    with pytest.raises(TypeError, match="a full state must be bytes, not int"):
        Copy(obj=Odd()).order.full_state()


@pytest.mark.parametrize(
    "value", [1, [], [[], "text"], [{}, b""], [[["w", 1]], b""], [[["w", 1, "1"]], b""], [[["w", 1, 1]] * 4097, b""]]
)
def test_a_full_state_of_another_form_changes_nothing(value: object) -> None:
    copy = behind(2)
    with pytest.raises(BadMessage):
        copy.order.load("m", Position(2, 1, 0), envelope.encode(value))
    assert copy.order.position.number == 2
    assert copy.order.loads == 1


def test_a_full_state_over_the_limit_is_not_decoded() -> None:
    copy = Copy(limit=100)
    with pytest.raises(TooLarge):
        copy.order.load("m", FIRST, bytes(101))
