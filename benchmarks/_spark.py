"""What the benchmarks of Spark share: journals of any size, and a session.

One measurement is one process (``_child.py``): a JVM that has been used is not the JVM that a user starts.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nngkit.journal.partition import Partition
from nngkit.journal.record import encode_headers, encode_origin
from nngkit.spark import session

TURN = 4096  # records handed to the log at once
QUIET = "FATAL"  # a stream that is stopped within a batch says so in a hundred lines; what fails raises all the same

Entry = tuple[bytes | None, bytes, bytes, bytes, int]


def made(name: str, make: Callable[[Path], object]) -> Path:
    """The data of that name: `make` puts it there the first time. Whole or not at all, as a run may be ended."""
    folder = Path(os.environ["NNGKIT_BENCH_JOURNALS"], name)
    if not folder.exists():
        draft = folder.with_name(folder.name + ".tmp")
        shutil.rmtree(draft, ignore_errors=True)
        make(draft)
        draft.rename(folder)
    return folder


def journal(folder: Path, entries: Iterator[Entry], partition: int = 0) -> int:
    """Write and seal them; how many."""
    part = Partition.open(folder, partition)
    count, waiting = 0, threading.Semaphore(16)  # turns under way: enough that the disk never waits
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
    """`rows` records of `size` bytes in turn on some topics, a millisecond apart."""
    rng = random.Random(1)
    block, room = rng.randbytes(1 << 20), (1 << 20) - size  # random, as nothing that is the same each time would be
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
    """A session on `task["master"]`, and where that is "cluster" on a standalone one of two workers."""
    master = task.get("master", "local[2]")
    memory = {"spark.driver.memory": task.get("memory", "3g")}
    if master != "cluster":
        with session(master, "bench", memory | conf, log_level=QUIET) as found:
            yield found
        return
    from nngkit.spark.standalone import standalone

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
    """The seconds that something took, in a list."""
    took: list[float] = []
    begun = time.perf_counter()
    yield took
    took.append(time.perf_counter() - begun)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them are not over."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
