"""End-to-end latency of a record through a stream.

    sender -- PULL --> recorder -> journal -> Spark -- PUSH --> receiver

The sender writes its clock into each record; the receiver reads the same clock.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from pathlib import Path
from typing import Any

from _spark import spark

from _child import quantile, report
from nngkit.protocols import Pull, Push

# Seconds of warm-up: the first micro-batch takes ten, the backlog of that time another ten, and Java goes on
# compiling for a while; real streams run for days.
WARM = 60.0
TURN = 0.002  # seconds between the sender's bursts
STAMP = struct.Struct(">q")


def latency(task: dict[str, Any]) -> None:
    """Send `rate` records of 100 B a second through the query's own recorder; report milliseconds until received."""
    folder = Path(os.environ["NNGKIT_BENCH_JOURNALS"], f"stream-{os.getpid()}")
    folder.mkdir(parents=True)
    inward, outward = f"ipc://{folder}/in", f"ipc://{folder}/out"
    took: list[float] = []
    stop, counting = threading.Event(), threading.Event()
    sent = received = 0

    def send() -> None:
        nonlocal sent
        rest = bytes(100 - STAMP.size)
        with Push(dial=inward, send_buffer=8192) as push:
            push.wait_for_peers(1, timeout=120)
            due, carried = time.monotonic(), 0.0
            while not stop.is_set():
                carried += task["rate"] * TURN
                count, carried = int(carried), carried % 1
                push.send_many([STAMP.pack(time.time_ns()) + rest for _ in range(count)], timeout=60)
                sent += count
                due += TURN
                time.sleep(max(0.0, due - time.monotonic()))

    def receive() -> None:
        nonlocal received
        with Pull(listen=outward, recv_buffer=8192) as pull:
            while not stop.is_set():
                try:
                    values = pull.recv_many(timeout=0.2)
                except TimeoutError:
                    continue
                now = time.time_ns()
                received += len(values)
                if counting.is_set():
                    took.extend((now - STAMP.unpack_from(value)[0]) / 1e6 for value in values)

    threads = [threading.Thread(target=receive), threading.Thread(target=send)]
    with spark(task) as session:
        stream = session.readStream.format("nng").schema("value binary").option("listen", inward)
        stream = stream.option("protocol", "pull").option("checkpointLocation", str(folder / "c")).load()
        out = stream.writeStream.format("nng").option("protocol", "push").option("dial", outward)
        for thread in threads:
            thread.start()
        query = out.option("checkpointLocation", str(folder / "c")).start()
        try:
            time.sleep(task.get("warm", WARM))
            counting.set()
            before = received
            time.sleep(task["seconds"])
            counting.clear()
            rate = (received - before) / task["seconds"]
            batch = [each["batchDuration"] for each in query.recentProgress[-20:]]
        finally:
            stop.set()
            for thread in threads:
                thread.join(70)
            query.stop()
    report(
        per_second=rate,
        p50_ms=quantile(took, 0.5),
        p95_ms=quantile(took, 0.95),
        p99_ms=quantile(took, 0.99),
        batch_ms=quantile(batch, 0.5),
    )
