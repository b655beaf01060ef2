"""Queues, drops and their counters: the table of docs/protocols.md.

The peer is a plain socket that reads, or writes, only on command. Large messages fill the network's own buffers, so the
number that it takes varies; the tests assert which ones it takes, and that they are counted.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count, islice
from typing import Any, Literal

import pytest

from nngkit.errors import Full, TimedOut
from nngkit.protocols import Bus, Message, Pair0, Pair1, Pub, Pull, Push, Rep, Req, Respondent, Sub, Surveyor
from tests.protocols.raw_peer import (
    BUS,
    LENGTH,
    PAIR0,
    PAIR1,
    PUB,
    PULL,
    PUSH,
    REP,
    REQ,
    RESPONDENT,
    SUB,
    SURVEYOR,
    WORD,
    RawPeer,
    connect,
    hello,
    read,
)
from tests.protocols.wires import BLOCKING, CALLERS, WAIT, Background, Caller, Pattern, Wire, eventually

TCP = "tcp://127.0.0.1:0"
LARGE = b"x" * 65536
CHUNK = 256 * 1024  # bytes that may exceed a window: one reception
MANY = 400  # times LARGE is more than the network's buffers take (about 10 of them here)


def numbered(number: int, body: bytes = b"") -> bytes:
    return b"%06d" % number + body


def number(message: bytes) -> int:
    return int(message[:6])


def address_of(peer: RawPeer) -> str:
    """Return the address as our socket reports it for its peer."""
    return "tcp://{}:{}".format(*peer.socket.getsockname())


def fill_network(ours: Any, send: Callable[[bytes], Any]) -> int:
    """Send large messages until the network takes no more; return their number."""
    for one in count(1):
        send(numbered(one - 1, LARGE))
        end = time.monotonic() + 0.3
        while ours.stats.unwritten:
            if time.monotonic() > end:
                return one
            time.sleep(0.001)
    raise AssertionError


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
        (queued,) = [counted.queued for counted in ours.pipe_stats.values()]
        assert queued == 0


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


# ---- a program that does not receive ---------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [8, 100, 300, None], ids=["8", "100", "300", "default"])
def test_sub_keeps_the_newest_and_bus_the_oldest_when_the_program_does_not_receive(room: int | None) -> None:
    total = 3000
    with (
        Sub(listen=TCP, topics="", recv_buffer=room) as sub,
        Bus(listen=TCP, recv_buffer=room) as bus,
        RawPeer(sub.address, PUB) as publisher,
        RawPeer(bus.address, BUS) as peer,
    ):
        sub.wait_for_peers(1, WAIT)
        bus.wait_for_peers(1, WAIT)
        for one in range(total):
            publisher.send(numbered(one))
            peer.send(numbered(one))
        eventually(lambda: sub.stats.read == bus.stats.read == total)
        kept = room or 1024
        for ours in (sub, bus):
            assert (ours.stats.received, ours.stats.dropped) == (kept, total - kept)
            assert [counted.dropped for counted in ours.pipe_stats.values()] == [total - kept]
        assert [number(sub.recv(timeout=WAIT)) for _ in range(kept)] == list(range(total - kept, total))
        assert [number(bus.recv(timeout=WAIT)) for _ in range(kept)] == list(range(kept))
        with pytest.raises(TimedOut):
            sub.recv(timeout=0)
        with pytest.raises(TimedOut):
            bus.recv(timeout=0)


def read_ahead(ours: Any, least: int) -> int:
    """Return how many messages it has read, once they are at least ``least`` and have had time to become more."""
    eventually(lambda: ours.stats.read >= least)
    time.sleep(0.1)  # there is no event for the end of reading
    return int(ours.stats.read)


AHEAD = pytest.mark.parametrize(
    ("kind", "peer", "header"),
    [
        (Pull, PUSH, b""),
        (Pair0, PAIR0, b""),
        (Pair1, PAIR1, b"\0\0\0\1"),
        (Rep, REQ, b"\x80\0\0\1"),
        (Respondent, SURVEYOR, b"\x80\0\0\1"),
    ],
    ids=["pull", "pair0", "pair1", "rep", "respondent"],
)


@AHEAD
@pytest.mark.parametrize("room", [1, 8, 100])
def test_a_flow_controlled_receiver_reads_ahead_to_its_cap_and_holds_the_peer_back(
    kind: Callable[..., Any], peer: int, header: bytes, room: int
) -> None:
    total = 500
    with kind(listen=TCP, recv_buffer=room, linger=0.0) as ours, RawPeer(ours.address, peer) as theirs:
        ours.wait_for_peers(1, WAIT)
        theirs.socket.sendall(b"".join(LENGTH.pack(len(header) + 6) + header + numbered(one) for one in range(total)))
        assert read_ahead(ours, room) == room  # without receive calls
        got = [ours.recv(timeout=WAIT)]
        assert read_ahead(ours, room) <= room + 1
        got += [ours.recv(timeout=WAIT) for _ in range(total - 1)]
        assert [number(getattr(one, "body", one)) for one in got] == list(range(total))
        assert ours.stats.dropped == 0


@pytest.mark.parametrize("room", [8, 100])
def test_reading_ahead_is_shared_among_all_peers(room: int) -> None:
    total = 500
    with Pull(listen=TCP, recv_buffer=room) as pull, ExitStack() as stack:
        peers = [stack.enter_context(RawPeer(pull.address, PUSH)) for _ in range(4)]
        pull.wait_for_peers(4, WAIT)
        for who, peer in enumerate(peers):
            head = LENGTH.pack(8)
            peer.socket.sendall(b"".join(head + b"%d " % who + numbered(one) for one in range(total)))
        assert read_ahead(pull, room) == room
        got = [pull.recv(timeout=WAIT) for _ in range(4 * total)]
    for who in range(4):
        mine = [int(message[2:]) for message in got if message.startswith(b"%d " % who)]
        assert mine == list(range(total))
    half = Counter(message[:1] for message in got[: 2 * total])
    assert min(half[b"%d" % who] for who in range(4)) >= total // 4  # each in turn


@AHEAD
def test_recv_window_bounds_the_bytes_that_are_read_ahead(kind: Callable[..., Any], peer: int, header: bytes) -> None:
    window, size = 1 << 20, 1 << 18
    with kind(listen=TCP, recv_window=window, linger=0.0) as ours, RawPeer(ours.address, peer) as theirs:
        ours.wait_for_peers(1, WAIT)
        theirs.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            theirs.socket.sendall((LENGTH.pack(size) + header + b"x" * (size - len(header))) * 200)
        assert window // size <= read_ahead(ours, window // size) <= (window + CHUNK) // size
        for _ in range(10):  # and they do arrive
            ours.recv(timeout=WAIT)


@pytest.mark.parametrize(("kind", "peer"), [(Push, PULL), (Pub, SUB)], ids=["push", "pub"])
def test_a_socket_that_only_sends_reads_and_discards(kind: Callable[..., Any], peer: int) -> None:
    with kind(listen=TCP) as ours, RawPeer(ours.address, peer) as theirs:
        ours.wait_for_peers(1, WAIT)
        theirs.socket.sendall((LENGTH.pack(0) + LENGTH.pack(3) + b"abc") * 1000)
        eventually(lambda: ours.stats.read == 2000)
        ours.send(b"and goes on")
        assert theirs.recv() == b"and goes on"
        assert (ours.stats.received, ours.stats.dropped, ours.stats.bad) == (0, 0, 0)


# ---- questions and answers -------------------------------------------------------------------------------------------


def test_a_surveyor_takes_thousands_of_simultaneous_replies() -> None:
    total = 5000
    with Surveyor(listen=TCP) as surveyor, RawPeer(surveyor.address, RESPONDENT) as theirs:
        surveyor.wait_for_peers(1, WAIT)
        replies = surveyor.survey_iter(b"who?", timeout=WAIT)
        asking = Background(lambda: [number(reply.body) for reply in islice(replies, total)])
        header = theirs.recv()[:4]
        for one in range(total):
            theirs.send(header + numbered(one))
        assert asking.result() == list(range(total))
        assert surveyor.stats.dropped == 0


def wait_until_read(sock: Any, total: int) -> None:
    """Wait until that many messages were read, dropped ones included."""
    eventually(lambda: sock.stats.read == total)


@pytest.mark.parametrize(
    ("options", "size", "kept"),
    [
        ({"recv_buffer": 8}, 6, 8),
        ({"recv_window": 8000}, 1000, 8),
        ({"recv_window": 8999}, 1000, 8),
        ({"recv_window": 1}, 1000, 1),  # one reply always fits
    ],
    ids=["8 replies", "8 kB", "almost 9 kB", "1 byte"],
)
def test_a_survey_keeps_replies_up_to_its_cap_until_they_are_taken(
    options: dict[str, Any], size: int, kept: int
) -> None:
    """The newest replies are dropped and counted; once replies are taken there is room again."""
    total = 20
    with Surveyor(listen=TCP, **options) as surveyor, RawPeer(surveyor.address, RESPONDENT) as theirs:
        surveyor.wait_for_peers(1, WAIT)
        with surveyor.start(b"who?", timeout=WAIT) as survey:
            header = theirs.recv()[:4]
            for again in (1, 2):
                for one in range(total):
                    theirs.send(header + numbered(one).ljust(size))
                wait_until_read(surveyor, again * total)
                dropped = again * (total - kept)
                assert survey.dropped == survey.result().dropped == surveyor.stats.dropped == dropped
                assert [counted.dropped for counted in surveyor.pipe_stats.values()] == [dropped]
                assert surveyor.stats.received == again * kept
                assert [number(reply.body) for reply in survey.fresh()] == list(range(kept))
        assert survey.result().answered == 1


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
def test_a_peer_whose_reply_was_dropped_has_answered(caller: Caller) -> None:
    with (
        Surveyor(listen=TCP, recv_buffer=1) as surveyor,
        RawPeer(surveyor.address, RESPONDENT) as first,
        RawPeer(surveyor.address, RESPONDENT) as second,
    ):
        surveyor.wait_for_peers(2, WAIT)
        asking = caller.start(surveyor.survey, b"who?", timeout=WAIT, early=True)
        for peer in (first, second):
            peer.send(peer.recv()[:4] + b"I")
        result = asking.result()
        assert (len(result.replies), result.expected, result.answered, result.dropped) == (1, 2, 2, 1)
        assert result.elapsed < WAIT / 2


def test_each_survey_has_its_own_room() -> None:
    with Surveyor(listen=TCP, recv_buffer=2) as surveyor, RawPeer(surveyor.address, RESPONDENT) as theirs:
        surveyor.wait_for_peers(1, WAIT)
        with surveyor.start(b"one", timeout=WAIT) as one, surveyor.start(b"two", timeout=WAIT) as two:
            for header in (theirs.recv()[:4], theirs.recv()[:4]):
                for _ in range(3):
                    theirs.send(header + b"I")
            wait_until_read(surveyor, 6)
            assert [(len(survey.fresh()), survey.dropped) for survey in (one, two)] == [(2, 1), (2, 1)]
            assert surveyor.stats.dropped == 2


def test_surveys_to_a_peer_that_does_not_read_are_dropped_beyond_its_queue() -> None:
    with Surveyor(listen=TCP, send_buffer=16, linger=0.0) as surveyor, RawPeer(surveyor.address, RESPONDENT) as slow:
        surveyor.wait_for_peers(1, WAIT)
        first = fill_network(surveyor, lambda body: surveyor.survey(body, timeout=0))
        for one in range(first, MANY):
            surveyor.survey(numbered(one, LARGE), timeout=0)
        dropped = MANY - first - 16
        assert (surveyor.stats.sent, surveyor.stats.dropped) == (MANY, dropped)
        arrived = [number(slow.recv()[4:]) for _ in range(MANY - dropped)]
        assert arrived == list(range(MANY - dropped))
        surveyor.survey(numbered(MANY), timeout=0)  # there is room again
        assert number(slow.recv()[4:]) == MANY
        assert [counted.dropped for counted in surveyor.pipe_stats.values()] == [dropped]


def test_a_request_that_timed_out_may_still_be_sent_and_its_reply_is_counted_as_late() -> None:
    with Req(listen=TCP, linger=0.0) as req, RawPeer(req.address, REP) as slow:
        req.wait_for_peers(1, WAIT)
        with pytest.raises(TimedOut):
            req.request(b"question", timeout=0.02)
        message = slow.recv()
        assert message[4:] == b"question"
        slow.send(message)
        eventually(lambda: req.stats.late == 1)


def test_a_request_that_timed_out_without_a_peer_is_never_sent() -> None:
    with Req(listen=TCP, linger=0.0) as req:
        with pytest.raises(TimedOut):
            req.request(b"nobody heard this", timeout=0.02)
        with RawPeer(req.address, REP) as theirs:
            asking = Background(req.request, b"this", timeout=WAIT)
            message = theirs.recv()
            assert message[4:] == b"this"
            theirs.send(message)
            asking.result()


ANSWERERS = pytest.mark.parametrize(("kind", "peer"), [(Rep, REQ), (Respondent, SURVEYOR)], ids=["rep", "respondent"])


@ANSWERERS
@pytest.mark.parametrize(
    ("options", "queued"),
    [({}, 63), ({"send_window": 1 << 20}, 15), ({"send_buffer": 8}, 8)],  # a reply is 4 bytes more than 64 KiB
    ids=["4 MiB", "1 MiB", "8 messages"],
)
def test_replies_to_a_peer_that_does_not_read_are_dropped_and_counted(
    kind: Callable[..., Any], peer: int, options: dict[str, Any], queued: int
) -> None:
    with kind(listen=TCP, linger=0.0, **options) as ours, RawPeer(ours.address, peer) as slow:
        ours.wait_for_peers(1, WAIT)
        for one in range(MANY):
            slow.send(WORD.pack(0x80000000 + one) + b"question")
            ours.recv(timeout=WAIT).reply(LARGE)
        stats = ours.stats
        assert queued <= stats.sent < MANY
        assert stats.sent + stats.dropped == MANY
        assert stats.unwritten == queued + 1  # and one in transit
        assert [counted.dropped for counted in ours.pipe_stats.values()] == [stats.dropped]
        assert [WORD.unpack(slow.recv()[:4])[0] & 0xFFFF for _ in range(stats.sent)] == list(range(stats.sent))
        slow.send(WORD.pack(0x80000000) + b"question")
        ours.recv(timeout=WAIT).reply(b"answer")
        assert slow.recv() == b"\x80\0\0\0answer"


@ANSWERERS
def test_a_reply_waits_for_a_slow_peer(kind: Callable[..., Any], peer: int) -> None:
    with kind(listen=TCP, send_buffer=8, linger=0.0) as ours, RawPeer(ours.address, peer) as slow:
        ours.wait_for_peers(1, WAIT)
        total = 100

        def read() -> list[bytes]:
            answers = []
            for _ in range(total):
                answers.append(slow.recv())
                time.sleep(0.001)  # slower than we reply, faster than 0.25 s
            return answers

        reading = Background(read)
        for one in range(total):
            slow.send(WORD.pack(0x80000000 + one) + b"question")
            ours.recv(timeout=WAIT).reply(LARGE)
        assert reading.result() == [WORD.pack(0x80000000 + one) + LARGE for one in range(total)]
        assert ours.stats.dropped == 0


@ANSWERERS
def test_even_the_first_question_knows_its_connection(kind: Any, peer: int) -> None:
    with kind(listen=TCP) as ours, connect(ours.address) as connection:
        connection.sendall(hello(peer) + LENGTH.pack(12) + b"\x80\0\0\x07question")
        question = ours.recv(timeout=WAIT)
        assert ours.pipes == (question.pipe,)
        question.reply(b"answer")
        assert read(connection, 26) == hello(kind._protocol) + LENGTH.pack(10) + b"\x80\0\0\x07answer"


# ---- close -----------------------------------------------------------------------------------------------------------


def test_close_sends_accepted_replies() -> None:
    with Rep(listen=TCP) as rep, RawPeer(rep.address, REQ) as theirs:
        for one in range(40):
            theirs.send(WORD.pack(0x80000000 + one) + b"question")
            rep.recv(timeout=WAIT).reply(LARGE)
        closing = Background(rep.close, linger=WAIT)
        for one in range(40):
            assert theirs.recv() == WORD.pack(0x80000000 + one) + LARGE
        closing.result()
        assert theirs.closed()


@pytest.mark.parametrize("wire", ["tcp", "ws", "inproc"], indirect=True)
@pytest.mark.parametrize("pattern", ["reqrep", "survey"], indirect=True)
def test_close_does_not_wait_for_askers_that_left(pattern: Pattern, wire: Wire) -> None:
    with pattern.connected(wire) as (asker, answerer):
        pattern.carry(BLOCKING, asker, answerer, [b"question"])
        asker.close()
        eventually(lambda: not answerer.pipes)
        start = time.monotonic()
        answerer.close(linger=WAIT)
        assert time.monotonic() - start < WAIT / 2


def test_accepted_unwritten_messages_are_counted() -> None:
    with Push(listen="tcp://127.0.0.1:0") as push:
        push.send_many([b"one", b"two"])
        assert push.stats.unwritten == 2
        with Pull(dial=push.address) as pull:
            assert [pull.recv(timeout=WAIT), pull.recv(timeout=WAIT)] == [b"one", b"two"]
            assert push.drain(WAIT)
            assert push.stats.unwritten == 0


@pytest.mark.parametrize("kind", [Pub, Bus], ids=["pub", "bus"])
def test_close_and_drain_wait_for_a_slow_peer(kind: Callable[..., Any]) -> None:
    peer = SUB if kind is Pub else BUS
    with kind(listen=TCP, linger=WAIT) as ours, RawPeer(ours.address, peer) as slow:
        ours.wait_for_peers(1, WAIT)
        for one in range(100):
            ours.send(numbered(one, LARGE))
        assert ours.drain(0.05) is False
        assert ours.stats.unwritten == ours.pipe_stats[ours.pipes[0]].queued > 0
        closing = Background(ours.close)
        assert [number(slow.recv()) for _ in range(100)] == list(range(100))
        closing.result()
        assert slow.closed()


@pytest.mark.parametrize("wire", ["tcp", "ipc", "ws", "tls+tcp", "inproc"], indirect=True)
@pytest.mark.parametrize("pattern", ["pair1", "pipeline", "bus", "pubsub"], indirect=True)
def test_written_read_and_unwritten_are_counted_on_every_transport(pattern: Pattern, wire: Wire) -> None:
    with pattern.connected(wire) as (first, second):
        for _ in range(2):  # of connections that left, too
            pattern.carry(BLOCKING, first, second, [b"", b"x" * 100_000, b"small"])
            first.drain(WAIT)
            second.disconnect(second.pipes[0])
            second.wait_for_peers(1, WAIT)
            eventually(lambda: first.stats.left == second.stats.left)
            first.wait_for_peers(1, WAIT)
        pattern.carry(BLOCKING, first, second, [b"last"])
        assert first.drain(WAIT)
        stats = first.stats
        assert (stats.sent, stats.written, stats.unwritten, stats.left) == (7, 7, 0, 2)
        assert (second.stats.read, second.stats.received, second.stats.left) == (7, 7, 2)
        assert [counted.written for counted in first.pipe_stats.values()] == [1]
        assert [counted.read for counted in second.pipe_stats.values()] == [1]


def test_the_first_message_received_with_recv_msg_has_its_pipe() -> None:
    with Pull(listen=TCP) as pull, Push(dial=pull.address) as push:
        push.send(b"read ahead")
        eventually(lambda: pull.stats.read == 1)
        assert pull.recv_msg(timeout=WAIT).pipe == pull.pipes[0]


def test_recv_msgs_returns_the_pipe_of_each_message() -> None:
    with Pull(listen=TCP) as pull, Push(dial=pull.address) as one, Push(dial=pull.address) as other:
        pull.wait_for_peers(2, WAIT)
        one.send_many([b"one"] * 50)
        other.send_many([b"other"] * 50)
        got: list[Message] = []
        while len(got) < 100:
            got += pull.recv_msgs(64, WAIT)
        assert {type(message).__name__ for message in got} == {"Message"}
        came = {(bytes(message), message.pipe) for message in got}
        assert len(came) == 2
        assert {pipe for _, pipe in came} == set(pull.pipes)


def test_topics_lists_the_longest_first() -> None:
    with Sub(topics=["b", "aaa"]) as sub:
        sub.subscribe(b"cc")
        sub.unsubscribe("b")
        assert sub.topics == (b"aaa", b"cc")


def test_unsubscribing_drops_messages_read_ahead() -> None:
    with Sub(listen=TCP, topics=["a", "b"]) as sub, RawPeer(sub.address, PUB) as publisher:
        sub.wait_for_peers(1, WAIT)
        for message in (b"a1", b"b1", b"a2", b"b2", b"c"):
            publisher.send(message)
        eventually(lambda: sub.stats.read == 5)
        sub.unsubscribe("a")
        publisher.send(b"a3")
        publisher.send(b"b3")
        assert [sub.recv(timeout=WAIT) for _ in range(3)] == [b"b1", b"b2", b"b3"]
        with pytest.raises(TimedOut):
            sub.recv(timeout=0)


def test_unsubscribing_during_a_receive_loses_and_duplicates_nothing() -> None:
    total, chosen = 8000, [b"a%d" % one for one in range(8000)]
    with Sub(listen=TCP, topics=["a", "b"], recv_buffer=8192) as sub, RawPeer(sub.address, PUB) as publisher:
        sub.wait_for_peers(1, WAIT)
        for _ in range(5):
            read_before = sub.stats.read
            publisher.socket.sendall(b"".join(LENGTH.pack(len(one)) + one for one in chosen))
            eventually(lambda before=read_before: sub.stats.read == before + total)  # type: ignore[misc]
            receiving = Background(lambda: [sub.recv(timeout=WAIT) for _ in range(total)])
            while receiving.is_alive():
                sub.unsubscribe("b")
                sub.subscribe("b")
            assert receiving.result() == chosen
