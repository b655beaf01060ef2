"""Cost of a message, and of adding and removing a prefix, by the number of subscribed prefixes.

    python3 dev.py bench subscriptions [--rounds N] [--seconds S] [--only TEXT] [--json]

One publisher sends 50,000 messages a second, of 20,000 topics chosen at random; every second message begins with one of
the subscriber's prefixes. The subscriber is measured, for each message sent (nngkit: each read, dropped ones included);
``other_us`` is the publisher: pyzmq and Zenoh filter there, nngkit and bare pynng at the subscriber. ``part`` is the
share of messages that were received, of those due.

Prefixes are identifiers of one length (``orders.0012345.``), or names of some 20 lengths. Bare pynng compares each
message with every prefix, and finds duplicates in the same way, so it goes no further than 10,000 here. Zenoh has keys,
not prefixes, and a subscriber for each; at 10,000 an addition takes milliseconds. pyzmq's additions are sent to the
publisher, here of the same process.

``grown_mib`` is what a library takes for the prefixes, beside the Python objects that it was given and that nngkit
keeps; ``p99_us`` is of single additions or removals.
"""

from __future__ import annotations

import _measuring as bench
from _child import RUN_IN
from _measuring import Group, Promise, Way

COUNTS = (10, 1_000, 100_000, 1_000_000)
RATE = 50_000
FLAT = 1.3  # times, at any number of prefixes, of what a message costs at 10
MOST = COUNTS[-1]
WAYS = {  # library, largest number for messages and for changes, special keys of the task
    "nngkit": ("_nngkit", MOST, MOST, {}),
    "nngkit, names": ("_nngkit", MOST, MOST, {"names": True}),
    "pynng": ("_pynng", 10_000, 10_000, {}),
    "pyzmq": ("_zmq", MOST, MOST, {}),
    "Zenoh": ("_zenoh", 10_000, 1_000, {"slash": True}),
}


def counts(most: int) -> list[int]:
    """Return the numbers of prefixes for a library that goes up to ``most``."""
    return sorted({*(count for count in COUNTS if count <= most), most})


def row(name: str, count: int) -> str:
    """Return the name of a row, as `Way` makes it."""
    return f"{name}, {count:,} topics"


def by_prefixes() -> Group:
    ways = []
    for name, (library, most, _, special) in WAYS.items():
        ends = f"{library}:subscribe_topics", f"{library}:publish_topics"
        for count in counts(most):
            task = {"prefixes": count, "rate": RATE, "run_in": RUN_IN + count / 1e6, **special}
            ways.append(Way(name, *ends, task=task, at=(count,), of="topic"))
    promises = [
        Promise(f"{name} at {count:,} vs 10", row(name, count), row(name, 10), FLAT, 1.1, "cpu_us")
        for name in ("nngkit", "nngkit, names")
        for count in COUNTS[1:]
    ]
    return Group("50,000 messages/s, half of them match, tcp, 32 B", tuple(ways), tuple(promises))


def by_change(what: str, *, removes: bool) -> Group:
    ways = []
    for name, (library, _, most, special) in WAYS.items():
        for count in counts(most):
            task = {"prefixes": count, "removes": removes, **special}
            ways.append(Way(name, f"{library}:change_topics", task=task, at=(count,), of="topic"))
    promises = [
        Promise(f"{name} of {count:,}", row(name, count), None, 5, 3, "cpu_us")
        for name in ("nngkit", "nngkit, names")
        for count in COUNTS
    ]
    return Group(what, tuple(ways), tuple(promises))


GROUPS = (by_prefixes(), by_change("adding one", removes=False), by_change("removing one", removes=True))

if __name__ == "__main__":
    bench.run("subscriptions", GROUPS, bench.options(__doc__, rounds=5, seconds=1.0).parse_args())
