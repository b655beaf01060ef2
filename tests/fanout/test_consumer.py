"""Consumers of a journal through a ConsumerServer: acknowledgement, redelivery, restarts."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit import aio, blocking
from nngkit.errors import AccessDenied, ConfigError, NngkitError, NotFound, NotStored, TooLarge
from nngkit.fanout import Consumer, ConsumerServer, Delivery
from nngkit.fanout.durable import server as serving
from nngkit.fanout.durable.feed import Feed
from nngkit.fanout.durable.messages import (
    REQUESTS,
    DeleteRequest,
    Done,
    Fetched,
    FetchRequest,
    How,
    Opened,
    OpenRequest,
    Settled,
    SettleRequest,
    pack_runs,
    parse_reply,
)
from nngkit.fanout.durable.partition import Runs
from nngkit.fanout.durable.server import MOST_CONSUMERS, MOST_CREATED
from nngkit.journal import Recorder, Retention
from nngkit.journal.heads import Heads
from nngkit.journal.manifest import check_journal
from nngkit.journal.reader import Journal
from nngkit.journal.storage import open_storage
from nngkit.protocols import Req
from nngkit.testing import aeventually
from tests.fanout.journals import numbers, write


@asynccontextmanager
async def served(journal: Path, **options: Any) -> AsyncIterator[ConsumerServer]:
    async with ConsumerServer(journal, listen="tcp://127.0.0.1:0", **options) as server:
        yield server


async def take(consumer: Consumer, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    with trio.fail_after(5):
        async for delivery in consumer:
            found.append(delivery)
            if len(found) == count:
                break
    return found


async def test_a_consumer_gets_each_record_once_in_order(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 3000))
    async with served(tmp_path / "j") as server, Consumer("all", server.address) as consumer:
        found = await take(consumer, 3000)
        assert [each.value for each in found] == numbers(0, 3000)
        assert [each.offset for each in found] == list(range(3000))
        for each in found:
            each.ack_soon()
        await consumer.flush()
        (info,) = await consumer.info()
        assert (info.floor, info.pending, info.settled) == (3000, 0, 3000)


@pytest.mark.parametrize("seen", [True, False])
async def test_a_record_reaches_a_consumer_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    monkeypatch.setattr(serving, "QUIET", 30.0)  # only the write of a head is noticed, or only looks
    if not seen:
        monkeypatch.setattr(Heads, "watch", lambda *_: False)
    async with Recorder(tmp_path / "j") as recorder:
        await recorder.store(numbers(0, 1), topic="orders", protocol="test")
        async with served(tmp_path / "j") as server, Consumer("c", server.address) as consumer:
            for number in range(10):
                (found,) = await take(consumer, 1)
                assert found.value == numbers(number, number + 1)[0]
                await found.ack()
                await aeventually(lambda: server.stats.waiting)
                await recorder.store(numbers(number + 1, number + 2), topic="orders", protocol="test")


async def test_a_consumer_that_waits_costs_its_server_few_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, end = [], Journal.end

    def counted(journal: Journal, number: int) -> int:
        looks.append(number)
        return end(journal, number)

    monkeypatch.setattr(Journal, "end", counted)
    await write(tmp_path / "j", numbers(0, 1))
    async with served(tmp_path / "j") as server, Consumer("c", server.address) as consumer:
        await (await take(consumer, 1))[0].ack()
        with trio.move_on_after(1):
            await consumer.receive()
        assert 5 < len(looks) < 40  # 200 if it looked as often as a recorder may sync


async def test_an_acknowledged_record_does_not_come_again_after_a_restart(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 10))
    async with served(tmp_path / "j") as server, Consumer("c", server.address, ack_wait=0.1) as consumer:
        for each in (await take(consumer, 10))[::2]:
            await each.ack()
    async with served(tmp_path / "j") as server, Consumer("c", server.address) as consumer:
        found = await take(consumer, 5)
        assert [each.offset for each in found] == [1, 3, 5, 7, 9]
        assert {each.deliveries for each in found} == {2}


async def test_a_record_without_ack_is_delivered_again_after_ack_wait(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 1))
    async with served(tmp_path / "j") as server, Consumer("c", server.address, ack_wait=0.2) as consumer:
        first = (await take(consumer, 1))[0]
        started = trio.current_time()
        second = (await take(consumer, 1))[0]
        assert 0.1 < trio.current_time() - started < 1.0
        assert (first.offset, first.deliveries, second.offset, second.deliveries) == (0, 1, 0, 2)


async def test_a_consumer_follows_a_running_recorder(tmp_path: Path) -> None:
    async with (
        Recorder(tmp_path / "j") as recorder,
        served(tmp_path / "j") as server,
        Consumer("c", server.address) as consumer,
    ):
        for number in range(5):
            await recorder.store([b"%d" % number], topic="t", protocol="test")
            (each,) = await take(consumer, 1)
            assert each.value == b"%d" % number
            await each.ack()


async def test_two_consumers_of_one_name_share_the_records(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 100))
    async with (
        served(tmp_path / "j") as server,
        Consumer("c", server.address, records=10) as one,
        Consumer("c", server.address, records=10) as two,
    ):
        found = [*await take(one, 20), *await take(two, 20)]
        assert len({each.offset for each in found}) == 40


async def test_nak_term_and_max_deliver(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 3))
    async with served(tmp_path / "j") as server, Consumer("c", server.address, max_deliver=2) as consumer:
        zero, one, two = await take(consumer, 3)
        await zero.nak()
        await one.term()
        await two.nak(0.05)
        again = await take(consumer, 2)
        assert [(each.offset, each.deliveries) for each in again] == [(0, 2), (2, 2)]
        await again[0].nak()
        await again[1].ack()
        (info,) = await consumer.info()
        assert (info.given_up, info.pending, info.floor) == (1, 0, 3)


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "x" * 65, "a b", "-x"])
async def test_a_name_with_a_path_is_one_clear_line(name: str) -> None:
    with pytest.raises(ConfigError, match="is not 1 to 64 letters") as caught:
        Consumer(name, "tcp://127.0.0.1:1")
    assert "\n" not in str(caught.value)


async def test_other_options_for_a_known_name_are_refused(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 1))
    async with served(tmp_path / "j") as server:
        async with Consumer("c", server.address, ack_wait=5.0):
            pass
        with pytest.raises(ConfigError, match=r"ack_wait=5\.0, not 6\.0"):
            async with Consumer("c", server.address, ack_wait=6.0):
                pass


async def test_starts_and_topics(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 10), topic="a")
    await write(tmp_path / "j", numbers(10, 20), topic="b")
    async with served(tmp_path / "j") as server:
        async with Consumer("offset", server.address, start=15) as consumer:
            assert (await take(consumer, 1))[0].offset == 15
        async with Consumer("topic", server.address, topics="b") as consumer:
            found = await take(consumer, 10)
            assert {each.topic for each in found} == {"b"}
            assert found[0].offset == 10
        async with Consumer("latest", server.address, start="latest") as consumer:
            await write(tmp_path / "j", [b"new"])
            assert (await take(consumer, 1))[0].value == b"new"


async def test_records_that_were_read_ahead_are_given_back_at_once(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 100))
    async with served(tmp_path / "j") as server:
        async with Consumer("c", server.address, records=10) as consumer:
            for each in await take(consumer, 5):
                await each.ack()
        async with Consumer("c", server.address) as consumer:
            found = await take(consumer, 95)
            assert [each.offset for each in found] == list(range(5, 100))
            assert {each.deliveries for each in found} == {1}


async def test_a_deleted_consumer_is_gone(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 1))
    async with served(tmp_path / "j") as server, Consumer("c", server.address) as consumer:
        await take(consumer, 1)
        await consumer.delete()
        with pytest.raises(NotFound):
            await take(consumer, 1)
        assert server.consumers() == []


async def test_two_servers_do_not_share_a_name(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 1))
    async with served(tmp_path / "j") as one, served(tmp_path / "j") as two, Consumer("c", one.address):
        with pytest.raises(ConfigError, match="another process has it"):
            async with Consumer("c", two.address):
                pass


async def test_consumers_for_asyncio_and_without_a_loop(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 4))

    def block(address: str) -> list[bytes]:
        with blocking.Consumer("c", address, records=1) as consumer:
            found = [consumer.receive(), consumer.receive()]
            consumer.ack(*found)
            assert consumer.info()[0].settled == 2
            with pytest.raises(ConfigError, match=r"Consumer\.ack"):
                found[0].ack_soon()
            return [each.value for each in found]

    async def in_asyncio(address: str) -> list[bytes]:
        async with aio.Consumer("c", address) as consumer:
            found = [await anext(consumer), await consumer.receive()]
            await consumer.ack(*found)
            assert consumer.stats.confirmed == 2
            return [each.value for each in found]

    async with served(tmp_path / "j") as server:
        with trio.fail_after(10):
            assert await trio.to_thread.run_sync(block, server.address) == [b"0", b"1"]
            assert await trio.to_thread.run_sync(lambda: asyncio.run(in_asyncio(server.address))) == [b"2", b"3"]


async def test_records_that_retention_took_are_skipped_and_counted(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 5))
    async with served(tmp_path / "j") as server, Consumer("c", server.address, records=1, ack_wait=0.1) as consumer:
        assert (await take(consumer, 1))[0].offset == 0
        async with Recorder(tmp_path / "j", retention=Retention(size=1)) as recorder:
            await recorder.store(numbers(5, 6), topic="orders", protocol="test")
        async with Recorder(tmp_path / "j") as recorder:
            await recorder.store(numbers(6, 7), topic="orders", protocol="test")
            with trio.fail_after(5):
                while (each := await consumer.receive()).offset != 6:
                    await each.ack()
                await each.ack()
            with trio.move_on_after(0.3):  # offset 0 is in flight, and gone when it is to be delivered again
                await consumer.receive()
            (info,) = server.consumers("c")
    assert (info.floor, info.pending) == (7, 0)
    assert info.skipped >= 2


async def test_a_record_that_the_consumer_cannot_receive_is_named(tmp_path: Path) -> None:
    await write(tmp_path / "j", [b"x" * 100_000])
    async with served(tmp_path / "j") as server:
        async with Consumer("c", server.address, recv_max_size=50_000) as consumer:
            with pytest.raises(TooLarge, match="offset 0 of partition 0"):
                await take(consumer, 1)
        async with Consumer("c", server.address) as consumer:
            assert len((await take(consumer, 1))[0].value) == 100_000


async def test_large_records_fill_a_reply_only_in_part(tmp_path: Path) -> None:
    await write(tmp_path / "j", [b"x" * 300_000] * 10)
    async with served(tmp_path / "j") as server, Consumer("c", server.address, recv_max_size=1 << 20) as consumer:
        found = await take(consumer, 10)
        assert [each.offset for each in found] == list(range(10))


async def test_hostile_requests_get_a_refusal_and_disturb_no_other(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 2))
    async with served(tmp_path / "j") as server, Req(dial=server.address) as req:
        async with Consumer("c", server.address) as consumer:
            for body in (
                b"",
                b"\xff" * 100,
                bytes(70_000),
                REQUESTS.encode(SettleRequest("none", "s", "ack", 0, pack_runs([(0, 1)]))),
            ):
                with pytest.raises(NngkitError):
                    parse_reply(await req.arequest(body, timeout=5), Done)
            far = SettleRequest("c", "s", "ack", 0, pack_runs([(1 << 60, 1000)]))
            with pytest.raises(AccessDenied, match="not delivered to this session"):
                parse_reply(await req.arequest(REQUESTS.encode(far), timeout=5), Settled)
            assert [each.offset for each in await take(consumer, 2)] == [0, 1]
        assert server.bad == 3
        assert not (tmp_path / "j" / "consumers" / "none.consumer").exists()


async def test_a_session_settles_what_was_delivered_to_it_alone(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 20))
    async with (
        served(tmp_path / "j") as server,
        Req(dial=server.address) as req,
        Consumer("c", server.address, records=8, ack_wait=600.0) as consumer,
    ):
        found = await take(consumer, 4)
        await found[0].ack()
        assert isinstance(found[1], Delivery)
        await found[1].ack()

        async def settle(how: How, runs: Runs, session: str = "stranger") -> Settled:
            request = SettleRequest("c", session, how, 0, pack_runs(runs))
            return parse_reply(await req.arequest(REQUESTS.encode(request), timeout=5), Settled)

        ends: tuple[How, ...] = ("ack", "term")
        for how in ends:
            with pytest.raises(AccessDenied, match="c: records of partition 0 were not delivered to this session"):
                await settle(how, [(0, 20)])
        delays: tuple[How, ...] = ("nak", "progress", "release")
        for how in delays:
            assert await settle(how, [(0, 20)]) == Settled(0)
        (info,) = await consumer.info()
        assert (info.settled, info.redelivered) == (2, 0)
        assert info.pending > 2
        for each in found[2:]:
            await each.ack()
        for each in await take(consumer, 16):
            await each.ack()
        (info,) = await consumer.info()
        assert (info.settled, info.pending, info.floor) == (20, 0, 20)


async def test_a_slow_session_may_settle_what_another_has_meanwhile(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 1))
    async with served(tmp_path / "j") as server:
        async with Consumer("c", server.address, ack_wait=0.1) as slow:
            (first,) = await take(slow, 1)
            async with Consumer("c", server.address) as other:
                (second,) = await take(other, 1)
                assert second.offset == first.offset
                await first.ack()
                await second.ack()
        (info,) = server.consumers("c")
        assert (info.settled, info.pending) == (1, 0)


async def test_a_session_from_before_a_restart_may_settle_what_it_has(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 3))
    async with served(tmp_path / "j") as server, Req(dial=server.address) as req:
        fetch = FetchRequest("c", "before", 0, 3, 1000, 1 << 20, 1.0)
        await req.arequest(REQUESTS.encode(OpenRequest("c", "before")), timeout=5)
        await req.arequest(REQUESTS.encode(fetch), timeout=5)
    async with served(tmp_path / "j") as server, Req(dial=server.address) as req:
        acks = REQUESTS.encode(SettleRequest("c", "before", "ack", 0, pack_runs([(0, 3)])))
        assert parse_reply(await req.arequest(acks, timeout=5), Settled) == Settled(3)


async def test_one_connection_creates_few_consumers_and_all_together_have_a_limit(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 1))

    async def create(count: int, first: int = 0) -> int:
        async with Req(dial=server.address) as req:
            for number in range(first, first + count):
                body = REQUESTS.encode(OpenRequest(f"c{number}", "s"))
                try:
                    parse_reply(await req.arequest(body, timeout=5), Opened)
                except ConfigError:
                    return number - first
            return count

    async with served(tmp_path / "j") as server:
        assert await create(MOST_CREATED + 5) == MOST_CREATED
        async with Consumer("honest", server.address) as consumer:
            await (await take(consumer, 1))[0].ack()
        assert await create(MOST_CREATED + 5) == MOST_CREATED + 5  # they are there
    state = tmp_path / "j" / "consumers"
    for number in range(MOST_CONSUMERS - MOST_CREATED - 1):
        (state / f"old{number}.consumer").touch()
    async with served(tmp_path / "j") as server:  # those on disk count, too
        assert await create(1, first=5000) == 0
        assert await create(1) == 1


async def test_an_ack_is_not_confirmed_while_the_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await write(tmp_path / "j", numbers(0, 1))
    async with served(tmp_path / "j") as server, Consumer("c", server.address) as consumer:
        (each,) = await take(consumer, 1)

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as failing:
            failing.setattr("nngkit.fanout.durable.file.os.fdatasync", fail)
            failing.setattr("nngkit.fanout.durable.file.os.fsync", fail)
            with pytest.raises(NotStored, match="No space left"):
                await each.ack()
        await each.ack()
    async with served(tmp_path / "j") as server:
        (info,) = server.consumers("c")
        assert (info.pending, info.floor) == (0, 1)


async def test_a_consumer_waits_while_its_server_cannot_read_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await write(tmp_path / "j", numbers(0, 1))
    async with served(tmp_path / "j") as server, Consumer("c", server.address) as consumer:
        await (await take(consumer, 1))[0].ack()

        def fail(*_: object) -> None:
            raise OSError(24, "Too many open files")

        found: list[int] = []

        async def receive() -> None:
            found.append((await consumer.receive()).offset)

        with monkeypatch.context() as failing:
            failing.setattr("nngkit.fanout.durable.named.NamedConsumer.fetch", fail)
            await write(tmp_path / "j", numbers(1, 2))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                await aeventually(lambda: consumer.stats.retries > 2)
                failing.undo()
        assert found == [1]
    assert sum("Too many open files" in each.message for each in caplog.records) == 1


async def test_unsealed_records_are_filtered_by_topic_with_keys_and_headers(tmp_path: Path) -> None:
    async with (
        Recorder(tmp_path / "j") as recorder,
        served(tmp_path / "j") as server,
        Consumer("c", server.address, topics=["a", "b"]) as consumer,
    ):
        for topic, key in (("a", b"k"), ("other", None), ("b", None)):
            await recorder.store([b"v"], topic=topic, protocol="test", key=key, headers={"h": b"1"} if key else None)
        found = await take(consumer, 2)
        assert [(each.topic, each.key, each.headers, each.offset) for each in found] == [
            ("a", b"k", (("h", b"1"),), 0),
            ("b", None, (), 2),
        ]


async def test_a_partition_that_appears_later_is_followed(tmp_path: Path) -> None:
    (tmp_path / "j").mkdir()
    check_journal(open_storage(tmp_path / "j"), make=True)
    async with served(tmp_path / "j") as server, Consumer("c", server.address) as consumer:
        with trio.move_on_after(0.05):
            await consumer.receive()
        (tmp_path / "j" / "partition-00003").mkdir()  # about to be created
        for partition in (0, 1):
            await write(tmp_path / "j", numbers(0, 2), partition=partition)
        found = await take(consumer, 4)
        assert sorted((each.partition, each.offset) for each in found) == [(0, 0), (0, 1), (1, 0), (1, 1)]


async def test_what_is_behind_counts_on_while_no_consumer_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nngkit.fanout.durable.server.UNASKED", 0.05)
    journal = tmp_path / "j"
    await write(journal, numbers(0, 3))
    async with served(journal) as server:
        async with Consumer("gone", server.address) as consumer:
            await take(consumer, 3)
        await aeventually(lambda: server.stats.waiting == 0)
        await write(journal, numbers(3, 10))

        def behind() -> list[int]:
            return [each.behind for each in server.stats.consumers]

        await aeventually(lambda: behind() == [7])


async def test_a_consumer_that_is_deleted_during_a_read_writes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(tmp_path / "j", numbers(0, 10))
    reading, go_on = threading.Event(), threading.Event()
    read = Feed.take

    def slow(feed: Feed, *arguments: int) -> Any:
        reading.set()
        go_on.wait(5)
        return read(feed, *arguments)

    monkeypatch.setattr(Feed, "take", slow)
    async with served(tmp_path / "j") as server, Req(dial=server.address) as req:

        async def ask(request: Any, kind: Any) -> None:
            parse_reply(await req.arequest(REQUESTS.encode(request), timeout=5), kind)

        async def fetch() -> None:
            with pytest.raises(NotFound, match="it was deleted"):
                await ask(FetchRequest("old", "s", 0, 10, 1 << 20, 1 << 20, 0.0), Fetched)

        await ask(OpenRequest("old", "s"), Opened)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await aeventually(reading.is_set)
            await ask(DeleteRequest("old"), Done)
            await ask(OpenRequest("new", "s"), Opened)  # whose file gets the descriptor of the deleted one
            go_on.set()
    assert not (tmp_path / "j" / "consumers" / "old.consumer").exists()
    async with served(tmp_path / "j") as server, Consumer("new", server.address) as consumer:
        assert [each.deliveries for each in await take(consumer, 10)] == [1] * 10


async def test_what_could_not_be_read_was_not_delivered(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 3))
    manifest = tmp_path / "j" / "partition-00000" / "manifest.json"
    whole = manifest.read_bytes()
    async with (
        served(tmp_path / "j") as server,
        Consumer("c", server.address, ack_wait=0.2, max_deliver=2) as consumer,
    ):
        await consumer.nak(*await take(consumer, 3), delay=0.1)
        manifest.write_bytes(b"{")
        with pytest.raises(NngkitError, match="not JSON"):
            await consumer.receive(5)
        await trio.sleep(0.4)  # a delivery would be overdue
        manifest.write_bytes(whole)
        found: list[Delivery] = []
        with trio.fail_after(5):
            while len(found) < 3:
                with suppress(ConfigError):  # of before
                    found.append(await consumer.receive())
        assert [(each.offset, each.deliveries) for each in found] == [(0, 2), (1, 2), (2, 2)]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    "record", [{"value": bytes(100_000)}, {"key": bytes(100_000)}, {"headers": {"h": bytes(100_000)}}]
)
async def test_records_fit_into_a_reply_with_keys_and_headers_and_again(
    tmp_path: Path, record: dict[str, Any], sealed: bool
) -> None:
    async with AsyncExitStack() as stack:
        recorder = await stack.enter_async_context(Recorder(tmp_path / "j"))
        for _ in range(20):
            recorder.put(**({"value": b"", "topic": "t", "protocol": "test"} | record))
        await recorder.flush()
        if sealed:
            await stack.aclose()
        server = await stack.enter_async_context(served(tmp_path / "j"))
        limits: Any = {"recv_max_size": 1 << 20, "ack_wait": 0.5}
        consumer = await stack.enter_async_context(Consumer("c", server.address, **limits))
        counts: dict[int, int] = {}
        with trio.fail_after(10):
            while len(counts) < 20 or min(counts.values()) < 2:
                delivery = await consumer.receive()
                counts[delivery.offset] = delivery.deliveries


async def test_an_ack_is_confirmed_only_in_a_file_that_is_there(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 2))
    state = tmp_path / "state"
    async with served(tmp_path / "j", state=state) as server, Consumer("c", server.address) as consumer:
        first, second = await take(consumer, 2)
        await first.ack()
        (state / "c.consumer").unlink()
        await second.ack()  # which writes the state anew
    async with served(tmp_path / "j", state=state) as server, Consumer("c", server.address) as consumer:
        assert [each.floor for each in await consumer.info()] == [2]
