"""Fan-out that one can trust: what was missed is known, and what can be made up for is.

::

    pure     lag                                      numbers of messages; gaps, duplicates, restarts
             backlog (keeping, publishing_messages)   what a subscriber has not read; the last message of each topic
             consumer_state                           records in flight of a named consumer: ack, redelivery, give up
             consumer_messages                        requests and replies between a consumer and its server
             outbox_entries                           what an outbox sends, and the check for duplicates
             joining                                  recorded and live messages, each once
             mesh_wire, mesh_stream                   frames of the mesh; one run of an origin: order, gaps
             mesh_state (mesh_limits)                 decisions of a node: accept, relay, ask, answer, forget
    shells   publisher                                numbers, heartbeats, snapshots, subscribers' positions
             subscriber (synchronizing)               events in order; snapshot, then live
             consumer_server (_consumer_*)            serves a journal to named consumers; their state on disk
             consumer (delivery)                      receives records, acknowledges them
             following                                a journal from an offset on, then a SUB
             outbox                                   sends in order over PUSH or REQ, from a log on disk
             mesh (mesh_events)                       a node of the mesh, over BUS

The names below are imported lazily.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.fanout.backlog import CaughtUp, HighWater, Lagging
    from nngkit.fanout.consumer import Consumer, ConsumerStats, consumers
    from nngkit.fanout.consumer_messages import ConsumerInfo
    from nngkit.fanout.consumer_server import ConsumerServer
    from nngkit.fanout.delivery import Delivery, DeliveryBatch
    from nngkit.fanout.following import Following, FollowingStats
    from nngkit.fanout.joining import Missing
    from nngkit.fanout.keeping import Keep
    from nngkit.fanout.lag import Gap, Heartbeat, Published, Restarted
    from nngkit.fanout.mesh import Mesh
    from nngkit.fanout.mesh_events import MeshGap, MeshMessage, MeshNeighbour, MeshStats
    from nngkit.fanout.outbox import Outbox, OutboxStats
    from nngkit.fanout.outbox_entries import OutboxEntries, OutboxReceiver, encode_entries, parse_entries
    from nngkit.fanout.publisher import Publisher, PublisherStats, SubscriberInfo
    from nngkit.fanout.subscriber import Subscriber, SubscriberLag, SubscriberStats
    from nngkit.fanout.synchronizing import Synchronized
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

_MODULES = {
    "backlog": ("CaughtUp", "HighWater", "Lagging"),
    "consumer": ("Consumer", "ConsumerStats", "consumers"),
    "consumer_messages": ("ConsumerInfo",),
    "consumer_server": ("ConsumerServer",),
    "delivery": ("Delivery", "DeliveryBatch"),
    "following": ("Following", "FollowingStats"),
    "joining": ("Missing",),
    "keeping": ("Keep",),
    "lag": ("Gap", "Heartbeat", "Published", "Restarted"),
    "mesh": ("Mesh",),
    "mesh_events": ("MeshGap", "MeshMessage", "MeshNeighbour", "MeshStats"),
    "outbox": ("Outbox", "OutboxStats"),
    "outbox_entries": ("OutboxEntries", "OutboxReceiver", "encode_entries", "parse_entries"),
    "publisher": ("Publisher", "PublisherStats", "SubscriberInfo"),
    "subscriber": ("Subscriber", "SubscriberLag", "SubscriberStats"),
    "synchronizing": ("Synchronized",),
}
_LAZY = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}
_LAZY["Pattern"] = "nngkit.protocols"

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name

    def __getattr__(name: str) -> object:
        """Import a lazy name on first use."""
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(_LAZY[name]), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
