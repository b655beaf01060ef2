"""Acceptance suite for a pattern's sockets, as the test package of mangos is for its protocols.

A check is a plain function of a pattern, a wire and a caller, which raises AssertionError. Any test framework runs it::

    check_brick(Pattern("priority request", PriorityReq, Rep, answered=True, verb="request"))

or case by case under pytest::

    @pytest.mark.parametrize("check", select_checks(PATTERN), ids=str)
    def test_acceptance(check):
        check.run(PATTERN, Wire("inproc"), BLOCKING)
"""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from nngkit.errors import NngkitError, TimedOut
from nngkit.testing.callers import ASYNCIO, BLOCKING, CALLERS, WAIT, Background, Caller
from nngkit.testing.patterns import Pattern
from nngkit.testing.waiting import eventually
from nngkit.testing.wires import Wire, make_wires

BODIES: Final = (b"", b"x", b"\0" * 7, *(b"%d" % number for number in range(40)), b"long" * 20_000, b"")


@dataclass(frozen=True)
class Check:
    """A behaviour that sockets must have.

    Attributes:
        name: The behaviour, as a sentence.
        run: Called with a Pattern, a Wire and a Caller. Raises AssertionError if the sockets behave otherwise.
        every_wire: True if it is tried over every wire; otherwise over the first.
        callers: The callers with which it is tried. It is run only once if that is BLOCKING alone.
        answered: False for a behaviour that only patterns without replies have.
        slow: True if it takes up to a second: it waits for a timeout.
    """

    name: str
    run: Callable[[Pattern, Wire, Caller], None]
    every_wire: bool = False
    callers: tuple[Caller, ...] = (BLOCKING,)
    answered: bool = True
    slow: bool = False

    def __str__(self) -> str:
        return self.name


def select_checks(pattern: Pattern, *, slow: bool = True) -> tuple[Check, ...]:
    """Return the checks that apply to `pattern`; without slow ones if `slow` is false."""
    return tuple(check for check in CHECKS if (check.answered or not pattern.answered) and (slow or not check.slow))


def check_brick(
    pattern: Pattern, wires: Sequence[Wire] | None = None, callers: Iterable[Caller] = CALLERS, *, slow: bool = True
) -> int:
    """Run all checks that apply to a pattern, over each wire, with each caller.

    Blocks for seconds to a minute. It opens sockets of this process only, and closes all of them.

    Args:
        pattern: The two ends to check.
        wires: The wires; checks that need only one take the first. The default is each transport that needs neither a
            directory nor certificates: tcp, tcp6, abstract, ws, inproc. See `make_wires` for the others.
        callers: The ways to wait; all three by default.
        slow: Whether to run the checks that wait for a timeout.

    Returns:
        The number of cases that were run.

    Raises:
        AssertionError: A check failed. The text names the check, the wire and the caller.
        ValueError: `wires` or `callers` is empty.
    """
    wires = make_wires() if wires is None else tuple(wires)
    callers = tuple(callers)
    if not wires or not callers:
        raise ValueError("a brick is checked over at least one wire and with at least one caller")
    cases = 0
    for check in select_checks(pattern, slow=slow):
        with_callers = [caller for caller in check.callers if caller in callers or check.callers == (BLOCKING,)]
        for wire in wires if check.every_wire else wires[:1]:
            for caller in with_callers:
                try:
                    check.run(pattern, wire, caller)
                except (AssertionError, NngkitError) as error:
                    case = f"{pattern.name} over {wire.transport}, {caller.name} caller"
                    raise AssertionError(f"{check.name}: {case}: {type(error).__name__}: {error}") from error
                cases += 1
    return cases


def _require(condition: object, problem: str) -> None:
    """Raise AssertionError unless `condition` is true; an assert statement would be gone under ``python -O``."""
    if not condition:
        raise AssertionError(problem)


