"""The acceptance suite finds faulty sockets, and its tools report what they see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nngkit.testing
from nngkit.errors import Closed
from nngkit.protocols import Pull, Push, Rep, Req
from nngkit.testing import (
    ASYNCIO,
    BLOCKING,
    CHECKS,
    PATTERNS,
    TRANSPORTS,
    Background,
    Pattern,
    Wire,
    check_brick,
    make_wires,
    select_checks,
)

PIPELINE = next(pattern for pattern in PATTERNS if pattern.name == "pipeline")
REQREP = next(pattern for pattern in PATTERNS if pattern.name == "reqrep")
INPROC = (Wire("inproc"),)


class Reversing(Push):
    """Sends another message than the one that it is given."""

    def send(self, data: Any, *arguments: Any, **options: Any) -> None:
        super().send(bytes(data)[::-1], *arguments, **options)


class Lenient(Push):
    """Accepts text."""

    def send(self, data: Any, *arguments: Any, **options: Any) -> None:
        super().send(data.encode() if isinstance(data, str) else data, *arguments, **options)


class Truncating(Push):
    """Sends the first 100 of many messages."""

    def send_many(self, items: Iterable[Any], *arguments: Any, **options: Any) -> int:
        return super().send_many(list(items)[:100], *arguments, **options)


class Flattering(Req):
    """Makes up replies."""

    def request(self, data: Any, *arguments: Any, **options: Any) -> bytes:
        return super().request(data, *arguments, **options) + b"!"


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (
            replace(PIPELINE, first=Reversing),
            "in order, first end listens: pipeline over inproc, blocking",
        ),
        (replace(PIPELINE, first=Lenient), "text is refused"),
        (replace(PIPELINE, first=Truncating), "many messages"),
        (replace(REQREP, first=Flattering), "replies to"),
        (replace(PIPELINE, second=lambda **options: Pull(**{**options, "recv_max_size": 4000})), "TimedOut"),
    ],
    ids=["other messages", "accepts text", "sends 100", "other replies", "smaller limit"],
)
def test_a_faulty_brick_is_detected(pattern: Pattern, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nngkit.testing.acceptance.WAIT", 0.5)
    monkeypatch.setattr("nngkit.testing.patterns.WAIT", 0.5)
    with pytest.raises(AssertionError, match=problem):
        check_brick(pattern, INPROC, [BLOCKING], slow=False)


def test_check_brick_counts_its_cases() -> None:
    wires = [Wire("inproc"), Wire("abstract")]
    expected = sum(
        (2 if check.every_wire else 1) * len({BLOCKING, ASYNCIO} & set(check.callers))
        for check in select_checks(PIPELINE, slow=False)
    )
    assert check_brick(PIPELINE, wires, [BLOCKING, ASYNCIO], slow=False) == expected


def test_check_brick_needs_a_wire_and_a_caller() -> None:
    with pytest.raises(ValueError, match="at least one wire"):
        check_brick(PIPELINE, [])
    with pytest.raises(ValueError, match="at least one caller"):
        check_brick(PIPELINE, INPROC, [])


def test_checks_of_one_way_patterns_do_not_apply_to_requests() -> None:
    one_way = {check.name for check in CHECKS if not check.answered}
    assert one_way
    assert not one_way & {check.name for check in select_checks(REQREP)}
    assert set(select_checks(PIPELINE)) == set(CHECKS)


def test_names_of_checks_are_distinct() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_wires_are_those_for_which_there_is_a_directory_and_tls(tmp_path: Path) -> None:
    assert [wire.transport for wire in make_wires()] == ["tcp", "tcp6", "abstract", "ws", "inproc"]
    assert {wire.transport for wire in make_wires(tmp_path)} == set(TRANSPORTS) - {"wss", "tls+tcp"}


def test_an_ipc_wire_needs_a_directory() -> None:
    with pytest.raises(ValueError, match="directory"):
        Wire("ipc").address()


def test_a_background_call_returns_or_raises_its_outcome() -> None:
    assert Background(lambda: 7).result() == 7
    failing = Background(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failing.result()
    assert isinstance(failing.error(), ZeroDivisionError)
    with pytest.raises(AssertionError, match="returned 7"):
        Background(lambda: 7).error()


def test_a_background_call_that_does_not_end_is_an_error() -> None:
    with Rep(listen="inproc://never-asked") as rep:
        waiting = Background(rep.recv)
        with pytest.raises(AssertionError, match=r"still runs after 0\.01 s"):
            waiting.result(0.01)
    assert isinstance(waiting.error(), Closed)


def test_the_package_is_an_attribute_of_nngkit_and_exports_its_names() -> None:
    assert all(hasattr(nngkit.testing, name) for name in nngkit.testing.__all__)
