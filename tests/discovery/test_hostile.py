"""Arbitrary bytes from a peer: they affect no other peer, and are counted."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from dataclasses import replace

import pytest
import trio

from nngkit import Service, ServiceDiscovery
from nngkit.discovery import Question, Reason, State
from nngkit.discovery import deadline as until_deadline
from nngkit.discovery.messages import SurveyReply
from nngkit.discovery.questions.messages import SurveyAnswer
from nngkit.discovery.registry.liveness import RegistryLimits
from nngkit.testing import aeventually
from tests.discovery.peers import WAIT, RawPeer, Watcher, found, record, says

ANY = "tcp://127.0.0.1:0"
GOOD = record(number=1)

REPLIES = {
    "empty": b"",
    "bad text": b"no bar in here",
    "bad text, binary": b"\xff\xfe\x00|\x80",
    "bad text, name": b"|tcp://a:1",
    "bad text, terminal": b"an\x1b[31mswer|tcp://a:1",
    "bad cbor": b"\xa2\x61v",
    "bad cbor, indefinite": b"\xbf\x61v\x01\xff",
    "bad cbor, bomb": b"\xa1\x61v" + b"\x81" * 60_000 + b"\x01",
    "bad cbor, tag": b"\xa1\x61v\xc2\x41\x01",
    "newer version": b"\xa2\x61v\x18\x63\x64type\x65reply",
    "too large": b"\xa1" + bytes(70_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", REPLIES)
async def test_invalid_reply_is_counted(kind: str) -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.3) as discovery,
        await RawPeer.connect(discovery.address) as good,
        await RawPeer.connect(discovery.address) as bad,
        trio.open_nursery() as nursery,
    ):
        await discovery.wait_for_peers(2, timeout=WAIT)
        nursery.start_soon(good.answer_all, says(GOOD))
        nursery.start_soon(bad.answer_all, REPLIES[kind])
        assert await discovery.discover() == {"answer": frozenset({GOOD})}
        assert discovery.stats.counters[kind.partition(",")[0]] == 1
        assert discovery.stats.socket.left == 0  # a malformed reply does not close the connection
        nursery.cancel_scope.cancel()


CUT = {
    "a reply of 10 MB": struct.pack(">Q", 10_000_000) + bytes(10_000_000),
    "a length of 2^64-40": struct.pack(">Q", 2**64 - 40) + bytes(8),
    "a length of 2^63": struct.pack(">Q", 2**63) + bytes(8),
}


@pytest.mark.parametrize("what", CUT)
async def test_impossible_length_closes_only_that_connection(what: str) -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.3) as discovery,
        await RawPeer.connect(discovery.address) as good,
        await RawPeer.connect(discovery.address) as bad,
        trio.open_nursery() as nursery,
    ):
        await discovery.wait_for_peers(2, timeout=WAIT)
        nursery.start_soon(good.answer_all, says(GOOD))

        async def send() -> None:
            with suppress(trio.BrokenResourceError):  # disconnected while sending
                await bad.send_bytes(CUT[what])
            assert await bad.ended()

        nursery.start_soon(send)
        await aeventually(lambda: discovery.stats.counters["pipes left"] == 1)
        assert await discovery.discover() == {"answer": frozenset({GOOD})}
        nursery.cancel_scope.cancel()


async def test_second_reply_to_a_round_is_counted_as_duplicate() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.2) as discovery,
        await RawPeer.connect(discovery.address) as peer,
        trio.open_nursery() as nursery,
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        nursery.start_soon(discovery.discover)
        header, _ = await peer.cbor_query()
        await peer.send(header, says(GOOD))
        await peer.send(header, says(GOOD))
        await aeventually(lambda: discovery.stats.counters["duplicate"] == 1)
        assert discovery.snapshot() == {"answer": frozenset({GOOD})}


async def test_flood_of_replies_is_cut_and_counted() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=1) as discovery,
        await RawPeer.connect(discovery.address) as good,
        await RawPeer.connect(discovery.address) as bad,
        trio.open_nursery() as nursery,
    ):
        await discovery.wait_for_peers(2, timeout=WAIT)
        nursery.start_soon(good.answer_all, says(GOOD))
        nursery.start_soon(discovery.discover)
        header, _ = await bad.cbor_query()
        body = says(*(record("other", number) for number in range(60)), sender="bad")
        message = struct.pack(">Q", 4 + len(body)) + header + body
        await bad.send_bytes(message * 500)
        await aeventually(lambda: discovery.stats.counters["flood"])
        await aeventually(lambda: discovery.stats.counters["replies"] == 501)
        assert found(discovery)()
        with suppress(trio.BrokenResourceError):
            for _ in range(100):
                await bad.send_bytes(message * 50)
        assert await bad.ended()
        await aeventually(lambda: discovery.stats.counters["pipes cut"] == 1)
        assert found(discovery)()
        nursery.cancel_scope.cancel()


async def test_replies_to_unknown_surveys_are_ignored() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.2) as discovery,
        await RawPeer.connect(discovery.address) as peer,
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        for number in (0x80000000, 0x80000001, 0xFFFFFFFF):
            await peer.send(struct.pack(">I", number), says(GOOD))
        assert await discovery.discover() == {}
        assert discovery.stats.socket.late == 3


@pytest.mark.parametrize("number", [0, 1, 0x7FFFFFFF])
async def test_reply_without_the_header_end_bit_closes_the_connection(number: int) -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.2) as discovery,
        await RawPeer.connect(discovery.address) as peer,
    ):
        await discovery.wait_for_peers(timeout=WAIT)
        await peer.send(struct.pack(">I", number), says(GOOD))
        assert await peer.ended()
        await aeventually(lambda: discovery.stats.socket.cut == 1)
        assert await discovery.discover() == {}
        assert (discovery.stats.socket.bad, discovery.stats.socket.late) == (1, 0)


async def test_peer_cannot_change_another_peers_provider() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=1, interval=0.01) as discovery,
        await RawPeer.connect(discovery.address) as good,
        trio.open_nursery() as nursery,
    ):
        watcher = Watcher(discovery)
        nursery.start_soon(watcher.run)
        nursery.start_soon(good.answer_all, says(GOOD, sender="good"))
        await watcher.wait(State.UP)
        bad = await RawPeer.connect(discovery.address)
        for body in (
            SurveyReply("good", bye=True).encode(),
            SurveyReply("good", ()).encode(),
            says(record(draining=True), sender="bad"),
        ):
            header, _ = await bad.cbor_query()
            await bad.send(header, body)
            await trio.sleep(0.05)
            if body != says(record(draining=True), sender="bad"):
                assert [event.new for event in watcher.seen] == [State.UP]
        await bad.__aexit__()
        await aeventually(found(discovery))  # the forged draining lasts until the owner's next reply
        assert not any(event.new is State.DOWN for event in watcher.seen)
        assert all(event.reason is not Reason.BYE for event in watcher.seen)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(5))
async def test_random_bytes_on_the_wire_affect_no_other_peer(seed: int) -> None:
    rng = random.Random(seed)
    async with (
        ServiceDiscovery(listen=ANY, deadline=1, interval=0.01) as discovery,
        await RawPeer.connect(discovery.address) as good,
        trio.open_nursery() as nursery,
    ):
        watcher = Watcher(discovery)
        nursery.start_soon(watcher.run)
        nursery.start_soon(good.answer_all, says(GOOD))
        await watcher.wait(State.UP)
        for _ in range(10):
            async with await RawPeer.connect(discovery.address) as bad:
                header, _ = await bad.cbor_query()
                for _ in range(20):
                    body = bytearray(says(*(record("other", n) for n in range(rng.randrange(1, 5)))))
                    for _ in range(rng.randrange(1, 5)):
                        body[rng.randrange(len(body))] = rng.randrange(256)
                    await bad.send(header, bytes(body[: rng.randrange(len(body) + 1)]))
                try:
                    await bad.send_bytes(rng.randbytes(rng.randrange(1, 200)))
                except trio.BrokenResourceError:
                    continue
        assert [event.new for event in watcher.seen if event.name == "answer"] == [State.UP]
        assert found(discovery)()
        nursery.cancel_scope.cancel()


async def test_a_stranger_can_neither_drain_nor_withdraw_a_service_nor_answer_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lied = trio.Event()

    async def honest(_: Question) -> bytes:
        await lied.wait()
        return b"yes"

    async with (
        ServiceDiscovery(listen=ANY, deadline=0.3, interval=0.05) as discovery,
        Service("pay", "tcp://127.0.0.1:9", discovery=discovery.address, id="real", on_question=honest),
        await RawPeer.connect(discovery.address) as stranger,
        trio.open_nursery() as nursery,
    ):
        seen = Watcher(discovery)
        nursery.start_soon(seen.run)
        pay = (await seen.wait(State.UP, "pay")).provider

        async def lie() -> None:
            while True:
                header, message = await stranger.recv()
                if b"equery" in message:
                    await stranger.send(header, says(replace(pay, draining=True)))
                    await stranger.send(header, says())
                    await stranger.send(header, SurveyReply("raw", bye=True).encode())
                elif b"hquestion" in message:
                    await stranger.send(header, SurveyAnswer(pay.key, b"no").encode())
                    lied.set()

        nursery.start_soon(lie)
        await aeventually(lambda: discovery.stats.counters["foreign records"] > 10)
        result = await discovery.ask(b"in stock?", until=until_deadline(WAIT))
        assert [answer.body for answer in result.answers] == [b"yes"]
        assert discovery.stats.counters["foreign answers"] == 1
        assert discovery.resolve("pay") == pay
        nursery.cancel_scope.cancel()
    assert [event.new for event in seen.seen] == [State.UP]
    (line,) = [each.getMessage() for each in caplog.records if "states" in each.getMessage()]
    assert line.startswith("tcp://127.0.0.1:")
    assert "'pay'" in line


async def test_names_of_one_peer_are_bounded() -> None:
    limits = RegistryLimits(per_pipe=50)
    async with (
        ServiceDiscovery(listen=ANY, deadline=0.1, interval=0.02, limits=limits) as discovery,
        await RawPeer.connect(discovery.address) as stranger,
        trio.open_nursery() as nursery,
    ):
        await discovery.wait_for_peers(timeout=WAIT)

        async def claim_names() -> None:
            for sender in range(100):
                header, _ = await stranger.cbor_query()
                names = (record(f"{sender}.{number}", 1) for number in range(60))
                await stranger.send(header, says(*names, sender=f"s{sender}"))

        nursery.start_soon(claim_names)
        await aeventually(lambda: discovery.stats.counters["over cap"] > 500)
        assert len(discovery.snapshot()) == 50
        nursery.cancel_scope.cancel()
