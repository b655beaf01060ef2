"""Waits return the condition's result, and their errors name the condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import trio
import trio.testing

from nngkit.testing import aeventually, eventually


def after(calls: int, result: object = "ready") -> Callable[[], object]:
    """Return a condition that is true at its call number `calls`."""
    counter = count(1)
    return lambda: result if next(counter) >= calls else None


def under_trio(condition: Callable[[], object], **options: Any) -> object:
    return trio.run(lambda: aeventually(condition, **options))


def under_asyncio(condition: Callable[[], object], **options: Any) -> object:
    return asyncio.run(aeventually(condition, **options))


every_wait = pytest.mark.parametrize("wait", [eventually, under_trio, under_asyncio])


@every_wait
@pytest.mark.parametrize("calls", [1, 3])
def test_result_of_the_condition_is_returned(wait: Callable[..., object], calls: int) -> None:
    assert wait(after(calls)) == "ready"


@every_wait
def test_error_names_the_condition_its_line_and_the_timeout(wait: Callable[..., object]) -> None:
    def never_true() -> bool:
        return False

    with pytest.raises(AssertionError, match=r"not true within 0\.01 s: .*never_true \(.*test_waiting\.py:\d+\)"):
        wait(never_true, timeout=0.01)


@every_wait
@pytest.mark.parametrize("what", ["the stars are right", lambda: "the stars are right"], ids=["text", "function"])
def test_error_contains_the_description(wait: Callable[..., object], what: object) -> None:
    with pytest.raises(AssertionError, match="not true within 0 s: the stars are right"):
        wait(lambda: False, timeout=0, what=what)


@every_wait
def test_condition_is_called_at_least_once_and_its_exception_is_passed_on(wait: Callable[..., object]) -> None:
    assert wait(lambda: 7, timeout=0) == 7
    with pytest.raises(ZeroDivisionError):
        wait(lambda: 1 / 0)


async def test_cancelling_ends_the_wait() -> None:
    with trio.move_on_after(0.01) as scope:
        await aeventually(lambda: False)
    assert scope.cancelled_caught


async def test_timeout_follows_the_clock_of_trio(autojump_clock: trio.testing.MockClock) -> None:
    start = trio.current_time()
    with pytest.raises(AssertionError):
        await aeventually(lambda: False, timeout=100.0, poll=1.0)
    assert trio.current_time() - start == pytest.approx(100.0)
