"""One publisher and eight subscribers: nngkit now and before, pynng, pyzmq, Zenoh, NATS and C on NNG, in one run.

    python3 dev.py bench publishing [--rounds N] [--seconds S] [--only TEXT] [--json]

The subscribers are the sockets of one process, which is measured; the publisher is another, and publishes as fast as it
can. Counted are delivered messages, summed over the subscribers, and ``other_us`` is the publisher's CPU for each of
them. Nothing holds a publisher back, and what a subscriber has no room for is dropped: ``part`` is how much of what was
published, eight times, arrived. So a slow publisher makes for a large part and a fast one for a small one; messages a
second and CPU for each say what the subscribers can do. What arrives out of order or twice ends the run.

Queues hold 1,024 messages at both ends (pyzmq's 1,000; Zenoh's are its own; NATS keeps what it can, and holds its
publisher back, so that for seconds it delivers what it has kept). nngkit's subscribers take what there is
(``recv_many``); it, pynng and Zenoh have a thread or a task for each, pyzmq polls them. C reads bare pynng's publisher.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way, before, with_before

SUBSCRIBERS = 8
SIZES = {16: "16 B", 1024: "1 KiB"}
OURS = {
    "nngkit": ("_nngkit:subscribe", "_nngkit:publish", {}),
    "nngkit trio": ("_nngkit:subscribe_trio", "_nngkit:publish_trio", {}),
    "nngkit batched": ("_nngkit:subscribe", "_nngkit:publish", {"batch": True}),
}
OTHERS = {
    "pynng": ("_pynng:subscribe", "_pynng:publish", {}),
    "pyzmq": ("_zmq:subscribe", "_zmq:publish", {}),
    "Zenoh": ("_zenoh:subscribe", "_zenoh:publish", {}),
    "NATS": ("_nats:subscribe", "_nats:publish", {"run_in": 2.0}),  # until what the server keeps is full
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
