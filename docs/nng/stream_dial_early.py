"""A dial ends successfully before its connection is there, and even if it will never be.

pynng 0.9.0 (NNG 1.11.0), on Linux. The listener's queue is full here, so the kernel drops what is sent to it.
Expected: the dial is in progress until the connection is there, or has failed.
Observed: it ends with 0 at once, and `remote-address` fails, as the socket has no peer. An unconnected socket reports
EPOLLHUP as soon as nni_posix_pfd_init adds it to the epoll; tcp_dialer_cb takes that for the end of connect(), and
SO_ERROR is still 0.
"""

import socket

from _harness import dialer_to, done, new_aio, stream_of
from pynng import ffi, lib

server = socket.create_server(("127.0.0.1", 0), backlog=0)
place = server.getsockname()
kept = [socket.create_connection(place)]
while True:  # until the queue is full
    kept.append(socket.socket())
    kept[-1].settimeout(0.1)
    try:
        kept[-1].connect(place)
    except TimeoutError:
        break

early = tries = 0
while not early and tries < 100:
    tries += 1
    dialer, aio, where = dialer_to(f"tcp://127.0.0.1:{place[1]}"), new_aio(), ffi.new("nng_sockaddr *")
    lib.nng_aio_set_timeout(aio, 100)
    lib.nng_stream_dialer_dial(dialer, aio)
    lib.nng_aio_wait(aio)
    if not lib.nng_aio_result(aio):
        early = bool(lib.nng_stream_get_addr(stream_of(aio), b"remote-address", where))
found = "ended with success, without a connection" if early else "did not end with success either"
done(f"dial {tries} {found}", early)
