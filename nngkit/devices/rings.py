"""Rings of devices, found by their addresses. Pure.

A ring is a way of devices on which a message comes back to where it was, and goes round for ever. The addresses at
which devices listen and which they dial tell which sides are connected; a name that resolves to an address of this
machine is not recognised, except `localhost`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
WILDCARDS: Final = ("0.0.0.0", "::", "*", "")
_PORTED: Final = ("tcp", "ws", "tls+tcp", "wss")

Reflection = Literal["no", "others", "same"]
Addresses = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A device by the addresses at which its sides listen and which they dial.

    `both_ways`: it forwards from the back too. `reflects`: its sides are one socket, and a message goes to the
    "others" of its peers, or to the "same" one.
    """

    front_listens: Addresses = ()
    front_dials: Addresses = ()
    back_listens: Addresses = ()
    back_dials: Addresses = ()
    both_ways: bool = False
    reflects: Reflection = "no"

    def listens(self, side: int) -> Addresses:
        """Return where the front (0) or the back (1) listens."""
        return self.back_listens if side else self.front_listens

    def dials(self, side: int) -> Addresses:
        """Return what the front (0) or the back (1) dials."""
        return self.back_dials if side else self.front_dials


def find_ring(places: Sequence[Place]) -> list[int] | None:
    """Return the indexes of the devices of a ring in the order of a message's way; None if there is none."""
    ways = {way: list(_next(places, *way)) for way in _entries(places)}
    done: set[tuple[int, int]] = set()
    for start, first in ways.items():
        if start in done:
            continue
        path, untried = [start], [iter(first)]
        while path:
            way = next(untried[-1], None)
            if way is None:
                done.add(path.pop())
                untried.pop()
            elif way in path:
                return [index for index, _ in path[path.index(way) :]]
            elif way not in done:
                path.append(way)
                untried.append(iter(ways[way]))
    return None


def _entries(places: Sequence[Place]) -> Iterator[tuple[int, int]]:
    """Yield (device, side) where messages may enter."""
    for index, place in enumerate(places):
        yield index, 0
        if place.both_ways and place.reflects == "no":
            yield index, 1


def _next(places: Sequence[Place], index: int, side: int) -> Iterator[tuple[int, int]]:
    """Yield where a message may enter next that has entered device `index` at `side`."""
    place = places[index]
    out = side if place.reflects != "no" else 1 - side
    for other, to in _entries(places):
        if (other, to) == (index, out) and place.reflects != "no":
            continue  # a socket is not its own peer, unless it dials itself
        if _meet(place.dials(out), places[other].listens(to)) or _meet(places[other].dials(to), place.listens(out)):
            yield other, to


def _meet(dialed: Addresses, listened: Addresses) -> bool:
    return any(_same(dial, listen) for dial in dialed for listen in listened)


def _same(dial: str, listen: str) -> bool:
    scheme, _, rest = dial.partition("://")
    other, _, there = listen.partition("://")
    if scheme.rstrip("46") not in _PORTED:
        alike = {"unix": "ipc"}
        return (alike.get(scheme, scheme), rest) == (alike.get(other, other), there)
    ours, theirs = urlsplit(dial), urlsplit(listen)
    if scheme.rstrip("46") != other.rstrip("46") or ours.port != theirs.port:
        return False
    if scheme.rstrip("46") in ("ws", "wss") and (ours.path or "/") != (theirs.path or "/"):
        return False
    host, bound = ours.hostname or "", theirs.hostname or ""
    if host == bound:
        return True
    return host in LOOPBACK and (bound in WILDCARDS or bound in LOOPBACK)
