"""Simulated network faults: loss, delay and partitions, between real or in-process peers.

::

    faults = NetworkFaults(loss=0.3, delay=0.025)
    async with DocumentPeer(listen="tcp://127.0.0.1:0", faults=faults) as peer:
        faults.cut = {other.me.origin}         # a partition: its messages are dropped, requests to it time out
        faults.cut = set()                     # the partition heals

For tests, benchmarks, and to try an application on a bad network. Faults act on arrival: BUS messages are dropped one
by one; BUS messages, requests and replies are delayed. Pure but for `rng`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nngkit.chance import RandomSource
from nngkit.documents.versions import EditStream


@dataclass(slots=True)
class NetworkFaults:
    """`loss`: share of BUS messages dropped on arrival. `delay`: seconds each way, BUS messages up to 2 ms more.

    `cut`: origins of unreachable peers. `lost`: counter of dropped messages.
    """

    loss: float = 0.0
    delay: float = 0.0
    cut: set[bytes] = field(default_factory=set)
    lost: int = 0

    def loses(self, rng: RandomSource) -> bool:
        """Return True to drop a message. Called before decoding, as a lost message must cost nothing."""
        if self.loss and rng.random() < self.loss:
            self.lost += 1
            return True
        return False

    def cuts(self, sender: EditStream) -> bool:
        """Return True if messages from `sender` are dropped."""
        if sender.origin in self.cut:
            self.lost += 1
            return True
        return False
