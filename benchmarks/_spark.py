"""Shared by the Spark benchmarks: journals of any size, and a session.

Each measurement is a process (``_child.py``), as users start with a fresh JVM.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nngkit.journal.record import encode_headers, encode_origin
from nngkit.journal.writing.partition import Partition
from nngkit.spark import session

TURN = 4096  # records appended at once
QUIET = "FATAL"  # a stream stopped within a batch logs a hundred lines; failures raise regardless

Entry = tuple[bytes | None, bytes, bytes, bytes, int]


def made(name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder of that name; `make` creates it the first time, atomically, as a run may be interrupted."""
    folder = Path(os.environ["NNGKIT_BENCH_JOURNALS"], name)
    if not folder.exists():
        draft = folder.with_name(folder.name + ".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        make(draft)
        draft.rename(folder)
    return folder


def journal(folder: Path, entries: Iterator[Entry], partition: int = 0) -> int:
    """Write and seal records; return their number."""
    part = Partition.open(folder, partition)
    count, waiting = 0, threading.Semaphore(16)  # pending appends: enough to keep the disk busy
    try:
        turn: list[Entry] = []
        for entry in entries:
            turn.append(entry)
            if len(turn) == TURN:
                waiting.acquire()
                part.log.append(turn, lambda *_: waiting.release())
                count, turn = count + len(turn), []
        if turn:
            part.log.append(turn)
        return count + len(turn)
    finally:
        part.close()


def messages(rows: int, size: int = 100, topics: int = 8) -> Iterator[Entry]:
    """Yield `rows` records of `size` bytes, on some topics in turn, a millisecond apart."""
    rng = random.Random(1)
    block, room = rng.randbytes(1 << 20), (1 << 20) - size  # random, as constant data would compress too well
    origins = [encode_origin(f"topic-{number}", "pull", f"tcp://10.0.0.{number}:4000") for number in range(topics)]
    headers = encode_headers([("id", b"12345678")])
    begun = 1_700_000_000_000_000
    for number in range(rows):
        yield (
            None,
            number.to_bytes(8, "big") + block[(at := number * 7919 % room) : at + size - 8],
            origins[number % topics],
            headers,
            begun + 1000 * number,
        )


@contextmanager
def spark(task: dict[str, Any], **conf: str) -> Iterator[Any]:
    """Run a session on `task["master"]`; "cluster" is a standalone one of two workers."""
    master = task.get("master", "local[2]")
    memory = {"spark.driver.memory": task.get("memory", "3g")}
    if master != "cluster":
        with session(master, "bench", memory | conf, log_level=QUIET) as found:
            yield found
        return
    from tests.spark.standalone import standalone

    with (
        standalone(workers=2, memory="2g") as cluster,
        session(
            cluster.master,
            "bench",
            memory
            | {
                "spark.executor.memory": "1500m",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
            }
            | {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
            | conf,
            log_level=QUIET,
        ) as found,
    ):
        yield found


@contextmanager
def clock() -> Iterator[list[float]]:
    """Measure the duration of a block in seconds, returned in a list."""
    took: list[float] = []
    begun = time.perf_counter()
    yield took
    took.append(time.perf_counter() - begun)
