"""State of a cluster as its host reports it: the members in their tree, the voters, the jobs. Values only.

The host answers; docs/schemas has the JSON of `as_dict`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from msgspec import Meta, field
from msgspec.structs import asdict

from nngkit.mesh.wire import MOST_ORIGIN
from nngkit.messages import Fields, Maps, Row

WHAT: Final = "status of a cluster"
MOST_MEMBERS: Final = 100_000


class ClusterMember(Row, frozen=True):
    """A node of the cluster. `parent`: "" at the host. `slots`: jobs that it does at a time."""

    id: str
    parent: str
    address: str | None
    depth: int
    slots: int = 0
    kinds: tuple[str, ...] = ()
    voter: bool = False


class VoterState(Row, frozen=True):
    """A configured voter: whether the host reaches it."""

    id: str
    address: str
    connected: bool


class JobCounts(Row, frozen=True):
    """Jobs of a kind ("": of all kinds): waiting, given to workers, and of all kinds ended since the log began."""

    kind: str
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0


class ClusterStatus(Fields, frozen=True):
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
        refused: What the host has refused to other nodes under a trust, by code: "binding", "right".
    """

    cluster: str
    term: int
    host: Annotated[str, Meta(max_length=MOST_ORIGIN)]
    members: int
    depth: int
    grants: bool
    voters: tuple[VoterState, ...] = ()
    jobs: tuple[JobCounts, ...] = ()
    counters: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        voters, jobs = (tuple(map(asdict, rows)) for rows in (self.voters, self.jobs))
        return asdict(self) | {"voters": voters, "jobs": jobs}

    @classmethod
    def parse(cls, content: object, peer: str) -> ClusterStatus:
        """Return the status in an answer of the host. Raises BadMessage."""
        return _STATUS.parse(content, peer)

    def fields(self) -> dict[str, Any]:
        """Return the content of an answer, for `parse`."""
        packed = _STATUS.pack(self)
        if not self.refused:  # earlier versions say nothing of it
            del packed["refused"]
        return packed


class ClusterTree(Fields, frozen=True):
    """The members of a cluster in their tree; the host is first, and each parent comes before its children."""

    cluster: str
    term: int
    members: Annotated[tuple[ClusterMember, ...], Meta(max_length=MOST_MEMBERS)]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return asdict(self) | {"members": tuple(map(asdict, self.members))}

    def fields(self) -> dict[str, Any]:
        """Return the content of an answer, for `parse`."""
        return _TREE.pack(self)

    @classmethod
    def parse(cls, content: object, peer: str) -> ClusterTree:
        """Return the tree in an answer of the host. Raises BadMessage."""
        return _TREE.parse(content, peer)

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


_STATUS: Final = Maps[ClusterStatus](WHAT, ClusterStatus)
_TREE: Final = Maps[ClusterTree](WHAT, ClusterTree)
