"""A receive for which data is there completes before the call returns, but with a callback only on another thread.

pynng 0.9.0 (NNG 1.11.0). By design. What an operation costs depends on whether its aio has a callback.
Expected: wrappers allow for it.
Observed: without a callback the aio is not busy when nng_stream_recv returns; with one it waits for a thread of NNG's.
"""

import time

from _harness import connected, done, new_aio, post
from pynng import ffi, lib

COUNT = 2000

one, other = connected()
ring = ffi.cast("void (*)(void *)", ffi.addressof(lib, "nng_aio_cancel"))  # a callback in C, so no GIL is involved
sending, buffer, data = new_aio(), ffi.new("char[]", 100), ffi.new("char[]", 1)
iov = ffi.new("nng_iov *", {"iov_buf": buffer, "iov_len": 1})
inline, took = {}, {}
for what, aio in (("without", new_aio()), ("with", new_aio(ring, new_aio()))):
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
done(
    f"complete when the call returned: without a callback {inline['without']} of {COUNT}, "
    f"{took['without'] / COUNT * 1e6:.1f} us each; with one {inline['with']}, {took['with'] / COUNT * 1e6:.1f} us",
    inline["without"] > inline["with"],
)
