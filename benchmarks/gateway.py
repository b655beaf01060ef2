"""The gateway beside FastAPI with our own client, and 1,000 streams of server-sent events from one core.

    python3 dev.py bench gateway [--rounds N] [--seconds S] [--only TEXT] [--json]

Calls: what is measured runs on the first core: `nngkit gateway`, and a FastAPI application under uvicorn (asyncio, h11)
that calls the same service by nngkit.aio.Client. On the second core are the service, its daemon, and the HTTP clients:
connections that are kept, one request at a time on each. "CPU other" is of the contender alone.

Streams: a publisher sends 100 messages a second; 1,000 clients follow them through one gateway on the first core,
publisher and clients are on the second. Beside them 32 clients follow as many messages of 8 KiB and never read: the
gateway has to cut them off. ``part``: of all events; ``p50_ms``: how old an event is when its client reads it; ``cut``:
of the clients that never read.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way

CALLS = Group(
    "calls over HTTP on 32 connections",
    tuple(
        Way(name, "_gateway:ask", task={"gateway": name == "nngkit gateway", "connections": 32})
        for name in ("nngkit gateway", "FastAPI, uvicorn")
    ),
    tuple(
        Promise(f"{what} vs FastAPI", "nngkit gateway", "FastAPI, uvicorn", figure=figure)
        for what, figure in (("calls", "per_second"), ("CPU", "other_us"))
    ),
)
STREAMS = Group(
    "1,000 streams of 100 events a second, beside 32 clients that never read",
    (Way("nngkit gateway", "_gateway:follow", task={"streams": 1000, "rate": 100, "stalled": 32, "seconds": 5.0}),),
    once=True,
)

if __name__ == "__main__":
    bench.run("gateway", (CALLS, STREAMS), bench.options(__doc__, rounds=3, seconds=5.0).parse_args())
