"""Aborting the accept of a TLS stream listener that has just been closed ends the process.

pynng 0.9.0 (NNG 1.11.0). An accept is posted, the listener is closed, and the accept is aborted at once.
Expected: the accept ends with NNG_ECLOSED.
Observed: the process ends by a signal, as the abort uses a connection that the close has freed (`tls_conn_cancel`
beside `tls_conn_cb`). By chance; argument: SECONDS to try for (60).
"""

import os
import threading
import time

from _harness import CHILD, child, done, failed, new_aio, seconds_to_try, tls_config
from pynng import ffi, lib

THREADS = 6


def listen_and_close(end, config):
    aio, listener = new_aio(), ffi.new("nng_stream_listener **")
    while time.monotonic() < end:
        assert not lib.nng_stream_listener_alloc(listener, b"tls+tcp://127.0.0.1:0")
        assert not lib.nng_stream_listener_set_ptr(listener[0], b"tls-config", config)
        assert not lib.nng_stream_listener_listen(listener[0])
        lib.nng_stream_listener_accept(listener[0], aio)
        lib.nng_stream_listener_close(listener[0])
        lib.nng_aio_abort(aio, lib.NNG_ECLOSED)
        lib.nng_aio_wait(aio)
        lib.nng_stream_listener_free(listener[0])


if CHILD:
    config, end = tls_config(lib.NNG_TLS_MODE_SERVER), time.monotonic() + float(CHILD[0])
    threads = [threading.Thread(target=listen_and_close, args=(end, config)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)

end = time.monotonic() + seconds_to_try(60.0)
runs = code = 0
while not code and (left := end - time.monotonic()) > 0:
    runs += 1
    code, _ = child(min(5.0, left), perturb=True)
done(f"runs: {runs}; the last one ended with {code}", failed(code))
