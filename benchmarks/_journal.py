"""Measurements of the journal, through its public API."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from typing import Any

import trio

from _child import RUN_IN, Meter, peak, report
from nngkit.journal import Recorder, Replayed, encode_request, open_journal, parse_reply, replay
from nngkit.journal.record import encode_origin
from nngkit.journal.writing.partition import Partition
from nngkit.protocols import Pub, Pull, Push, Rep, Req, Sub


def _folder() -> tempfile.TemporaryDirectory[str]:
    # a measured process is killed: pipeline.py deletes its files
    return tempfile.TemporaryDirectory(dir=os.environ["NNGKIT_BENCH_JOURNALS"])


# ---- into the log ----------------------------------------------------------------------------------------------------


def append(task: dict[str, Any]) -> None:
    """Append records to a log, 256 at once, as a recorder does; count those on disk."""
    value, origin = (
        os.urandom(task["size"] // 2).hex().encode(),
        encode_origin("bench", "pull", "tcp://127.0.0.1:40000"),
    )
    with _folder() as folder:
        partition = Partition.open(folder + "/journal", segment_bytes=task.get("segment", 64 << 20))
        log, meter, seen = partition.log, Meter(task["seconds"]), 0
        while True:
            while log.waiting > 8 << 20:
                time.sleep(0.0005)
            now = time.time_ns() // 1000
            log.append([(None, value, origin, b"", now)] * 256)
            synced = log.stats.synced
            if not meter.add(synced - seen):
                break
            seen = synced
        partition.close()


async def _record(task: dict[str, Any], socket: Any, topic: str) -> None:
    with _folder() as folder:
        async with Recorder(folder + "/journal") as recorder, trio.open_nursery() as nursery:
            report(url=socket.address)
            nursery.start_soon(recorder.record, socket, topic)
            meter, seen = Meter(task["seconds"]), 0
            while True:
                await trio.sleep(0.01)
                synced = recorder.stats.log.synced
                if not meter.add(synced - seen):
                    break
                seen = synced
            nursery.cancel_scope.cancel()


async def record_pull(task: dict[str, Any]) -> None:
    """Record a PULL; count records on disk."""
    async with Pull(listen=task["url"], batch=task.get("batch"), recv_buffer=8192) as pull:
        await _record(task, pull, "bench")


async def record_rep(task: dict[str, Any]) -> None:
    """Run a recorder that acknowledges requests."""
    with _folder() as folder:
        async with Rep(listen=task["url"], recv_buffer=8192) as rep, Recorder(folder + "/journal") as recorder:
            report(url=rep.address)
            await recorder.record(rep, "bench")


def push(task: dict[str, Any]) -> None:
    bodies = [b"x" * task["size"]] * 256
    with Push(dial=task["url"], batch=task.get("batch")) as sock:
        while True:
            sock.send_many(bodies)


async def ingest(task: dict[str, Any]) -> None:
    """Keep many requests pending on one socket; count the acknowledged ones."""
    values, many = [b"x" * task["size"]] * task["many"], task["many"]
    meter, numbers = Meter(task["seconds"]), itertools.count()
    done = seen = 0
    async with Req(dial=task["url"]) as req, trio.open_nursery() as nursery:

        async def ask() -> None:
            nonlocal done
            while True:
                parse_reply(await req.arequest(encode_request(b"%d" % next(numbers), values)))
                done += many

        for _ in range(task["flight"]):
            nursery.start_soon(ask)
        while meter.add(done - seen):
            seen = done
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


# ---- out of it -------------------------------------------------------------------------------------------------------


def _filled(folder: str, task: dict[str, Any], pause: int) -> None:
    """Write a journal of ``records``, `pause` microseconds apart; half of it in segments."""
    origin, count = encode_origin("bench", "pull", None), task["records"]
    partition = Partition.open(folder, buffer_bytes=1 << 40)
    values = [os.urandom(task["size"] // 2).hex().encode() for _ in range(256)]
    for first in range(0, count, 256):
        part = range(first, min(count, first + 256))
        partition.log.append([(None, values[number % 256], origin, b"", number * pause) for number in part])
        if first < count // 2 <= first + 256:
            while partition.log.stats.synced < part.stop:
                time.sleep(0.001)
            partition.log.rotate()
    partition.close()


def read_back(task: dict[str, Any]) -> None:
    """Read Arrow batches from segments."""
    with _folder() as folder:
        _filled(folder + "/journal", task, 1)
        journal, meter = open_journal(folder + "/journal"), Meter(task["seconds"])
        while True:
            for batch in journal.read_batches(0):
                if not meter.add(batch.num_rows):
                    return


def listen(task: dict[str, Any]) -> None:
    """Receive everything with a SUB."""
    with Sub(dial=task["url"], topics=b"", recv_buffer=8192) as sub:
        while True:
            sub.recv_many(1024)


def replay_in_time(task: dict[str, Any]) -> None:
    """Replay from PUB to SUB at the recorded pace; measure lateness."""

    async def main(folder: str) -> None:
        done = Replayed()
        async with Pub(listen=task["url"]) as pub:
            report(url=pub.address)
            await pub.await_for_peers(1)
            begun, used = time.perf_counter(), time.process_time()
            await replay(folder, pub, progress=done)
            cpu = (time.process_time() - used) / done.records
        report(
            per_second=done.records / (time.perf_counter() - begun),
            cpu_us=cpu * 1e6,
            p50_us=max(done.lateness(0.5), 0.0001) * 1e6,
            p99_us=max(done.lateness(0.99), 0.0001) * 1e6,
            rss_mib=peak(),
        )

    with _folder() as folder:
        rate = task["rate"]
        task["records"] = int(rate * (task["seconds"] + RUN_IN))
        _filled(folder + "/journal", task, 1_000_000 // rate)
        trio.run(main, folder + "/journal")
