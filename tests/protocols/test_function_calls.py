"""Function calls of a request, at each end: unlike its time, they do not depend on the machine or its load."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from nngkit.protocols import Rep, Req
from nngkit.testing import Background
from tests.protocols.wires import WAIT

REQUESTS = 200
MOST = 40  # Python's and C's, of one request: 170 when each message passed by the machine, the inbox and the queues


def calls(function: Callable[[], object]) -> float:
    """Return how many functions are called by one of REQUESTS calls of `function`, which is not counted."""
    counted: Counter[str] = Counter()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            counted[argument.__qualname__ if event == "c_call" else frame.f_code.co_qualname] += 1

    for _ in range(REQUESTS // 10):
        function()
    sys.setprofile(note)
    try:
        for _ in range(REQUESTS):
            function()
    finally:
        sys.setprofile(None)
    return sum(counted.values()) / REQUESTS - 1


@pytest.mark.parametrize("scheme", ["tcp://127.0.0.1:0", "abstract://"])
def test_a_request_of_a_thread_takes_few_function_calls(scheme: str) -> None:
    with Rep(listen=scheme) as rep, Req(dial=rep.address) as req:

        def serve() -> None:
            for request in rep:
                request.reply(request.body)

        server = Background(serve)
        assert calls(lambda: req.request(b"x" * 16, timeout=WAIT)) <= MOST
        rep.close()
        server.result()


@pytest.mark.parametrize("scheme", ["tcp://127.0.0.1:0", "abstract://"])
def test_a_reply_of_a_thread_takes_few_function_calls(scheme: str) -> None:
    with Rep(listen=scheme) as rep, Req(dial=rep.address) as req:
        total = REQUESTS + REQUESTS // 10
        client = Background(lambda: [req.request(b"x" * 16, timeout=WAIT) for _ in range(total)])
        assert calls(lambda: rep.recv(timeout=WAIT).reply(b"x" * 16)) <= MOST
        assert len(client.result()) == total
