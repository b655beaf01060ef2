"""Fan-out without an event loop: numbered publishers and subscribers, durable consumers, meshes."""

from __future__ import annotations

from collections.abc import Iterator

from nngkit.blocking._base import Blocking, blocking_call, iterated
from nngkit.fanout.durable import consumer as _consumer
from nngkit.fanout.durable.delivery import Delivery
from nngkit.fanout.numbered import publisher as _publisher
from nngkit.fanout.numbered import subscriber as _subscriber
from nngkit.fanout.numbered.backlog import Unread
from nngkit.fanout.numbered.synchronizing import Synchronized
from nngkit.hosted import HostedProperty, hosted_property, loop_call, signature_of
from nngkit.mesh import mesh as _mesh
from nngkit.mesh.values import MeshMessage, MeshNeighbour, MeshStats
from nngkit.portal import BlockingIterator
from nngkit.protocols import Stats

__all__ = ["Consumer", "Mesh", "Publisher", "Subscriber"]


class Consumer(Blocking[_consumer.Consumer]):
    """Durable consumer of a journal: see nngkit.fanout.Consumer. Acknowledge with `ack`, not by a delivery's method."""

    _of = _consumer.Consumer

    @signature_of(_consumer.Consumer)
    def __init__(self) -> None: ...

    def __iter__(self) -> Iterator[Delivery]:
        while True:
            yield self.receive()

    receive = blocking_call(_consumer.Consumer.receive)

    receive_batch = blocking_call(_consumer.Consumer.receive_batch)
    ack = blocking_call(_consumer.Consumer.ack)
    nak = blocking_call(_consumer.Consumer.nak)
    term = blocking_call(_consumer.Consumer.term)
    flush = blocking_call(_consumer.Consumer.flush)
    info = blocking_call(_consumer.Consumer.info)
    delete = blocking_call(_consumer.Consumer.delete)
    stats: HostedProperty[_consumer.ConsumerStats] = hosted_property(_consumer.Consumer.stats)


class Mesh(Blocking[_mesh.Mesh]):
    """A node of a mesh: see nngkit.Mesh."""

    _of = _mesh.Mesh

    @signature_of(_mesh.Mesh)
    def __init__(self) -> None: ...

    def __iter__(self) -> BlockingIterator[MeshMessage]:
        """Yield the messages of other nodes, in each origin's order."""
        return self.messages()

    send = blocking_call(_mesh.Mesh.send)
    send_many = blocking_call(_mesh.Mesh.send_many)
    recv = blocking_call(_mesh.Mesh.recv)
    messages = iterated(_mesh.Mesh.messages)
    events = iterated(_mesh.Mesh.events)
    wait_for_neighbours = blocking_call(_mesh.Mesh.wait_for_neighbours)
    address: HostedProperty[str] = hosted_property(_mesh.Mesh.address)
    addresses: HostedProperty[tuple[str, ...]] = hosted_property(_mesh.Mesh.addresses)
    neighbours: HostedProperty[tuple[MeshNeighbour, ...]] = hosted_property(_mesh.Mesh.neighbours)
    stats: HostedProperty[MeshStats] = hosted_property(_mesh.Mesh.stats)
    socket_stats: HostedProperty[Stats] = hosted_property(_mesh.Mesh.socket_stats)


class Publisher(Blocking[_publisher.Publisher]):
    """Numbered PUB: see nngkit.Publisher."""

    _of = _publisher.Publisher

    @signature_of(_publisher.Publisher)
    def __init__(self) -> None: ...

    publish = loop_call(_publisher.Publisher.publish)
    publish_many = loop_call(_publisher.Publisher.publish_many)
    subscribers = loop_call(_publisher.Publisher.subscribers)
    cut = loop_call(_publisher.Publisher.cut)
    wait_for_peers = blocking_call(_publisher.Publisher.wait_for_peers)
    address: HostedProperty[str] = hosted_property(_publisher.Publisher.address)
    plain_address: HostedProperty[str] = hosted_property(_publisher.Publisher.plain_address)
    number: HostedProperty[int] = hosted_property(_publisher.Publisher.number)
    stats: HostedProperty[_publisher.PublisherStats] = hosted_property(_publisher.Publisher.stats)


class Subscriber(Blocking[_subscriber.Subscriber]):
    """SUB that accounts for every number: see nngkit.Subscriber."""

    _of = _subscriber.Subscriber

    @signature_of(_subscriber.Subscriber)
    def __init__(self) -> None: ...

    def __iter__(self) -> Iterator[Unread | Synchronized]:
        while True:
            yield self.receive()

    receive = blocking_call(_subscriber.Subscriber.receive)
    receive_many = blocking_call(_subscriber.Subscriber.receive_many)
    messages = iterated(_subscriber.Subscriber.messages)
    lag = loop_call(_subscriber.Subscriber.lag)
    wait_for_peers = blocking_call(_subscriber.Subscriber.wait_for_peers)
    connected: HostedProperty[int] = hosted_property(_subscriber.Subscriber.connected)
    left: HostedProperty[bool] = hosted_property(_subscriber.Subscriber.left)
    stats: HostedProperty[_subscriber.SubscriberStats] = hosted_property(_subscriber.Subscriber.stats)
