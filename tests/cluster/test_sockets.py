"""Links over sockets: what comes before the end of a link is not lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import trio

from nngkit.background import Background
from nngkit.cluster.shell.sockets import SocketTransport
from nngkit.testing import aeventually
from nngkit.testing.waiting import TIMEOUT

ROUNDS = 60  # one refusal in three was lost before ends were reported behind the frames


class Sink:
    """Events that a transport has reported, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []
        self.transport: SocketTransport | None = None
        self.say_goodbye = False

    def link_up(self, link: int, peer: str, dialed: str | None, who: str | None = None) -> None:
        self.events.append(("up", link))

    def link_down(self, link: int, why: str) -> None:
        self.events.append(("down", link))

    def dial_failed(self, address: str, why: str) -> None:
        self.events.append(("failed", address))

    def received(self, link: int, frames: Sequence[bytes]) -> None:
        self.events += [("frame", frame) for frame in frames]
        if self.say_goodbye:
            assert self.transport is not None
            self.transport.send(link, [b"refused", b"goodbye"])
            self.transport.drop(link)


async def test_the_last_frames_of_a_link_come_before_its_end() -> None:
    background, near, far = Background(), Sink(), Sink()
    acceptor, dialer = SocketTransport("tcp://127.0.0.1:0"), SocketTransport(dial_timeout=TIMEOUT)
    far.transport, far.say_goodbye = acceptor, True
    await background.open()
    try:
        await acceptor.open(far, background.start)
        await dialer.open(near, background.start)
        for number in range(1, ROUNDS + 1):
            near.events.clear()
            dialer.dial(acceptor.addresses[0])
            await aeventually(lambda: bool(near.events))
            dialer.send(number, [b"hello"])
            await aeventually(lambda: near.events[-1][0] == "down", what=lambda: f"{near.events} end with down")
            frames = [("frame", b"refused"), ("frame", b"goodbye")]
            assert near.events == [("up", number), *frames, ("down", number)]
    finally:
        await acceptor.aclose()
        await dialer.aclose()
        await background.close(None, None, None)


async def test_an_address_without_a_listener_fails() -> None:
    background, near = Background(), Sink()
    dialer = SocketTransport(dial_timeout=0.1)
    await background.open()
    try:
        await dialer.open(near, background.start)
        dialer.dial("tcp://127.0.0.1:1")
        await aeventually(lambda: bool(near.events))
        assert near.events == [("failed", "tcp://127.0.0.1:1")]
        await trio.lowlevel.checkpoint()
    finally:
        await dialer.aclose()
        await background.close(None, None, None)


async def test_the_time_for_a_connection_begins_when_its_name_has_been_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered, look_up = threading.Event(), socket.getaddrinfo

    def slow(host: Any, *arguments: Any, **options: Any) -> Any:
        if host != "slow.test":
            return look_up(host, *arguments, **options)
        answered.wait(TIMEOUT)
        return look_up("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    background, near, far = Background(), Sink(), Sink()
    acceptor, dialer = SocketTransport("tcp://127.0.0.1:0"), SocketTransport(dial_timeout=0.2)
    await background.open()
    try:
        await acceptor.open(far, background.start)
        await dialer.open(near, background.start)
        dialer.dial(acceptor.addresses[0].replace("127.0.0.1", "slow.test"))
        await trio.sleep(0.3)
        assert not near.events
        answered.set()
        await aeventually(lambda: bool(near.events))
        assert near.events == [("up", 1)]
    finally:
        answered.set()
        await acceptor.aclose()
        await dialer.aclose()
        await background.close(None, None, None)
