"""Kinds of devices: which two sockets make one, and in which directions it forwards. Pure.

::

    kind        front       back      forwards
    queue       Rep         Req       requests to the back, their replies to the front
    forwarder   Sub         Pub       to the back
    streamer    Pull        Push      to the back
    bus         Bus         Bus       both ways
    pair0       Pair0       Pair0     both ways
    pair1       Pair1       Pair1     both ways
    pair01      Pair0       Pair1     both ways: nanomsg's pair at the front, NNG's at the back

The front faces the senders: requesters, publishers, pushers. A device terminates the protocol on one side and starts it
again on the other, with ordinary sockets, so each side may listen or dial, at any address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nngkit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of device, with the names of its two socket classes.

    `what`: a description. `asks`: it forwards requests and their replies. `both_ways`: it forwards in both directions.
    """

    name: str
    front: str
    back: str
    what: str
    asks: bool = False
    both_ways: bool = False


KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("queue", "Rep", "Req", "REQ/REP: requesters at the front, repliers at the back", asks=True),
        Kind("survey", "Respondent", "Surveyor", "SURVEY: surveyors at the front, respondents at the back", asks=True),
        Kind("forwarder", "Sub", "Pub", "PUB/SUB: publishers at the front, subscribers at the back"),
        Kind("streamer", "Pull", "Push", "PUSH/PULL: pushers at the front, pullers at the back"),
        Kind("bus", "Bus", "Bus", "joins two buses", both_ways=True),
        Kind("pair0", "Pair0", "Pair0", "a pair of version 0 (nanomsg) over two connections", both_ways=True),
        Kind("pair1", "Pair1", "Pair1", "a pair of version 1 (NNG) over two connections", both_ways=True),
        Kind("pair01", "Pair0", "Pair1", "a pair of version 0 at the front, of version 1 at the back", both_ways=True),
    )
}


def kind_of(front: str, back: str) -> Kind:
    """Return the kind of device that sockets of these classes make. Raises ConfigError if they make none."""
    for kind in KINDS.values():
        if (kind.front, kind.back) == (front, back):
            return kind
    known = ", ".join(f"{kind.front} and {kind.back}" for kind in KINDS.values())
    raise ConfigError("device", f"{front} and {back} make none; valid pairs are {known}", (front, back))
