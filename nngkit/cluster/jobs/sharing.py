"""Division of granted jobs between a node's own workers and its children. Pure.

    >>> evenly("render", 3, [Offer(None, 4, 4), Offer(7, 8, 4), Offer(8, 2, 1)])
    [0, 2, 1]
    >>> evenly("render", 8, [Offer(None, 4, 4), Offer(7, 8, 4), Offer(8, 2, 1)])
    [1, 5, 2]
    >>> evenly("render", 1, [Offer(None, 1, 1), Offer(7, 1, 4, 1)])
    [0, 1]

`evenly` fills idle slots first, then the emptiest: credit per slot is equal afterwards, as far as it can be. The node
itself wins a tie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias


class Offer(NamedTuple):
    """Demand of one link, or of the node's own workers if that is None: jobs asked for, slots, and idle ones."""

    link: int | None
    credit: int
    slots: int
    idle: int = 0


Decide: TypeAlias = Callable[[str, int, Sequence[Offer]], Sequence[int]]
"""Policy: the jobs for each offer, of a kind and a number of jobs. Each at most the offer's credit; in all, at most the
number; the rest is offered again or waits at the node."""


def evenly(kind: str, count: int, offers: Sequence[Offer]) -> list[int]:
    """Return the jobs for each offer: first for idle slots, then so that credit per slot becomes equal."""
    room = [offer.credit for offer in offers]
    if sum(room) <= count:
        return room
    slots = [max(1, offer.slots) for offer in offers]
    idle = [max(0, min(offer.credit, offer.idle)) for offer in offers]
    if sum(idle) >= count:
        return _level(count, idle, slots)
    rest = _level(count - sum(idle), [each - first for each, first in zip(room, idle, strict=True)], slots)
    return [first + more for first, more in zip(idle, rest, strict=True)]


def _level(count: int, room: list[int], slots: list[int]) -> list[int]:
    """Return the shares of `count` that make credit per slot equal. There is credit for all of them."""
    order = sorted(range(len(room)), key=lambda place: -room[place] / slots[place])
    level = 0.0
    credit = width = 0
    for position, place in enumerate(order):
        credit += room[place]
        width += slots[place]
        level = (credit - count) / width
        after = order[position + 1] if position + 1 < len(order) else None
        if after is None or level >= room[after] / slots[after]:
            break
    shares = [max(0, int(credit - level * width)) for credit, width in zip(room, slots, strict=True)]
    for _ in range(count - sum(shares)):  # fewer than offers: each share was rounded down
        shares[max(range(len(shares)), key=lambda place: (room[place] - shares[place]) / slots[place])] += 1
    return shares
