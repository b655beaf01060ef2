"""Metrics and traces: a call without them and with them; /metrics of a daemon with 10,000 providers.

    python3 dev.py bench telemetry [--rounds N] [--seconds S] [--only TEXT] [--json]

The client is measured, one call at a time; "on" is a client that is watched and made into text each second, by a
thread. A scrape is one request by HTTP to `nngkit.web.door`, of a text that is not kept; ``bytes`` is its size. The
10,000 services are those of respondents in the same process, which are not asked meanwhile.

A call with spans has one at each end, in one trace; ``more_us`` is what it takes beyond a plain call of the same codec,
in turns with it. "By hand" is a program that makes both with the SDK alone, and carries the context in the same
headers. "The SDK's spans alone" are begun and ended, one at each end, and no context travels: the floor. The SDK
exports the spans to nowhere.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way

PROVIDERS = 10_000


def calls(on: bool) -> Way:
    return Way("on" if on else "off", "_telemetry:ask", "_calls:serve", "other", {"transport": "tcp", "on": on})


def traced(name: str, by: str, sampled: bool) -> Way:
    return Way(name, "_traces:ask_both", "_traces:serve", "other", {"transport": "tcp", "by": by, "sampled": sampled})


GROUPS = (
    Group("a call", (calls(False), calls(True)), (Promise("p50, on beside off", "on", "off", 1.05, 1.01, "p50_us"),)),
    Group(
        "a call with spans, and a plain one in turns",
        (
            traced("by hand, sampled", "hand", True),
            traced("sampled", "nngkit", True),
            traced("the SDK's spans alone, sampled", "bare", True),
            traced("by hand, not sampled", "hand", False),
            traced("not sampled", "nngkit", False),
            traced("the SDK's spans alone, not sampled", "bare", False),
        ),
        (
            Promise("more, sampled beside by hand", "sampled", "by hand, sampled", 1.3, 1.0, "more_us"),
            Promise("more, not sampled beside by hand", "not sampled", "by hand, not sampled", 1.3, 1.0, "more_us"),
        ),
    ),
    Group(
        f"/metrics of {PROVIDERS:,} providers",
        (Way("nngkit", "_telemetry:scrape", task={"providers": PROVIDERS}),),
        (Promise("p50", "nngkit", None, 100_000, 50_000, "p50_us"),),
    ),
)

if __name__ == "__main__":
    bench.run("telemetry", GROUPS, bench.options(__doc__, rounds=5, seconds=2.0).parse_args())
