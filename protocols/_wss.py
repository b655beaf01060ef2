"""Closing a wss listener without being aborted: NNG 1.11 frees the HTTP server behind it while an accept still runs.

Measured on bare pynng: a wss listener opened and closed, without any connection, aborts the process about once in a
thousand times on a busy machine; with a second reference to the server, held over the close, never in 24,000. A stream
listener that is allocated and not started is such a reference. It is given back a second later, when something else
is closed, or never.

May not know: sockets.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from ._nng import ffi, lib

HOLD = 1.0  # seconds; the accept that is late is so by microseconds, on a machine that stands still by more

_lock = threading.Lock()
_held: deque[tuple[float, Any]] = deque()


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
