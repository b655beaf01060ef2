"""State of a cluster as its host reports it: the members in their tree, the voters, the jobs. Values only.

The host answers; docs/schemas has the JSON of `as_dict`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from nngkit.envelope import as_map
from nngkit.envelope import field as read
from nngkit.errors import BadMessage
from nngkit.mesh.wire import MOST_ORIGIN

__all__ = ["ClusterMember", "ClusterStatus", "ClusterTree", "JobCounts", "VoterState"]

WHAT: Final = "status of a cluster"
MOST_MEMBERS: Final = 100_000


@dataclass(frozen=True, slots=True)
class ClusterMember:
    """A node of the cluster. `parent`: "" at the host. `slots`: jobs that it does at a time."""

    id: str
    parent: str
    address: str | None
    depth: int
    slots: int = 0
    kinds: tuple[str, ...] = ()
    voter: bool = False


@dataclass(frozen=True, slots=True)
class VoterState:
    """A configured voter: whether the host reaches it."""

    id: str
    address: str
    connected: bool


@dataclass(frozen=True, slots=True)
class JobCounts:
    """Jobs of a kind ("": of all kinds): waiting, given to workers, and of all kinds ended since the log began."""

    kind: str
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """State of a cluster, as its host sees it.

    Attributes:
        cluster: Its name.
        term: Number of the host's election.
        host: Id of the host.
        members: Nodes, the host included.
        depth: Edges from the host to the farthest node.
        grants: False while the host may not grant work, as it has no majority of the voters.
        voters: The configured voters.
        jobs: Counts, first of all kinds, then by kind.
        counters: Counters of the host's parts, by name.
    """

    cluster: str
    term: int
    host: str
    members: int
    depth: int
    grants: bool
    voters: tuple[VoterState, ...] = ()
    jobs: tuple[JobCounts, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return asdict(self)

    @classmethod
    def parse(cls, content: object, peer: str) -> ClusterStatus:
        """Return the status in an answer of the host. Raises BadMessage."""
        fields = as_map(content, what=WHAT, peer=peer)
        try:
            return cls(
                cluster=read(fields, "cluster", str, what=WHAT, peer=peer),
                term=read(fields, "term", int, what=WHAT, peer=peer),
                host=read(fields, "host", str, what=WHAT, peer=peer, max_len=MOST_ORIGIN),
                members=read(fields, "members", int, what=WHAT, peer=peer),
                depth=read(fields, "depth", int, what=WHAT, peer=peer),
                grants=read(fields, "grants", bool, what=WHAT, peer=peer),
                voters=tuple(VoterState(*row[:3]) for row in read(fields, "voters", list, what=WHAT, peer=peer)),
                jobs=tuple(JobCounts(*row[:7]) for row in read(fields, "jobs", list, what=WHAT, peer=peer)),
                counters=read(fields, "counters", dict, what=WHAT, peer=peer),
            )
        except TypeError as error:
            raise BadMessage(WHAT, str(error), peer) from error

    def fields(self) -> dict[str, Any]:
        """Return the content of an answer, for `parse`."""
        return {
            "cluster": self.cluster,
            "term": self.term,
            "host": self.host,
            "members": self.members,
            "depth": self.depth,
            "grants": self.grants,
            "voters": [[one.id, one.address, one.connected] for one in self.voters],
            "jobs": [list(asdict(one).values()) for one in self.jobs],
            "counters": dict(self.counters),
        }


@dataclass(frozen=True, slots=True)
class ClusterTree:
    """The members of a cluster in their tree; the host is first, and each parent comes before its children."""

    cluster: str
    term: int
    members: tuple[ClusterMember, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return asdict(self)

    def fields(self) -> dict[str, Any]:
        """Return the content of an answer, for `parse`."""
        rows = [
            [one.id, one.parent, one.address, one.depth, one.slots, list(one.kinds), one.voter] for one in self.members
        ]
        return {"cluster": self.cluster, "term": self.term, "members": rows}

    @classmethod
    def parse(cls, content: object, peer: str) -> ClusterTree:
        """Return the tree in an answer of the host. Raises BadMessage."""
        fields = as_map(content, what=WHAT, peer=peer)
        rows = read(fields, "members", list, what=WHAT, peer=peer, max_len=MOST_MEMBERS)
        members = []
        for row in rows:
            match row:
                case [
                    str(id),
                    str(parent),
                    str() | None as address,
                    int(depth),
                    int(slots),
                    list(kinds),
                    bool(voter),
                    *_,
                ]:
                    members.append(ClusterMember(id, parent, address, depth, slots, tuple(map(str, kinds)), voter))
                case _:
                    raise BadMessage(WHAT, "a row is not a member", peer)
        cluster = read(fields, "cluster", str, what=WHAT, peer=peer)
        return cls(cluster, read(fields, "term", int, what=WHAT, peer=peer), tuple(members))

    def lines(self) -> Iterator[str]:
        """Yield the tree as lines of text: ids with their addresses, slots and kinds, children below their parent."""
        children: dict[str, list[ClusterMember]] = {}
        for member in self.members:
            children.setdefault(member.parent, []).append(member)
        # depth first, by a stack: a chain of nodes may be deeper than Python's own
        stack = [(member, "", "", "") for member in reversed(children.get("", []))]
        while stack:
            member, stem, branch, below = stack.pop()
            jobs = f"  {member.slots} slots: {', '.join(member.kinds)}" if member.slots else ""
            place = f"  {member.address}" if member.address else ""
            yield f"{stem}{branch}{member.id}{'  (host)' if not member.parent else ''}{place}{jobs}"
            inner = sorted(children.get(member.id, []), key=lambda one: one.id)
            for one in reversed(inner):
                last = one is inner[-1]
                stack.append((one, stem + below, "└─ " if last else "├─ ", "   " if last else "│  "))
