"""Messages of a cluster as values. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterMessage:
    """A message of another node.

    Attributes:
        origin: Id of the node that sent it.
        epoch: Its run: microseconds since 1970 at its start.
        sequence: Its number among the messages of that run: to all nodes, or to this one.
        kind: Kind of the message.
        body: Bytes.
        direct: True if it was sent to this node only.
    """

    origin: str
    epoch: int
    sequence: int
    kind: str
    body: bytes
    direct: bool = False


@dataclass(frozen=True, slots=True)
class ClusterGap:
    """Messages `first` to `last` of a run of `origin` will not come. `reason`: as of nngkit.fanout.MeshGap."""

    origin: str
    epoch: int
    first: int
    last: int
    reason: str
