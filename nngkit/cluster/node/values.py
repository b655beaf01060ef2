"""Settings and counters of a node, what it asks the shell to do, and what it reports beside its parts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nngkit.cluster.admission import Authenticator
from nngkit.cluster.jobs.sharing import Decide, evenly
from nngkit.cluster.node.letters import LetterLimits
from nngkit.cluster.rights import Judge
from nngkit.instruments import Total
from nngkit.mesh.limits import MeshLimits

DIGEST: Final = 1.0  # seconds between digests: links lose nothing, so they matter only after a move


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """Settings of a node."""

    cluster: str  # name of the cluster
    id: str  # id of the node, unique in it
    address: str | None = None  # where other nodes reach it; None: it accepts none, and has no children
    seeds: tuple[str, ...] = ()  # addresses of nodes to ask for a place
    # addresses of the voters by id, this node's among them if it is one; empty if unknown
    voters: Mapping[str, str] = field(default_factory=dict)
    preference: int = 0  # of several voters that know the same, the one with the highest preference becomes host
    durable: bool = False  # a voter whose log is on disk
    fanout: int = 8  # most children
    kinds: frozenset[str] = frozenset()  # kinds of the jobs that it does
    slots: int = 0  # jobs that it does at a time
    decide: Decide = evenly  # policy that divides jobs between the node itself and its children
    token: str | None = None  # this, or the ticket, is what it proves to its neighbours, and they to it
    ticket: str | None = None
    # decides on nodes that join it; None: they prove the token, or a ticket signed with it
    authenticator: Authenticator | None = None
    judge: Judge | None = None  # decides on names and rights; None where connections prove no names
    max_members: int = 20_000  # nodes of the cluster; the host refuses more
    recv_max_size: int = 16 * 1024 * 1024  # bytes of the largest frame
    lease: float = 0.5  # seconds until the voters elect another host if they hear nothing of the last one
    mesh: MeshLimits = field(default_factory=lambda: MeshLimits(digest=DIGEST))
    letters: LetterLimits = field(default_factory=LetterLimits)
    facts: Mapping[str, Any] = field(default_factory=dict)  # what the other nodes know of it, beside slots and kinds


@dataclass(slots=True)
class NodeEffects:
    """Work for the shell, in this order."""

    # a link, its frames, and whether they may be dropped, in order
    sends: list[tuple[int, list[bytes], bool]] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)  # links to end, once what was sent is written
    dials: list[str] = field(default_factory=list)  # addresses to connect to
    events: list[object] = field(default_factory=list)  # reports for the program: see `endpoint.py`
    warnings: list[str] = field(default_factory=list)  # lines for the log


@dataclass
class NodeStats:
    """Counters of a node's frames."""

    bad: Total = 0
    """Frames that could not be read."""
    unknown: Total = 0
    """Frames of a kind that this version does not know."""
    early: Total = 0
    """Messages on links that were not part of the tree yet; the mesh asks for them."""
    forwarded: Total = 0
    """Routed frames for other nodes."""
    astray: Total = 0
    """Routed frames from above, of nodes below, which are dropped: with names only."""
    unroutable: Total = 0
    """Routed frames without a way to their node; their senders repeat what matters."""
    given_up: Total = 0
    """Messages to one node that it has not acknowledged in time."""


@dataclass(frozen=True, slots=True)
class ContentChanged:
    """Documents and shared objects that have new content, or confirmed changes."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class DialRefused:
    """A node that was dialed has refused this one."""

    address: str
    why: str
