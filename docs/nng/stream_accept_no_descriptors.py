"""A pending accept of a stream ends with an error when the process has no descriptors left.

pynng 0.9.0 (NNG 1.11.0). By design; a listener that does not post again accepts nothing more, ever.
Expected: wrappers allow for it; NNG's own listeners try again later.
Observed: result 21 (NNG_ENOFILES); a second accept, posted once there are descriptors, gets the same connection.
"""

import contextlib
import os
import resource
import signal
import socket

from pynng import ffi, lib

signal.alarm(30)  # ends a run that hangs


def new_aio():
    slot = ffi.new("nng_aio **")
    assert not lib.nng_aio_alloc(slot, ffi.NULL, ffi.NULL)
    return slot[0]


listener, port = ffi.new("nng_stream_listener **"), ffi.new("int *")
assert not lib.nng_stream_listener_alloc(listener, b"tcp://127.0.0.1:0")
assert not lib.nng_stream_listener_listen(listener[0])
assert not lib.nng_stream_listener_get_int(listener[0], b"tcp-bound-port", port)
client = socket.socket()
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
kept = []
with contextlib.suppress(OSError):
    while True:
        kept.append(os.open("/dev/null", os.O_RDONLY))
aio, results = new_aio(), []
lib.nng_stream_listener_accept(listener[0], aio)
client.connect(("127.0.0.1", port[0]))
lib.nng_aio_wait(aio)
results.append(lib.nng_aio_result(aio))
for descriptor in kept:
    os.close(descriptor)
lib.nng_stream_listener_accept(listener[0], aio)
lib.nng_aio_wait(aio)
results.append(lib.nng_aio_result(aio))
print(f"accept without descriptors: {results[0]}; posted again with some: {results[1]}", flush=True)
os._exit(0 if results == [lib.NNG_ENOFILES, 0] else 1)  # not sys.exit: NNG's cleanup at exit may hang
