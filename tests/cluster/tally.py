"""A shared object of numbers, in their order."""

from __future__ import annotations


class Tally:
    def __init__(self) -> None:
        self.numbers: list[int] = []

    def update(self, fragment: bytes) -> None:
        self.numbers.append(int(fragment))

    def full_state(self) -> bytes:
        return b" ".join(b"%d" % number for number in self.numbers)

    def load(self, state: bytes) -> None:
        self.numbers = [int(number) for number in state.split()]
