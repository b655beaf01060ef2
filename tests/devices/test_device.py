"""Devices between real sockets: forwarding, backpressure, losses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from nngkit.devices import Device, DirectionStats, TappedMessage, forward
from nngkit.errors import ConfigError, TimedOut
from nngkit.protocols import Bus, Pair0, Pair1, Pub, Pull, Push, Rep, Req, Respondent, Sub, Survey, Surveyor
from nngkit.testing import aeventually

ANY = "tcp://127.0.0.1:0"
WAIT = 20.0


@asynccontextmanager
async def running(device: Device) -> AsyncIterator[Device]:
    """Run the device until the block ends; it must then end by itself."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(device.run)
        yield device
        device.stop(WAIT)


async def shout(rep: Rep) -> None:
    async for request in rep:
        await request.areply(request.body.upper())


# ---- queue -----------------------------------------------------------------------------------------------------------


async def test_queue_forwards_many_requests_at_once_and_returns_each_reply_to_its_requester() -> None:
    async with (
        Rep(listen=ANY) as front,
        Req(listen=ANY, resend=None) as back,
        Rep(dial=back.address) as one,
        Rep(dial=back.address) as two,
        Req(dial=front.address) as left,
        Req(dial=front.address) as right,
        trio.open_nursery() as answering,
    ):
        await back.await_for_peers(2, WAIT)
        kept: list[Any] = []
        replies: dict[str, bytes] = {}

        async def keep(rep: Rep) -> None:
            while True:
                kept.append(await rep.arecv())

        async def ask(req: Req, name: str) -> None:
            replies[name] = await req.arequest(name.encode(), WAIT)

        async with running(Device(front, back)) as device, trio.open_nursery() as asking:
            answering.start_soon(keep, one)
            answering.start_soon(keep, two)
            for number in range(100):
                asking.start_soon(ask, left, f"left {number}")
                asking.start_soon(ask, right, f"right {number}")
            # all are in progress before the first is answered, and are then answered in another order
            await aeventually(lambda: len(kept) == 200)
            assert device.in_flight == 200
            for request in reversed(kept):
                await request.areply(request.body.upper())
        assert len(replies) == 200
        assert all(reply == name.upper().encode() for name, reply in replies.items())
        assert (device.up.received, device.up.passed, device.down.passed) == (200, 200, 200)
        assert (device.in_flight, device.unanswered, device.lost) == (0, 0, 0)
        answering.cancel_scope.cancel()


async def test_requests_over_in_flight_stay_with_the_requesters() -> None:
    async with (
        Rep(listen=ANY) as front,
        Req(listen=ANY, resend=None) as back,
        Rep(dial=back.address) as rep,
        Req(dial=front.address) as req,
        running(Device(front, back, in_flight=3)) as device,
        trio.open_nursery() as asking,
    ):
        for _ in range(10):
            asking.start_soon(req.arequest, b"x", WAIT)
        first = [await rep.arecv(WAIT) for _ in range(3)]
        with pytest.raises(TimedOut):
            await rep.arecv(0.2)
        assert device.in_flight == 3
        for request in first:
            await request.areply(b"y")
        for _ in range(7):
            await (await rep.arecv(WAIT)).areply(b"y")


async def test_request_of_a_dead_replier_goes_to_the_next_one() -> None:
    async with (
        Rep(listen=ANY) as front,
        Req(listen=ANY, resend=None) as back,
        Req(dial=front.address) as req,
        running(Device(front, back)),
        trio.open_nursery() as nursery,
    ):
        replies: list[bytes] = []

        async def ask() -> None:
            replies.append(await req.arequest(b"x", WAIT))

        async with Rep(dial=back.address) as first:
            nursery.start_soon(ask)
            await first.arecv(WAIT)
        async with Rep(dial=back.address) as second:
            await (await second.arecv(WAIT)).areply(b"second")
            await aeventually(lambda: replies == [b"second"])


async def test_unanswered_request_is_given_up_and_counted() -> None:
    async with (
        Rep(listen=ANY) as front,
        Req(listen=ANY, resend=None) as back,
        Req(dial=front.address) as req,
        running(Device(front, back, timeout=0.05)) as device,
    ):
        with pytest.raises(TimedOut):
            await req.arequest(b"x", 0.5)
        assert (device.unanswered, device.in_flight, device.lost) == (1, 0, 1)


