"""A listener and peers whose handshakes fail without end."""

import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.protocols import TLS, Rep, Req
from nngkit.protocols._nng.pace import A_SECOND, AT_ONCE, BURST, GROWTH, LET_IN, MOST_LET_IN, Pace, Turns, hopeless
from nngkit.testing import eventually
from tests.protocols.wires import WAIT


@given(st.lists(st.floats(0.0, 0.5), max_size=400))
def test_a_rate_is_exceeded_only_above_it(gaps: list[float]) -> None:
    pace, now = Pace(), 1.0
    times = [now := now + gap for gap in gaps]
    for number, at in enumerate(times, 1):
        pace.failed(at)
        if pace.exceeded(at):
            assert any(number - first > AT_ONCE + A_SECOND * (at - times[first]) - 1 for first in range(number))
    assert not pace.exceeded(now + 1.0)  # a second of calm


def test_a_clock_that_stands_changes_nothing() -> None:
    pace = Pace()
    for _ in range(AT_ONCE):
        pace.failed(10.0)
        assert not pace.exceeded(10.0)
    pace.failed(9.0)
    assert pace.exceeded(9.0)


def let_in(pace: Pace, seconds: float, failing: float | None, wanted: int = 1 << 20) -> list[float]:
    """Return when looks, one every 2 ms, let in the `wanted` peers, of which one fails every `failing` seconds."""
    times, now, last = list[float](), 1.0, 1.0
    while now < 1.0 + seconds and len(times) < wanted:
        if failing is not None and now - last >= failing:
            pace.failed(now)
            last = now
        count = min(pace.room(now), wanted - len(times))
        pace.let_in(count)
        times += [now - 1.0] * count
        now += 0.002
    return times


@given(st.floats(0.002, GROWTH - 0.002))
def test_no_more_are_let_in_while_some_of_them_fail(failing: float) -> None:
    assert 2 * LET_IN - 1 <= len(let_in(Pace(), 2.0, failing)) <= BURST + 2 * LET_IN


@given(st.floats(GROWTH, 1.0))
def test_a_failure_ends_the_growth(failing: float) -> None:
    pace = Pace()
    assert len(let_in(pace, 2.0, failing)) <= 2 * MOST_LET_IN + BURST * MOST_LET_IN / LET_IN
    pace.failed(4.0)
    assert pace.room(4.0) <= BURST


def test_a_thousand_honest_peers_are_let_in_within_a_second_or_so() -> None:
    assert let_in(Pace(), 2.0, None, 1000)[999] < 1.1


@pytest.mark.parametrize(
    ("tls", "web", "good"),
    [(True, False, b"\x16\x03\x01\x02\0\x01\0\1"), (False, True, b"GET /her"), (False, False, b"\0SP\0\0\x30\0\0")],
    ids=["tls", "ws", "sp"],
)
@given(said=st.binary(max_size=8))
def test_only_what_cannot_succeed_is_hopeless(tls: bool, web: bool, good: bytes, said: bytes) -> None:
    assert not any(hopeless(good[:size], tls=tls, web=web) for size in range(1, 9))
    decided = min(len(said), 2)  # the fewest bytes that each kind begins with
    assert hopeless(said, tls=tls, web=web) or good[:decided] == said[:decided]
    assert hopeless(b"", tls=tls, web=web)  # it has said nothing and has ended


@given(st.lists(st.sampled_from([None, "192.0.2.1", "192.0.2.2"]), min_size=1))
def test_hosts_have_turns_by_turns(hosts: list[str | None]) -> None:
    turns: Turns[tuple[str | None, int]] = Turns()
    for number, host in enumerate(hosts):
        turns.add(host, (host, number))
    taken = []
    while turns:
        taken.append(turns.take())
    assert sorted(number for _, number in taken) == [*range(len(hosts))]
    for host in set(hosts):
        numbers = [number for one, number in taken if one == host]
        assert numbers == sorted(numbers)
    for at, (host, _) in enumerate(taken):
        before = Counter(one for one, _ in taken[:at])
        left = {one for one, _ in taken[at:]}
        assert before[host] == min(before[one] for one in left)  # none that waits has had fewer


def serve(rep: Rep) -> None:
    for request in rep:
        request.reply(request.body)


