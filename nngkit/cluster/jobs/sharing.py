"""Division of granted jobs between a node's own workers and its children. Pure.

    >>> evenly("render", 3, [Offer(None, 4, 4), Offer(7, 8, 4), Offer(8, 2, 1)])
    [0, 2, 1]
    >>> evenly("render", 8, [Offer(None, 4, 4), Offer(7, 8, 4), Offer(8, 2, 1)])
    [1, 5, 2]

`evenly` fills the emptiest first: credit per slot is equal afterwards, as far as it can be. An idle slot, whose credit
per slot is higher than that of a busy one, so gets a job before a busy one gets its next; the node itself wins a tie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

__all__ = ["Decide", "Offer", "evenly"]


class Offer(NamedTuple):
    """Demand of one link, or of the node's own workers if that is None: jobs asked for, and slots."""

    link: int | None
    credit: int
    slots: int


Decide: TypeAlias = Callable[[str, int, Sequence[Offer]], Sequence[int]]
"""Policy: the jobs for each offer, of a kind and a number of jobs. Each at most the offer's credit; in all, at most the
number; the rest is offered again or waits at the node."""


def evenly(kind: str, count: int, offers: Sequence[Offer]) -> list[int]:
    """Return the jobs for each offer, so that credit per slot becomes equal."""
    if sum(offer.credit for offer in offers) <= count:
        return [offer.credit for offer in offers]
    order = sorted(range(len(offers)), key=lambda place: -offers[place].credit / max(1, offers[place].slots))
    level = 0.0
    credit = slots = 0
    for position, place in enumerate(order):
        credit += offers[place].credit
        slots += max(1, offers[place].slots)
        level = (credit - count) / slots
        after = order[position + 1] if position + 1 < len(order) else None
        if after is None or level >= offers[after].credit / max(1, offers[after].slots):
            break
    shares = [max(0, int(offer.credit - level * max(1, offer.slots))) for offer in offers]
    rest = count - sum(shares)
    for _ in range(rest):  # fewer than offers: each share was rounded down
        place = max(
            range(len(offers)), key=lambda place: (offers[place].credit - shares[place]) / max(1, offers[place].slots)
        )
        shares[place] += 1
    return shares
