"""Closing a ws stream listener leaves its pending accept pending.

pynng 0.9.0 (NNG 1.11.0). A program that waits for the accept before it frees the listener waits for ever.
Expected: the accept ends with NNG_ECLOSED, as on tcp.
Observed: it is still pending; nng_aio_abort ends it.
"""

import time

from _harness import done, error_of, listener_at, new_aio
from pynng import lib

found = {}
for url in ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/x"):
    listener, _ = listener_at(url)
    aio = new_aio()
    lib.nng_stream_listener_accept(listener, aio)
    lib.nng_stream_listener_close(listener)
    time.sleep(0.3)
    pending = bool(lib.nng_aio_busy(aio))
    lib.nng_aio_abort(aio, lib.NNG_ECANCELED)
    lib.nng_aio_wait(aio)
    found[url.partition(":")[0]] = pending, error_of(lib.nng_aio_result(aio))
results = (f"{scheme} pending {pending}, after an abort: {result}" for scheme, (pending, result) in found.items())
done(f"accept after the close of its listener: {'; '.join(results)}", found["ws"][0] and not found["tcp"][0])
