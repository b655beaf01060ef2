"""Surveys of 10 to 10,000 respondents: share of responses received, time until the last one, and CPU.

    python3 dev.py bench surveys [--rounds N] [--only TEXT] [--json]

The respondents are the connections of two processes, each one raw respondent of bare pynng that responds at once, so
only nngkit's surveyor is measured, and it shares two cores with them. ``p50`` is the time until the last response.
pynng's own surveyor, cooked, keeps 128 unread responses and drops the others: ``part`` is the share it received.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way, before, with_before

SIZES = (10, 100, 1000, 10_000)
WORSE = 1.1  # tolerated ratio: medians of a few surveys vary by this much without a change


def group(count: int) -> Group:
    task = {"respondents": count // 2, "expected": count // 2 * 2, "others": 2}
    ways = [*with_before([Way("nngkit", "_nngkit:survey", "_pynng:respond", task=task)])]
    if count <= 1000:
        ways.append(Way("pynng, cooked", "_pynng:survey", "_pynng:respond", task=task))
    promises = (
        Promise("time to the last reply, vs before", "nngkit", before("nngkit"), WORSE, 0.9, "p50_us"),
        Promise("replies in time", "nngkit", None, 1, 1, "part"),
    )
    return Group(f"{count:,} respondents, tcp", tuple(ways), promises if count >= 1000 else ())


GROUPS = tuple(group(count) for count in SIZES)

if __name__ == "__main__":
    bench.run("surveys", GROUPS, bench.options(__doc__, rounds=5, seconds=1.0).parse_args())
