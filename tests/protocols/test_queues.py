"""Send and receive queues, drops and their counters: the table of docs/protocols.md.

The peer is a plain socket that reads, or writes, only on command. Large messages fill the network's own buffers, so the
number that it takes varies; the tests assert which ones it takes, and that they are counted.
"""

from collections.abc import Callable
from math import inf
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.errors import Full, TimedOut
from nngkit.protocols import Bus, Pair0, Pub, Push, Sub
from nngkit.protocols._core import peer_queues, send_queue
from nngkit.protocols._core.connection import CHUNK
from nngkit.protocols._core.send_queue import FEW, LARGE_CHUNK, portion
from nngkit.protocols.sp import APART
from nngkit.testing import Background, eventually
from tests.protocols.queueing import LARGE, MANY, TCP, fill_network, number, numbered
from tests.protocols.raw_peer import (
    BUS,
    PAIR0,
    PULL,
    SUB,
    RawPeer,
)
from tests.protocols.wires import WAIT


def address_of(peer: RawPeer) -> str:
    """Return the address as our socket reports it for its peer."""
    return "tcp://{}:{}".format(*peer.socket.getsockname())


# ---- sending to a peer that does not read ----------------------------------------------------------------------------


FAN_OUT = pytest.mark.parametrize(("kind", "peer"), [(Pub, SUB), (Bus, BUS)], ids=["pub", "bus"])
POLICIES = pytest.mark.parametrize("policy", ["drop", "drop_oldest"])


@FAN_OUT
@POLICIES
def test_a_peer_that_does_not_read_has_its_own_queue_and_its_drops_are_counted(
    kind: Callable[..., Any], peer: int, policy: Literal["drop", "drop_oldest"]
) -> None:
    with (
        kind(listen=TCP, send_buffer=8, when_full=policy, linger=0.0) as ours,
        RawPeer(ours.address, peer) as slow,
        RawPeer(ours.address, peer) as quick,
    ):
        ours.wait_for_peers(2, WAIT)
        for one in range(MANY):
            ours.send(numbered(one, LARGE))
            assert number(quick.recv()) == one
        missed = {pipe.address: counted.dropped for pipe, counted in ours.pipe_stats.items()}
        dropped = missed[address_of(slow)]
        assert missed == {address_of(slow): dropped, address_of(quick): 0}
        assert (ours.stats.sent, ours.stats.dropped) == (MANY, dropped)
        assert 0 < dropped < MANY
        arrived = [number(slow.recv()) for _ in range(MANY - dropped)]
        first = len(arrived) - 8  # those in transit when its queue was full for the first time
        newest = range(MANY - 8, MANY) if policy == "drop_oldest" else range(first, first + 8)
        assert arrived == [*range(first), *newest]
        assert ours.drain(WAIT)
        assert ours.stats.written == 2 * MANY - dropped


def test_pub_keeps_the_newest_and_bus_the_oldest_by_default() -> None:
    for kind, peer, last in ((Pub, SUB, True), (Bus, BUS, False)):
        with kind(listen=TCP, send_buffer=8, linger=0.0) as ours, RawPeer(ours.address, peer) as slow:
            ours.wait_for_peers(1, WAIT)
            for one in range(fill_network(ours, ours.send), MANY):
                ours.send(numbered(one, LARGE))
            arrived = [number(slow.recv()) for _ in range(MANY - ours.stats.dropped)]
            assert (arrived[-1] == MANY - 1) == last
            ours.send(numbered(MANY))  # there is room again
            assert number(slow.recv()) == MANY


@FAN_OUT
def test_the_queue_of_a_peer_has_a_window_of_bytes_too(kind: Callable[..., Any], peer: int) -> None:
    window = 10 * (len(LARGE) + 6)
    with (
        kind(listen=TCP, send_window=window, when_full="drop_oldest", linger=0.0) as ours,
        RawPeer(ours.address, peer) as slow,
    ):
        ours.wait_for_peers(1, WAIT)
        for one in range(fill_network(ours, ours.send), MANY):
            ours.send(numbered(one, LARGE))
        for one in range(MANY, MANY + 100):
            ours.send(numbered(one))  # 600 bytes: a large one is dropped for them
        arrived = [number(slow.recv()) for _ in range(MANY + 100 - ours.stats.dropped)]
        assert arrived[-109:] == list(range(MANY - 9, MANY + 100))
        # a callback notes the last write, which the peer may have read before
        eventually(lambda: [counted.queued for counted in ours.pipe_stats.values()] == [0])


