"""The status page of a discovery daemon with many services, in a headless Chromium.

    python3 dev.py bench status_page [--rounds N] [--seconds S] [--only TEXT] [--json]

`nngkit discoverd --http` runs with its default settings; processes beside it announce the services, and RATE times a
second one of the first 100 comes or goes. ``p50_ms`` and ``p95_ms``: from a change at the daemon until the page shows
it, painted. ``drawn_ms``: the 95th percentile of the part of it from the arrival of the event in the page. ``typed_ms``
is from a key in the filter until the tiles are painted, ``scrolled_ms`` from one frame to the next while the tiles are
scrolled, both 95th percentiles; ``long_ms`` is the longest task of the page meanwhile, 0 if none took over 50 ms.
``open_ms``: from the navigation until all services are painted. ``now_mib``: memory of the daemon at the end.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way

RATE = 20  # changes a second
SIZES = (100, 10_000)

WAYS = tuple(Way(f"{size:,} services", "_status_page:watch", task={"services": size, "rate": RATE}) for size in SIZES)
GROUPS = (
    Group(
        f"a page with {RATE} changes a second",
        WAYS,
        (
            Promise("p95, shown", WAYS[-1].name, None, 200, 150, "p95_ms"),
            Promise("memory of the daemon", WAYS[-1].name, None, 100, 80, "now_mib"),
        ),
    ),
)

if __name__ == "__main__":
    bench.run("status_page", GROUPS, bench.options(__doc__, rounds=3, seconds=20.0).parse_args())
