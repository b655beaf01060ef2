"""After a receive was cancelled, a TLS stream delivers nothing more.

pynng 0.9.0 (NNG 1.11.0). No data is there when a receive is posted and cancelled; it ends. Then another one is posted,
and the peer sends.
Expected: the second receive brings the data, as on tcp.
Observed: it is still pending a second later.
"""

import time

from _harness import connected, done, new_aio, post
from pynng import ffi, lib


def rounds(scheme):
    """Return after how many of 50 rounds the stream delivered nothing."""
    server, client = connected(f"{scheme}://127.0.0.1:0")
    buffer, data = ffi.new("char[]", 100), ffi.new("char[]", 1)
    receiving, sending, cancelled = new_aio(), new_aio(), new_aio()
    post(lib.nng_stream_recv, server, receiving, buffer, 100)
    post(lib.nng_stream_send, client, sending, data, 1)
    lib.nng_aio_wait(receiving)  # the handshake is over
    for number in range(50):
        time.sleep(0.01)
        post(lib.nng_stream_recv, server, cancelled, buffer, 100)
        lib.nng_aio_cancel(cancelled)
        lib.nng_aio_wait(cancelled)
        post(lib.nng_stream_recv, server, receiving, buffer, 100)
        post(lib.nng_stream_send, client, sending, data, 1)
        deadline = time.monotonic() + 1
        while lib.nng_aio_busy(receiving):
            if time.monotonic() > deadline:
                return number
            time.sleep(0.001)
    return 50


found = {scheme: rounds(scheme) for scheme in ("tls+tcp", "tcp")}
counts = ", ".join(f"{scheme} {number} of 50" for scheme, number in found.items())
done(f"rounds until nothing was received: {counts}", found["tls+tcp"] < 50 == found["tcp"])