async def test_three_queues_in_series() -> None:
    async with (
        Rep(listen=ANY) as a,
        Req(listen=ANY, resend=None) as b,
        Rep(dial=b.address) as c,
        Req(listen=ANY, resend=None) as d,
        Rep(dial=d.address) as e,
        Req(listen=ANY, resend=None) as f,
        Rep(dial=f.address) as rep,
        Req(dial=a.address) as req,
        trio.open_nursery() as nursery,
    ):
        for front, back in ((a, b), (c, d), (e, f)):
            nursery.start_soon(Device(front, back).run)
        nursery.start_soon(shout, rep)
        assert await req.arequest(b"far", WAIT) == b"FAR"
        nursery.cancel_scope.cancel()


# ---- survey ----------------------------------------------------------------------------------------------------------


async def respond(respondent: Respondent, name: bytes) -> None:
    async for query in respondent:
        await query.areply(name + b" " + query.body)


def _count(survey: Survey, into: list[bytes]) -> int:
    """Add the new responses; return the number of all."""
    into += [reply.body for reply in survey.fresh()]
    return len(into)


@pytest.mark.slow
async def test_survey_forwards_all_responses_to_each_surveyor() -> None:
    async with (
        Respondent(listen=ANY) as front,
        Surveyor(listen=ANY) as back,
        Respondent(dial=back.address) as one,
        Respondent(dial=back.address) as two,
        Surveyor(dial=front.address) as left,
        Surveyor(dial=front.address) as right,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(respond, one, b"one")
        nursery.start_soon(respond, two, b"two")
        tapped: list[TappedMessage] = []
        async with forward(front, back, tap=tapped.append) as device:
            await back.await_for_peers(2, WAIT)
            await left.await_for_peers(1, WAIT)
            await right.await_for_peers(1, WAIT)
            for surveyor, text in ((left, b"left"), (right, b"right")):
                replies: list[bytes] = []
                with await surveyor.astart(text, WAIT) as survey:
                    await aeventually(lambda survey=survey, into=replies: _count(survey, into) == 2)  # type: ignore[misc]
                assert sorted(replies) == [b"one " + text, b"two " + text]
            assert (device.up.received, device.up.passed, device.down.passed, device.lost) == (2, 2, 4, 0)
        assert [(each.what, each.number) for each in tapped] == [
            *(("request", 1), ("reply", 1), ("reply", 1)),
            *(("request", 2), ("reply", 2), ("reply", 2)),
        ]
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_two_survey_devices_in_a_row() -> None:
    async with (
        Respondent(listen=ANY) as front,
        Surveyor(listen=ANY) as middle,
        Respondent(dial=middle.address) as inner,
        Surveyor(listen=ANY) as back,
        Surveyor(dial=front.address) as surveyor,
        forward(front, middle),
        forward(inner, back),
        trio.open_nursery() as nursery,
    ):
        for number in range(20):
            nursery.start_soon(respond, await nursery_socket(nursery, back.address), b"%d" % number)
        await back.await_for_peers(20, WAIT)
        await middle.await_for_peers(1, WAIT)
        await surveyor.await_for_peers(1, WAIT)
        result = await surveyor.asurvey(b"x", 1.0)
        assert {reply.body for reply in result.replies} == {b"%d x" % number for number in range(20)}
        nursery.cancel_scope.cancel()


async def nursery_socket(nursery: trio.Nursery, address: str) -> Respondent:
    """Return a Respondent that is closed with the nursery."""
    respondent = Respondent(dial=address)

    async def close_at_the_end() -> None:
        with respondent:
            await trio.sleep_forever()

    nursery.start_soon(close_at_the_end)
    return respondent


async def test_late_responses_to_a_survey_are_dropped_after_the_timeout() -> None:
    async with (
        Respondent(listen=ANY) as front,
        Surveyor(listen=ANY) as back,
        Respondent(dial=back.address) as respondent,
        Surveyor(dial=front.address) as surveyor,
        forward(front, back, timeout=0.05) as device,
    ):
        await back.await_for_peers(1, WAIT)
        await surveyor.await_for_peers(1, WAIT)
        with await surveyor.astart(b"x", WAIT):
            query = await respondent.arecv(WAIT)
            await aeventually(lambda: device.in_flight == 0)
            await query.areply(b"late")
            await aeventually(lambda: back.stats.late == 1)
        assert device.down.received == 0


# ---- hops and rings --------------------------------------------------------------------------------------------------


async def queues(nursery: trio.Nursery, count: int, end: str, **options: Any) -> tuple[str, list[Device]]:
    """Start queues in a row before the address `end`; return the address of the first, and all."""
    devices = []
    for _ in range(count):
        front, back = Rep(listen=ANY), Req(dial=end, resend=None)
        devices.append(Device(front, back, **options))
        nursery.start_soon(run_and_close, devices[-1])
        end = front.address
    return end, devices[::-1]


async def run_and_close(device: Device) -> None:
    with device.front, device.back:
        await device.run()


@pytest.mark.parametrize(("devices", "options"), [(7, {}), (1, {"hops": 1})])
async def test_a_request_passes_as_many_devices_as_its_hops_and_seven_without(
    devices: int, options: dict[str, Any]
) -> None:
    async with Rep(listen=ANY) as rep, trio.open_nursery() as nursery:
        nursery.start_soon(shout, rep)
        near, passed = await queues(nursery, devices, rep.address, **options)
        far, (one_more,) = await queues(nursery, 1, near)
        async with Req(dial=near) as inside, Req(dial=far) as outside:
            assert await inside.arequest(b"x", WAIT) == b"X"
            with pytest.raises(TimedOut):
                await outside.arequest(b"x", 0.5)
        assert (one_more.far, [each.far for each in passed]) == (0, [0] * (devices - 1) + [1])
        nursery.cancel_scope.cancel()


async def test_a_request_that_comes_back_to_its_device_is_dropped() -> None:
    # 127.0.0.2 is this machine too, but not by its address: the requests themselves must show the ring
    async with (
        Rep(listen="tcp://0.0.0.0:0") as front,
        Req(listen=ANY, resend=None) as back,
        Rep(dial=back.address) as there,
        Req(dial=front.address.replace("0.0.0.0", "127.0.0.2"), resend=None) as again,
        Req(dial=front.address.replace("0.0.0.0", "127.0.0.1")) as req,
        forward(front, back, timeout=0.5) as device,
        forward(there, again, timeout=0.5),
    ):
        with pytest.raises(TimedOut):
            await req.arequest(b"x", 0.3)
        assert (device.rings, device.up.received) == (1, 2)


async def test_a_header_of_300_words_is_contained() -> None:
    async with (
        Rep(listen=ANY) as front,
        Req(listen=ANY, resend=None) as back,
        Rep(dial=back.address) as rep,
        Req(dial=front.address) as req,
        running(Device(front, back)) as device,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(shout, rep)
        port = int(front.address.rpartition(":")[2])
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            body = bytes(300 * 4) + b"\x80\0\0\1x"
            await stream.send_all(b"\0SP\0\0\x30\0\0" + len(body).to_bytes(8, "big") + body)
            assert await req.arequest(b"y", WAIT) == b"Y"
        assert device.up.received == 1
        nursery.cancel_scope.cancel()


async def test_devices_of_one_process_in_a_ring_are_refused() -> None:
    async with Bus(listen=ANY) as front, Bus(listen=ANY) as back, forward(front, back) as first:
        async with Bus(dial=back.address) as there, Bus(dial=front.address) as again:
            with pytest.raises(ConfigError, match="a ring, in which messages go round for ever: <Device bus"):
                Device(there, again)
        async with Bus(dial=back.address) as there, Bus(listen=ANY) as onward, forward(there, onward):
            pass
        with pytest.raises(ConfigError, match="cannot be in a second one"):
            Device(back, front)
        assert first.up.received == 0


async def test_a_device_runs_once() -> None:
    async with Pull(listen=ANY) as front, Push(listen=ANY) as back:
        forwarding = forward(front, back)
        async with forwarding:
            with pytest.raises(ConfigError, match="runs already"):
                await forwarding.__aenter__()
        with pytest.raises(ConfigError, match="has run before"):
            await forwarding


@pytest.mark.parametrize(
    "options",
    [
        {"hops": 8},
        {"hops": 0},
        {"in_flight": 0},
        {"in_flight": 1.5},
        {"rate": 0},
        {"rate": "5"},
        {"once": -1.0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": "5"},
    ],
)
async def test_unusable_options_raise_config_error(options: Any) -> None:
    async with Rep() as front, Req() as back:
        with pytest.raises(ConfigError):
            Device(front, back, **options)


# ---- functions -------------------------------------------------------------------------------------------------------


async def test_filter_and_transform_of_one_way_traffic() -> None:
    async with (
        Pull(listen=ANY) as front,
        Push(listen=ANY) as back,
        Push(dial=front.address) as push,
        Pull(dial=back.address) as pull,
        Pub(listen=ANY) as taps,
        Sub(dial=taps.address, topics="front message ") as sub,
        forward(
            front,
            back,
            tap=taps,
            filter=lambda message: message.body != b"no",
            transform=lambda message: message.side.encode() + b" " + message.body.upper(),
        ) as device,
    ):
        await taps.await_for_peers(1, WAIT)  # the Sub knows the Pub a moment before
        await push.asend_many([b"yes", b"no", b"perhaps"])
        assert [await pull.arecv(WAIT) for _ in range(2)] == [b"front YES", b"front PERHAPS"]
        assert [await sub.arecv(WAIT) for _ in range(3)] == [
            b"front message " + body for body in (b"yes", b"no", b"perhaps")
        ]
        assert device.up == DirectionStats(received=3, passed=2, size=12, dropped=1)
        assert device.lost == 0


async def test_filter_and_transform_of_requests_and_replies() -> None:
    async with (
        Rep(listen=ANY) as front,
        Req(listen=ANY, resend=None) as back,
        Rep(dial=back.address) as rep,
        Req(dial=front.address) as req,
        forward(
            front,
            back,
            filter=lambda message: message.body != b"no",
            transform=lambda message: message.what.encode() + b" " + message.body,
        ) as device,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(shout, rep)
        with pytest.raises(TimedOut):
            await req.arequest(b"no", 0.2)
        assert await req.arequest(b"x", WAIT) == b"reply REQUEST X"
        assert (device.up.received, device.up.dropped, device.lost) == (2, 1, 0)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kinds", [(Rep, Req, Req), (Pull, Push, Push)], ids=["queue", "streamer"])
async def test_a_function_that_fails_ends_the_device(kinds: Any) -> None:
    def fail(message: TappedMessage) -> bool:
        raise LookupError(message.body)

    async with (
        kinds[0](listen=ANY) as front,
        kinds[1](listen=ANY) as back,
        kinds[2](dial=front.address) as sender,
        trio.open_nursery() as nursery,
    ):
        if isinstance(sender, Req):

            async def ask() -> None:
                with pytest.raises(TimedOut):
                    await sender.arequest(b"x", 0.5)

            nursery.start_soon(ask)
        else:
            await sender.asend(b"x")
        with trio.fail_after(WAIT), pytest.raises(LookupError):
            await Device(front, back, filter=fail).run()


@pytest.mark.parametrize("kind", ["queue", "streamer"])
async def test_rate_limits_messages_a_second(kind: str) -> None:
    seconds, rate = 0.3, 200.0
    front: Any
    back: Any
    sender: Any
    receiver: Any
    async with trio.open_nursery() as nursery:
        if kind == "queue":
            front, back = Rep(listen=ANY), Req(listen=ANY, resend=None)
            sender, receiver = Req(dial=front.address), Rep(dial=back.address)
            nursery.start_soon(shout, receiver)
            for _ in range(400):
                nursery.start_soon(sender.arequest, b"x", WAIT)
        else:
            front, back = Pull(listen=ANY), Push(listen=ANY)
            sender, receiver = Push(dial=front.address), Pull(dial=back.address)
            await sender.asend_many([b"x"] * 400)
        began = trio.current_time()
        async with front, back, sender, receiver, forward(front, back, rate=rate) as device:
            await front.await_for_peers(1, WAIT)
            await back.await_for_peers(1, WAIT)
            await aeventually(lambda: device.up.received)
            await trio.sleep(seconds)
            assert device.up.received <= rate * (trio.current_time() - began + 0.05) + 1
            nursery.cancel_scope.cancel()


async def test_counters_and_rates_by_peer() -> None:
    async with (
        Pull(listen=ANY) as front,
        Push(listen=ANY) as back,
        Push(dial=front.address) as push,
        Pull(dial=back.address) as pull,
        forward(front, back) as device,
    ):
        await push.asend_many([b"x"] * 10)
        for _ in range(10):
            await pull.arecv(WAIT)
        source, target = device.peers()
        assert (source.side, source.read, source.written) == ("front", 10, 0)
        assert (target.side, target.read, target.written) == ("back", 0, 10)
        assert source.read_rate > 0
        assert device.peers()[0].read_rate == 0


async def test_a_requester_that_does_not_read_its_replies_delays_no_other() -> None:
    body, count = bytes(1 << 18), 256  # more than the buffers of the kernel and of the sockets hold
    async with (
        Rep(listen=ANY, send_window=1 << 18) as front,
        Req(listen=ANY, resend=None) as back,
        Rep(dial=back.address) as rep,
        Req(dial=front.address) as good,
        forward(front, back) as device,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(shout, rep)
        stream = await trio.open_tcp_stream("127.0.0.1", int(front.address.rpartition(":")[2]))
        async with stream:
            asked = b"\x80\0\0\1" + body
            framed = len(asked).to_bytes(8, "big") + asked
            nursery.start_soon(stream.send_all, b"\0SP\0\0\x30\0\0" + framed * count)
            await aeventually(lambda: front.stats.unwritten > 0)
            for _ in range(10):
                assert await good.arequest(b"x", WAIT) == b"X"
            assert device.up.received < count  # its other questions wait until it reads
            await aeventually(lambda: device.in_flight == 0)
            nursery.cancel_scope.cancel()


# ---- one way, and both ways ------------------------------------------------------------------------------------------


async def test_streamer_loses_nothing_and_applies_backpressure() -> None:
    count = 20_000
    async with (
        Pull(listen=ANY) as front,
        Push(listen=ANY) as back,
        Push(dial=front.address) as push,
        running(Device(front, back)) as device,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(push.asend_many, [b"%d" % number for number in range(count)])
        # without a puller the device holds its two queues' messages, and the pusher keeps the rest
        await aeventually(lambda: back.stats.sent >= 1024)
        assert device.up.received < count / 2
        async with Pull(dial=back.address) as pull:
            got = [int(await pull.arecv(WAIT)) for _ in range(count)]
        assert got == list(range(count))


async def test_forwarder_forwards_the_given_topics() -> None:
    async with (
        Sub(listen=ANY, topics="weather.") as front,
        Pub(listen=ANY) as back,
        Pub(dial=front.address) as pub,
        Sub(dial=back.address, topics=b"") as sub,
        running(Device(front, back)) as device,
    ):
        await back.await_for_peers(1, WAIT)
        await pub.await_for_peers(1, WAIT)
        await pub.asend_many([b"news", b"weather.oslo 3"])
        assert await sub.arecv(WAIT) == b"weather.oslo 3"
        assert device.up == DirectionStats(1, 1, 14)


@pytest.mark.parametrize(
    ("front_kind", "back_kind"),
    [(Bus, Bus), (Pair0, Pair0), (Pair1, Pair1), (Pair0, Pair1)],
    ids=lambda kind: kind.__name__,
)
async def test_relay_forwards_both_ways(front_kind: Any, back_kind: Any) -> None:
    async with (
        front_kind(listen=ANY) as front,
        back_kind(listen=ANY) as back,
        front_kind(dial=front.address) as left,
        back_kind(dial=back.address) as right,
        running(Device(front, back)),
    ):
        for each in (front, back, left, right):
            await each.await_for_peers(1, WAIT)
        await left.asend(b"there")
        assert await right.arecv(WAIT) == b"there"
        await right.asend(b"back")
        assert await left.arecv(WAIT) == b"back"


@pytest.mark.parametrize("batch", [None, True])
async def test_bus_on_both_sides_forwards_to_all_but_the_sender(batch: bool | None) -> None:
    async with (
        Bus(listen=ANY, batch=batch) as hub,
        Bus(dial=hub.address, batch=batch) as sender,
        Bus(dial=hub.address, batch=batch) as first,
        Bus(dial=hub.address, batch=batch) as second,
        running(Device(hub, hub)) as device,
    ):
        await hub.await_for_peers(3, WAIT)
        for each in (sender, first, second):
            await each.await_for_peers(1, WAIT)
        for number in range(3):
            await sender.asend(b"%d" % number)
            await sender.aflush()
        assert [await first.arecv(WAIT) for _ in range(3)] == [b"0", b"1", b"2"]
        assert [await second.arecv(WAIT) for _ in range(3)] == [b"0", b"1", b"2"]
        await first.asend(b"end")
        await first.aflush()
        assert [await sender.arecv(WAIT), await second.arecv(WAIT)] == [b"end", b"end"]
        assert device.up == DirectionStats(4, 4, 6)


async def test_pair_on_both_sides_returns_messages_as_in_nng() -> None:
    async with Pair1(listen=ANY) as pair, Pair1(dial=pair.address) as peer, running(Device(pair, pair)):
        await peer.asend(b"x")
        assert await peer.arecv(WAIT) == b"x"


# ---- the tap, and the end --------------------------------------------------------------------------------------------


@asynccontextmanager
async def asking_through_a_queue(tap: Callable[[TappedMessage], None]) -> AsyncIterator[Req]:
    """Yield a Req whose requests pass a tapped queue to a replier that answers in upper case."""
    async with (
        Rep(listen=ANY) as front,
        Req(listen=ANY, resend=None) as back,
        Rep(dial=back.address) as rep,
        Req(dial=front.address) as req,
        running(Device(front, back, tap=tap)),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(shout, rep)
        yield req
        nursery.cancel_scope.cancel()


async def test_tap_gets_requests_and_replies_with_one_number_and_the_requesters_address() -> None:
    seen: list[TappedMessage] = []
    async with asking_through_a_queue(seen.append) as req:
        await req.arequest(b"a", WAIT)
        await req.arequest(b"b", WAIT)
    assert [(each.side, each.what, each.body, each.number) for each in seen] == [
        ("front", "request", b"a", 1),
        ("back", "reply", b"A", 1),
        ("front", "request", b"b", 2),
        ("back", "reply", b"B", 2),
    ]
    assert seen[0].peer is not None
    assert seen[0].peer.startswith("tcp://127.0.0.1:")


async def test_requests_are_numbered_in_order_of_arrival() -> None:
    seen: list[TappedMessage] = []
    count = 200
    async with asking_through_a_queue(seen.append) as req, trio.open_nursery() as asking:
        for _ in range(count):
            asking.start_soon(req.arequest, b"x", WAIT)
    assert [each.number for each in seen if each.what == "request"] == list(range(1, count + 1))
    assert sorted(each.number or 0 for each in seen if each.what == "reply") == list(range(1, count + 1))


async def test_stop_waits_for_outstanding_replies() -> None:
    async with (
        Rep(listen=ANY) as front,
        Req(listen=ANY, resend=None) as back,
        Rep(dial=back.address) as rep,
        Req(dial=front.address) as req,
        trio.open_nursery() as nursery,
    ):
        device = Device(front, back)
        replies: list[bytes] = []

        async def ask() -> None:
            replies.append(await req.arequest(b"x", WAIT))

        nursery.start_soon(device.run)
        nursery.start_soon(ask)
        request = await rep.arecv(WAIT)
        device.stop(WAIT)
        await request.areply(b"y")
        await aeventually(lambda: replies == [b"y"])
        assert device.lost == 0


async def test_messages_not_forwarded_by_the_end_are_counted_as_lost() -> None:
    async with (
        Pull(listen=ANY) as front,
        Push(listen=ANY, send_buffer=0, linger=0.0) as back,
        Push(dial=front.address) as push,
    ):
        device = Device(front, back)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(device.run)
            await push.asend_many([b"x"] * 5)
            await aeventually(lambda: device.up.received)
            device.stop(0.05)
        assert device.lost == device.up.received - device.up.passed == device.up.received > 0


@pytest.mark.parametrize("side", ["front", "back"])
async def test_device_ends_when_one_of_its_sockets_is_closed(side: str) -> None:
    async with Pair1(listen=ANY) as front, Pair1(listen=ANY) as back:
        with trio.fail_after(WAIT):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(Device(front, back).run)
                await trio.testing.wait_all_tasks_blocked()
                await (front if side == "front" else back).aclose(0.0)


async def test_forward_runs_until_a_socket_is_closed() -> None:
    async with Pull(listen=ANY) as front, Push(listen=ANY) as back:

        async def run() -> None:
            await forward(front, back)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            async with Push(dial=front.address) as push, Pull(dial=back.address) as pull:
                await push.asend(b"x", timeout=WAIT)
                assert await pull.arecv(timeout=WAIT) == b"x"
            with trio.fail_after(WAIT):
                await front.aclose(0.0)
                nursery.cancel_scope.deadline = trio.current_time() + WAIT
        assert not nursery.cancel_scope.cancelled_caught


def test_incompatible_sockets_raise_config_error() -> None:
    with Req() as front, Rep() as back, pytest.raises(ConfigError, match="Req and Rep make none"):
        Device(front, back)
