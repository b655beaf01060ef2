"""Settings of a consumer that are changed, what retention took of it, and names that leave no file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import trio

from nngkit.errors import ConfigError, NotFound, OffsetGone
from nngkit.fanout import Consumer, ConsumerServer, consumers
from nngkit.fanout.durable.messages import (
    REQUESTS,
    ChangeRequest,
    Done,
    InfoRequest,
    Opened,
    OpenRequest,
    Options,
    parse_reply,
)
from nngkit.journal import Recorder, Retention
from nngkit.protocols import Req
from tests.cli.commands import command, environment
from tests.fanout.journals import numbers, write

ANY = "tcp://127.0.0.1:0"
WAIT = 10.0


async def taken(address: str, count: int, **options: Any) -> list[tuple[int, int]]:
    """Receive and acknowledge records; return their offsets, and the numbers of their delivery."""
    found = []
    with trio.fail_after(WAIT):
        async with Consumer("c", address, **options) as consumer:
            for _ in range(count):
                delivery = await consumer.receive()
                found.append((delivery.offset, delivery.deliveries))
                await delivery.ack()
    return found


@pytest.mark.slow
async def test_settings_are_changed_and_the_position_stays(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 10))
    async with ConsumerServer(tmp_path / "j", listen=ANY) as server:
        assert await taken(server.address, 3, ack_wait=5.0, max_deliver=4) == [(0, 1), (1, 1), (2, 1)]
        with pytest.raises(ConfigError, match=r"ack_wait=5\.0, not 6\.0.*change=True"):
            await taken(server.address, 1, ack_wait=6.0)
        assert await taken(server.address, 1, ack_wait=6.0, change=True) == [(3, 1)]
        async with Consumer("c", server.address) as consumer:
            limits = consumer.options.limits
            assert (limits.ack_wait, limits.max_deliver) == (6.0, 4)  # what is not named stays
    async with ConsumerServer(tmp_path / "j", listen=ANY) as server:  # from the disk
        assert await taken(server.address, 1, ack_wait=6.0, max_deliver=4) == [(4, 1)]
        assert await taken(server.address, 1, start=9, max_ack_pending=10, change=True) == [(5, 1)]  # no new start


async def test_the_change_concerns_records_in_flight_and_other_sessions(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 3))
    async with ConsumerServer(tmp_path / "j", listen=ANY) as server, Consumer("c", server.address) as first:
        with trio.fail_after(WAIT):
            deliveries = [await first.receive() for _ in range(3)]
            async with Consumer("c", server.address, ack_wait=0.05, max_deliver=2, change=True):
                pass
            await first.nak(*deliveries)
            again = [await first.receive() for _ in range(3)]
            assert [each.deliveries for each in again] == [2, 2, 2]
            while server.consumers("c")[0].given_up < 3:  # noqa: ASYNC110 - the state is in the server
                await trio.sleep(0.01)


async def test_topics_are_changed_from_the_position_on(tmp_path: Path) -> None:
    for first, topic in ((0, "a"), (2, "b"), (4, "a")):
        await write(tmp_path / "j", numbers(first, first + 2), topic=topic)
    async with ConsumerServer(tmp_path / "j", listen=ANY) as server:
        assert [offset for offset, _ in await taken(server.address, 4, topics="a")] == [0, 1, 4, 5]
        await write(tmp_path / "j", numbers(6, 8), topic="b")
        with trio.fail_after(WAIT):
            async with Consumer("c", server.address, topics=["b"], change=True) as consumer:
                assert [(await consumer.receive()).offset for _ in range(2)] == [6, 7]


async def test_a_change_of_a_new_name_creates_it_and_an_unusable_one_changes_nothing(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 3))
    async with ConsumerServer(tmp_path / "j", listen=ANY) as server, Req(dial=server.address) as req:
        assert await taken(server.address, 1, start=2, ack_wait=7.0, change=True) == [(2, 1)]
        unusable: list[dict[str, Any]] = [{"ack_wait": -1.0}, {"max_deliver": 0}, {"topics": []}, {"ack_wait": "x"}]
        for changes in unusable:
            reply = await req.arequest(REQUESTS.encode(ChangeRequest("c", changes)), timeout=WAIT)
            with pytest.raises(ConfigError):
                parse_reply(reply, Done)
        with pytest.raises(NotFound):
            parse_reply(await req.arequest(REQUESTS.encode(ChangeRequest("none", {})), timeout=WAIT), Done)
        async with Consumer("c", server.address) as consumer:
            assert consumer.options == Options("offset", 2, None, 7.0)
            assert consumer.options.limits.ack_wait == 7.0


@pytest.mark.slow
async def test_what_retention_took_is_told_before_and_after_it_was_skipped(tmp_path: Path) -> None:
    journal = tmp_path / "j"
    await write(journal, numbers(0, 5))
    async with ConsumerServer(journal, listen=ANY) as server:
        assert await taken(server.address, 2) == [(0, 1), (1, 1)]
    async with Recorder(journal, retention=Retention(size=1)) as recorder:
        await recorder.store(numbers(5, 6), topic="orders", protocol="test")
    async with Recorder(journal) as recorder:
        await recorder.store(numbers(6, 8), topic="orders", protocol="test")
    async with ConsumerServer(journal, listen=ANY) as server:
        [info] = await consumers(server.address, "c")
        gone = info.skipped
        assert gone in (3, 4)  # offsets 2 to 4, and 5 if its segment is gone too
        [(offset, _)] = await taken(server.address, 1)
        assert offset == 2 + gone
        assert server.consumers("c")[0].skipped == gone
    told = await trio.run_process(
        command("consume", "c", "--info", "--json", "--journal", str(journal)), capture_stdout=True, env=environment()
    )
    assert json.loads(told.stdout)["skipped"] == gone  # kept on disk, for another process
    told = await trio.run_process(
        command("consume", "--info", "--journal", str(journal)), capture_stdout=True, env=environment()
    )
    head, row = told.stdout.decode().splitlines()
    assert head.split()[-1] == "SKIPPED"
    assert row.split()[-1] == str(gone)


def files(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.exists() else []


async def test_names_that_are_refused_or_deleted_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await write(tmp_path / "j", numbers(0, 3))
    state = tmp_path / "state"
    async with ConsumerServer(tmp_path / "j", state=state, listen=ANY) as server, Req(dial=server.address) as req:
        for request in (OpenRequest("../x", "s"), InfoRequest("unknown"), ChangeRequest("unknown", {})):
            with pytest.raises((ConfigError, NotFound)):
                parse_reply(await req.arequest(REQUESTS.encode(request), timeout=WAIT), Done)
        assert files(state) == []

        def gone(*_: object, **__: object) -> int:
            raise OffsetGone("j", 0, 5)

        with monkeypatch.context() as broken:
            broken.setattr("nngkit.journal.reader.Journal.offset_at", gone)
            reply = await req.arequest(REQUESTS.encode(OpenRequest("late", "s", Options("time", 5))), timeout=WAIT)
            with pytest.raises(NotFound):
                parse_reply(reply, Opened)
        assert files(state) == []
        async with Consumer("kept", server.address), Consumer("deleted", server.address) as consumer:
            assert len(files(state)) == 4
            await consumer.delete()
        assert files(state) == ["kept.consumer", "kept.lock"]
    assert files(state) == ["kept.consumer", "kept.lock"]


async def test_a_lock_that_was_removed_is_held_by_one(tmp_path: Path) -> None:
    await write(tmp_path / "j", numbers(0, 3))
    for _ in range(3):
        async with (
            ConsumerServer(tmp_path / "j", listen=ANY) as server,
            ConsumerServer(tmp_path / "j", listen=ANY) as other,
        ):
            async with Consumer("c", server.address) as consumer:
                with pytest.raises(ConfigError, match="another process has it"):
                    async with Consumer("c", other.address):
                        pass
                await consumer.delete()
            async with Consumer("c", other.address) as consumer:
                await consumer.delete()
