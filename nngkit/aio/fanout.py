"""Fan-out for asyncio programs."""

from __future__ import annotations

from typing import ParamSpec, TypeVar

from nngkit.aio._base import Aio, AsyncioIterator, awaited, iterated
from nngkit.fanout import mesh as _mesh
from nngkit.fanout.mesh_events import MeshMessage, MeshNeighbour, MeshStats
from nngkit.hosted import HostedProperty, hosted_property, signature_of
from nngkit.protocols import Stats

__all__ = ["Mesh"]

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class Mesh(Aio[_mesh.Mesh]):
    """A node of a mesh: see nngkit.Mesh."""

    _of = _mesh.Mesh

    @signature_of(_mesh.Mesh)
    def __init__(self) -> None: ...

    def __aiter__(self) -> AsyncioIterator[MeshMessage]:
        """Yield the messages of other nodes, in each origin's order."""
        return self.messages()

    send = awaited(_mesh.Mesh.send)
    send_many = awaited(_mesh.Mesh.send_many)
    recv = awaited(_mesh.Mesh.recv)
    messages = iterated(_mesh.Mesh.messages)
    events = iterated(_mesh.Mesh.events)
    wait_for_neighbours = awaited(_mesh.Mesh.wait_for_neighbours)
    address: HostedProperty[str] = hosted_property(_mesh.Mesh.address)
    addresses: HostedProperty[tuple[str, ...]] = hosted_property(_mesh.Mesh.addresses)
    neighbours: HostedProperty[tuple[MeshNeighbour, ...]] = hosted_property(_mesh.Mesh.neighbours)
    stats: HostedProperty[MeshStats] = hosted_property(_mesh.Mesh.stats)
    socket_stats: HostedProperty[Stats] = hosted_property(_mesh.Mesh.socket_stats)