def _equal(found: object, expected: object, what: str) -> None:
    _require(found == expected, f"{what}: {_short(found)} instead of {_short(expected)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


def _raises(expected: type[Exception], call: Callable[[], object], what: str) -> None:
    try:
        result = call()
    except expected:
        return
    raise AssertionError(f"{what} returned {result!r} instead of raising {expected.__name__}")


# ---- the checks ------------------------------------------------------------------------------------------------------


def _messages(pattern: Pattern, wire: Wire, caller: Caller, *, first_listens: bool) -> None:
    with pattern.connected(wire, first_listens=first_listens) as (first, second):
        _equal(pattern.carry(caller, first, second, BODIES), list(BODIES), "messages received")


def _any_order(pattern: Pattern, wire: Wire, caller: Caller, *, first_listens: bool) -> None:
    with wire.reserved() as address:
        opening: dict[str, Any] = {"reconnect": 0.02, **wire.options}
        if first_listens:
            with pattern.open_second(dial=address, **opening) as second, pattern.open_first(**opening) as first:
                first.listen(address)
                _assert_they_meet(pattern, first, second)
        else:
            with pattern.open_first(dial=address, **opening) as first, pattern.open_second(**opening) as second:
                second.listen(address)
                _assert_they_meet(pattern, first, second)


def _assert_they_meet(pattern: Pattern, first: Any, second: Any) -> None:
    first.wait_for_peers(1, WAIT)
    second.wait_for_peers(1, WAIT)
    _equal(pattern.carry(BLOCKING, first, second, [b"met"]), [b"met"], "messages received")


def _pipe(pattern: Pattern, wire: Wire, caller: Caller) -> None:
    with pattern.connected(wire) as (first, second):
        (accepted,), (dialed,) = first.pipes, second.pipes
        _equal((accepted.dialed, dialed.dialed), (False, True), "dialed of the accepted and of the dialed pipe")
        _require(accepted.address.startswith(wire.transport), f"address of the accepted pipe: {accepted.address}")
        _equal(dialed.address.rstrip("/"), first.address.removesuffix("/brick"), "address of the dialed pipe")
        _equal((accepted.verified, dialed.verified), (wire.tls is not None,) * 2, "verified of both pipes")


def _counts(pattern: Pattern, wire: Wire, caller: Caller) -> None:
    bodies = [b"%d" % number for number in range(25)]
    with pattern.connected(wire) as (first, second):
        pattern.carry(BLOCKING, first, second, bodies)
        _equal((first.stats.sent, second.stats.received), (25, 25), "sent, received")
        if pattern.answered:
            _equal((second.stats.sent, first.stats.received), (25, 25), "replies sent, received")
        joined = (first.stats.pipes, first.stats.joined, first.stats.left, first.stats.refused)
        _equal(joined, (1, 1, 0, 0), "pipes, joined, left, refused")
        eventually(lambda: first.stats.written == 25, what="25 messages are counted as written")
        _equal(second.stats.read, 25, "read")
        wrong = (first.stats.dropped, second.stats.dropped, second.stats.too_large, second.stats.bad)
        _equal(wrong, (0, 0, 0, 0), "dropped, dropped at the receiver, too_large, bad")
    _equal(first.stats.sent, 25, "sent, after close")
    _equal((first.stats.pipes, first.stats.left), (0, 1), "pipes and left, after close")


def _several_addresses(pattern: Pattern, wire: Wire, caller: Caller) -> None:
    other = replace(wire, transport="abstract" if wire.directory is None else "ipc", tls=None)
    ways = [wire.address(), other.address(), replace(other, transport="inproc").address()]
    with pattern.open_first(listen=ways, **wire.options) as first:
        _equal(len(first.addresses), 3, "number of addresses")
        _equal(first.address, first.addresses[0], "address")
        with pattern.open_second(dial=first.addresses, **wire.options) as second:
            peers = 1 if pattern.exclusive else 3
            first.wait_for_peers(peers, WAIT)
            second.wait_for_peers(peers, WAIT)


def _any_buffer(pattern: Pattern, wire: Wire, caller: Caller, *, kind: str) -> None:
    memory = bytearray(b"1x2x3x4x" if kind == "a view with gaps" else b"1234")
    data = {
        "a bytearray": memory,
        "a memoryview": memoryview(memory),
        "an array": array.array("H", [0x3231, 0x3433]),
        "a view with gaps": memoryview(memory)[::2],
    }[kind]
    with pattern.connected(wire) as (first, second):
        caller.call(pattern.sender(first), data)
        memory[:] = bytes(len(memory))
        _equal(caller.call(second.recv, timeout=WAIT), b"1234", "message received")


def _text(pattern: Pattern, wire: Wire, caller: Caller) -> None:
    with pattern.connected(wire) as (first, _):
        _raises(TypeError, lambda: caller.call(pattern.sender(first), "text"), "sending text")


def _many(pattern: Pattern, wire: Wire, caller: Caller) -> None:
    bodies = [b"%d" % number for number in range(900)]
    with pattern.connected(wire) as (first, second):
        sending = caller.start(first.send_many, bodies)
        received: list[bytes] = []
        while len(received) < len(bodies):
            some = caller.call(second.recv_many, 100, timeout=WAIT)
            _require(1 <= len(some) <= 100, f"recv_many(100) returned {len(some)} messages")
            received += some
        _equal(sending.result(), 900, "result of send_many")
        _equal(received, bodies, "messages received")


def _at_most_none(pattern: Pattern, wire: Wire, caller: Caller) -> None:
    with pattern.open_second() as second:
        _raises(ValueError, lambda: caller.call(second.recv_many, 0), "recv_many(0)")


def _over_the_limit(pattern: Pattern, wire: Wire, caller: Caller) -> None:
    limit = 5000
    with pattern.connected(wire, recv_max_size=limit, reconnect=0.02) as (first, second):
        _equal(pattern.carry(BLOCKING, first, second, [b"x" * limit]), [b"x" * limit], "messages at the limit")
        sending = Background(pattern.sender(first), b"y" * (limit + 200), timeout=0.3)
        # the connection is cut, and the dialer connects again; a Req sends again, until its timeout
        eventually(lambda: second.stats.left and second.stats.too_large, what="the connection is cut")
        _raises(TimedOut, lambda: second.recv(timeout=0), "recv after a message over the limit")
        sending.join(WAIT)
        _require(not sending.is_alive(), "sending with a timeout of 0.3 s has not ended")
        eventually(lambda: _gets_through(pattern, first, second), WAIT, what="a message arrives after reconnecting")


def _gets_through(pattern: Pattern, first: Any, second: Any) -> bool:
    """Return True if one more message arrives; one lost with a connection that is being cut is sent again."""
    sending = Background(pattern.sender(first), b"fits", timeout=0.5)
    try:
        received = second.recv(timeout=0.5)
        if pattern.answered:
            received.reply(b"too")
    except TimedOut:
        received = None
    sending.join(WAIT)
    _require(not sending.is_alive(), "sending with a timeout of 0.5 s has not ended")
    return received is not None and (received.body if pattern.answered else received) == b"fits"


def _leaving(pattern: Pattern, wire: Wire, caller: Caller) -> None:
    first, second = pattern.pair(wire, first_listens=True)
    with first:
        if caller == BLOCKING:
            with second as same:
                _require(same is second, "`with` yields another object")
        else:
            caller.call(second.close)
        _require(second.closed, "second.closed is false after it was closed")
        eventually(lambda: not first.pipes, what="the pipe of a closed peer is gone")
    _require(first.closed, "first.closed is false after its block")


def _listening(check: Callable[..., None], name: str, **options: Any) -> tuple[Check, ...]:
    """Return two checks, in which the first or the second end listens."""
    return tuple(
        Check(f"{name}, {end} end listens", partial(check, first_listens=end == "first"), every_wire=True, **options)
        for end in ("first", "second")
    )


#: All checks. `select_checks` returns those that apply to a pattern.
CHECKS: Final = (
    *_listening(_messages, "messages arrive whole and in order", callers=CALLERS),
    *_listening(_any_order, "ends start in any order"),
    Check("a pipe identifies the other end to both sides", _pipe, every_wire=True),
    Check("each end counts messages", _counts),
    Check("one socket listens and dials at several addresses", _several_addresses),
    *(
        Check(
            f"a message is copied at once from {kind}", partial(_any_buffer, kind=kind), callers=CALLERS, answered=False
        )
        for kind in ("a bytearray", "a memoryview", "an array", "a view with gaps")
    ),
    Check("text is refused", _text, callers=CALLERS),
    Check("one call sends or receives many messages", _many, callers=CALLERS, answered=False),
    Check("receiving at most 0 messages is an error", _at_most_none, callers=CALLERS, answered=False),
    Check("a message over the limit does not arrive", _over_the_limit, every_wire=True, slow=True),
    Check("closing ends the connection", _leaving, every_wire=True, callers=(BLOCKING, ASYNCIO)),
)