@contextmanager
def attacked(attack: Callable[[socket.socket], object], address: str) -> Iterator[None]:
    """Connect, call ``attack`` and leave, as fast as the listener lets us."""
    parts, over = urlsplit(address), threading.Event()

    def run() -> None:
        while not over.is_set():
            with suppress(OSError), socket.create_connection((parts.hostname, parts.port), timeout=WAIT) as peer:
                attack(peer)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def hello_of(tls: TLS) -> bytes:
    """Return the first bytes of a handshake."""
    sent = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        tls.context(server=False).wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


def say_something_wrong(peer: socket.socket) -> None:
    peer.sendall(b"HELO there\r\n\r\n")


@pytest.mark.slow
@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "ws://127.0.0.1:0/here"], ids=["tcp", "ws"])
def test_peers_whose_handshakes_fail_are_turned_away_and_newcomers_are_let_in(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Rep(listen=url) as rep, Req(dial=rep.address) as known:
        known.wait_for_peers(1, WAIT)
        threading.Thread(target=serve, args=(rep,), daemon=True).start()
        with attacked(say_something_wrong, rep.address):
            eventually(lambda: any("turned away" in cut.reason for cut in rep.cuts))
            for number in range(20):
                with Req(dial=rep.address) as newcomer:
                    newcomer.wait_for_peers(1, 2.0)
                    assert newcomer.request(b"%d" % number, timeout=WAIT) == b"%d" % number
                assert known.request(b"known", timeout=WAIT) == b"known"
        time.sleep(1.1)  # a second of calm: connections are accepted as before, each failure with its own reason
        parts = urlsplit(rep.address)

        def heard() -> bool:
            with socket.create_connection((parts.hostname, parts.port), timeout=WAIT) as peer:
                say_something_wrong(peer)
                with suppress(OSError):  # reset, or closed
                    while peer.recv(4096):
                        pass
            return "turned away" not in rep.cuts[-1].reason

        eventually(heard, poll=0.2)
    assert sum("connections a second fail" in each.message for each in caplog.records) == 1


@pytest.mark.slow
def test_handshakes_of_tls_take_turns_while_many_fail(shared_tls: TLS, caplog: pytest.LogCaptureFixture) -> None:
    begun, answers = hello_of(shared_tls), count()

    def leave_half_way(peer: socket.socket) -> None:
        peer.sendall(begun)
        if peer.recv(1):  # the answer, which has cost the listener its part
            next(answers)

    with Rep(listen="tls+tcp://127.0.0.1:0", tls=shared_tls) as rep, ExitStack() as attacks:
        threading.Thread(target=serve, args=(rep,), daemon=True).start()
        for _ in range(4):
            attacks.enter_context(attacked(leave_half_way, rep.address))
        eventually(lambda: "connections a second fail" in caplog.text)
        before, began = next(answers), time.monotonic()
        for number in range(10):
            with Req(dial=rep.address, tls=shared_tls) as newcomer:
                newcomer.wait_for_peers(1, 2.0)
                assert newcomer.request(b"%d" % number, timeout=WAIT) == b"%d" % number
        assert next(answers) - before <= A_SECOND * (time.monotonic() - began) + 32


@pytest.mark.slow
def test_peers_that_have_left_have_no_turn(shared_tls: TLS) -> None:
    begun, left = hello_of(shared_tls), list[socket.socket]()

    def leave_soon(peer: socket.socket) -> None:
        peer.sendall(begun)
        peer.settimeout(0.02)
        try:
            peer.recv(1)
        except TimeoutError:
            left.append(peer)

    with Rep(listen="tls+tcp://127.0.0.1:0", tls=shared_tls) as rep, ExitStack() as attacks:
        threading.Thread(target=serve, args=(rep,), daemon=True).start()
        for _ in range(4):
            attacks.enter_context(attacked(leave_soon, rep.address))
        eventually(lambda: len(left) > 200)  # each that had its turn would hold up the next by 60 ms
        with Req(dial=rep.address, tls=shared_tls) as newcomer:
            newcomer.wait_for_peers(1, 2.0)
            assert newcomer.request(b"heard", timeout=WAIT) == b"heard"
