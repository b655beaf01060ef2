"""Counters of a node and of its parts, for monitoring. Reads its node, and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nngkit.cluster.election.values import ElectionStats
from nngkit.cluster.jobs.values import CrewStats, WorkStats
from nngkit.cluster.node.values import NodeStats
from nngkit.cluster.tree.values import PlaceStats
from nngkit.instruments import ByCode, ByKind, Gauge, Label
from nngkit.mesh.values import MeshStats

if TYPE_CHECKING:
    from nngkit.cluster.node.node import Node


@dataclass(frozen=True, slots=True)
class JobStats:
    """Jobs of one kind at the host."""

    job: Label
    waiting: Gauge
    """Jobs that wait for a worker, by kind."""
    running: Gauge
    """Jobs given to workers, by kind."""


@dataclass(frozen=True, slots=True)
class EndpointStats:
    """Counters of a node: its `place` in the tree, its `crew` of workers, the `mesh` of messages to all.

    `work` and `jobs`: of the host's queue, None and empty at other nodes. `election`: None where it is no voter.
    """

    members: Gauge
    """Nodes below this one, and itself."""
    depth: Gauge
    """Edges to the farthest of the nodes below."""
    leading: Gauge
    """1 at the host, 0 at other nodes."""
    term: Gauge
    """Number of the host's election, as far as this node knows."""
    busy: Gauge
    """Workers that have a job."""
    messages: ByKind
    """Messages to all and to one node, and what became of them, by kind."""
    refused: ByCode
    """Refusals of what other nodes called themselves or wanted to do, by code: "binding", "right". With a trust."""
    node: NodeStats
    place: PlaceStats
    crew: CrewStats
    mesh: MeshStats
    jobs: tuple[JobStats, ...]
    work: WorkStats | None
    election: ElectionStats | None


def endpoint_stats(node: Node) -> EndpointStats:
    """Return the present counters of `node`."""
    host = node.work.host
    depths = {} if host is None else host.depths()
    members = node.questions.tree().members
    return EndpointStats(
        members=len(members),
        depth=max((member.depth for member in members), default=0),
        leading=int(node.place.leading),
        term=node.place.term,
        busy=node.work.crew.busy,
        messages=dict(node.documents.count),
        refused={} if node.config.judge is None else dict(node.config.judge.refusals),
        node=replace(node.stats),
        place=replace(node.place.stats),
        crew=replace(node.work.crew.stats),
        mesh=node.mesh.stats,
        jobs=tuple(JobStats(kind, waiting, running) for kind, (waiting, running) in sorted(depths.items())),
        work=None if host is None else replace(host.stats),
        election=None if node.voting is None else node.voting.voter.stats,
    )
