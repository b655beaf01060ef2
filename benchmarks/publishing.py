"""One publisher and eight subscribers: nngkit now and before, pynng, pyzmq, Zenoh, NATS and C on NNG, in one run.

    python3 dev.py bench publishing [--rounds N] [--seconds S] [--only TEXT] [--json]

The subscribers are sockets of one process, which is measured; another process publishes as fast as it can. Counted are
delivered messages, summed over the subscribers; ``other_us`` is the publisher's CPU for each of them. Publishers have
no backpressure, and messages are dropped when a subscriber's buffer is full: ``part`` is the share that arrived. A slow
publisher gives a large share and a fast one a small one; messages a second and CPU a message show what the subscribers
can do. Messages out of order or duplicated end the run.

Queues hold 1,024 messages at both ends (pyzmq's 1,000; Zenoh's defaults; NATS buffers what it can and slows its
publisher, so for seconds it delivers its backlog). nngkit's subscribers use ``recv_many``; nngkit, pynng,
python-nng and Zenoh have a thread or a task for each subscriber, pyzmq polls them. C reads from bare pynng's publisher.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way, before, with_before

SUBSCRIBERS = 8
SIZES = {16: "16 B", 1024: "1 KiB"}
OURS = {
    "nngkit": ("_nngkit:subscribe", "_nngkit:publish", {}),
    "nngkit trio": ("_nngkit:asubscribe_trio", "_nngkit:apublish_trio", {}),
    "nngkit batched": ("_nngkit:subscribe", "_nngkit:publish", {"batch": True}),
}
OTHERS = {
    "pynng": ("_pynng:subscribe", "_pynng:publish", {}),
    "python-nng": ("_python_nng:subscribe", "_python_nng:publish", {}),
    "pyzmq": ("_zmq:subscribe", "_zmq:publish", {}),
    "Zenoh": ("_zenoh:subscribe", "_zenoh:publish", {}),
    "NATS": ("_nats:subscribe_asyncio", "_nats:publish_asyncio", {"run_in": 2.0}),  # until the server's buffer is full
    "C": ("_floor:subscribe", "_pynng:publish", {}),
}
PROMISES = (
    Promise("CPU a delivery, subscribers, vs before", "nngkit", before("nngkit"), 0.3, 0.15, "cpu_us"),
    Promise("CPU a delivery, publisher, vs before", "nngkit", before("nngkit"), 0.3, 0.15, "other_us"),
    Promise("delivered vs pyzmq", "nngkit", "pyzmq", 1.5, 3),
)


def group(size: int) -> Group:
    task = {"subscribers": SUBSCRIBERS, "size": size}
    ours, others = (
        [Way(name, measured, other, "other", {**task, **special}) for name, (measured, other, special) in each.items()]
        for each in (OURS, OTHERS)
    )
    return Group(
        f"{SUBSCRIBERS} subscribers, tcp, {SIZES[size]}", (*with_before(ours), *others), PROMISES if size == 16 else ()
    )


GROUPS = tuple(group(size) for size in SIZES)

if __name__ == "__main__":
    bench.run("publishing", GROUPS, bench.options(__doc__, rounds=5, seconds=1.0).parse_args())
