"""Sockets with ``batch=``: malformed batches, and topics."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from nngkit.errors import BadMessage, ConfigError, TimedOut, TooLarge
from nngkit.protocols import (
    Batch,
    Bus,
    Pair1,
    Pub,
    Pull,
    Push,
    Rep,
    Req,
    Respondent,
    Sub,
    Surveyor,
)
from nngkit.testing import BLOCKING, CALLERS, Caller, Wire, eventually
from tests.protocols.batches import LATER, TCP, received_messages
from tests.protocols.wires import WAIT

tcp_only = pytest.mark.parametrize("wire", ["tcp"], indirect=True)


# ---- malformed batches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("caller", CALLERS, indirect=True, ids=lambda caller: caller.name)
@tcp_only
def test_a_plain_message_is_refused_with_the_peers_address_and_the_connection_continues(
    caller: Caller, wire: Wire
) -> None:
    with Pull(listen=wire.address(), batch=True) as pull, Push(dial=pull.address) as plain:
        plain.send(b"plain")
        with pytest.raises(BadMessage) as wrong:
            caller.call(pull.recv, timeout=WAIT)
        pull.wait_for_peers(1, WAIT)  # a message may arrive before the event of its peer
        assert wrong.value.peer == pull.pipes[0].address
        with Push(dial=pull.address, batch=True) as push:
            push.send(b"in a batch")
            assert caller.call(pull.recv, timeout=WAIT) == b"in a batch"
        plain.send(b"\x82\x41a\x41b")  # a batch written by hand
        assert caller.call(pull.recv_many, timeout=WAIT) == [b"a", b"b"]
        assert (pull.stats.bad, pull.stats.received) == (1, 3)
        eventually(lambda: len(pull.pipes) == 1)


def test_a_malformed_batch_is_refused_whole() -> None:
    with Pull(listen=TCP, batch=True) as pull, Push(dial=pull.address) as plain:
        plain.send(b"\x83\x41a\x41b\x01")
        with pytest.raises(BadMessage, match="int instead of a byte string"):
            pull.recv(timeout=WAIT)
        assert received_messages(pull) == []


def test_a_plain_receiver_gets_the_bytes_unchanged() -> None:
    with Pull(listen=TCP) as pull, Push(dial=pull.address, batch=True) as push:
        push.send_many([b"a", b"b"])
        assert pull.recv(timeout=WAIT) == b"\x82\x41a\x41b"


@pytest.mark.parametrize("transport", ["tcp", "inproc"])
def test_the_size_limit_applies_to_each_message(transport: str) -> None:
    address = TCP if transport == "tcp" else "inproc://each"
    with Pull(listen=address, batch=True, recv_max_size=100) as pull, Push(dial=pull.address, batch=True) as push:
        push.send_many([b"x" * 100] * 500)
        push.flush(WAIT)
        received: list[bytes] = []
        while len(received) < 500:
            received += pull.recv_many(timeout=WAIT)
        push.send_many([b"fits", b"y" * 101])
        with pytest.raises(TooLarge) as wrong:
            pull.recv(timeout=WAIT)
        assert (wrong.value.size, wrong.value.limit, wrong.value.peer) == (101, 100, pull.pipes[0].address)
        push.send(b"fits")
        assert pull.recv(timeout=WAIT) == b"fits"
        assert (pull.stats.too_large, pull.stats.bad, pull.stats.left) == (1, 0, 0)


def test_a_flood_of_malformed_batches_is_only_counted() -> None:
    with Pull(listen=TCP, batch=True) as pull, Push(dial=pull.address) as plain:
        plain.send_many([b"nonsense"] * 500)
        plain.send(b"\x81\x41a")
        eventually(lambda: (pull.stats.bad, pull.stats.received) == (500, 1))
        got, refused = [], 0
        with suppress(TimedOut):
            while True:
                try:
                    got.append(pull.recv(timeout=0))
                except BadMessage:
                    refused += 1
        assert (got, refused) == ([b"a"], 64)  # not every error is kept


@pytest.mark.parametrize("caller", CALLERS, indirect=True, ids=lambda caller: caller.name)
def test_a_waiting_receiver_gets_the_error_of_a_malformed_batch_at_once(caller: Caller) -> None:
    with Pull(listen=TCP, batch=True) as pull, Push(dial=pull.address) as plain:
        plain.wait_for_peers(1, WAIT)
        waiting = caller.start(pull.recv)
        eventually(lambda: pull._inbox.waiters)
        plain.send(b"plain")
        assert type(waiting.error()) is BadMessage


@pytest.mark.parametrize("kind", [Req, Rep, Surveyor, Respondent])
def test_reqrep_and_survey_have_no_batches(kind: Any) -> None:
    with pytest.raises(ConfigError, match="batch"):
        kind(batch=True)


@pytest.mark.parametrize("wrong", [1, "yes", {"items": 3}])
def test_the_batch_option_is_true_or_a_batch(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="neither True nor a Batch"):
        Push(batch=wrong)


# ---- topics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", [False, True], ids=["plain", "numbered"])
def test_a_batch_holds_one_topic_which_subscriptions_match(sequence: bool) -> None:
    options: dict[str, Any] = {"batch": True, "sequence": sequence}
    topics = (b"a-", b"ab-", b"b-", b"")
    with (
        Pub(listen=TCP, **options) as pub,
        Sub(dial=pub.address, topics="a", **options) as some,
        Sub(dial=pub.address, topics="", **options) as all_,
    ):
        pub.wait_for_peers(2, WAIT)
        for number in range(500):
            for topic in topics:
                pub.send(b"%d" % number, topic=topic)
        pub.flush(WAIT)
        for sub, matched in ((some, topics[:2]), (all_, topics)):
            got: list[bytes] = []
            while len(got) < 500 * len(matched):
                got += sub.recv_many(timeout=WAIT)
            for topic in matched:
                of_it = [body for body in got if body.rstrip(b"0123456789") == topic]
                assert of_it == [topic + b"%d" % number for number in range(500)]
            assert (sub.stats.lost, sub.stats.duplicate, sub.stats.bad) == (0, 0, 0)
        assert pub.stats.written < 400  # not 4,000, as they were sent in batches


@pytest.mark.parametrize("options", [{}, {"batch": True}, {"sequence": True}], ids=str)
def test_a_topic_works_with_any_buffer(options: dict[str, Any]) -> None:
    with Pub(listen=TCP, **options) as pub, Sub(dial=pub.address, topics="t", **options) as sub:
        pub.wait_for_peers(1, WAIT)
        pub.send(bytearray(b"1"), topic="t")
        pub.send_many([memoryview(b"2")], topic="t")
        assert [sub.recv(timeout=WAIT) for _ in range(2)] == [b"t1", b"t2"]


def test_more_topics_than_open_batches_are_published() -> None:
    # room for all of them at both ends: a busy machine may read slower than they arrive, and PUB drops
    with (
        Pub(listen=TCP, batch=LATER, send_buffer=8192) as pub,
        Sub(dial=pub.address, topics="", batch=True, recv_buffer=8192) as sub,
    ):
        pub.wait_for_peers(1, WAIT)
        for number in range(3000):
            pub.send(b"", topic=b"%04d" % number)
        pub.flush(WAIT)
        received: list[bytes] = []
        while len(received) < 3000:
            received += sub.recv_many(timeout=WAIT)
        assert sorted(received) == [b"%04d" % number for number in range(3000)]


def test_gaps_are_counted_in_messages() -> None:
    with (
        Pub(listen=TCP, batch=Batch(items=10, delay=3600.0), sequence=True) as pub,
        Sub(dial=pub.address, topics="t", batch=True, sequence=True) as sub,
    ):
        pub.wait_for_peers(1, WAIT)
        pub.send_many([b"x"] * 10, topic="t")
        assert len(sub.recv_many(timeout=WAIT)) == 10
        sub.unsubscribe("t")
        pub.send_many([b"lost"] * 20, topic="t")
        eventually(lambda: sub.stats.read == 3)
        sub.subscribe("t")
        pub.send_many([b"y"] * 10, topic="t")
        assert sub.recv(timeout=WAIT) == b"ty"
        assert sub.stats.lost == 20


def test_a_bus_and_a_pair_batch_in_both_directions() -> None:
    for kind in (Bus, Pair1):
        with kind(listen=TCP, batch=True) as one, kind(dial=one.address, batch=True) as two:
            one.wait_for_peers(1, WAIT)
            two.wait_for_peers(1, WAIT)
            for here, there in ((one, two), (two, one)):
                here.send_many([b"%d" % number for number in range(2000)])
                received: list[bytes] = []
                while len(received) < 2000:
                    received += BLOCKING.call(there.recv_many, timeout=WAIT)
                assert received == [b"%d" % number for number in range(2000)]
