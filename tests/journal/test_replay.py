"""Replay: the same bytes in the same order, at the recorded pace."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit.errors import Closed, ConfigError, Damaged
from nngkit.journal import Replayed, replay
from nngkit.journal.writing.partition import Partition
from nngkit.protocols import Pair0, Pub, Pull, Push, Rep, Req, Sub
from tests.journal.partitions import entry, stored

ANY = "tcp://127.0.0.1:0"
WAIT = 30.0


def written(
    journal: Path, values: list[bytes], *, pause: int, partition: int = 0, topic: str = "topic", at: int = 0
) -> None:
    """Write records `pause` microseconds apart."""
    made = Partition.open(journal, partition)
    stored(made, [entry(value, timestamp=at + number * pause, topic=topic) for number, value in enumerate(values)])
    made.close()


@pytest.mark.parametrize(("way", "count"), [("pub", 8000), ("push", 20_000)])
async def test_unpaced_replay_delivers_the_same_bytes_in_order(tmp_path: Path, way: str, count: int) -> None:
    # To a SUB only as many as its buffer holds: a publisher has no backpressure for a subscriber that lags.
    chance = random.Random(2)
    values = [chance.randbytes(chance.choice((0, 1, 100, 3000))) for _ in range(count)]
    written(tmp_path, values, pause=0)
    sender: Any = Pub(listen=ANY, linger=10.0) if way == "pub" else Push(listen=ANY, linger=10.0)
    receiver: Any = (
        Sub(dial=sender.address, topics=b"", recv_buffer=8192) if way == "pub" else Pull(dial=sender.address)
    )
    async with sender, receiver:
        await sender.await_for_peers(1)
        got: list[bytes] = []

        async def receive() -> None:
            while len(got) < len(values):
                got.extend(await receiver.arecv_many(1024))

        with trio.fail_after(WAIT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                done = await replay(tmp_path, sender, speed=None)
    assert got == values
    assert (done.records, done.size) == (len(values), sum(map(len, values)))


@pytest.mark.slow
async def test_paced_replay_is_never_early_and_rarely_late(tmp_path: Path) -> None:
    values = [os.urandom(20) for _ in range(1000)]
    written(tmp_path, values, pause=1500)
    async with Pub(listen=ANY) as pub, Sub(dial=pub.address, topics=b"") as sub:
        await pub.await_for_peers(1)
        arrived: list[float] = []
        got: list[bytes] = []

        async def receive() -> None:
            while len(got) < len(values):
                got.append(await sub.arecv())
                arrived.append(trio.current_time())

        with trio.fail_after(WAIT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                done = await replay(tmp_path, pub)
    assert got == values
    # lateness is measured by the benchmark on a quiet machine; here only the total duration
    assert arrived[-1] - arrived[0] >= 0.95 * 1.5
    assert done.late.total() == 1000
    assert done.lateness(0.5) < 0.05


async def test_replay_honours_speed_and_range(tmp_path: Path) -> None:
    written(tmp_path, [b"%d" % number for number in range(100)], pause=100_000)
    async with Pull(listen=ANY) as pull, Push(dial=pull.address) as push:
        with trio.fail_after(WAIT):
            begun = trio.current_time()
            await replay(tmp_path, push, speed=20.0, start_time=2_000_000, end=60)
            taken = trio.current_time() - begun
            got = [await pull.arecv() for _ in range(40)]
    assert got == [b"%d" % number for number in range(20, 60)]
    assert 0.19 <= taken < 5.0  # 39 pauses of 5 ms


async def test_partitions_are_merged_by_time(tmp_path: Path) -> None:
    written(tmp_path, [b"a%d" % number for number in range(600)], pause=20)
    written(tmp_path, [b"b%d" % number for number in range(600)], pause=20, partition=1, at=10, topic="b")
    async with Pair0(listen=ANY) as one, Pair0(dial=one.address) as two:
        with trio.fail_after(WAIT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(replay, tmp_path, two)
                got = [await one.arecv() for _ in range(1200)]
                assert got == [b"%s%d" % (each, number) for number in range(600) for each in (b"a", b"b")]
            await replay(tmp_path, two, speed=None, topics="b", start=590)
            assert [await one.arecv() for _ in range(10)] == [b"b%d" % number for number in range(590, 600)]


async def test_req_replays_one_request_at_a_time(tmp_path: Path) -> None:
    written(tmp_path, [b"1", b"2", b"3"], pause=0)
    async with Rep(listen=ANY) as rep, Req(dial=rep.address) as req, trio.open_nursery() as nursery:
        asked: list[bytes] = []

        async def answer() -> None:
            async for request in rep:
                asked.append(request.body)
                await request.areply(b"")

        nursery.start_soon(answer)
        with trio.fail_after(WAIT):
            await replay(tmp_path, req, speed=None)
        assert asked == [b"1", b"2", b"3"]
        nursery.cancel_scope.cancel()


async def test_cancelled_replay_reports_its_progress(tmp_path: Path) -> None:
    written(tmp_path, [b"1", b"2", b"3"], pause=10_000_000)
    done = Replayed()
    async with Pull(listen=ANY) as pull, Push(dial=pull.address) as push:
        with trio.move_on_after(0.5):
            await replay(tmp_path, push, progress=done)
    assert done.records == 1


async def test_invalid_socket_or_speed_is_rejected(tmp_path: Path) -> None:
    written(tmp_path, [b"1"], pause=0)
    async with Pull(listen=ANY) as pull, Push(listen=ANY) as push:
        with pytest.raises(ConfigError, match="Pull cannot send a replay"):
            await replay(tmp_path, pull)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="speed"):
            await replay(tmp_path, push, speed=0)


async def test_replay_raises_the_error_of_the_journal_or_of_the_socket(tmp_path: Path) -> None:
    written(tmp_path / "j", [b"x" * 100] * 10, pause=1)
    (segment,) = (tmp_path / "j").glob("*/*.parquet")
    async with Push(listen=ANY) as push, Pull(dial=push.address):
        whole = segment.read_bytes()
        segment.write_bytes(whole[:20] + bytes(200) + whole[220:])
        with pytest.raises(Damaged):
            await replay(tmp_path / "j", push, speed=None)
        segment.write_bytes(whole)
        push.close()
        with pytest.raises(Closed):
            await replay(tmp_path / "j", push, speed=None)
