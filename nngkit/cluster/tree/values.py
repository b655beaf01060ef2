"""Limits of a node's place in the tree, what it asks the shell to do, and what it reports. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from nngkit.cluster.tree.messages import Member, Message
from nngkit.instruments import Total
from nngkit.mesh.limits import check_numbers


@dataclass(frozen=True, kw_only=True)
class PlaceLimits:
    """Limits and times of a node. Times are in seconds.

    Attributes:
        heartbeat: A link of the tree carries something at least every two of these.
        silence: Such a link without a message for so long is dropped.
        standby_heartbeat, standby_silence: The same for standby links, which are in no hurry.
        handshake: Time for a greeting on an accepted link, and for an accepted joiner to attach.
        attempt: Time for a dial, and for the answer to a joiner.
        wait: Time after which a joiner that was told to wait asks elsewhere.
        stagger: Time after which a joiner without an answer asks the next node as well.
        first_backoff, longest_backoff: Pause after all known addresses were tried; doubled each time.
        patience: Time without a path, or with that of a past term, after which a node looks for another parent although
            its own one is connected.
        news: Least time between two messages with changes of the members, after the first.
        quiet: Time without changes after which the root balances the tree.
        plan: Least time between two plans of the root.
        moves: Moves of one plan; `tree.REPAIR` at least.
        members: Members of the cluster; the root refuses more.
        links: Links of a node, of all kinds; more are dropped at once.
        waiters: Joiners that wait at one node.
    """

    heartbeat: float = 0.2
    silence: float = 1.5
    standby_heartbeat: float = 1.0
    standby_silence: float = 5.0
    handshake: float = 5.0
    attempt: float = 1.0
    wait: float = 2.0
    stagger: float = 0.05
    first_backoff: float = 0.05
    longest_backoff: float = 2.0
    patience: float = 2.0
    news: float = 0.01
    quiet: float = 0.5
    plan: float = 1.0
    moves: int = 16
    members: int = 20_000
    links: int = 1024
    waiters: int = 512

    def __post_init__(self) -> None:
        check_numbers(self, below=1e9)


class Attached(NamedTuple):
    """The node has a path to the host of `term`: a new one, of a new term, or over a new parent.

    ``link``: to the parent; None at the host itself. Requests without an answer are repeated now.
    """

    term: int
    host: str
    link: int | None


class Detached(NamedTuple):
    """The node has no path to a host now. Its children stay."""

    why: str


class TermChanged(NamedTuple):
    """The path leads to the host of another term than before."""

    term: int
    host: str


class ParentUp(NamedTuple):
    """The link leads to the parent: broadcast messages may use it. That to the old parent goes down later."""

    link: int
    id: str


class ParentDown(NamedTuple):
    """The link does not lead to the parent any more."""

    link: int
    id: str


class ChildUp(NamedTuple):
    """A child has attached."""

    link: int
    id: str


class ChildDown(NamedTuple):
    """A child has left, or its link has ended."""

    link: int
    id: str


class MemberAdded(NamedTuple):
    """A node is a member below this one (at the host: of the cluster). ``before``: its earlier place or run."""

    member: Member
    before: Member | None


class MemberRemoved(NamedTuple):
    """A node is no member below this one any more."""

    member: Member


class Greeted(NamedTuple):
    """The node at the other end of a link has introduced itself. ``known``: the latest term that it has heard of."""

    id: str
    known: int


class Silent(NamedTuple):
    """A node has sent nothing for some seconds, although it is connected: the link is ended."""

    id: str
    address: str
    seconds: float


class OtherVoters(NamedTuple):
    """A node has other voters than this one, which is a voter by its own list."""

    id: str
    voters: tuple[str, ...]


class PlaceRefused(NamedTuple):
    """The cluster does not want this node. ``final``: it has stopped, and a new one is needed."""

    why: str
    final: bool


class ParentUnfit(NamedTuple):
    """A node that would be the parent, or was, may not be it."""

    id: str
    address: str
    why: str


class Left(NamedTuple):
    """`leave` is complete: no node depends on this one."""


PlaceEvent: TypeAlias = (
    Attached
    | Detached
    | Silent
    | TermChanged
    | ParentUp
    | ParentDown
    | ChildUp
    | ChildDown
    | MemberAdded
    | MemberRemoved
    | Greeted
    | OtherVoters
    | PlaceRefused
    | ParentUnfit
    | Left
)


class PlaceEffects:
    """Work for the shell, in this order.

    Attributes:
        sends: Pairs of a link and a message.
        drop: Links to end, once what was sent is written. `link_down` is not called for them.
        dial: Addresses to connect to once: `link_up` or `dial_failed` follows.
        events: Reports for the other parts of the node.
    """

    __slots__ = ("dial", "drop", "events", "sends")

    def __init__(self) -> None:
        self.sends: list[tuple[int, Message]] = []
        self.drop: list[int] = []
        self.dial: list[str] = []
        self.events: list[PlaceEvent] = []


@dataclass
class PlaceStats:
    """Counters of a node."""

    attached: Total = 0
    """How often it has attached to a parent."""
    lost: Total = 0
    """Parents lost."""
    silent: Total = 0
    """Links dropped because they were silent."""
    accepted: Total = 0
    """Joiners accepted."""
    referred: Total = 0
    """Joiners referred to another node."""
    refused: Total = 0
    """Joiners refused."""
    overflows: Total = 0
    """Links refused because there were too many."""
    unexpected: Total = 0
    """Messages that did not fit the state of their link, and were ignored."""
    loops: Total = 0
    """Paths that contained the node's id: each is an error of a peer, or that of another node with this id."""
    moves: Total = 0
    """Moves ordered by this node as the root."""
    numbers: Total = 0
    """Numbers given to paths by this node as the root."""
    doubles: Total = 0
    """Ids found twice."""
