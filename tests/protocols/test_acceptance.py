"""Acceptance suite: behaviour of every protocol over every transport for every kind of caller, as in mangos.

Patterns, wires and callers are those of wires.py. The protocols' own tests do not repeat what is shown here.
"""

from __future__ import annotations

import array
from typing import Any

import pytest

from nngkit.errors import TimedOut
from nngkit.protocols import Bus, Pair1, Pub, Pull, Push, Sub
from tests.protocols.wires import ASYNCIO, BLOCKING, WAIT, Background, Caller, Pattern, Wire, eventually

BODIES = (b"", b"x", b"\0" * 7, *(b"%d" % number for number in range(40)), b"long" * 20_000, b"")

tcp_only = pytest.mark.parametrize("wire", ["tcp"], indirect=True)
no_question = pytest.mark.parametrize("pattern", ["pair0", "pair1", "pipeline", "bus", "pubsub"], indirect=True)


@pytest.mark.parametrize("first_listens", [True, False], ids=["first listens", "second listens"])
def test_messages_arrive_whole_and_in_order(pattern: Pattern, wire: Wire, caller: Caller, first_listens: bool) -> None:
    with pattern.connected(wire, first_listens=first_listens) as (first, second):
        assert pattern.carry(caller, first, second, BODIES) == list(BODIES)


@pytest.mark.parametrize("first_listens", [True, False], ids=["first listens", "second listens"])
def test_ends_start_in_any_order(pattern: Pattern, wire: Wire, first_listens: bool) -> None:
    with wire.reserved() as address:
        opening: dict[str, Any] = {"reconnect": 0.02, **wire.options}
        if first_listens:
            with pattern.open_second(dial=address, **opening) as second, pattern.first(**opening) as first:
                first.listen(address)
                assert_they_meet(pattern, first, second)
        else:
            with pattern.first(dial=address, **opening) as first, pattern.open_second(**opening) as second:
                second.listen(address)
                assert_they_meet(pattern, first, second)


def assert_they_meet(pattern: Pattern, first: Any, second: Any) -> None:
    first.wait_for_peers(1, WAIT)
    second.wait_for_peers(1, WAIT)
    assert pattern.carry(BLOCKING, first, second, [b"met"]) == [b"met"]


def test_a_pipe_identifies_the_other_end_to_both_sides(pattern: Pattern, wire: Wire) -> None:
    with pattern.connected(wire) as (first, second):
        (accepted,), (dialled,) = first.pipes, second.pipes
        assert (accepted.dialed, dialled.dialed) == (False, True)
        assert accepted.address.startswith(wire.transport)
        assert dialled.address.rstrip("/") == first.address.removesuffix("/brick")
        assert (accepted.verified, dialled.verified) == (wire.tls is not None,) * 2


@tcp_only
def test_each_end_counts_messages(pattern: Pattern, wire: Wire) -> None:
    bodies = [b"%d" % number for number in range(25)]
    with pattern.connected(wire) as (first, second):
        pattern.carry(BLOCKING, first, second, bodies)
        assert (first.stats.sent, second.stats.received) == (25, 25)
        if pattern.answered:
            assert (second.stats.sent, first.stats.received) == (25, 25)
        assert (first.stats.pipes, first.stats.joined, first.stats.left, first.stats.refused) == (1, 1, 0, 0)
        eventually(lambda: first.stats.written == 25)
        assert second.stats.read == 25
        nothing_wrong = (first.stats.dropped, second.stats.dropped, second.stats.too_large, second.stats.bad)
        assert nothing_wrong == (0, 0, 0, 0)
    assert first.stats.sent == 25  # the counters of a closed socket stay readable
    assert (first.stats.pipes, first.stats.left) == (0, 1)


