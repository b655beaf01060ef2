"""Settings and counters of a node, what it asks the shell to do, and what it reports beside its parts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from nngkit.cluster.admission import Authenticator
from nngkit.cluster.jobs.sharing import Decide, evenly
from nngkit.cluster.node.letters import LetterLimits
from nngkit.mesh.limits import MeshLimits

__all__ = ["ContentChanged", "DialRefused", "NodeConfig", "NodeEffects", "NodeStats"]

DIGEST: Final = 1.0  # seconds between digests: links lose nothing, so they matter only after a move


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """Settings of a node.

    Attributes:
        cluster: Name of the cluster.
        id: Id of the node, unique in it.
        address: Where other nodes reach it; None: it accepts none, and has no children.
        seeds: Addresses of nodes to ask for a place.
        voters: Addresses of the voters by id, this node's among them if it is one; empty if unknown.
        preference: Of several voters that know the same, the one with the highest preference becomes host.
        durable: A voter whose log is on disk.
        fanout: Most children.
        kinds: Kinds of the jobs that it does.
        slots: Jobs that it does at a time.
        decide: Policy that divides jobs between the node itself and its children.
        token, ticket: What it shows to the nodes that it joins.
        authenticator: Decides on nodes that join it; None: they show the token, or a ticket signed with it.
        max_members: Nodes of the cluster; the host refuses more.
        recv_max_size: Bytes of the largest frame.
        lease: Seconds until the voters elect another host if they hear nothing of the last one.
        mesh, letters: Limits of messages.
        facts: What the other nodes know of it, beside slots and kinds.
    """

    cluster: str
    id: str
    address: str | None = None
    seeds: tuple[str, ...] = ()
    voters: Mapping[str, str] = field(default_factory=dict)
    preference: int = 0
    durable: bool = False
    fanout: int = 8
    kinds: frozenset[str] = frozenset()
    slots: int = 0
    decide: Decide = evenly
    token: str | None = None
    ticket: str | None = None
    authenticator: Authenticator | None = None
    max_members: int = 20_000
    recv_max_size: int = 16 * 1024 * 1024
    lease: float = 0.5
    mesh: MeshLimits = field(default_factory=lambda: MeshLimits(digest=DIGEST))
    letters: LetterLimits = field(default_factory=LetterLimits)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class NodeEffects:
    """Work for the shell, in this order.

    Attributes:
        sends: A link, its frames, and whether they may be dropped, in order.
        drops: Links to end, once what was sent is written.
        dials: Addresses to connect to.
        events: Reports for the program: see `endpoint.py`.
        warnings: Lines for the log.
    """

    sends: list[tuple[int, list[bytes], bool]] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)
    dials: list[str] = field(default_factory=list)
    events: list[object] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass
class NodeStats:
    """Counters of a node's frames.

    Attributes:
        bad: Frames that could not be read.
        unknown: Frames of a kind that this version does not know.
        early: Messages on links that were not part of the tree yet; the mesh asks for them.
        forwarded: Routed frames for other nodes.
        unroutable: Routed frames without a way to their node; their senders repeat what matters.
    """

    bad: int = 0
    unknown: int = 0
    early: int = 0
    forwarded: int = 0
    unroutable: int = 0


@dataclass(frozen=True, slots=True)
class ContentChanged:
    """Documents and shared objects that have new content, or confirmed changes."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class DialRefused:
    """A node that was dialed has refused this one."""

    address: str
    why: str
