"""Which two sockets make a device, and which way its messages go. Pure.

::

    kind        front       back      passes on
    queue       Rep         Req       requests to the back, their replies to the front
    forwarder   Sub         Pub       to the back
    streamer    Pull        Push      to the back
    bus         Bus         Bus       both ways
    pair0       Pair0       Pair0     both ways
    pair1       Pair1       Pair1     both ways
    pair01      Pair0       Pair1     both ways: nanomsg's pair at the front, NNG's at the back

The front is where messages come in: askers, publishers, pushers. A device ends the protocol on either side and begins
it anew on the other, with sockets like any other program's, so each side may listen or dial, at any address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nngkit.errors import ConfigError

__all__ = ["KINDS", "Kind", "kind_of"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A device: the names of its two sockets' classes, and whether it asks (else it only passes on), and both ways."""

    name: str
    front: str
    back: str
    what: str
    asks: bool = False
    both_ways: bool = False


KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("queue", "Rep", "Req", "REQ/REP: askers at the front, answerers at the back", asks=True),
        Kind("forwarder", "Sub", "Pub", "PUB/SUB: publishers at the front, subscribers at the back"),
        Kind("streamer", "Pull", "Push", "PUSH/PULL: pushers at the front, pullers at the back"),
        Kind("bus", "Bus", "Bus", "two buses, which hear each other", both_ways=True),
        Kind("pair0", "Pair0", "Pair0", "a pair of version 0 (nanomsg) over two connections", both_ways=True),
        Kind("pair1", "Pair1", "Pair1", "a pair of version 1 (NNG) over two connections", both_ways=True),
        Kind("pair01", "Pair0", "Pair1", "a pair of version 0 at the front, of version 1 at the back", both_ways=True),
    )
}


def kind_of(front: str, back: str) -> Kind:
    """The device that sockets of these classes make. Raises ConfigError for two that make none."""
    for kind in KINDS.values():
        if (kind.front, kind.back) == (front, back):
            return kind
    known = ", ".join(f"{kind.front} and {kind.back}" for kind in KINDS.values())
    raise ConfigError("device", f"{front} in front of {back} is none; there are {known}", (front, back))
