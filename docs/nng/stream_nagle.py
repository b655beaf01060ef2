"""Byte streams have Nagle's algorithm on, while the sockets of NNG have it off.

pynng 0.9.0 (NNG 1.11.0). The option `tcp-nodelay`, of listener and dialer, is false for nng_stream_*.
Expected: the same default as for sockets.
Observed: of two small writes the second may wait for the acknowledgement of the first, which the system delays where
requests and replies alternate.
"""

import statistics
import time

import pynng
from _harness import connected, dialer_to, done, new_aio, post
from pynng import ffi, lib


def without_nagle(url):
    dialer = dialer_to(url)
    assert not lib.nng_stream_dialer_set_bool(dialer, b"tcp-nodelay", True)
    return dialer


def milliseconds(dialer):
    """Return the time of 20 exchanges, two small writes and a reply of one byte, and the stream's option."""
    reader, writer = connected(dialer=dialer)
    option, aio, buffer = ffi.new("bool *"), new_aio(), ffi.new("char[]", 100)
    assert not lib.nng_stream_get_bool(writer, b"tcp-nodelay", option)
    took = []
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
            post(call, stream, aio, buffer, 1)
            lib.nng_aio_wait(aio)
        took.append((time.monotonic() - start) * 1000)
    return took, bool(option[0])


slow, nodelay = milliseconds(dialer_to)
fast, _ = milliseconds(without_nagle)
with pynng.Pair0() as pair:
    of_socket = pair.tcp_nodelay
done(
    f"tcp-nodelay: stream {nodelay}, socket {of_socket}; two small writes and a reply, ms: "
    f"{max(slow):.1f} at most, median {statistics.median(slow):.1f}; with nodelay "
    f"{max(fast):.1f} and {statistics.median(fast):.1f}",
    not nodelay and of_socket,
)
