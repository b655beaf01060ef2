"""A TLS stream whose peer leaves while no receive is posted never notices it.

pynng 0.9.0 (NNG 1.11.0). The peer ends its connection without close_notify, as NNG itself does; the receive is posted
after that.
Expected: the receive ends with an error, as on tcp.
Observed: it is pending for ever.
"""

import socket
import ssl
import time

from _harness import CERT, done, listener_at, new_aio, post, stream_of
from pynng import ffi, lib

listener, url = listener_at("tls+tcp://127.0.0.1:0")
context = ssl.create_default_context(cadata=CERT.decode())
pending = {}
for receive in ("posted before", "posted after"):
    accepting, aio, buffer = new_aio(), new_aio(), ffi.new("char[]", 100)
    lib.nng_stream_listener_accept(listener, accepting)
    plain = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
    stream = stream_of(accepting)
    post(lib.nng_stream_recv, stream, aio, buffer, 100)
    peer = context.wrap_socket(plain, server_hostname="localhost")
    peer.sendall(b"hello")
    lib.nng_aio_wait(aio)
    if receive == "posted before":
        post(lib.nng_stream_recv, stream, aio, buffer, 100)
    peer.close()
    time.sleep(0.3)
    if receive == "posted after":
        post(lib.nng_stream_recv, stream, aio, buffer, 100)
    time.sleep(1)
    pending[receive] = bool(lib.nng_aio_busy(aio))
found = ", ".join(f"{how}: pending {still}" for how, still in pending.items())
done(f"a second after the peer left, receive {found}", pending == {"posted before": False, "posted after": True})
