"""Closing wss without being aborted: NNG 1.11 frees the HTTP server or client behind it while it is still at work.

Measured on bare pynng: a wss listener opened and closed, without any connection, aborts the process about once in a
thousand times on a busy machine; with a second reference to the server, held over the close, never in 24,000. A stream
listener that is allocated and not started is such a reference. It is given back a second later, when something else
is closed, or never.

A dialler that is closed just when a try to connect comes to its end aborts the process, too. So one that is not
connected is told to wait for a day before its next try, and is closed when the one that may be under way is over.

May not know: sockets.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from ._nng import ffi, lib

PAUSE = 86_400_000  # ms, a day between two tries
TRY = 0.02  # seconds that a try to connect takes where it is answered; one that is not comes to no end then
LONGEST = 0.25  # seconds waited at most: with longer pauses between tries, one is seldom under way
HOLD = 1.0  # seconds; the accept that is late is so by microseconds, on a machine that stands still by more

_lock = threading.Lock()
_held: deque[tuple[float, Any]] = deque()


def calm(diallers: Iterable[Any], pause: float) -> float:
    """Have the pynng diallers try no more; seconds until the last try is over. ``pause``: between tries so far."""
    for dialler in diallers:
        for option in (b"reconnect-time-max", b"reconnect-time-min"):
            lib.nng_dialer_set_ms(dialler.dialer, option, PAUSE)
    return min(pause, LONGEST) + TRY


def hold(served: Iterable[str]) -> None:
    """Before closing a socket: keep the servers behind its wss listeners for a second.

    ``served``: their URLs with the host as NNG was told and the port it bound. NNG finds a server by both, and makes
    one where it finds none: that one, never started, would be the next listener's with the same host and port.
    """
    references = [one for address in served for one in _reference(address)]
    if not references:
        return
    now = time.monotonic()
    with _lock:
        _held.extend((now, reference) for reference in references)
        while now - _held[0][0] > HOLD:
            lib.nng_stream_listener_free(_held.popleft()[1])


def _reference(address: str) -> list[Any]:
    slot = ffi.new("nng_stream_listener **")
    return [] if lib.nng_stream_listener_alloc(slot, address.encode()) else [slot[0]]
