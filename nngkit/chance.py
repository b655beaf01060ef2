"""Interfaces of `random.Random`: pure modules get their randomness as an argument, as they get the time."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class RandomSource(Protocol):
    """Source of randomness: `random.Random`, or a test's script."""

    def random(self) -> float:
        """Return a number from 0 up to, not including, 1."""
        ...


class Chance(RandomSource, Protocol):
    """Source of randomness with more of `random.Random`."""

    def choice(self, seq: Sequence[T]) -> T:
        """Return a random element."""
        ...

    def uniform(self, a: float, b: float) -> float:
        """Return a random number from `a` to `b`."""
        ...

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Shuffle `x` in place."""
        ...

    def randbytes(self, n: int) -> bytes:
        """Return random bytes."""
        ...
