"""A send on a TLS stream takes the first buffer only, and 16 KiB of it at most.

pynng 0.9.0 (NNG 1.11.0). By design: a send of a stream may be partial. On tcp the same send takes all buffers.
Expected: wrappers allow for it: look at nng_aio_count.
Observed: the counts below.
"""

from _harness import connected, done, new_aio, post
from pynng import ffi, lib

server, client = connected("tls+tcp://127.0.0.1:0")
receiving, sending, buffer, data = new_aio(), new_aio(), ffi.new("char[]", 100), ffi.new("char[]", 100_000)
post(lib.nng_stream_recv, server, receiving, buffer, 100)
counts = {}
for sizes in ((8, 1000), (100_000,)):
    iov = ffi.new("nng_iov[]", [{"iov_buf": data, "iov_len": size} for size in sizes])
    assert not lib.nng_aio_set_iov(sending, len(sizes), iov)
    lib.nng_stream_send(client, sending)
    lib.nng_aio_wait(sending)
    counts[sizes] = lib.nng_aio_count(sending)
found = "; ".join(f"buffers of {sizes} bytes: {count} sent" for sizes, count in counts.items())
done(found, counts[(8, 1000)] == 8 and counts[(100_000,)] < 100_000)
