"""Aborting the accept of a TLS stream listener that has just been closed ends the process.

pynng 0.9.0 (NNG 1.11.0). An accept is posted, the listener is closed, and the accept is aborted at once.
Expected: the accept ends with NNG_ECLOSED.
Observed: the process ends by a signal, as the abort uses a connection that the close has freed (`tls_conn_cancel`
beside `tls_conn_cb`). By chance; argument: SECONDS to try for (60).
"""

from _harness import race, tls_config
from pynng import ffi, lib

CONFIG = tls_config(lib.NNG_TLS_MODE_SERVER)


def listen_and_close(aio):
    listener = ffi.new("nng_stream_listener **")
    assert not lib.nng_stream_listener_alloc(listener, b"tls+tcp://127.0.0.1:0")
    assert not lib.nng_stream_listener_set_ptr(listener[0], b"tls-config", CONFIG)
    assert not lib.nng_stream_listener_listen(listener[0])
    lib.nng_stream_listener_accept(listener[0], aio)
    lib.nng_stream_listener_close(listener[0])
    lib.nng_aio_abort(aio, lib.NNG_ECLOSED)
    lib.nng_aio_wait(aio)
    lib.nng_stream_listener_free(listener[0])


race(listen_and_close, threads=6)
