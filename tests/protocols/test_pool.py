"""The pool of descriptors: what strangers and members of all sockets of a process may take of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.protocols import Pull, Push, Rep, Req, limit_pipes
from nngkit.protocols._core.pool import FROM_A_HOST, Pool, pool
from nngkit.testing import eventually
from tests.hosts import Hosts, hosts
from tests.protocols.raw_peer import PUSH, REQ, RawPeer, connect
from tests.protocols.wires import WAIT

__all__ = ["hosts"]

TCP = "tcp://127.0.0.1:0"
LIMIT = 64  # descriptors: 8 strangers, 48 members


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the pool have LIMIT descriptors. Nothing of it is taken before and after."""
    eventually(lambda: pool.counts == (0, 0))
    monkeypatch.setattr(pool, "_limit", lambda: LIMIT)
    yield
    eventually(lambda: pool.counts == (0, 0))


def test_strangers_of_all_sockets_have_an_eighth_and_the_oldest_goes_first(few: None) -> None:
    with ExitStack() as stack:
        pull, rep = stack.enter_context(Pull(listen=TCP)), stack.enter_context(Rep(listen=TCP))
        honest = stack.enter_context(Push(dial=pull.address))
        silent = []
        for number in range(12):
            one = stack.enter_context(closing(connect((pull, rep)[number % 2].address)))
            silent.append(one)
            eventually(lambda: pool.counts[0] == min(len(silent), 8))
        for one in silent[:4]:
            assert one.recv(100) in (b"\0SP\0\0\x51\0\0", b"\0SP\0\0\x31\0\0")
            assert one.recv(1) == b""
        assert (pull.stats.cut, rep.stats.cut) == (2, 2)
        assert {cut.reason for cut in (*pull.cuts, *rep.cuts)} == {"more than 8 handshakes in this process"}
        honest.send(b"honest")  # peers that are in stay
        assert pull.recv(timeout=WAIT) == b"honest"
        with RawPeer(rep.address, REQ):  # and one more gets in
            rep.wait_for_peers(1, WAIT)
        assert (rep.stats.cut + pull.stats.cut, pull.stats.joined) == (5, 1)


def test_members_of_all_sockets_have_three_quarters(few: None) -> None:
    with ExitStack() as stack:
        pull, rep = stack.enter_context(Pull(listen=TCP)), stack.enter_context(Rep(listen=TCP))
        for number in range(48):
            sock, protocol = ((pull, PUSH), (rep, REQ))[number % 2]
            stack.enter_context(RawPeer(sock.address, protocol))
            sock.wait_for_peers(number // 2 + 1, WAIT)
        with RawPeer(pull.address, PUSH) as late:
            assert late.closed()
        eventually(lambda: pull.stats.cut == 1)
        assert pull.cuts[0].reason == "more than 48 connections in this process"
        rep.close()
        with RawPeer(pull.address, PUSH):
            pull.wait_for_peers(25, WAIT)


def test_a_program_may_have_less(few: None) -> None:
    limit_pipes(1)
    try:
        with Pull(listen=TCP) as pull, Rep(listen=TCP) as rep, RawPeer(pull.address, PUSH):
            pull.wait_for_peers(1, WAIT)
            with RawPeer(rep.address, REQ) as late:
                assert late.closed()
            eventually(lambda: rep.stats.cut == 1)
            assert rep.cuts[0].reason == "more than 1 connections in this process"
    finally:
        limit_pipes(None)


def test_dialed_connections_are_not_counted(few: None) -> None:
    with Rep(listen=TCP) as rep, Req(dial=rep.address) as req:
        req.wait_for_peers(1, WAIT)
        rep.wait_for_peers(1, WAIT)
        assert pool.counts == (0, 1)


SERVER = """
import sys, time
from nngkit.protocols import Pull
from nngkit.trust import OPEN

with Pull(listen=sys.argv[1], trust=OPEN) as pull:
    print("ready", flush=True)
    end = time.monotonic() + 20
    while pull.stats.cut < 4 and time.monotonic() < end:
        time.sleep(0.01)
    print(pull.stats.cut, {cut.reason for cut in pull.cuts}, flush=True)
    sys.stdin.read()
"""
STRANGER = """
import socket, sys
silent = [socket.create_connection((sys.argv[1], 5555), timeout=20) for _ in range(20)]
for one in silent[:4]:
    assert len(one.recv(8)) == 8
    assert one.recv(1) == b"", "an old one is kept"
print(len(silent))
"""


@pytest.mark.slow
def test_another_host_has_sixteen_strangers(hosts: Hosts) -> None:
    here, there = hosts.add("server"), hosts.add("stranger")
    hosts.link("server", "stranger")
    serving = here.popen([sys.executable, "-c", SERVER, f"tcp://{here.address}:5555"], stdin=-1, stdout=-1, text=True)
    assert serving.stdout is not None
    assert serving.stdout.readline() == "ready\n"
    assert there.run([sys.executable, "-c", STRANGER, here.address]).stdout == "20\n"
    assert serving.stdout.readline() == f"4 {{'more than {FROM_A_HOST} handshakes from {there.address}'}}\n"


@given(
    limit=st.integers(1, 200) | st.none(),
    steps=st.lists(st.tuples(st.sampled_from(["enter", "let in", "leave"]), st.integers(0, 30), st.integers(0, 2))),
)
def test_no_share_is_exceeded_and_nothing_is_left_behind(limit: int | None, steps: list[tuple[str, int, int]]) -> None:
    tried, gone = Pool(lambda: limit), []
    inside: dict[int, str] = {}
    number = 0
    for what, which, host in steps:
        known = list(inside)
        if what == "enter":
            number += 1
            inside[number] = "stranger"

            def evict(why: str, one: int = number) -> None:
                gone.append(one)

            if (end := tried.enter(number, f"192.0.2.{host}" if host else None, evict)) is not None:
                end()
                assert inside.pop(gone[-1]) == "stranger"
        elif known and what == "let in" and inside[one := known[which % len(known)]] == "stranger":
            if tried.let_in(one) is None:
                inside[one] = "member"
            else:
                del inside[one]
        elif known and what == "leave":
            one = known[which % len(known)]
            tried.leave(one)
            tried.leave(one)
            del inside[one]
        counts = tuple(list(inside.values()).count(kind) for kind in ("stranger", "member"))
        assert tried.counts == counts
        assert limit is None or (counts[0] <= max(1, limit // 8) and counts[1] <= limit * 3 // 4)
    for one in list(inside):
        tried.leave(one)
    assert tried.counts == (0, 0)
    assert not tried._hosts
    assert not tried._of
