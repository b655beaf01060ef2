"""One publisher and eight subscribers: nngkit beside bare pynng, pyzmq and C on NNG, in one run.

    python3 dev.py bench publishing [--rounds N] [--seconds S] [--only TEXT] [--json]

The subscribers are the sockets of one process, which is measured; the publisher is another, and publishes as fast as it
can. Counted are delivered messages, summed over the subscribers. Nothing holds a publisher back, and what a subscriber
has no room for is dropped: ``part`` is how much of what was published, eight times, arrived. So a slow publisher makes
for a large part and a fast one for a small one; messages a second and CPU for each say what the subscribers can do.

Queues hold 1,024 messages at both ends (pyzmq's 1,000). nngkit's subscribers take what there is (``recv_many``); it and
pynng have a thread or a task for each, pyzmq polls them. C reads bare pynng's publisher.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Way

SUBSCRIBERS = 8
SIZES = {16: "16 B", 1024: "1 KiB"}
WAYS = {
    "nngkit": ("_nngkit:subscribe", "_nngkit:publish", {}),
    "nngkit trio": ("_nngkit:subscribe_trio", "_nngkit:publish_trio", {}),
    "nngkit batched": ("_nngkit:subscribe", "_nngkit:publish", {"batch": True}),
    "pynng": ("_pynng:subscribe", "_pynng:publish", {}),
    "pyzmq": ("_zmq:subscribe", "_zmq:publish", {}),
    "C": ("_floor:subscribe", "_pynng:publish", {}),
}


def group(size: int) -> Group:
    task = {"subscribers": SUBSCRIBERS, "size": size}
    ways = (
        Way(name, measured, other, "other", {**task, **special}) for name, (measured, other, special) in WAYS.items()
    )
    return Group(f"{SUBSCRIBERS} subscribers, tcp, {SIZES[size]}", tuple(ways))


GROUPS = tuple(group(size) for size in SIZES)

if __name__ == "__main__":
    bench.run("publishing", GROUPS, bench.options(__doc__, rounds=3, seconds=1.0).parse_args())
