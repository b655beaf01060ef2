"""A stream from end to end: how long a record is on its way, and what is left of it when processes are killed.

    sender -- PULL or REP --> recorder -> journal -> Spark -- PUSH or REQ --> receiver

The sender puts its clock into each record, the receiver looks at the same clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import trio
from _spark import quantile, spark

from nngkit.journal import Recorder, encode_request, open_journal, parse_reply, read
from nngkit.protocols import Pull, Push, Rep, Req

WARM = 15.0  # seconds before counting: Java compiles what it runs often
TURN = 0.002  # seconds between two turns of the sender
STAMP = struct.Struct(">q")


def latency(task: dict[str, Any]) -> dict[str, float]:
    """`rate` records of 100 B a second through a recorder of the query's own; milliseconds from send to receiver."""
    folder = Path(task["folder"], f"stream-{os.getpid()}")
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
    return {
        "per_second": rate,
        "p50_ms": quantile(took, 0.5),
        "p95_ms": quantile(took, 0.95),
        "p99_ms": quantile(took, 0.99),
        "batch_ms": quantile(batch, 0.5),
    }


# ---- killed ----------------------------------------------------------------------------------------------------------


def drive(task: dict[str, Any]) -> dict[str, float]:
    """The driver that is killed: from one journal, acknowledged into another, until somebody ends it."""
    with spark(task) as session:
        stream = session.readStream.format("nng").option("startingOffsets", "earliest").load(task["journal"])
        stream = stream.select("value").writeStream.format("nng").option("protocol", "req").option("dial", task["dial"])
        stream.option("checkpointLocation", task["checkpoint"]).start().awaitTermination()
    return {}


def _under(pid: int) -> dict[int, str]:
    """The processes below this one, by what they are."""
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for listing in Path("/proc", str(parent), "task").glob("*/children"):
            try:
                children = [int(each) for each in listing.read_text().split()]
            except OSError:
                continue
            for child in children:
                try:
                    words = (
                        Path("/proc", str(child), "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    )
                except OSError:
                    continue
                found[child] = words
                waiting.append(child)
    return found


def _target(driver: int, rng: random.Random) -> tuple[str, int] | None:
    """Whom to kill: the driver, its Java, the process that plans the source, or a worker."""
    below = _under(driver)
    kinds = {
        "source": [pid for pid, words in below.items() if "streaming_source_runner" in words],
        "worker": [pid for pid, words in below.items() if "pyspark.daemon" in words or "pyspark/daemon" in words][1:],
        "java": [pid for pid, words in below.items() if "SparkSubmit" in words],
        "driver": [driver],
    }
    kind = rng.choice([kind for kind, pids in kinds.items() if pids])
    return kind, rng.choice(kinds[kind])


def end(driver: subprocess.Popen[bytes]) -> None:
    """It and what it has started: a JVM that lost its driver may take a while to see it."""
    for pid in [*_under(driver.pid), driver.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    driver.wait()


async def _killing(task: dict[str, Any], folder: Path, started: list[subprocess.Popen[bytes]]) -> dict[str, float]:
    """Records come in acknowledged, Spark passes them on acknowledged, and every few seconds somebody is killed."""
    rng = random.Random(task.get("seed", 1))
    into, out = f"ipc://{folder}/in", f"ipc://{folder}/out"
    kills: dict[str, int] = {}
    acknowledged = 0
    drive_task = {
        "journal": str(folder / "in-journal"),
        "dial": out,
        "checkpoint": str(folder / "c"),
        "master": task.get("master", "local[2]"),
        "memory": "1g",
    }
    command = [
        sys.executable,
        __file__.replace("_spark_stream", "_spark"),
        "_spark_stream:drive",
        json.dumps(drive_task),
    ]

    def start() -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        started.append(subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet))
        return started[-1]

    async def feed() -> None:
        nonlocal acknowledged
        async with Req(dial=into) as req:
            number = 0
            while True:
                values = [b"%d" % each for each in range(number, number + 50)]
                parse_reply(await req.arequest(encode_request(b"%d" % number, values), timeout=60))
                number += 50
                acknowledged = number
                await trio.sleep(50 / task["rate"])

    def passed() -> int:
        return open_journal(folder / "out-journal").end(0)

    async with (
        Recorder(folder / "in-journal") as first,
        Recorder(folder / "out-journal") as second,
        Rep(listen=into) as rep_in,
        Rep(listen=out) as rep_out,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(first.record, rep_in, "in")
        nursery.start_soon(second.record, rep_out, "out")
        driver = start()
        async with trio.open_nursery() as inner:
            inner.start_soon(feed)
            for _ in range(task["kills"]):
                moved = passed()
                with trio.move_on_after(task.get("patience", 180)) as waiting:
                    while passed() <= moved:
                        if driver.poll() is not None:
                            end(driver)
                            driver = start()
                        await trio.sleep(0.05)
                if waiting.cancelled_caught:
                    raise RuntimeError(f"nothing has passed for {task.get('patience', 180)} s after {kills}")
                await trio.sleep(rng.random() * 1.5)
                target = _target(driver.pid, rng)
                if target is None:
                    continue
                kind, pid = target
                kills[kind] = kills.get(kind, 0) + 1
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                if kind in ("driver", "java"):
                    end(driver)
                    driver = start()
            inner.cancel_scope.cancel()
        with trio.move_on_after(task.get("patience", 180)):
            while len({each.value for each in read(folder / "out-journal")}) < acknowledged:
                if driver.poll() is not None:
                    end(driver)
                    driver = start()
                await trio.sleep(0.5)
        end(driver)
        nursery.cancel_scope.cancel()
    once = [int(each.value) for each in read(folder / "out-journal", distinct=True)]
    every = sum(1 for _ in read(folder / "out-journal"))
    return {
        **{f"killed_{kind}": count for kind, count in sorted(kills.items())},
        "kills": sum(kills.values()),
        "acknowledged": acknowledged,
        "lost": acknowledged - len(set(once) & set(range(acknowledged))),
        "doubled": len(once) - len(set(once)),
        "retries_deduplicated": every - len(once),
    }


def killed(task: dict[str, Any]) -> dict[str, float]:
    """`kills` kills under flow; in the acknowledged mode nothing may be lost, and doubled only under the same id."""
    folder = Path(task["folder"], f"killed-{os.getpid()}")
    folder.mkdir(parents=True)
    started: list[subprocess.Popen[bytes]] = []
    try:
        return trio.run(_killing, task, folder, started)
    finally:
        for driver in started:
            if driver.returncode is None:
                end(driver)