def test_one_large_message_may_take_the_place_of_many() -> None:
    with (
        Pub(listen=TCP, send_window=1 << 20, linger=0.0) as pub,
        RawPeer(pub.address, SUB) as slow,
    ):
        pub.wait_for_peers(1, WAIT)
        first = fill_network(pub, pub.send)
        for one in range(first, MANY):
            pub.send(numbered(one, LARGE))
        pub.send(numbered(MANY, b"y" * (1 << 20)))  # larger than the window by itself
        assert MANY + 1 - pub.stats.dropped == first + 1
        assert [number(slow.recv()) for _ in range(first + 1)] == [*range(first), MANY]


FLOW = pytest.mark.parametrize(("kind", "peer"), [(Push, PULL), (Pair0, PAIR0)], ids=["push", "pair"])


@FLOW
def test_a_flow_controlled_sender_blocks_if_the_peer_does_not_read(kind: Callable[..., Any], peer: int) -> None:
    with kind(listen=TCP, send_buffer=8, send_timeout=0.05, linger=0.0) as ours, RawPeer(ours.address, peer) as slow:
        ours.wait_for_peers(1, WAIT)
        with pytest.raises(TimedOut) as late:
            ours.send_many([numbered(one, LARGE) for one in range(MANY)])
        assert 8 < late.value.sent == ours.stats.sent < MANY
        arrived = [number(slow.recv()) for _ in range(late.value.sent)]
        assert arrived == list(range(late.value.sent))  # the message that timed out was not sent


@FLOW
def test_a_flow_controlled_sender_can_drop_and_count(kind: Callable[..., Any], peer: int) -> None:
    with kind(listen=TCP, send_buffer=8, when_full="drop", linger=0.0) as ours, RawPeer(ours.address, peer) as slow:
        ours.wait_for_peers(1, WAIT)
        for one in range(MANY):
            ours.send(numbered(one, LARGE))
        stats = ours.stats
        assert 8 < stats.sent < MANY
        assert stats.sent + stats.dropped == MANY
        assert [number(slow.recv()) for _ in range(9)] == list(range(9))  # the oldest are kept


@FLOW
def test_a_flow_controlled_sender_can_drop_the_oldest(kind: Callable[..., Any], peer: int) -> None:
    with (
        kind(listen=TCP, send_buffer=8, when_full="drop_oldest", linger=0.0) as ours,
        RawPeer(ours.address, peer) as slow,
    ):
        ours.wait_for_peers(1, WAIT)
        first = fill_network(ours, ours.send)
        for one in range(first, MANY):
            ours.send(numbered(one, LARGE))
        stats = ours.stats
        assert (stats.sent, stats.dropped) == (MANY, MANY - first - 8)
        assert [number(slow.recv()) for _ in range(first + 8)] == [*range(first), *range(MANY - 8, MANY)]
        assert ours.drain(WAIT)


@FLOW
def test_the_shared_queue_has_a_window_of_bytes_too(kind: Callable[..., Any], peer: int) -> None:
    window = 10 * len(LARGE)
    with kind(listen=TCP, send_window=window, send_timeout=0.05, linger=0.0) as ours:
        with pytest.raises(TimedOut) as late:
            ours.send_many([LARGE] * MANY)
        assert late.value.sent == ours.stats.unwritten == 10
    with kind(listen=TCP, send_window=window, when_full="drop_oldest", linger=0.0) as ours:
        ours.send_many([numbered(one, b"small") for one in range(8)])
        for one in range(8, 100):
            ours.send(numbered(one, b"x" * (window - 6)))
        with RawPeer(ours.address, peer) as reader:
            assert number(reader.recv()) == 99


@FLOW
def test_a_flow_controlled_sender_can_raise(kind: Callable[..., Any], peer: int) -> None:
    with kind(listen=TCP, send_buffer=8, when_full="raise", linger=0.0) as ours:
        ours.send_many([b"x"] * 8)
        with pytest.raises(Full):
            ours.send(b"one too many")
        assert ours.stats.sent == 8
        with RawPeer(ours.address, peer) as reader:
            assert [reader.recv() for _ in range(8)] == [b"x"] * 8


@pytest.mark.parametrize(
    ("kind", "peer", "first"),
    [(Push, PULL, b"early"), (Pair0, PAIR0, b"early"), (Pub, SUB, b"late"), (Bus, BUS, b"late")],
    ids=["push", "pair", "pub", "bus"],
)
def test_push_and_pair_keep_messages_sent_without_a_peer_and_pub_and_bus_do_not(
    kind: Callable[..., Any], peer: int, first: bytes
) -> None:
    with kind(listen=TCP, linger=0.0) as ours:
        ours.send(b"early")
        with RawPeer(ours.address, peer) as theirs:
            ours.wait_for_peers(1, WAIT)
            ours.send(b"late")
            assert theirs.recv() == first


