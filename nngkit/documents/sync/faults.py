"""NetworkFaults: a network that loses, delays and splits, between peers that are really elsewhere or all in one process.

::

    faults = NetworkFaults(loss=0.3, delay=0.025)
    async with DocumentPeer(listen="tcp://127.0.0.1:0", faults=faults) as peer:
        faults.cut = {other.me.origin}         # a partition: nothing comes from there, nothing is answered
        faults.cut = set()                     # it has healed

For tests, benchmarks, and who wants to see what an application does when the network is bad. It acts on what arrives:
messages of the BUS are lost one by one, and everything, questions and answers too, comes later. Pure but for `rng`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from nngkit.documents.versions import EditStream

__all__ = ["NetworkFaults"]


class Chance(Protocol):
    """What it needs of random.Random."""

    def random(self) -> float:
        """From 0 up to 1."""


@dataclass(slots=True)
class NetworkFaults:
    """`loss`: share of the BUS messages that are lost on arrival. `delay`: seconds each way, of BUS messages up to 2 ms
    more. `cut`: origins of peers
    that cannot be reached. `lost` counts."""

    loss: float = 0.0
    delay: float = 0.0
    cut: set[bytes] = field(default_factory=set)
    lost: int = 0

    def loses(self, rng: Chance) -> bool:
        """Whether a message is lost, whosever it is: before it is read, as what is lost costs nobody anything."""
        if self.loss and rng.random() < self.loss:
            self.lost += 1
            return True
        return False

    def cuts(self, sender: EditStream) -> bool:
        """Whether what `sender` says does not come."""
        if sender.origin in self.cut:
            self.lost += 1
            return True
        return False
