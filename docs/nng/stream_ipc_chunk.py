"""A receive on a Unix socket brings 219,264 bytes at most, however large its buffer is.

pynng 0.9.0 (NNG 1.11.0), Linux. A system limit: that is what its default send buffer of a Unix socket holds.
Expected: known to programs that size buffers.
Observed: the largest of many receives into 1 MiB.
"""

import os
import signal

from pynng import ffi, lib

signal.alarm(30)  # ends a run that hangs
MIB = 1 << 20


def new_aio():
    slot = ffi.new("nng_aio **")
    assert not lib.nng_aio_alloc(slot, ffi.NULL, ffi.NULL)
    return slot[0]


def connected(url="tcp://127.0.0.1:0"):
    """Return both ends of a stream."""
    slot, port = ffi.new("nng_stream_listener **"), ffi.new("int *")
    assert not lib.nng_stream_listener_alloc(slot, url.encode())
    assert not lib.nng_stream_listener_listen(slot[0])
    if url.endswith(":0"):
        assert not lib.nng_stream_listener_get_int(slot[0], b"tcp-bound-port", port)
        url = url[:-1] + str(port[0])
    dialer = ffi.new("nng_stream_dialer **")
    assert not lib.nng_stream_dialer_alloc(dialer, url.encode())
    accepting, dialing = new_aio(), new_aio()
    lib.nng_stream_listener_accept(slot[0], accepting)
    lib.nng_stream_dialer_dial(dialer[0], dialing)
    streams = []
    for aio in (accepting, dialing):
        lib.nng_aio_wait(aio)
        assert not lib.nng_aio_result(aio)
        streams.append(ffi.cast("nng_stream *", lib.nng_aio_get_output(aio, 0)))
    return streams


def post(call, stream, aio, buffer, size):
    """Post a receive into, or a send from, `buffer`."""
    iov = ffi.new("nng_iov *", {"iov_buf": buffer, "iov_len": size})
    assert not lib.nng_aio_set_iov(aio, 1, iov)
    call(stream, aio)


url = f"abstract://nng-{os.getpid()}"
one, other = connected(url)
sending, receiving, data, buffer = new_aio(), new_aio(), ffi.new("char[]", MIB), ffi.new("char[]", MIB)
largest = 0
for _ in range(200):
    if not lib.nng_aio_busy(sending):
        post(lib.nng_stream_send, other, sending, data, MIB)
    post(lib.nng_stream_recv, one, receiving, buffer, MIB)
    lib.nng_aio_wait(receiving)
    largest = max(largest, lib.nng_aio_count(receiving))
print(f"the largest of 200 receives into {MIB} bytes: {largest}", flush=True)
os._exit(0 if largest < MIB else 1)  # not sys.exit: NNG's cleanup at exit may hang