def one_by_one(ours: Any, count: int) -> None:
    for one in range(count):
        ours.send(numbered(one), timeout=WAIT)


@FLOW
@pytest.mark.parametrize("room", [0, 1, 100])
def test_a_sender_with_a_full_queue_continues_when_the_first_peer_joins(kind: Any, peer: int, room: int) -> None:
    for _ in range(5):
        with kind(listen=TCP, send_buffer=room, linger=0.0) as ours:
            sending = Background(one_by_one, ours, room + 1)
            waiters = ours._outbox.waiters
            eventually(waiters.copy)
            with RawPeer(ours.address, peer) as reader:
                assert [number(reader.recv()) for _ in range(room + 1)] == list(range(room + 1))
                sending.result()


@FLOW
def test_messages_queued_when_a_peer_dies_go_to_the_next(kind: Callable[..., Any], peer: int) -> None:
    with kind(listen=TCP, linger=0.0) as ours:
        with RawPeer(ours.address, peer):
            ours.wait_for_peers(1, WAIT)
        eventually(lambda: not ours.pipes)
        ours.send_many([b"1", b"2"])
        with RawPeer(ours.address, peer) as second:
            assert [second.recv(), second.recv()] == [b"1", b"2"]


@FLOW
def test_a_message_being_written_when_a_peer_dies_is_broken_and_the_rest_goes_to_the_next(
    kind: Callable[..., Any], peer: int
) -> None:
    with kind(listen=TCP, linger=0.0) as ours:
        with RawPeer(ours.address, peer):
            ours.wait_for_peers(1, WAIT)
            for one in range(fill_network(ours, ours.send), MANY):
                ours.send(numbered(one, LARGE))
        eventually(lambda: not ours.pipes)
        stats = ours.stats
        assert (stats.sent, stats.dropped) == (MANY, 0)
        assert stats.broken <= 1  # messages of this size are written one by one, and it may not have begun
        assert stats.written + stats.broken + stats.unwritten == MANY
        with RawPeer(ours.address, peer) as second:
            rest = [number(second.recv()) for _ in range(stats.unwritten)]
        assert rest == list(range(MANY - stats.unwritten, MANY))
        eventually(lambda: ours.stats.written == MANY - stats.broken)
    with kind(listen=TCP, linger=0.0) as ours:
        with RawPeer(ours.address, peer):
            ours.wait_for_peers(1, WAIT)
            ours.send(b"x" * (32 << 20))  # more than the network takes
            ours.send_many([b"1", b"2"])
        eventually(lambda: ours.stats.broken == 1)
        with RawPeer(ours.address, peer) as second:
            assert [second.recv(), second.recv()] == [b"1", b"2"]
        eventually(lambda: ours.stats.written == 2)


def test_unwritten_messages_of_one_of_two_peers_go_to_the_other() -> None:
    with Push(listen=TCP, send_buffer=8, linger=0.0) as push, RawPeer(push.address, PULL) as other:
        with RawPeer(push.address, PULL):
            push.wait_for_peers(2, WAIT)
            with pytest.raises(TimedOut) as late:
                push.send_many([numbered(one, LARGE) for one in range(MANY)], timeout=0.05)
        eventually(lambda: push.stats.pipes == 1)
        expected = push.pipe_stats[push.pipes[0]].written + push.stats.unwritten
        got = [number(other.recv()) for _ in range(expected)]
        assert len(set(got)) == expected
        assert set(range(late.value.sent - 8, late.value.sent)) <= set(got)  # the queue of both
        assert push.drain(WAIT)


def test_a_second_peer_of_a_pair_joins_when_the_first_has_left() -> None:
    with Pair0(listen=TCP) as pair, Pair0(dial=pair.address) as first:
        first.wait_for_peers(1, WAIT)
        pair.wait_for_peers(1, WAIT)
        with Pair0(dial=pair.address, reconnect=0.01, linger=0.0) as second:
            eventually(lambda: second.stats.left > 1)  # connected and cut, repeatedly
            assert (pair.stats.joined, pair.stats.refused) == (1, 0)
            first.close()
            eventually(lambda: pair.stats.left == 1)
            pair.send(b"to the second")
            assert second.recv(timeout=WAIT) == b"to the second"


def test_a_burst_of_a_thousand_on_a_bus_arrives() -> None:
    with Bus(listen=TCP) as one, Bus(dial=one.address) as other:
        one.wait_for_peers(1, WAIT)
        for message in range(1000):
            one.send(numbered(message))
        assert [number(other.recv(timeout=WAIT)) for _ in range(1000)] == list(range(1000))


