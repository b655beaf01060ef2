"""Fan-out: durable consumers of a journal, and an outbox for a peer that is away.

::

    pure     consumer_state                           records in flight of a named consumer: ack, redelivery, give up
             consumer_messages                        requests and replies between a consumer and its server
             outbox_entries                           what an outbox sends, and the check for duplicates
             joining                                  recorded and live messages, each once
    shells   consumer_server (_consumer_*)            serves a journal to named consumers; their state on disk
             consumer (delivery)                      receives records, acknowledges them
             following                                a journal from an offset on, then a SUB
             outbox                                   sends in order over PUSH or REQ, from a log on disk

The names below are imported lazily.
"""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.fanout.consumer import Consumer, ConsumerStats, consumers
    from nngkit.fanout.consumer_messages import ConsumerInfo
    from nngkit.fanout.consumer_server import ConsumerServer
    from nngkit.fanout.delivery import Delivery, DeliveryBatch
    from nngkit.fanout.following import Following, FollowingStats
    from nngkit.fanout.joining import Missing
    from nngkit.fanout.outbox import Outbox, OutboxStats
    from nngkit.fanout.outbox_entries import OutboxEntries, OutboxReceiver, encode_entries, parse_entries

__all__ = [
    "Consumer",
    "ConsumerInfo",
    "ConsumerServer",
    "ConsumerStats",
    "Delivery",
    "DeliveryBatch",
    "Following",
    "FollowingStats",
    "Missing",
    "Outbox",
    "OutboxEntries",
    "OutboxReceiver",
    "OutboxStats",
    "consumers",
    "encode_entries",
    "parse_entries",
]

_MODULES = {
    "consumer": ("Consumer", "ConsumerStats", "consumers"),
    "consumer_messages": ("ConsumerInfo",),
    "consumer_server": ("ConsumerServer",),
    "delivery": ("Delivery", "DeliveryBatch"),
    "following": ("Following", "FollowingStats"),
    "joining": ("Missing",),
    "outbox": ("Outbox", "OutboxStats"),
    "outbox_entries": ("OutboxEntries", "OutboxReceiver", "encode_entries", "parse_entries"),
}
_LAZY = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}

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
