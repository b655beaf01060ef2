"""Messages from sockets reach the journal with the delivery guarantee of their protocol."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit.errors import BadMessage, Closed, ConfigError, NotStored, TimedOut
from nngkit.journal import Record, Recorder, Stored, encode_request, parse_reply, read
from nngkit.journal.record import EARLIEST, LATEST
from nngkit.journal.recorder import MOST_ROWS
from nngkit.protocols import Bus, Pair0, Pub, Pull, Push, Rep, Req, Sub
from nngkit.testing import aeventually

WAIT = 30.0  # seconds: far more than anything here takes, also on a busy machine
ANY = "tcp://127.0.0.1:0"


@asynccontextmanager
async def recording(
    journal: Path, socket: Any, topic: str = "t", *, plain: bool = False, **options: object
) -> AsyncIterator[Recorder]:
    """Run a recorder of `socket`."""
    async with Recorder(journal, **options) as recorder, trio.open_nursery() as nursery:  # type: ignore[arg-type]
        nursery.start_soon(partial(recorder.record, socket, topic, plain=plain))
        try:
            yield recorder
        finally:
            nursery.cancel_scope.cancel()


async def on_disk(recorder: Recorder, count: int) -> None:
    await aeventually(lambda: recorder.stats.log.synced >= count)


def values(journal: Path) -> list[bytes]:
    return [record.value for record in read(journal)]


async def test_pull_records_every_message_with_its_peer(tmp_path: Path) -> None:
    async with Pull(listen=ANY) as pull, Push(dial=pull.address) as push, recording(tmp_path, pull) as recorder:
        await push.asend_many([b"%d" % number for number in range(1000)])
        await on_disk(recorder, 1000)
        peer = pull.pipes[0].address
    records = list(read(tmp_path))
    assert [record.value for record in records] == [b"%d" % number for number in range(1000)]
    assert {(record.topic, record.protocol, record.peer, record.key) for record in records} == {
        ("t", "pull", peer, None)
    }
    assert [record.timestamp for record in records] == sorted(record.timestamp for record in records)


async def test_sub_records_the_matched_subscription_and_counts_gaps(tmp_path: Path) -> None:
    async with (
        Pub(listen=ANY, sequence=True) as pub,
        Sub(dial=pub.address, topics=["eu.", "eu.oslo."], sequence=True) as sub,
        recording(tmp_path, sub) as recorder,
    ):
        await pub.await_for_peers(1)
        pub.send(b"eu.oslo. 3")
        pub.send(b"eu.rome. 20")
        pub.send(b"us.austin. 30")
        await on_disk(recorder, 2)
        pub._trailer(b"", 5)  # five numbers that are never sent
        pub.send(b"eu.paris. 12")
        await on_disk(recorder, 3)
        assert recorder.stats.streams[0].lost > 0
    assert [(record.key, record.value) for record in read(tmp_path)] == [
        (b"eu.oslo.", b"eu.oslo. 3"),
        (b"eu.", b"eu.rome. 20"),
        (b"eu.", b"eu.paris. 12"),
    ]


@pytest.mark.parametrize("kind", [Bus, Pair0])
async def test_bus_and_pair_are_recorded(tmp_path: Path, kind: type[Bus] | type[Pair0]) -> None:
    async with kind(listen=ANY) as here, kind(dial=here.address) as there, recording(tmp_path, here) as recorder:
        await there.await_for_peers(1)
        await there.asend(b"opaque \x00\xff")
        await on_disk(recorder, 1)
    assert values(tmp_path) == [b"opaque \x00\xff"]


async def test_each_message_of_a_batch_is_a_record(tmp_path: Path) -> None:
    async with (
        Pull(listen=ANY, batch=True) as pull,
        Push(dial=pull.address, batch=True) as push,
        recording(tmp_path, pull) as recorder,
    ):
        await push.asend_many([b"%d" % number for number in range(5000)])
        await on_disk(recorder, 5000)
    assert values(tmp_path) == [b"%d" % number for number in range(5000)]


async def test_reply_is_sent_once_the_records_are_on_disk(tmp_path: Path) -> None:
    async with Rep(listen=ANY) as rep, Req(dial=rep.address) as req, recording(tmp_path, rep, "orders"):
        with trio.fail_after(WAIT):
            one = parse_reply(await req.arequest(encode_request(b"a", [b"1"], key=b"k", headers={"h": b"v"})))
            many = parse_reply(await req.arequest(encode_request(b"b", [b"2", b"3"], topic="eu")))
            again = parse_reply(await req.arequest(encode_request(b"b", [b"2", b"3"], topic="eu")))
        assert (one, many, again) == (Stored(0, 0, 1), Stored(0, 1, 3), Stored(0, 3, 5))
        # still recording: other processes can read them already
        assert values(tmp_path) == [b"1", b"2", b"3", b"2", b"3"]
        assert [record.value for record in read(tmp_path, distinct=True)] == [b"1", b"2", b"3"]
    first: Record = next(iter(read(tmp_path)))
    assert (first.topic, first.key, first.headers) == ("orders", b"k", (("id", b"a\0\0\0\0"), ("h", b"v")))
    assert {record.topic for record in read(tmp_path, start=1)} == {"orders/eu"}


async def test_thousands_of_requests_are_pending_at_once(tmp_path: Path) -> None:
    answers: list[Stored] = []
    async with Rep(listen=ANY) as rep, Req(dial=rep.address) as req, recording(tmp_path, rep, plain=True):

        async def ask(number: int) -> None:
            answers.append(parse_reply(await req.arequest(b"%d" % number)))

        with trio.fail_after(WAIT):
            async with trio.open_nursery() as nursery:
                for number in range(3000):
                    nursery.start_soon(ask, number)
    assert sorted(answer.first for answer in answers) == list(range(3000))
    assert sorted(map(int, values(tmp_path))) == list(range(3000))


async def test_malformed_request_is_refused_and_counted(tmp_path: Path) -> None:
    async with Rep(listen=ANY) as rep, Req(dial=rep.address) as req, recording(tmp_path, rep) as recorder:
        with trio.fail_after(WAIT), pytest.raises(NotStored, match="bad ingest request"):
            parse_reply(await req.arequest(b"hello"))
        assert recorder.stats.streams[0].bad == 1
    assert values(tmp_path) == []


async def test_request_is_refused_if_the_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    sync = os.fdatasync
    async with Rep(listen=ANY) as rep, Req(dial=rep.address) as req, recording(tmp_path, rep, plain=True) as recorder:
        monkeypatch.setattr(os, "fdatasync", broken)
        with trio.fail_after(WAIT), pytest.raises(NotStored, match="Input/output error"):
            parse_reply(await req.arequest(b"lost"))
        assert recorder.stats.streams[0].refused == 1
        assert recorder.stats.failure is not None
        monkeypatch.setattr(os, "fdatasync", sync)
        with trio.fail_after(WAIT):
            assert parse_reply(await req.arequest(b"kept")) == Stored(0, 0, 1)
        assert recorder.stats.failure is None
    assert values(tmp_path) == [b"kept"]


@pytest.mark.slow
async def test_full_buffer_drops_from_sub_and_applies_backpressure_to_pull(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fdatasync
    broken = True

    def stalls(file: int) -> None:
        if broken:
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    async with (
        Recorder(tmp_path, buffer_bytes=100_000) as recorder,
        Pub(listen=ANY) as pub,
        Sub(dial=pub.address, topics=b"", recv_buffer=8192) as sub,
        Pull(listen=ANY, recv_buffer=1) as pull,
        Push(dial=pull.address, send_buffer=1) as push,
        trio.open_nursery() as nursery,
    ):
        await pub.await_for_peers(1)
        monkeypatch.setattr(os, "fdatasync", stalls)
        nursery.start_soon(recorder.record, sub, "s")
        with trio.fail_after(WAIT):
            while not recorder.stats.streams or not recorder.stats.streams[0].dropped:
                pub.send(b"x" * 1000)
                await trio.sleep(0.001)
        nursery.start_soon(recorder.record, pull, "p")
        pushed = 0
        with trio.move_on_after(1.0):
            while True:
                await push.asend(b"y" * 20_000)
                pushed += 1
        assert pushed < 1500, "no backpressure: the kernel buffers only some megabytes"
        broken = False
        with trio.fail_after(WAIT):
            for _ in range(200):
                await push.asend(b"y" * 20_000)
                pushed += 1
        await aeventually(lambda: recorder.stats.streams[1].received == pushed)
        nursery.cancel_scope.cancel()
        stream = recorder.stats.streams[0]
    records = list(read(tmp_path))
    assert sum(record.topic == "p" for record in records) == pushed
    assert sum(record.topic == "s" for record in records) == stream.received - stream.dropped


async def test_messages_dropped_by_the_socket_are_counted(tmp_path: Path) -> None:
    async with (
        Recorder(tmp_path) as recorder,
        Pub(listen=ANY) as pub,
        Sub(dial=pub.address, topics=b"", recv_buffer=16) as sub,
        trio.open_nursery() as nursery,
    ):
        await pub.await_for_peers(1)
        for number in range(100):
            await pub.asend(b"%d" % number)
        await aeventually(lambda: sub.stats.read == 100)
        nursery.start_soon(recorder.record, sub, "s")
        await aeventually(lambda: recorder.stats.streams and recorder.stats.streams[0].received == 16)
        assert recorder.stats.streams[0].unseen == 84
        nursery.cancel_scope.cancel()
    assert [record.value for record in read(tmp_path)] == [b"%d" % number for number in range(84, 100)]


async def test_cancelled_record_drains_the_socket(tmp_path: Path) -> None:
    async with Pull(listen=ANY) as pull, Push(dial=pull.address) as push:
        async with Recorder(tmp_path) as recorder, trio.open_nursery() as nursery:
            nursery.start_soon(recorder.record, pull, "t")
            await push.asend_many([b"x"] * 500)
            await aeventually(lambda: not push.stats.unwritten)
            nursery.cancel_scope.cancel()
        received = recorder.stats.streams[0].received
        assert received == 500
    assert len(values(tmp_path)) == received


async def test_put_and_store_record_values(tmp_path: Path) -> None:
    async with Recorder(tmp_path) as recorder:
        assert recorder.put(b"round", topic="rounds", protocol="survey", key=b"k", headers={"a": b"1"}, timestamp=5)
        assert await recorder.store([b"edit"], topic="documents", protocol="bus", peer="me") == Stored(0, 1, 2)
    records = list(read(tmp_path))
    assert records[0] == Record(b"k", b"round", "rounds", 0, 0, 5, (("a", b"1"),), "survey", None)
    assert (records[1].topic, records[1].peer) == ("documents", "me")


@pytest.mark.parametrize("stamp", [LATEST + 1, EARLIEST - 1, 1_795_713_922_049_132_954])
async def test_a_time_outside_the_years_1_to_9999_is_refused(tmp_path: Path, stamp: int) -> None:
    async with Recorder(tmp_path) as recorder:
        with pytest.raises(ConfigError, match=f"timestamp: {stamp} microseconds .* in nanoseconds"):
            recorder.put(b"v", topic="t", protocol="x", timestamp=stamp)
        for most in (EARLIEST, LATEST):
            assert recorder.put(b"v", topic="t", protocol="x", timestamp=most)
    assert [record.timestamp for record in read(tmp_path)] == [EARLIEST, LATEST]


async def test_wrong_use_raises_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(Closed, match="not open"):
        Recorder(tmp_path).put(b"", topic="t", protocol="x")
    async with Recorder(tmp_path) as recorder, Push(listen=ANY) as push:
        with pytest.raises(ConfigError, match="Push receives nothing to record"):
            await recorder.record(push, "t")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="topic"):
            recorder.put(b"", topic="", protocol="x")
    with pytest.raises(BadMessage):
        parse_reply(b"x")


@pytest.mark.parametrize("wrong", [{"value": "text"}, {"key": "text"}, {"timestamp": 1.5}, {"headers": {"h": "text"}}])
async def test_what_cannot_be_written_is_refused_to_its_caller_alone(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with Recorder(tmp_path) as recorder:
        with pytest.raises(TypeError):
            recorder.put(**({"value": b"", "topic": "t", "protocol": "x"} | wrong))
        with pytest.raises(ConfigError, match="topic"):
            recorder.put(b"", topic="\udcff", protocol="x")
        data = bytearray(b"as it was")
        recorder.put(data, topic="t", protocol="x")  # type: ignore[arg-type]
        data[:] = b"reused..."
        with trio.fail_after(WAIT):
            await recorder.flush()
    assert values(tmp_path) == [b"as it was"]


async def test_a_socket_may_be_closed_before_what_it_received_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_sync = threading.Event()
    sync = os.fdatasync
    async with Recorder(tmp_path) as recorder, Rep(listen=ANY) as rep, Req(dial=rep.address) as req:
        monkeypatch.setattr(os, "fdatasync", lambda file: (may_sync.wait(WAIT), sync(file)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(recorder.record, rep, "t")
            nursery.start_soon(_unanswered, req)
            await aeventually(lambda: recorder.stats.waiting > 0)
            rep.close()
        may_sync.set()
        await recorder.flush()
    assert values(tmp_path) == [b"v"]


async def _unanswered(req: Req) -> None:
    with pytest.raises(TimedOut):
        await req.arequest(encode_request(b"", [b"v"]), timeout=0.3)


async def test_key_and_headers_count_in_the_buffer(tmp_path: Path) -> None:
    size = 1 << 20
    async with (
        Rep(listen=ANY) as rep,
        Req(dial=rep.address) as req,
        recording(tmp_path, rep, buffer_bytes=size) as recorder,
    ):
        for shared in ({"key": bytes(2000)}, {"headers": {"h": bytes(2000)}}):
            body = encode_request(b"id", [b""] * 1000, **shared)  # each record would have them
            with pytest.raises(NotStored, match=f"over the limit of {size}"):
                parse_reply(await req.arequest(body, timeout=WAIT))
        put = partial(recorder.put, b"", topic="t", protocol="x", key=bytes(size // 4), headers={"h": bytes(size // 4)})
        assert (put(), put()) == (True, False)


async def test_nothing_is_acknowledged_once_the_folder_of_a_journal_has_gone(tmp_path: Path) -> None:
    store: dict[str, Any] = {"topic": "t", "protocol": "x"}
    async with Recorder(tmp_path / "j") as recorder:
        await recorder.store([b"before"], **store)
        (tmp_path / "j").rename(tmp_path / "away")
        with trio.fail_after(WAIT), pytest.raises(NotStored, match="No such file"):
            await recorder.store([b"lost with it"], **store)
        (tmp_path / "away").rename(tmp_path / "j")
        with trio.fail_after(WAIT):
            await recorder.store([b"after"], **store)
    assert values(tmp_path / "j") == [b"before", b"after"]


async def test_rows_of_ended_streams_and_topics_have_a_cap_and_totals_do_not_fall(tmp_path: Path) -> None:
    def total(recorder: Recorder) -> int:
        return sum(stream.received for stream in recorder.stats.streams)

    async with Recorder(tmp_path) as recorder:
        for number in range(3):  # one row for each topic, whatever has ended
            async with Push(listen=ANY) as push, Pull(dial=push.address) as pull, trio.open_nursery() as nursery:
                nursery.start_soon(recorder.record, pull, "pulled")
                await push.asend(b"x")
                await aeventually(lambda number=number: total(recorder) == number + 1)  # type: ignore[misc]
                pull.close()
        [row] = recorder.stats.streams
        assert (row.topic, row.protocol, row.received, row.socket) == ("pulled", "pull", 3, None)
        for number in range(MOST_ROWS):
            recorder.put(b"x", topic=f"t{number}", protocol="app")
            assert total(recorder) == number + 4
        stats = recorder.stats
        assert (len(stats.streams), stats.summed) == (MOST_ROWS + 1, 1)
        assert [(row.topic, row.received) for row in stats.streams if not row.topic] == [("", 3)]
        recorder.put(b"x", topic="t0", protocol="app")  # no longer the quiet one
        recorder.put(b"x", topic="new", protocol="app")
        assert {row.topic for row in recorder.stats.streams if row.received == 2} == {"t0"}
