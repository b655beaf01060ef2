"""Load of a node: when it has too much to do, and gives leaves of the tree away. Pure.

A node measures the share of one processor that its loop takes, a number from 0 to 1, or a function of the program does.
Over `HIGH` for a while it is busy, and stays so until it is under `LOW`: the leaf that it gives away may be what made
the difference, and would else come back.
"""

from __future__ import annotations

from typing import Final

EVERY: Final = 2.0  # seconds between two measurements
HIGH: Final = 0.85
LOW: Final = 0.5
WEIGHT: Final = 0.4  # of the last measurement: a burst of 4 s is none of the node's troubles


class LoadGauge:
    """Smoothed load. `busy` is what the other nodes hear of it."""

    def __init__(self) -> None:
        self.load = 0.0
        self.busy = False

    def add(self, load: float) -> bool:
        """Take in a measurement; return True if `busy` has changed."""
        self.load += (min(1.0, max(0.0, load)) - self.load) * WEIGHT
        before, self.busy = self.busy, self.load > (LOW if self.busy else HIGH)
        return self.busy != before
