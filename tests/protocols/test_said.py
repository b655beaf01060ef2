"""What a socket says about why nothing comes: in the text of TimedOut, and once in its log."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

import pytest
import trio

from nngkit.errors import TimedOut
from nngkit.protocols import Pub, Pull, Rep, Req, Sub, pubsub

ANY = "tcp://127.0.0.1:0"
WAIT = 10.0


def test_a_sub_without_topics_says_so_when_the_time_is_over() -> None:
    with Sub(listen=ANY) as sub:
        with pytest.raises(TimedOut, match="it has no topics: subscribe to b'' to receive everything"):
            sub.recv(0.01)
        with pytest.raises(TimedOut, match="it has no topics"):
            trio.run(sub.arecv, 0.01)
        sub.subscribe("a")
        with pytest.raises(TimedOut, match=r"nothing received in 0.01 s$"):
            sub.recv(0.01)
    with Pull(listen=ANY) as pull, pytest.raises(TimedOut, match=r"nothing received in 0.01 s$"):
        pull.recv(0.01)


class Told(logging.Handler):
    """What was logged; `wait` for it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._come = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self._come.set()

    def wait(self) -> bool:
        return self._come.wait(WAIT)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    handler, log = Told(), logging.getLogger("nngkit.protocols")
    monkeypatch.setattr(pubsub, "UNHEARD", 0.0)
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def test_a_sub_without_topics_says_once_that_it_drops_what_comes(told: Told) -> None:
    with Pub(listen=ANY) as pub, Sub(dial=pub.address) as sub:
        pub.wait_for_peers(1, WAIT)
        pub.send(b"one")
        assert told.wait()
        sub.subscribe(b"")
        pub.send(b"two")
        assert sub.recv(WAIT) == b"two"
        sub.unsubscribe(b"")
        pub.send(b"three")
        sub.subscribe(b"f")
        pub.send(b"four")
        assert sub.recv(WAIT) == b"four"
    assert len(told.lines) == 1
    assert "drops received messages: it has no topics; subscribe to b'' to receive everything" in told.lines[0]


def test_a_sub_that_has_had_a_topic_says_nothing(told: Told) -> None:
    with Pub(listen=ANY) as pub, Sub(dial=pub.address, topics="a") as sub:
        pub.wait_for_peers(1, WAIT)
        sub.unsubscribe("a")
        pub.send_many([b"a", b"b"])
        sub.subscribe(b"z")
        pub.send(b"z")
        assert sub.recv(WAIT) == b"z"
    assert told.lines == []


def once_cut(req: Req) -> None:
    """Wait until its connection was cut: it dials again and again."""
    for _ in range(100):
        if req.cuts:
            return
        with contextlib.suppress(TimedOut):
            req.wait_for_peers(2, 0.05)
    raise AssertionError("nothing was cut")


@pytest.mark.parametrize(
    "ask",
    [
        lambda req: req.request(b"?", timeout=0.05),
        lambda req: trio.run(req.arequest, b"?", 0.05),
        lambda req: req.wait_for_peers(1, 0.05),
        lambda req: trio.run(req.await_for_peers, 1, 0.05),
    ],
    ids=["request", "arequest", "wait_for_peers", "await_for_peers"],
)
def test_a_req_that_dials_a_pub_names_what_it_met(ask: Callable[[Req], object]) -> None:
    with Pub(listen=ANY) as pub, Req(dial=pub.address) as req:
        once_cut(req)
        with pytest.raises(TimedOut, match=rf"in 0.05 s; {pub.address} was cut: bad hello: pub instead of rep$"):
            ask(req)


def test_a_reply_that_is_late_has_nothing_to_do_with_a_connection_that_was_cut() -> None:
    with Pub(listen=ANY) as pub, Rep(listen=ANY) as rep, Req(dial=[pub.address, rep.address]) as req:
        once_cut(req)
        req.wait_for_peers(1, WAIT)
        with pytest.raises(TimedOut, match=r"no reply in 0.05 s$"):
            req.request(b"?", timeout=0.05)
