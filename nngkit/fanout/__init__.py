"""Fan-out in which subscribers learn what they missed, and can fetch what is still kept.

::

    numbered/  publishers and subscribers of numbered messages
    durable/   durable consumers of a journal, and the server that delivers to them
    outbox/    messages on disk until their receiver has them

The mesh is a package of its own, `nngkit.mesh`; its names are exported here, too. All names are imported lazily.
"""

from nngkit.lazy import lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.fanout.durable.consumer import Consumer, ConsumerStats, consumers
    from nngkit.fanout.durable.delivery import Delivery, DeliveryBatch
    from nngkit.fanout.durable.messages import ConsumerInfo
    from nngkit.fanout.durable.server import ConsumerServer
    from nngkit.fanout.numbered.backlog import CaughtUp, HighWater, Lagging
    from nngkit.fanout.numbered.following import Following, FollowingStats
    from nngkit.fanout.numbered.joining import Missing
    from nngkit.fanout.numbered.keeping import Keep
    from nngkit.fanout.numbered.lag import Gap, Heartbeat, Published, Restarted
    from nngkit.fanout.numbered.publisher import Publisher, PublisherStats, SubscriberInfo
    from nngkit.fanout.numbered.subscriber import Subscriber, SubscriberLag, SubscriberStats
    from nngkit.fanout.numbered.synchronizing import Synchronized
    from nngkit.fanout.outbox.entries import OutboxEntries, OutboxReceiver, encode_entries, parse_entries
    from nngkit.fanout.outbox.outbox import Outbox, OutboxStats
    from nngkit.mesh import Mesh, MeshGap, MeshMessage, MeshNeighbour, MeshStats
    from nngkit.protocols import Pattern

__all__ = [
    "CaughtUp",
    "Consumer",
    "ConsumerInfo",
    "ConsumerServer",
    "ConsumerStats",
    "Delivery",
    "DeliveryBatch",
    "Following",
    "FollowingStats",
    "Gap",
    "Heartbeat",
    "HighWater",
    "Keep",
    "Lagging",
    "Mesh",
    "MeshGap",
    "MeshMessage",
    "MeshNeighbour",
    "MeshStats",
    "Missing",
    "Outbox",
    "OutboxEntries",
    "OutboxReceiver",
    "OutboxStats",
    "Pattern",
    "Published",
    "Publisher",
    "PublisherStats",
    "Restarted",
    "Subscriber",
    "SubscriberInfo",
    "SubscriberLag",
    "SubscriberStats",
    "Synchronized",
    "consumers",
    "encode_entries",
    "parse_entries",
]

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "durable.consumer": "Consumer ConsumerStats consumers",
            "durable.delivery": "Delivery DeliveryBatch",
            "durable.messages": "ConsumerInfo",
            "durable.server": "ConsumerServer",
            "numbered.backlog": "CaughtUp HighWater Lagging",
            "numbered.following": "Following FollowingStats",
            "numbered.joining": "Missing",
            "numbered.keeping": "Keep",
            "numbered.lag": "Gap Heartbeat Published Restarted",
            "numbered.publisher": "Publisher PublisherStats SubscriberInfo",
            "numbered.subscriber": "Subscriber SubscriberLag SubscriberStats",
            "numbered.synchronizing": "Synchronized",
            "outbox.entries": "OutboxEntries OutboxReceiver encode_entries parse_entries",
            "outbox.outbox": "Outbox OutboxStats",
            "nngkit.mesh": "Mesh MeshGap MeshMessage MeshNeighbour MeshStats",
            "nngkit.protocols": "Pattern",
        },
    )
