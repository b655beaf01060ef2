"""TLS and WebSocket, nngkit at both ends, compared with the earlier nngkit and bare pynng, in one run.

    python3 dev.py bench transports [--rounds N] [--seconds S] [--only TEXT] [--json]

The receiver is measured; ``other_us`` is the CPU at the other end. TLS: the receiver has a certificate made for the
run, and the sender verifies it. WebSocket: a dialer masks its messages and a listener does not, so the sender dials in
"masked" and listens in "unmasked".
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way, before, with_before

SIZES = {16: "16 B", 1024: "1 KiB", 1 << 16: "64 KiB"}
OURS = {
    "nngkit": ("_nngkit:pull", "_nngkit:push"),
    "nngkit many": ("_nngkit:pull_many", "_nngkit:push_many"),
    "nngkit asyncio": ("_nngkit:apull_asyncio", "_nngkit:apush_asyncio"),
}
FROM_PYNNG = "nngkit, bare pynng sends"
PYNNG = {"pynng": ("_pynng:pull", "_pynng:push")}
TLS = (
    Promise("both ends, vs before", "nngkit", before("nngkit"), 4, 5),
    Promise("bare pynng sends, vs before", FROM_PYNNG, before(FROM_PYNNG), 0.8, 1),
)
WS = {16: (5, 15), 1024: (1.5, 4)}


def ways(task: dict[str, object], listens: str, ours: dict[str, tuple[str, str]]) -> tuple[Way, ...]:
    return (
        *with_before(Way(name, *ends, listens, task) for name, ends in ours.items()),
        *(Way(name, *ends, listens, task) for name, ends in PYNNG.items()),
    )


def tls(size: int) -> Group:
    ours = OURS | {FROM_PYNNG: ("_nngkit:pull", "_pynng:push")}
    task = {"transport": "tls", "size": size}
    return Group(f"TLS over tcp, {SIZES[size]}", ways(task, "measured", ours), TLS if size == 16 else ())


def ws(size: int, masked: bool) -> Group:
    how, listens = ("masked", "measured") if masked else ("unmasked", "other")
    promises = (Promise("vs before", "nngkit", before("nngkit"), *WS[size]),) if size in WS else ()
    return Group(f"ws, {how}, {SIZES[size]}", ways({"transport": "ws", "size": size}, listens, OURS), promises)


GROUPS = (*(tls(size) for size in SIZES), *(ws(size, masked) for size in SIZES for masked in (False, True)))

if __name__ == "__main__":
    bench.run("transports", GROUPS, bench.options(__doc__, rounds=5, seconds=1.0).parse_args())
