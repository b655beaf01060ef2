"""Closing a ws stream listener leaves its pending accept pending.

pynng 0.9.0 (NNG 1.11.0). A program that waits for the accept before it frees the listener waits for ever.
Expected: the accept ends with NNG_ECLOSED, as on tcp.
Observed: it is still pending; nng_aio_abort ends it.
"""

import os
import signal
import time

from pynng import ffi, lib

signal.alarm(30)  # ends a run that hangs
found = {}
for url in ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/x"):
    listener, slot = ffi.new("nng_stream_listener **"), ffi.new("nng_aio **")
    assert not lib.nng_stream_listener_alloc(listener, url.encode())
    assert not lib.nng_stream_listener_listen(listener[0])
    assert not lib.nng_aio_alloc(slot, ffi.NULL, ffi.NULL)
    aio = slot[0]
    lib.nng_stream_listener_accept(listener[0], aio)
    lib.nng_stream_listener_close(listener[0])
    time.sleep(0.3)
    pending = bool(lib.nng_aio_busy(aio))
    lib.nng_aio_abort(aio, lib.NNG_ECANCELED)
    lib.nng_aio_wait(aio)
    found[url[: url.index(":")]] = pending, ffi.string(lib.nng_strerror(lib.nng_aio_result(aio))).decode()
results = (f"{scheme} pending {pending}, after an abort: {result}" for scheme, (pending, result) in found.items())
print("accept after the close of its listener: " + "; ".join(results), flush=True)
os._exit(0 if found["ws"][0] and not found["tcp"][0] else 1)  # not sys.exit: NNG's cleanup at exit may hang
