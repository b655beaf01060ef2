"""Subscriptions of a Sub: many of them, patterns, and handlers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from nngkit.errors import Closed, ConfigError, TimedOut
from nngkit.protocols import Pattern, Pub, Sub, pubsub
from nngkit.testing import Background, Caller, eventually
from nngkit.testing.callers import ASYNCIO, CALLERS, TRIO
from tests.protocols.raw_peer import PUB, RawPeer
from tests.protocols.wires import WAIT

TCP = "tcp://127.0.0.1:0"
MANY = 20_000


@contextmanager
def connected(**options: object) -> Iterator[tuple[Pub, Sub]]:
    with Pub(listen=TCP, send_buffer=8192) as pub, Sub(dial=pub.address, recv_buffer=8192, **options) as sub:  # type: ignore[arg-type]
        pub.wait_for_peers(1, WAIT)
        yield pub, sub


# ---- many topics and patterns ----------------------------------------------------------------------------------------


def test_a_subscriber_of_many_topics_receives_these_alone() -> None:
    topics = [b"orders.%05d." % number for number in range(MANY)]
    with connected(topics=topics) as (pub, sub):
        assert sub.topics == tuple(topics)
        sub.unsubscribe_many(topics[::2])
        pub.send_many([topic + b"x" for topic in topics[: MANY // 5]])
        assert [sub.recv(WAIT) for _ in range(MANY // 10)] == [topic + b"x" for topic in topics[1 : MANY // 5 : 2]]
        sub.unsubscribe_many(topics[1::2])
        assert sub.topics == ()
        with pytest.raises(TimedOut, match="it has no topics"):
            sub.recv(0)


def test_topic_of_names_the_longest_topic_of_a_message() -> None:
    with Sub(topics=["orders.", "orders.eu.", Pattern("*.us.")]) as sub:
        asked = [b"orders.eu.5", b"orders.us.5", b"x.us.5"]
        assert [sub.topic_of(message) for message in asked] == [b"orders.eu.", b"orders.", None]


def test_subscribing_to_several_in_one_call_is_subscribing_to_each() -> None:
    with Sub(topics=(topic for topic in ("a", Pattern("b.*")))) as sub:
        sub.subscribe_many(f"t{number:04}" for number in range(600))
        sub.subscribe_many(["a", Pattern("b.*"), bytearray(b"c")])
        assert len(sub.topics) == 602
        assert sub.patterns == (Pattern("b.*"),)
        with pytest.raises(ConfigError, match=r"not subscribed to b'z'"):
            sub.unsubscribe_many(["a", "z", "c"])
        assert sub.topics[-1] == b"c"
        with pytest.raises(ConfigError, match=r"not subscribed to Pattern\(text=b'b\.>'"):
            sub.unsubscribe(Pattern("b.>"))
    with pytest.raises(Closed):
        sub.subscribe_many(["late"])


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
def test_patterns_stand_beside_topics(caller: Caller) -> None:
    with connected(topics=["weather.", Pattern("orders.*.eu")]) as (pub, sub):
        pub.send_many([b"orders.1.eu", b"orders.1.us", b"weather.oslo", b"orders.2.eu 5", b"orders.eu"])
        received = [caller.call(sub.recv, timeout=WAIT) for _ in range(3)]
        assert received == [b"orders.1.eu", b"weather.oslo", b"orders.2.eu 5"]
        sub.subscribe("")
        pub.send(b"anything")
        assert caller.call(sub.recv, timeout=WAIT) == b"anything"


def test_unsubscribing_from_a_pattern_drops_its_messages_read_ahead() -> None:
    with Sub(listen=TCP, topics=["a.1.", Pattern("a.*.x")]) as sub, RawPeer(sub.address, PUB) as publisher:
        for message in (b"a.1.x", b"a.2.x", b"a.1.y"):
            publisher.send(message)
        eventually(lambda: sub.stats.read == 3)
        sub.unsubscribe(Pattern("a.*.x"))
        assert [sub.recv(timeout=WAIT) for _ in range(2)] == [b"a.1.x", b"a.1.y"]
        with pytest.raises(TimedOut):
            sub.recv(timeout=0)


@pytest.mark.parametrize("sequence", [False, True], ids=["plain", "numbered"])
def test_of_a_batch_only_the_topic_is_matched(sequence: bool) -> None:
    with (
        Pub(listen=TCP, batch=True, sequence=sequence) as pub,
        Sub(dial=pub.address, batch=True, sequence=sequence, topics=Pattern("a.*", end=" ")) as sub,
    ):
        pub.wait_for_peers(1, WAIT)
        for topic in ("a.1", "a.1.b", "a.", "a.2"):
            pub.send(b" body.x", topic=topic)
        pub.flush()
        assert [sub.recv(WAIT) for _ in range(2)] == [b"a.1 body.x", b"a.2 body.x"]
        assert sub.stats.lost == 0


def test_topics_may_change_in_other_threads_while_messages_arrive() -> None:
    kept = [b"kept.%04d " % number for number in range(300)]
    with connected(topics=kept) as (pub, sub):

        def change() -> None:
            for turn in range(20):
                other = [b"%d.other.%04d" % (turn % 3, number) for number in range(200)]
                sub.subscribe_many(other)
                sub.unsubscribe_many(other)

        changing = [Background(change) if turn == 0 else Background(lambda: sub.topics) for turn in range(2)]
        messages = [topic + b"%d" % turn for turn in range(20) for topic in kept]
        pub.send_many(messages)
        assert [sub.recv(WAIT) for _ in messages] == messages
        for thread in changing:
            thread.result()
        assert sub.topics == tuple(sorted(kept))


@pytest.mark.parametrize("batch", [False, True], ids=["singly", "in batches"])
def test_more_numbered_topics_than_are_kept_start_anew_without_false_counts(
    batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pubsub, "MOST_TOPICS", 8)
    messages = [b"topic.%02d. %d" % (number, turn) for turn in range(30) for number in range(12)]
    with (
        Pub(listen=TCP, sequence=True, batch=batch) as pub,
        Sub(dial=pub.address, sequence=True, batch=batch, topics="topic.", recv_buffer=8192) as every,
        Sub(dial=pub.address, sequence=True, batch=batch, topics="topic.03.") as one,
    ):
        pub.wait_for_peers(2, WAIT)
        for message in messages:
            pub.send(message[9:], topic=message[:9])
        pub.drain(WAIT)
        assert sorted(every.recv(WAIT) for _ in messages) == sorted(messages)
        assert [one.recv(WAIT) for _ in range(30)] == messages[3::12]
        assert [(sub.stats.lost, sub.stats.duplicate, sub.stats.bad) for sub in (every, one)] == [(0, 0, 0)] * 2


# ---- handlers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
def test_the_most_specific_handler_gets_the_message(caller: Caller) -> None:
    with connected() as (pub, sub):
        handled: list[tuple[str, bytes]] = []

        @sub.on("orders.")
        def order(message: bytes) -> None:
            handled.append(("order", message))

        @sub.on(Pattern("orders.*.eu"))
        def european(message: bytes) -> None:
            handled.append(("european", message))
            sub.close()

        assert order(b"direct") is None  # still a function
        pub.send_many([b"orders.1.us", b"weather.oslo", b"orders.2.eu"])
        caller.call(sub.serve)
        assert handled == [("order", b"direct"), ("order", b"orders.1.us"), ("european", b"orders.2.eu")]


@pytest.mark.parametrize("caller", [TRIO, ASYNCIO], ids=lambda caller: caller.name)
def test_a_coroutine_function_is_awaited_before_the_next_message(caller: Caller) -> None:
    with connected() as (pub, sub), Sub(listen=TCP) as other:
        steps: list[bytes] = []

        @sub.on("a")
        async def slow(message: bytes) -> None:
            steps.append(b"begins " + message)
            with pytest.raises(TimedOut):
                await other.arecv(timeout=0.001)
            steps.append(b"ends " + message)
            if message == b"a2":
                sub.close()

        pub.send_many([b"a1", b"a2"])
        caller.call(sub.serve)
        assert steps == [b"begins a1", b"ends a1", b"begins a2", b"ends a2"]


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
def test_an_error_of_a_handler_ends_the_call_and_the_next_call_continues(caller: Caller) -> None:
    with connected() as (pub, sub):
        handled: list[bytes] = []

        @sub.on("")
        def handler(message: bytes) -> None:
            if message == b"bad":
                raise ValueError(message)
            handled.append(message)
            if message == b"last":
                sub.close()

        pub.send_many([b"first", b"bad", b"second", b"last"])
        with pytest.raises(ValueError, match="bad"):
            caller.call(sub.serve)
        caller.call(sub.serve)
        assert handled == [b"first", b"second", b"last"]


def test_a_message_without_a_handler_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with connected(topics=["b"]) as (pub, sub), caplog.at_level(logging.WARNING, "nngkit.protocols"):
        sub.on("a")(lambda message: sub.close())
        pub.send_many([b"b1", b"b2", b"a"])
        sub.serve()
        assert sub.stats.dropped == 2
        assert sub.stats.received == 3
    assert [record.getMessage() for record in caplog.records if "without a handler" in record.getMessage()] == [
        f"{sub!r} drops messages without a handler, the first is b'b1'"
    ]


def test_handlers_that_cannot_be_are_refused() -> None:
    with connected() as (pub, sub):
        with pytest.raises(ConfigError, match=r"has none: decorate functions with its on\(\)"):
            sub.serve()
        with pytest.raises(ConfigError, match="has none"):
            trio.run(sub.aserve)

        async def handler(message: bytes) -> None:
            raise AssertionError(message)

        sub.on("a")(handler)
        with pytest.raises(ConfigError, match=r"b'a' has a handler"):
            sub.on(b"a")(handler)
        pub.send(b"a")
        with pytest.raises(ConfigError, match=r"handler .* is a coroutine function: await aserve\(\)"):
            sub.serve()


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
def test_a_closed_socket_serves_no_more_and_takes_no_handlers(caller: Caller) -> None:
    with Sub(topics="t") as sub:
        sub.on("a")(print)
    caller.call(sub.serve)
    with pytest.raises(Closed):
        sub.on("b")(print)
    assert sub.topic_of(b"ab") == b"a"
    assert sub.topics == (b"a", b"t")


def test_serving_ends_after_the_receive_timeout() -> None:
    with Sub(recv_timeout=0.01) as sub:
        sub.on("a")(print)
        with pytest.raises(TimedOut):
            sub.serve()