def test_a_burst_is_distributed_once_it_has_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_queues, "BURST_GAP", inf)  # each message is one of a burst
    monkeypatch.setattr(peer_queues, "BURST_DELAY", 600.0)  # the alarm does not come
    monkeypatch.setattr(send_queue, "BURST_DELAY", WAIT)
    with Pub(listen=TCP) as pub, Sub(dial=pub.address, topics=b"") as sub:
        pub.wait_for_peers(1, WAIT)
        outbox = pub._outbox
        pub.send(b"first")
        outbox.settle_burst()
        pub.send(b"second")
        left = outbox._flush_burst()
        assert left is not None
        assert 0 < left <= WAIT, "a burst was distributed meanwhile"
        assert outbox.burst == [b"second"]
        outbox._distributed -= WAIT
        assert outbox._flush_burst() is None
        assert [sub.recv(WAIT), sub.recv(WAIT)] == [b"first", b"second"]


@pytest.mark.parametrize("batch", [False, True])
def test_a_bus_sends_to_one_peer_or_to_all_but_one(batch: bool) -> None:
    with Bus(listen=TCP, batch=batch) as hub:
        with Bus(dial=hub.address, batch=batch) as one:
            hub.wait_for_peers(1, WAIT)
            first = hub.pipes[0]
            with Bus(dial=hub.address, batch=batch) as other:
                hub.wait_for_peers(2, WAIT)
                assert hub.send_to(first, [b"to one", b"again"])
                hub.send_except(first, [b"to the other"])
                hub.send_except(None, [b"to both"])
                hub.send_to_some([first], b"to some")
                hub.send_to_some(hub.pipes, b"to these")
                hub.send_to_some([], b"to none")
                assert [one.recv(timeout=WAIT) for _ in range(3)] == [b"to one", b"again", b"to both"]
                assert [one.recv(timeout=WAIT) for _ in range(2)] == [b"to some", b"to these"]
                assert [other.recv(timeout=WAIT) for _ in range(3)] == [b"to the other", b"to both", b"to these"]
        eventually(lambda: not hub.pipes)
        assert not hub.send_to(first, [b"late"])
        hub.send_to_some([first], b"late")


def test_a_bus_offers_messages_to_a_peer_wholly_or_not_at_all() -> None:
    with Bus(listen=TCP, send_buffer=8) as hub, Bus(dial=hub.address) as one:
        hub.wait_for_peers(1, WAIT)
        pipe = hub.pipes[0]
        assert not hub.offer_to(pipe, [numbered(message) for message in range(9)])  # over send_buffer
        assert not hub.offer_to(pipe, [numbered(0), numbered(1)], most=1)
        assert hub.offer_to(pipe, [numbered(message) for message in range(8)])
        assert [number(one.recv(timeout=WAIT)) for _ in range(8)] == list(range(8))
        assert hub.stats.dropped == 0
        one.close()
        eventually(lambda: not hub.pipes)
        assert not hub.offer_to(pipe, [b"late"])


def test_a_subscriber_counts_missed_numbered_messages() -> None:
    total = 1000
    with (
        Pub(listen=TCP, sequence=True, send_buffer=8) as pub,
        Sub(dial=pub.address, topics="", sequence=True, recv_buffer=8) as sub,
    ):
        pub.wait_for_peers(1, WAIT)
        pub.send(b"first")
        assert sub.recv(timeout=WAIT) == b"first"
        for one in range(total):
            pub.send(numbered(one))
        assert pub.drain(WAIT)
        eventually(lambda: sub.stats.read == 1 + total - pub.stats.dropped)
        got = [number(sub.recv(timeout=WAIT))]
        while got[-1] != total - 1:
            got.append(number(sub.recv(timeout=WAIT)))
        assert got == list(range(total - 8, total))
        assert sub.stats.lost == pub.stats.dropped  # a message that the subscriber itself dropped was seen
        assert len(got) + sub.stats.dropped + sub.stats.lost == total


# ---- how much is written at once -------------------------------------------------------------------------------------

RUNS = st.tuples(st.sampled_from([0, 100, 3000, APART - 1, APART, CHUNK, LARGE_CHUNK + 1]), st.integers(1, 2 * FEW))


@given(st.lists(RUNS, min_size=1, max_size=4), st.integers(1, 200))
def test_a_write_takes_the_first_messages_as_many_as_fit(runs: list[tuple[int, int]], most: int) -> None:
    queue = [bytes(size) for size, times in runs for _ in range(times)]
    bodies, size = portion(queue, most)
    count, room = len(bodies), CHUNK if len(queue[0]) < APART else LARGE_CHUNK
    assert (bodies, size) == (queue[:count], sum(map(len, bodies)))
    assert 1 <= count <= most
    assert count == 1 or size <= room
    assert count == min(most, len(queue)) or size + len(queue[count]) > room
