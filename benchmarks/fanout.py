"""Publisher and Subscriber: what numbers cost, late joins, a stopped subscriber.

    python3 dev.py bench fanout [--rounds N] [--seconds S] [--only TEXT] [--json] [--long]

Subscriber and publisher are processes of their own. Every number is accounted for: a gap that was none, a number twice
or a missing one ends the run. ``part`` is the share of the messages that arrived, as a publisher does not wait.
``--long``: 100 joins, and 10 minutes at full speed without a false alarm.
"""

from __future__ import annotations

import sys

import _measuring as bench
from _measuring import Group, Promise, Way

LONG = "--long" in sys.argv
SPEED = Group(
    "as fast as it goes, one subscriber, tcp, 16 B",
    (
        Way("Pub and Sub, trio", "_fanout:subscribe_plain", "_fanout:publish_plain", "other"),
        Way("Publisher and Subscriber, trio", "_fanout:subscribe", "_fanout:publish", "other"),
    ),
)
ALARMS = Group(
    "at full speed: false alarms end the run",
    (
        Way(
            "Publisher and Subscriber, trio",
            "_fanout:subscribe",
            "_fanout:publish",
            "other",
            {"seconds": 600.0 if LONG else 1.0},
        ),
    ),
    once=True,
)
JOINS = Group(
    "late joins under 50,000 messages/s of 1,000 topics: until the state has come; a wrong one ends the run",
    (
        Way(
            "Subscriber(last=True)",
            "_fanout:join_late",
            "_fanout:publish",
            "other",
            {"rate": 50_000, "keep": True, "joins": 100 if LONG else 3, "seconds": 600},
        ),
    ),
    once=True,
)
STOPPED = Group(
    "eight subscribers, one of them stopped, 5,000 messages/s of 1 KiB",
    (
        Way(
            "the other seven",
            "_fanout:stop_one",
            task={"rate": 5000, "size": 1024, "lasts": 60 if LONG else 1, "seconds": 600},
        ),
    ),
    (Promise("part of the messages", "the other seven", None, 1, 1, "part"),),
    once=True,
)
GROUPS = (SPEED, ALARMS, JOINS, STOPPED)

if __name__ == "__main__":
    given = bench.options(__doc__, rounds=5, seconds=1.0)
    given.add_argument("--long", action="store_true", help="with the numbers of the promises; 15 minutes")
    bench.run("fanout", GROUPS, given.parse_args())
