"""Durable consumers and outboxes for asyncio programs."""

from __future__ import annotations

from typing import Self

from nngkit.aio._base import Aio, awaited
from nngkit.fanout import consumer as _consumer
from nngkit.fanout.delivery import Delivery
from nngkit.hosted import HostedProperty, hosted_property, signature_of

__all__ = ["Consumer"]


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
