"""Posting an aio that is pending aborts the process, or loses the completion.

pynng 0.9.0 (NNG 1.11.0).
Expected: an error, and the first operation continues.
Observed: nng_sleep_aio posted twice: the process ends by SIGABRT. A receive on a stream posted twice: data arrives, and
the aio is pending for ever.
"""

import os
import time

from _harness import CHILD, child, connected, done, failed, new_aio, post
from pynng import ffi, lib


def receive(times):
    """Post a receive `times` times, send data; return whether it is still pending half a second later."""
    one, other = connected()
    aio, sending, buffer, data = new_aio(), new_aio(), ffi.new("char[]", 100), ffi.new("char[]", 50)
    for _ in range(times):
        post(lib.nng_stream_recv, one, aio, buffer, 100)
    post(lib.nng_stream_send, other, sending, data, 50)
    lib.nng_aio_wait(sending)
    time.sleep(0.5)
    return bool(lib.nng_aio_busy(aio))


if CHILD is not None:
    aio = new_aio()
    for _ in range(2):
        lib.nng_sleep_aio(1000, aio)
    os._exit(0)

code, _ = child()
once, twice = receive(1), receive(2)
found = f"a sleep posted twice: exit code {code}; a receive still pending: posted once {once}, twice {twice}"
done(found, failed(code) and twice and not once)