@tcp_only
def test_one_socket_listens_and_dials_at_several_addresses(pattern: Pattern, wire: Wire) -> None:
    ways = [wire.address(), Wire("ipc", wire.directory).address(), Wire("inproc", wire.directory).address()]
    with pattern.first(listen=ways) as first:
        assert len(first.addresses) == 3
        assert first.address == first.addresses[0]
        with pattern.open_second(dial=first.addresses) as second:
            peers = 1 if pattern.name.startswith("pair") else 3
            first.wait_for_peers(peers, WAIT)
            second.wait_for_peers(peers, WAIT)


@tcp_only
@no_question
@pytest.mark.parametrize("kind", ["bytearray", "memoryview", "array", "view with gaps"])
def test_a_message_is_any_buffer_copied_at_once(pattern: Pattern, wire: Wire, caller: Caller, kind: str) -> None:
    memory = bytearray(b"1x2x3x4x" if "gaps" in kind else b"1234")
    data = {"bytearray": memory, "memoryview": memoryview(memory), "array": array.array("H", [0x3231, 0x3433])}.get(
        kind
    )
    with pattern.connected(wire) as (first, second):
        caller.call(first.send, memoryview(memory)[::2] if data is None else data)
        memory[:] = bytes(len(memory))
        assert caller.call(second.recv, timeout=WAIT) == b"1234"


@tcp_only
def test_text_is_refused_with_a_hint(pattern: Pattern, wire: Wire, caller: Caller) -> None:
    with pattern.connected(wire) as (first, _), pytest.raises(TypeError, match="encode it first"):
        caller.call(pattern.say(first), "text")


@tcp_only
@no_question
def test_one_call_sends_or_receives_many_messages(pattern: Pattern, wire: Wire, caller: Caller) -> None:
    bodies = [b"%d" % number for number in range(900)]
    with pattern.connected(wire) as (first, second):
        sending = caller.start(first.send_many, bodies)
        got: list[bytes] = []
        while len(got) < len(bodies):
            some = caller.call(second.recv_many, 100, timeout=WAIT)
            assert 1 <= len(some) <= 100
            got += some
        assert sending.result() == 900
        assert got == bodies


def test_receiving_at_most_0_messages_is_an_error(caller: Caller) -> None:
    with Pull() as pull, pytest.raises(ValueError, match="at least 1"):
        caller.call(pull.recv_many, 0)


@pytest.mark.slow
def test_a_message_over_the_limit_does_not_arrive(pattern: Pattern, wire: Wire) -> None:
    limit = 5000
    with pattern.connected(wire, recv_max_size=limit, reconnect=0.02) as (first, second):
        assert pattern.carry(BLOCKING, first, second, [b"x" * limit]) == [b"x" * limit]
        said = Background(pattern.say(first), b"y" * (limit + 200), timeout=0.3)
        # the connection is cut, and the dialer connects again; a Req sends again, until its timeout
        eventually(lambda: second.stats.left and second.stats.too_large)
        with pytest.raises(TimedOut):
            second.recv(timeout=0)
        said.join(WAIT)
        assert not said.is_alive()
        eventually(lambda: gets_through(pattern, first, second))


def gets_through(pattern: Pattern, first: Any, second: Any) -> bool:
    """Return True if one more message arrives; one lost with a connection that is being cut is sent again."""
    saying = Background(pattern.say(first), b"fits", timeout=0.5)
    try:
        heard = second.recv(timeout=0.5)
        if pattern.answered:
            heard.reply(b"too")
    except TimedOut:
        heard = None
    saying.join(WAIT)
    assert not saying.is_alive()
    return heard == b"fits" or (pattern.answered and heard is not None and heard.body == b"fits")


@pytest.mark.parametrize("caller", [BLOCKING, ASYNCIO], indirect=True, ids=["with", "async with"])
def test_leaving_the_with_block_closes_the_socket(pattern: Pattern, wire: Wire, caller: Caller) -> None:
    first, second = pattern.pair(wire, first_listens=True)
    with first:
        if caller is BLOCKING:
            with second as same:
                assert same is second
        else:
            caller.call(second.close)
        assert second.closed
        eventually(lambda: not first.pipes)
    assert first.closed


