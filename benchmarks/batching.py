"""Batches of small messages, end to end, compared with pyzmq, which batches internally; one library at both ends.

    python3 dev.py bench batching [--rounds N] [--seconds S] [--only TEXT] [--json]

Counts messages of 16 B returned to the receiver. "One at a time" is a call, or a turn of ``async for``, for each
message at both ends; "many" passes lists of 1,024 and receives what is available. All messages are numbered and
compared, which is a large part of the cost of the fastest ways.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way

WAYS = {
    "nngkit trio, one at a time": ("_nngkit:apull_for_trio", "_nngkit:apush_trio"),
    "nngkit asyncio, one at a time": ("_nngkit:apull_for_asyncio", "_nngkit:apush_asyncio"),
    "nngkit blocking, one at a time": ("_nngkit:pull", "_nngkit:push"),
    "nngkit trio, many": ("_nngkit:apull_many_trio", "_nngkit:push_many"),
    "nngkit blocking, many": ("_nngkit:pull_many", "_nngkit:push_many"),
    "pyzmq": ("_zmq:pull", "_zmq:push"),
    "pyzmq asyncio": ("_zmq:pull_asyncio", "_zmq:push"),
}
PROMISES = (
    Promise("trio, one item a call, vs pyzmq", "nngkit trio, one at a time", "pyzmq", 2, 3),
    Promise("asyncio, one item a call, vs pyzmq", "nngkit asyncio, one at a time", "pyzmq", 2, 3),
    Promise("many, blocking, vs pyzmq", "nngkit blocking, many", "pyzmq", 4, 8),
    Promise("many, trio, vs pyzmq", "nngkit trio, many", "pyzmq", 4, 8),
)


def group(transport: str, size: int) -> Group:
    task = {"transport": transport, "size": size, "batch": True, "many": 1024}
    ways = tuple(Way(name, measured, other, task=task) for name, (measured, other) in WAYS.items())
    return Group(f"{transport}, {size} B", ways, PROMISES if (transport, size) == ("tcp", 16) else ())


def pays(way: str, unbatched: tuple[str, str]) -> Group:
    """Measure up to which size batches pay off."""
    ways = []
    for size in (16, 64, 256, 1024, 4096, 16384):
        for name, batch in (("batched", True), ("one message each", None)):
            task = {"size": size, "batch": batch, "many": 1024}
            ways.append(Way(name, *unbatched, task=task, at=(size,), of="byte"))
    return Group(f"{way}, tcp, batched or not, by the size of a message", tuple(ways))


def sizes(way: str) -> Group:
    """Measure the best size of a batch: the default is 1,024 messages, 64 KiB."""
    measured, other = WAYS[way]
    counts = (128, 256, 512, 1024, 2048, 4096)
    tasks = {count: {"batch": {"items": count, "size": count * 64}, "many": max(count, 512)} for count in counts}
    ways = (Way(f"{count} messages", measured, other, task=task) for count, task in tasks.items())
    return Group(f"{way}, tcp, 16 B, by the size of a batch", tuple(ways))


GROUPS = (
    group("tcp", 16),
    group("ipc", 16),
    group("tcp", 256),
    sizes("nngkit trio, one at a time"),
    sizes("nngkit blocking, many"),
    *(pays(way, WAYS[way]) for way in ("nngkit blocking, one at a time", "nngkit blocking, many")),
)

if __name__ == "__main__":
    bench.run("batching", GROUPS, bench.options(__doc__, rounds=5, seconds=1.0).parse_args())
