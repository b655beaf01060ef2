"""A receive for which data is there completes before the call returns, but with a callback only on another thread.

pynng 0.9.0 (NNG 1.11.0). By design. What an operation costs depends on whether its aio has a callback.
Expected: wrappers allow for it.
Observed: without a callback the aio is not busy when nng_stream_recv returns; with one it waits for a thread of NNG's.
"""

import os
import signal
import time

from pynng import ffi, lib

signal.alarm(30)  # ends a run that hangs
COUNT = 2000


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


one, other = connected()
with_callback = ffi.new("nng_aio **")
ring = ffi.cast("void (*)(void *)", ffi.addressof(lib, "nng_aio_cancel"))  # a callback in C, so no GIL is involved
assert not lib.nng_aio_alloc(with_callback, ring, new_aio())
sending, buffer, data = new_aio(), ffi.new("char[]", 100), ffi.new("char[]", 1)
iov = ffi.new("nng_iov *", {"iov_buf": buffer, "iov_len": 1})
inline, took = {}, {}
for what, aio in (("without", new_aio()), ("with", with_callback[0])):
    inline[what], took[what] = 0, 0.0
    for _ in range(COUNT):
        post(lib.nng_stream_send, other, sending, data, 1)
        lib.nng_aio_wait(sending)
        lib.nng_aio_set_iov(aio, 1, iov)
        start = time.perf_counter()
        lib.nng_stream_recv(one, aio)
        inline[what] += not lib.nng_aio_busy(aio)
        lib.nng_aio_wait(aio)
        took[what] += time.perf_counter() - start
print(
    f"complete when the call returned: without a callback {inline['without']} of {COUNT}, "
    f"{took['without'] / COUNT * 1e6:.1f} us each; with one {inline['with']}, {took['with'] / COUNT * 1e6:.1f} us",
    flush=True,
)
os._exit(0 if inline["without"] > inline["with"] else 1)  # not sys.exit: NNG's cleanup at exit may hang
