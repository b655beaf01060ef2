"""Raw peers and large messages for the tests of queues."""

import time
from collections.abc import Callable
from itertools import count
from typing import Any

TCP = "tcp://127.0.0.1:0"
LARGE = b"x" * 65536
MANY = 400  # times LARGE is more than the network's buffers take (about 10 of them here)


def numbered(number: int, body: bytes = b"") -> bytes:
    return b"%06d" % number + body


def number(message: bytes) -> int:
    return int(message[:6])


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
