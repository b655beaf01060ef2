"""Metrics: a call while they are off, and while they are read each second; /metrics of a daemon with 10,000 providers.

    python3 dev.py bench telemetry [--rounds N] [--seconds S] [--only TEXT] [--json]

The client is measured, one call at a time; "on" is a client that is watched and made into text each second, by a
thread. A scrape is one request by HTTP to `nngkit.web.door`, of a text that is not kept; ``bytes`` is its size. The
10,000 services are those of respondents in the same process, which are not asked meanwhile.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way

PROVIDERS = 10_000


def calls(on: bool) -> Way:
    return Way("on" if on else "off", "_telemetry:ask", "_calls:serve", "other", {"transport": "tcp", "on": on})


GROUPS = (
    Group("a call", (calls(False), calls(True)), (Promise("p50, on beside off", "on", "off", 1.05, 1.01, "p50_us"),)),
    Group(
        f"/metrics of {PROVIDERS:,} providers",
        (Way("nngkit", "_telemetry:scrape", task={"providers": PROVIDERS}),),
        (Promise("p50", "nngkit", None, 100_000, 50_000, "p50_us"),),
    ),
)

if __name__ == "__main__":
    bench.run("telemetry", GROUPS, bench.options(__doc__, rounds=5, seconds=2.0).parse_args())
