"""Explanations of why nothing is received: in the text of TimedOut, and once in the log."""

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


def test_a_timeout_of_a_sub_without_topics_names_the_cause() -> None:
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


class LogLines(logging.Handler):
    """Collects log lines; `wait` for the next one."""

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
def log_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[LogLines]:
    handler, log = LogLines(), logging.getLogger("nngkit.protocols")
    monkeypatch.setattr(pubsub, "UNHEARD", 0.0)
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def test_a_sub_without_topics_logs_once_that_it_drops_messages(log_lines: LogLines) -> None:
    with Pub(listen=ANY) as pub, Sub(dial=pub.address) as sub:
        pub.wait_for_peers(1, WAIT)
        pub.send(b"one")
        assert log_lines.wait()
        sub.subscribe(b"")
        pub.send(b"two")
        assert sub.recv(WAIT) == b"two"
        sub.unsubscribe(b"")
        pub.send(b"three")
        sub.subscribe(b"f")
        pub.send(b"four")
        assert sub.recv(WAIT) == b"four"
    assert len(log_lines.lines) == 1
    assert "drops received messages: it has no topics; subscribe to b'' to receive everything" in log_lines.lines[0]


def test_a_sub_that_had_a_topic_logs_nothing(log_lines: LogLines) -> None:
    with Pub(listen=ANY) as pub, Sub(dial=pub.address, topics="a") as sub:
        pub.wait_for_peers(1, WAIT)
        sub.unsubscribe("a")
        pub.send_many([b"a", b"b"])
        sub.subscribe(b"z")
        pub.send(b"z")
        assert sub.recv(WAIT) == b"z"
    assert log_lines.lines == []


def once_cut(req: Req) -> None:
    """Wait until its connection was cut; it dials repeatedly."""
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
def test_the_timeout_of_a_req_that_dials_a_pub_names_the_pub(ask: Callable[[Req], object]) -> None:
    with Pub(listen=ANY) as pub, Req(dial=pub.address) as req:
        once_cut(req)
        with pytest.raises(TimedOut, match=rf"in 0.05 s; {pub.address} was cut: bad hello: pub instead of rep$"):
            ask(req)


def test_the_timeout_of_a_late_reply_does_not_name_a_cut_connection() -> None:
    with Pub(listen=ANY) as pub, Rep(listen=ANY) as rep, Req(dial=[pub.address, rep.address]) as req:
        once_cut(req)
        req.wait_for_peers(1, WAIT)
        with pytest.raises(TimedOut, match=r"no reply in 0.05 s$"):
            req.request(b"?", timeout=0.05)
