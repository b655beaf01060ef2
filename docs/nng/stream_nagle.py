"""Byte streams have Nagle's algorithm on, while the sockets of NNG have it off.

pynng 0.9.0 (NNG 1.11.0). The option `tcp-nodelay`, of listener and dialer, is false for nng_stream_*.
Expected: the same default as for sockets.
Observed: of two small writes the second may wait for the acknowledgement of the first, which the system delays where
requests and replies alternate.
"""

import os
import signal
import statistics
import time

import pynng
from pynng import ffi, lib

signal.alarm(30)  # ends a run that hangs


def new_aio():
    slot = ffi.new("nng_aio **")
    assert not lib.nng_aio_alloc(slot, ffi.NULL, ffi.NULL)
    return slot[0]


def option(get, what):
    held = ffi.new("bool *")
    assert not get(what, b"tcp-nodelay", held)
    return bool(held[0])


def pauses(nodelay):
    """Return the seconds of 20 exchanges, two small writes and a reply of one byte, and the option."""
    listener, dialer, port = ffi.new("nng_stream_listener **"), ffi.new("nng_stream_dialer **"), ffi.new("int *")
    assert not lib.nng_stream_listener_alloc(listener, b"tcp://127.0.0.1:0")
    assert not lib.nng_stream_listener_listen(listener[0])
    assert not lib.nng_stream_listener_get_int(listener[0], b"tcp-bound-port", port)
    assert not lib.nng_stream_dialer_alloc(dialer, f"tcp://127.0.0.1:{port[0]}".encode())
    if nodelay:
        assert not lib.nng_stream_dialer_set_bool(dialer[0], b"tcp-nodelay", True)
    accepting, dialing, aio = new_aio(), new_aio(), new_aio()
    lib.nng_stream_listener_accept(listener[0], accepting)
    lib.nng_stream_dialer_dial(dialer[0], dialing)
    lib.nng_aio_wait(accepting)
    lib.nng_aio_wait(dialing)
    reader, writer = (ffi.cast("nng_stream *", lib.nng_aio_get_output(aio, 0)) for aio in (accepting, dialing))
    default = option(lib.nng_stream_get_bool, writer)
    took = []
    buffer = ffi.new("char[]", 100)
    iov = ffi.new("nng_iov *", {"iov_buf": buffer, "iov_len": 1})
    for _ in range(20):
        start = time.monotonic()
        for call, stream in (
            (lib.nng_stream_send, writer),
            (lib.nng_stream_send, writer),
            (lib.nng_stream_recv, reader),
            (lib.nng_stream_recv, reader),
            (lib.nng_stream_send, reader),
            (lib.nng_stream_recv, writer),
        ):
            assert not lib.nng_aio_set_iov(aio, 1, iov)
            call(stream, aio)
            lib.nng_aio_wait(aio)
        took.append(time.monotonic() - start)
    return took, default


slow, nodelay = pauses(False)
fast, _ = pauses(True)
with pynng.Pair0() as pair:
    of_socket = pair.tcp_nodelay
print(
    f"tcp-nodelay: stream {nodelay}, socket {of_socket}; two small writes and a reply, ms: "
    f"{max(slow) * 1000:.1f} at most, median {statistics.median(slow) * 1000:.1f}; with nodelay "
    f"{max(fast) * 1000:.1f} and {statistics.median(fast) * 1000:.1f}",
    flush=True,
)
os._exit(0 if not nodelay and of_socket else 1)  # not sys.exit: NNG's cleanup at exit may hang
