"""A receive on a Unix socket brings 219,264 bytes at most, however large its buffer is.

pynng 0.9.0 (NNG 1.11.0), Linux. A system limit: that is what its default send buffer of a Unix socket holds.
Expected: known to programs that size buffers.
Observed: the largest of many receives into 1 MiB.
"""

import os

from _harness import connected, done, new_aio, post
from pynng import ffi, lib

MIB = 1 << 20

one, other = connected(f"abstract://nng-{os.getpid()}")
sending, receiving, data, buffer = new_aio(), new_aio(), ffi.new("char[]", MIB), ffi.new("char[]", MIB)
largest = 0
for _ in range(200):
    if not lib.nng_aio_busy(sending):
        post(lib.nng_stream_send, other, sending, data, MIB)
    post(lib.nng_stream_recv, one, receiving, buffer, MIB)
    lib.nng_aio_wait(receiving)
    largest = max(largest, lib.nng_aio_count(receiving))
done(f"the largest of 200 receives into {MIB} bytes: {largest}", largest < MIB)
