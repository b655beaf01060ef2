"""Large bodies in shared memory, beside other ways to move them on one machine, in one run.

    python3 dev.py bench shared_memory [--rounds N] [--seconds S] [--only TEXT] [--json] [--beside COMMIT]

"1 MiB": the sender fills each message and the receiver, which is measured, sums it, so both pass over all bytes.
pyzmq is over ipc. iceoryx2's receiver looks for samples again and again, as it has nothing else to wait
with, and so takes a whole core. "1 to 4": frames of 16 MiB of which only the ends are written and read, as other
hardware fills them; each publishes as fast as its subscribers allow. ``all_us`` is the CPU at all ends, a message of
the first subscriber.
"""

from __future__ import annotations

import _measuring as bench
from _measuring import Group, Promise, Way

ONE = {"size": 1 << 20}
SIXTEEN = {"shm_size": 16 << 20}  # bytes of as many bodies as iceoryx2's subscriber has room for
FRAMES = {"size": 1 << 24, "others": 4, "marked": True, "loans": True}
SHM, IPC = {"transport": "shm"}, {"transport": "ipc"}
ZENOH = FRAMES | {"shared_memory": True}
FRAME_ENDS = "subscribe_frames", "publish_frames", "other"


def ours(name: str, measured: str, other: str, listens: str = "measured", **task: object) -> Way:
    return Way(f"nngkit {name}", f"_nngkit:{measured}", f"_nngkit:{other}", listens, task)


GROUPS = (
    Group(
        "1 MiB, filled and summed",
        (
            ours("shm, loan and view", "pull_views", "push_loans", **ONE, **SHM),
            ours("shm, loan and view, 16 MiB", "pull_views", "push_loans", **ONE, **SHM, **SIXTEEN),
            ours("shm, bytes", "pull_filled", "push_filled", **ONE, **SHM),
            ours("ipc, bytes", "pull_filled", "push_filled", **ONE, **IPC),
            Way("pyzmq, copy=False", "_zmq:pull_frames", "_zmq:push_arrays", task=ONE | IPC),
            Way("pyzmq, bytes", "_zmq:pull_filled", "_zmq:push_filled", task=ONE | IPC),
            Way("iceoryx2", "_iceoryx2:pull", "_iceoryx2:push", task=ONE),
        ),
        (
            Promise("loan and view vs pyzmq", "nngkit shm, loan and view", "pyzmq, copy=False", 2, 3.5),
            Promise("loan and view vs iceoryx2", "nngkit shm, loan and view", "iceoryx2", 0.45, 0.8),
            Promise("bytes vs pyzmq", "nngkit shm, bytes", "pyzmq, bytes", 2, 3),
        ),
    ),
    Group(
        "1 to 4, 16 MiB",
        (
            ours("shm", *FRAME_ENDS, **FRAMES, **SHM),
            ours("ipc", *FRAME_ENDS, **{**FRAMES, **IPC, "loans": False}),
            Way("Zenoh, shared memory", "_zenoh:subscribe_frames", "_zenoh:publish_frames", "other", ZENOH),
        ),
        (
            Promise("vs Zenoh", "nngkit shm", "Zenoh, shared memory", 5, 8),
            Promise("CPU vs ipc", "nngkit shm", "nngkit ipc", 0.25, 0.15, "all_us"),
        ),
    ),
)

if __name__ == "__main__":
    bench.run("shared_memory", GROUPS, bench.options(__doc__, rounds=7, seconds=1.0).parse_args())
