"""Standby links of a node: to its grandparent and a sibling, for the case that the parent is lost. Pure.

The parent names both addresses with each path. They are dialed a little later, at a random time, so that a change at
the top of a large tree is not followed by thousands of dials at once. A standby link carries signs of life only; a lost
parent turns one of them into the link to the new parent, without a dial.
"""

from __future__ import annotations

from typing import Final

from nngkit.chance import Chance
from nngkit.cluster.log_clock import NEVER
from nngkit.cluster.tree.links import Link, Neighbours
from nngkit.cluster.tree.messages import Leave
from nngkit.cluster.tree.search import Candidate, Search

DIAL_AFTER: Final = 0.3  # seconds, on average: most trees have settled by then, and two deaths are rarely closer
RETRY_AFTER: Final = 3.0  # seconds until an address that did not answer is tried again: it is only a reserve


class Standbys:
    """Addresses and links of one node."""

    def __init__(self, near: Neighbours, search: Search, rng: Chance, own: str | None) -> None:
        self.near = near
        self.search = search
        self.rng = rng
        self.own = own
        self.wanted: tuple[str, ...] = ()  # the grandparent first
        self.wake_at = NEVER

    def want(self, addresses: list[str | None], now: float) -> None:
        """Watch these addresses."""
        wanted = tuple(dict.fromkeys(each for each in addresses if each is not None and each != self.own))
        if wanted != self.wanted:
            self.wanted = wanted
            self.again(now, DIAL_AFTER)

    def again(self, now: float, seconds: float = RETRY_AFTER) -> None:
        """Look for missing and superfluous links in about so many seconds."""
        self.wake_at = min(self.wake_at, now + seconds * (0.5 + self.rng.random()))

    def step(self, now: float) -> None:
        """Do what is due."""
        if now < self.wake_at:
            return
        self.wake_at = NEVER
        present = {}
        for link in self.own_links():
            if link.dialed in self.wanted and link.dialed not in present:
                present[link.dialed] = link
            elif self.search.of(link) is None:
                self.near.send(link, Leave("not a standby any more"))
                self.near.drop(link)
        for address in self.wanted:
            if address not in present:
                if self.search.dialed(address) is None:
                    self.near.dial(address)
                self.again(now)

    def own_links(self) -> list[Link]:
        """Return the standby links that this node has dialed."""
        return [link for link in self.near.having("standby") if link.dialed is not None]

    def candidates(self) -> list[Candidate]:
        """Return the nodes to ask after the loss of the parent, the grandparent first."""
        links = {link.dialed: link.number for link in self.own_links() if link.hello is not None}
        return [Candidate(address, links.get(address), hops=1) for address in self.wanted]
