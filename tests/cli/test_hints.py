"""Hints on stderr after two seconds without a peer or a matching message, and only then."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nngkit.cli.cat.hints import hinting, hints
from nngkit.cli.probe import Credentials
from nngkit.cli.silence import AFTER
from nngkit.errors import TimedOut
from nngkit.protocols import Bus, Pub, Push, Rep, Req, Socket, Sub
from tests.cli.commands import nngkit
from tests.cli.processes import Running

ANY = "tcp://127.0.0.1:0"
WAIT = 10.0


def looked(socket: Socket, protocol: str, *dialed: str, topics: tuple[bytes, ...] = ()) -> list[str]:
    return list(hints(socket, protocol, dialed, topics, Credentials))


@pytest.mark.slow
def test_an_incompatible_protocol_is_named() -> None:
    with Pub(listen=ANY) as pub, Running("req", pub.address, "--data", "x") as running:
        said = "hint: a PUB listens there, and a REQ connects only to a REP: use a sub, or check the address"
        assert running.says() == f"nngkit req: {said}"
        assert running.end() == 130
        assert running.rest() == ("", "")


@pytest.mark.slow
def test_an_address_without_a_listener_is_named(tmp_path: Path) -> None:
    started = time.monotonic()
    with Running("pull", f"ipc://{tmp_path}/none") as running:
        hint = f"hint: {tmp_path}/none: no such file: start the listener first; use an absolute path: ipc:///"
        assert running.says() == f"nngkit pull: {hint}"
        assert time.monotonic() - started >= AFTER
    with Rep(listen=ANY) as rep:
        address = rep.address
    with Running("req", address, "--data", "x") as running:
        assert running.says().startswith(f"nngkit req: hint: no listener at {address[6:]}: start the listener first")


@pytest.mark.slow
def test_topics_without_a_matching_message_are_named() -> None:
    with (
        Pub(listen=ANY) as pub,
        Running("sub", pub.address, "--subscribe", "news.", "--subscribe", "sport.") as running,
    ):
        pub.wait_for_peers(1, WAIT)
        pub.send_many([b"weather.oslo 3", b"weather.rome 20"])
        hint = "hint: 2 messages arrived, and none begins with 'news.' or 'sport.': a topic is a prefix of the message"
        assert running.says() == f"nngkit sub: {hint}"


@pytest.mark.slow
def test_silent_turns_hints_off(tmp_path: Path) -> None:
    done = nngkit("pull", f"ipc://{tmp_path}/none", "--silent", "--recv-timeout", str(AFTER + 0.5))
    assert (done.returncode, done.stderr) == (3, f"nngkit pull: ipc://{tmp_path}/none: no peer connected\n")


def test_a_working_connection_has_no_hint() -> None:
    with Pub(listen=ANY) as pub, Sub(dial=pub.address, topics=b"a") as sub:
        sub.wait_for_peers(1, WAIT)
        pub.wait_for_peers(1, WAIT)
        assert looked(sub, "sub", pub.address, topics=(b"a",)) == []
        pub.send_many([b"b", b"a"])
        assert sub.recv(WAIT) == b"a"
        assert looked(sub, "sub", pub.address, topics=(b"a",)) == []
    with Push(listen=ANY) as push, Rep() as rep:
        assert looked(rep, "pull", push.address) == [], "what would fit listens there: it may come yet"


def test_a_refused_connection_is_named_by_the_listener() -> None:
    with Rep(listen=ANY) as rep, Pub(dial=rep.address) as pub:
        for _ in range(200):  # the publisher keeps dialing
            if rep.cuts:
                break
            with pytest.raises(TimedOut):
                pub.wait_for_peers(1, 0.05)
        (hint,) = looked(rep, "rep")
        assert hint.endswith("was refused: bad hello: pub instead of req")
        assert hint.startswith("tcp://127.0.0.1:")


def test_a_websocket_is_not_joined_for_a_hint() -> None:
    with Push(listen="ws://127.0.0.1:0/push") as push, Req() as req:
        push.send(b"for a puller")
        assert looked(req, "req", push.address) == [
            f"{push.address} accepts connections, but no peer: nngkit doctor {push.address} --protocol req"
        ]
        assert push.stats.joined == 0
        address = push.address
    with Req() as req:
        (hint,) = looked(req, "req", address)
        assert hint.startswith("no listener at 127.0.0.1:")


def test_an_inproc_address_of_another_process_is_explained() -> None:
    with Bus() as bus:
        assert looked(bus, "bus", "inproc://a") == ["inproc://a: inproc does not reach another process"]


def test_no_hint_is_written_after_the_end() -> None:
    said: list[str] = []
    with hinting(lambda: ["late"], said.append):
        pass
    assert said == []
