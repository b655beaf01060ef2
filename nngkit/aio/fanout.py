"""Fan-out for asyncio programs: numbered publishers and subscribers, durable consumers, meshes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Self

from nngkit.aio._base import Aio, AsyncioIterator, awaited, iterated
from nngkit.fanout.durable import consumer as _consumer
from nngkit.fanout.durable.delivery import Delivery, DeliveryBatch
from nngkit.fanout.numbered import publisher as _publisher
from nngkit.fanout.numbered import subscriber as _subscriber
from nngkit.fanout.numbered.backlog import Unread
from nngkit.fanout.numbered.synchronizing import Synchronized
from nngkit.hosted import HostedProperty, hosted_property, loop_call, signature_of
from nngkit.mesh import mesh as _mesh
from nngkit.mesh.values import MeshMessage, MeshNeighbour, MeshStats
from nngkit.protocols import Stats

__all__ = ["Consumer", "Mesh", "Publisher", "Subscriber"]


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

    async def batches(self) -> AsyncGenerator[DeliveryBatch, None]:
        """Iterate over `receive_batch`, until the block ends."""
        while True:
            yield await self.receive_batch()

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


class Publisher(Aio[_publisher.Publisher]):
    """Numbered PUB: see nngkit.Publisher."""

    _of = _publisher.Publisher

    @signature_of(_publisher.Publisher)
    def __init__(self) -> None: ...

    publish = loop_call(_publisher.Publisher.publish)
    publish_many = loop_call(_publisher.Publisher.publish_many)
    subscribers = loop_call(_publisher.Publisher.subscribers)
    cut = loop_call(_publisher.Publisher.cut)
    wait_for_peers = awaited(_publisher.Publisher.wait_for_peers)
    address: HostedProperty[str] = hosted_property(_publisher.Publisher.address)
    plain_address: HostedProperty[str] = hosted_property(_publisher.Publisher.plain_address)
    number: HostedProperty[int] = hosted_property(_publisher.Publisher.number)
    stats: HostedProperty[_publisher.PublisherStats] = hosted_property(_publisher.Publisher.stats)


class Subscriber(Aio[_subscriber.Subscriber]):
    """SUB that accounts for every number: see nngkit.Subscriber."""

    _of = _subscriber.Subscriber

    @signature_of(_subscriber.Subscriber)
    def __init__(self) -> None: ...

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Unread | Synchronized:
        return await self.receive()

    receive = awaited(_subscriber.Subscriber.receive)
    receive_many = awaited(_subscriber.Subscriber.receive_many)
    messages = iterated(_subscriber.Subscriber.messages)
    lag = loop_call(_subscriber.Subscriber.lag)
    wait_for_peers = awaited(_subscriber.Subscriber.wait_for_peers)
    connected: HostedProperty[int] = hosted_property(_subscriber.Subscriber.connected)
    left: HostedProperty[bool] = hosted_property(_subscriber.Subscriber.left)
    stats: HostedProperty[_subscriber.SubscriberStats] = hosted_property(_subscriber.Subscriber.stats)