@tcp_only
def test_bus_reaches_every_peer_once(wire: Wire, caller: Caller) -> None:
    with Bus(listen=wire.address()) as hub, Bus(dial=hub.address) as one, Bus(dial=hub.address) as two:
        for node, peers in ((hub, 2), (one, 1), (two, 1)):
            node.wait_for_peers(peers, WAIT)
        caller.call(hub.send, b"to all")
        caller.call(one.send, b"to the hub")
        assert caller.call(one.recv, timeout=WAIT) == caller.call(two.recv, timeout=WAIT) == b"to all"
        assert caller.call(hub.recv, timeout=WAIT) == b"to the hub"
        hub.send(b"last")  # nothing else may follow: no echo, no forwarding
        assert [one.recv(timeout=WAIT), two.recv(timeout=WAIT)] == [b"last", b"last"]
        assert (one.stats.received, two.stats.received, hub.stats.received) == (2, 2, 1)


@tcp_only
def test_a_subscriber_receives_only_its_topics(wire: Wire, caller: Caller) -> None:
    with Pub(listen=wire.address()) as pub, Sub(dial=pub.address, topics=["a.", b"b."]) as sub:
        pub.wait_for_peers(1, WAIT)
        caller.call(pub.send_many, [b"a.1", b"c.1", b"b.1"])
        assert [caller.call(sub.recv, timeout=WAIT) for _ in range(2)] == [b"a.1", b"b.1"]
        sub.unsubscribe("a.")
        sub.subscribe("c.")
        caller.call(pub.send, b"2", topic="a.")
        caller.call(pub.send, b"2", topic="c.")
        assert caller.call(sub.recv, timeout=WAIT) == b"c.2"


@tcp_only
def test_a_subscriber_without_a_topic_receives_nothing(wire: Wire) -> None:
    with Pub(listen=wire.address()) as pub, Sub(dial=pub.address) as sub:
        pub.wait_for_peers(1, WAIT)
        pub.send(b"before")
        assert pub.drain(WAIT)
        eventually(lambda: sub.stats.read == 1)
        sub.subscribe(b"")
        pub.send(b"after")
        assert sub.recv(timeout=WAIT) == b"after"


@tcp_only
def test_work_is_shared_among_pullers(wire: Wire) -> None:
    with Push(listen=wire.address()) as push, Pull(dial=push.address) as one, Pull(dial=push.address) as two:
        push.wait_for_peers(2, WAIT)
        heard: list[list[bytes]] = [[], []]
        for number in range(40):  # each after the previous one is written, as a burst goes to any peer with room
            push.send(b"%d" % number)
            assert push.drain(WAIT)
            eventually(lambda: any(drained(pull, into) for pull, into in zip((one, two), heard, strict=True)))
        assert sorted(int(body) for part in heard for body in part) == list(range(40))
        assert list(map(len, heard)) == [20, 20]


def drained(pull: Pull, into: list[bytes]) -> int:
    """Receive without waiting; return the number of messages."""
    try:
        got = pull.recv_many(timeout=0)
    except TimedOut:
        return 0
    into += got
    return len(got)


@tcp_only
def test_a_pair_has_two_peers(wire: Wire) -> None:
    with Pair1(listen=wire.address()) as left, Pair1(dial=left.address) as right:
        right.wait_for_peers(1, WAIT)
        left.wait_for_peers(1, WAIT)
        with Pair1(dial=left.address, reconnect=0.02) as third:
            left.send(b"for the second")
            assert right.recv(timeout=WAIT) == b"for the second"
            right.close()  # now there is room
            eventually(lambda: left.stats.joined >= 2 and left.pipes)
            left.send(b"for the third")
            assert third.recv(timeout=WAIT) == b"for the third"
