"""Acceptance suite of nngkit.testing for every protocol over every transport for every kind of caller.

Below it: behaviour of one protocol. The protocols' own tests do not repeat what is shown here.
"""

from __future__ import annotations

import itertools

import pytest

from nngkit.errors import TimedOut
from nngkit.protocols import Bus, Pair1, Pub, Pull, Push, Sub
from nngkit.protocols._core import direct
from nngkit.testing import CHECKS, PATTERNS, TRANSPORTS, Caller, Check, Pattern, Wire, eventually, select_checks
from tests.protocols.wires import WAIT


class Alternating:
    """True for every other connection."""

    def __init__(self) -> None:
        self._turns = itertools.count()

    def __bool__(self) -> bool:
        return bool(next(self._turns) % 2)


slow = pytest.mark.slow


@pytest.fixture(autouse=True, params=["mixed", pytest.param("direct", marks=slow), pytest.param("NNG", marks=slow)])
def reads_and_writes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other connection is read and written by Python on its descriptor; with --slow all, and none."""
    choices: dict[str, object] = {"mixed": Alternating(), "direct": True, "NNG": False}
    monkeypatch.setattr(direct, "enabled", choices[request.param])


LIKE_ANOTHER = ("tcp6", "abstract", "wss")  # tcp, ipc, and ws with the layer of tls+tcp
tcp_only = pytest.mark.parametrize("wire", ["tcp"], indirect=True)

CASES = [
    pytest.param(
        check,
        pattern,
        transport,
        caller,
        id=f"{pattern.name}-{transport}-{caller.name}-{check}",
        marks=[slow] if check.slow or transport in LIKE_ANOTHER else [],
    )
    for pattern in PATTERNS
    for check in select_checks(pattern)
    for transport in (TRANSPORTS if check.every_wire else ["tcp"])
    for caller in check.callers
]


@pytest.mark.parametrize(("check", "pattern", "wire", "caller"), CASES, indirect=["pattern", "wire", "caller"])
def test_acceptance(check: Check, pattern: Pattern, wire: Wire, caller: Caller) -> None:
    check.run(pattern, wire, caller)


def test_every_check_applies_to_one_of_the_patterns() -> None:
    assert {check for pattern in PATTERNS for check in select_checks(pattern)} == set(CHECKS)


@tcp_only
def test_the_error_for_text_contains_a_hint(pattern: Pattern, wire: Wire, caller: Caller) -> None:
    with pattern.connected(wire) as (first, _), pytest.raises(TypeError, match="encode it first"):
        caller.call(pattern.sender(first), "text")


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
