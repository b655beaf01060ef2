"""Fan-out for asyncio programs: meshes, durable consumers."""

from __future__ import annotations

from typing import Self

from nngkit.aio._base import Aio, AsyncioIterator, awaited, iterated
from nngkit.fanout import consumer as _consumer
from nngkit.fanout import mesh as _mesh
from nngkit.fanout.delivery import Delivery
from nngkit.fanout.mesh_events import MeshMessage, MeshNeighbour, MeshStats
from nngkit.hosted import HostedProperty, hosted_property, signature_of
from nngkit.protocols import Stats

__all__ = ["Consumer", "Mesh"]


class Consumer(Aio[_consumer.Consumer]):
    """Durable consumer of a journal: see nngkit.fanout.Consumer. Acknowledge with `ack`, not by a delivery's method."""

    _of = _consumer.Consumer

    @signature_of(_consumer.Consumer)
    def __init__(self) -> None: ...

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        return await self.receive()

    receive = awaited(_consumer.Consumer.receive)
    receive_batch = awaited(_consumer.Consumer.receive_batch)
    ack = awaited(_consumer.Consumer.ack)
    nak = awaited(_consumer.Consumer.nak)
    term = awaited(_consumer.Consumer.term)
    flush = awaited(_consumer.Consumer.flush)
    info = awaited(_consumer.Consumer.info)
    delete = awaited(_consumer.Consumer.delete)
    stats: HostedProperty[_consumer.ConsumerStats] = hosted_property(_consumer.Consumer.stats)


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
