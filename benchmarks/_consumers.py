"""Measurements of durable consumers, through their public API."""

from __future__ import annotations

import os
import time
from typing import Any

import trio

from _child import cpu_of, fail, others, peak, report
from nngkit.fanout import Consumer, ConsumerServer, Following
from nngkit.journal import Recorder, open_journal
from nngkit.journal.record import encode_origin
from nngkit.journal.writing.partition import Partition
from nngkit.protocols import Pub, Sub


def _written(folder: str, task: dict[str, Any]) -> str:
    """Write a journal of numbered records, sealed or not; return its path."""
    path, count = f"{folder}/{os.getpid()}", task["records"]
    partition = Partition.open(path, buffer_bytes=1 << 40, segment_bytes=1 << 40, segment_seconds=1e6)
    origin, now = encode_origin("bench", "pull", None), time.time_ns() // 1000
    for first in range(0, count, 4096):
        numbers = range(first, min(count, first + 4096))
        partition.log.append([(None, b"%016d" % number, origin, b"", now) for number in numbers])
    if task["sealed"]:
        partition.close()
        return path
    while partition.log.stats.synced < count:
        time.sleep(0.01)
    return path  # the log stays open, as beside a running recorder


async def serve(task: dict[str, Any]) -> None:
    """Serve a journal to consumers."""
    path = _written(os.environ["NNGKIT_BENCH_JOURNALS"], task)
    async with ConsumerServer(path, listen=task["url"]) as server:
        report(url=server.address)
        await trio.sleep_forever()


async def consume(task: dict[str, Any]) -> None:
    """Consume from the first record to the last, check each value, and acknowledge all."""
    count = done = 0
    records = task["records"]
    async with Consumer("bench", task["url"], records=4096, timeout=120.0) as consumer:
        begin, cpu, other = time.perf_counter(), time.process_time(), cpu_of(others(task))
        while count < records:
            if task["single"]:
                delivery = await consumer.receive()
                if delivery.offset != count or int(delivery.value) != count:
                    fail(f"offset {delivery.offset} instead of {count}")
                delivery.ack_soon()
                count += 1
            else:
                batch = await consumer.receive_batch()
                done = count + len(batch)
                if batch.offsets[0] != count or list(map(int, batch.values)) != list(range(count, done)):
                    fail(f"offset {batch.offsets[0]} instead of {count}, or wrong values")
                batch.ack_soon()
                count = done
        await consumer.flush()
        _report(count, begin, cpu, cpu_of(others(task)) - other)


def read_alone(task: dict[str, Any]) -> None:
    """Read the same records by the journal's reader."""
    path = _written(os.environ["NNGKIT_BENCH_JOURNALS"], task)
    begin, cpu = time.perf_counter(), time.process_time()
    count = sum(len(batch.column("value").to_pylist()) for batch in open_journal(path).read_batches(0))
    _report(count, begin, cpu, 0.0)


async def publish(task: dict[str, Any]) -> None:
    """Record numbered messages, then publish and record further ones at a rate."""
    path = f"{os.environ['NNGKIT_BENCH_JOURNALS']}/{task['records']}-{os.getppid()}"
    async with (
        Recorder(path, segment_bytes=1 << 40, segment_seconds=1e6) as recorder,
        Pub(listen=task["url"]) as pub,
    ):
        for first in range(0, task["records"], 4096):
            values = [b"%016d" % number for number in range(first, min(first + 4096, task["records"]))]
            await recorder.store(values, topic="bench", protocol="sub")
        report(url=pub.address)
        number, begin = task["records"], time.perf_counter()
        while True:
            due = task["records"] + int((time.perf_counter() - begin) * task["rate"])
            for message in (b"%016d" % each for each in range(number, due)):
                recorder.put(message, topic="bench", protocol="sub")
                pub.send(message)
            number = max(number, due)
            await trio.sleep(0.005)


async def follow(task: dict[str, Any]) -> None:
    """Read the journal from the first message on until the messages come live, and 1,000 of them; check each."""
    path = f"{os.environ['NNGKIT_BENCH_JOURNALS']}/{task['records']}-{os.getppid()}"

    def number(message: bytes) -> tuple[int, int]:
        return 0, int(message)

    async with Sub(dial=task["url"], topics="", recv_buffer=8192) as sub:
        await sub.await_for_peers(1)
        begin, cpu, other = time.perf_counter(), time.process_time(), cpu_of(others(task))
        async with Following(sub, path, number, topic="bench") as following:
            count = joined = 0
            while not joined or count < joined + 1000:
                found = await following.receive_many()
                done = count + len(found)
                if list(map(int, found)) != list(range(count, done)):  # type: ignore[arg-type]
                    fail(f"not the messages {count} to {done - 1}: {found[:1]!r}")
                count = done
                if following.is_live and not joined:
                    joined = count
                    used = time.process_time() - cpu
                    seconds = time.perf_counter() - begin
            other = cpu_of(others(task)) - other
        more = {"other_us": other / count * 1e6, "all_us": used / joined * 1e6 + other / count * 1e6}
        report(per_second=joined / seconds, cpu_us=used / joined * 1e6, rss_mib=peak(), **more)


def _report(count: int, begin: float, cpu: float, other: float) -> None:
    used, seconds = time.process_time() - cpu, time.perf_counter() - begin
    more = {"other_us": other / count * 1e6, "all_us": (used + other) / count * 1e6} if other else {}
    report(per_second=count / seconds, cpu_us=used / count * 1e6, rss_mib=peak(), **more)
