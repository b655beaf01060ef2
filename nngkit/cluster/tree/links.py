"""Links of a node: what each is used for, greetings, signs of life. Pure.

Roles of a link::

    new       accepted or dialed, without a greeting     parent    to the parent
    guest     greeted, wants nothing now                 left      to the parent before, until that ends it
    waiter    a joiner that waits here                   asked     dialed to join
    pending   a joiner that was accepted                 standby   dialed, or accepted, to join perhaps later
    child     a joiner that has attached                 voter, look   used by other parts of the node
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from nngkit.cluster.tree.messages import Ancestry, Heartbeat, Hello, Join, Message, Purpose
from nngkit.cluster.tree.values import PlaceEffects, PlaceLimits, PlaceStats

Role: TypeAlias = Literal["new", "guest", "waiter", "pending", "child", "parent", "left", "asked", "standby"]
_QUICK: frozenset[Role] = frozenset(("child", "parent", "left", "pending"))


class Link:
    """One link.

    Attributes:
        dialed: The address that was dialed; None if the link was accepted.
        purpose: Of the dialer.
        hello: Greeting of the other end; None before it.
        heard, sent: Time of the last message in each direction.
        since: When the role began.
        told: What was last announced to a child.
        join: Request of a joiner. ``displaces``: id of a leaf that makes room for it.
    """

    __slots__ = ("dialed", "displaces", "heard", "hello", "join", "number", "purpose", "role", "sent", "since", "told")

    def __init__(self, number: int, dialed: str | None, now: float) -> None:
        self.number = number
        self.dialed = dialed
        self.purpose: Purpose | None = None
        self.role: Role = "new"
        self.hello: Hello | None = None
        self.heard = self.sent = self.since = now
        self.told: Ancestry | None = None
        self.join: Join | None = None
        self.displaces: str | None = None

    @property
    def id(self) -> str:
        return self.hello.id if self.hello else ""

    @property
    def address(self) -> str | None:
        return self.hello.address if self.hello else None

    def turn(self, role: Role, now: float) -> None:
        """Begin another role."""
        self.role, self.since = role, now


class Neighbours:
    """The links of a node, and the effects on them."""

    def __init__(self, limits: PlaceLimits, stats: PlaceStats) -> None:
        self.limits = limits
        self.stats = stats
        self.links: dict[int, Link] = {}
        self.dialing: set[str] = set()
        self.effects = PlaceEffects()
        self.now = 0.0

    def __iter__(self) -> Iterator[Link]:
        return iter(list(self.links.values()))

    def having(self, *roles: Role) -> list[Link]:
        """Return the links with one of these roles, the oldest first."""
        return [link for link in self.links.values() if link.role in roles]

    def send(self, link: Link, message: Message) -> None:
        """Send a message, unless the link has ended."""
        if self.links.get(link.number) is link:
            link.sent = self.now
            self.effects.sends.append((link.number, message))

    def drop(self, link: Link) -> None:
        """End a link."""
        if self.links.pop(link.number, None) is not None:
            self.effects.drop.append(link.number)

    def dial(self, address: str) -> None:
        """Connect to an address, unless that is under way."""
        if address not in self.dialing:
            self.dialing.add(address)
            self.effects.dial.append(address)

    def heartbeats(self, now: float) -> list[Link]:
        """Send signs of life; return the links whose other end gives none, or has not done its part in time."""
        limits = self.limits
        late = []
        for link in self.links.values():
            role = link.role
            if role in _QUICK:
                pause, silence = limits.heartbeat, limits.silence
            else:
                pause, silence = limits.standby_heartbeat, limits.standby_silence
            if now - link.heard >= silence:
                self.stats.silent += 1
                late.append(link)
            elif role in ("new", "guest", "pending", "left") and now - link.since >= limits.handshake:
                late.append(link)
            elif now - link.sent >= pause * 0.99 and role != "new":
                link.sent = now
                self.effects.sends.append((link.number, Heartbeat()))
        return late
