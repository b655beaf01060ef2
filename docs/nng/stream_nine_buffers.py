"""An operation takes 8 buffers; with more, the previous ones are used again.

pynng 0.9.0 (NNG 1.11.0). `nng_aio_set_iov` copies the buffers to an array of 8 in the operation, and fails beyond.
Expected: a documented limit; an operation without valid buffers fails.
Observed: nng_aio_set_iov returns NNG_EINVAL, and the next send sends the buffers of the one before again.
"""

import os
import signal
import socket

from pynng import ffi, lib

signal.alarm(30)  # ends a run that hangs


def new_aio():
    slot = ffi.new("nng_aio **")
    assert not lib.nng_aio_alloc(slot, ffi.NULL, ffi.NULL)
    return slot[0]


peer = socket.create_server(("127.0.0.1", 0))
dialer, aio = ffi.new("nng_stream_dialer **"), new_aio()
assert not lib.nng_stream_dialer_alloc(dialer, f"tcp://127.0.0.1:{peer.getsockname()[1]}".encode())
lib.nng_stream_dialer_dial(dialer[0], aio)
lib.nng_aio_wait(aio)
assert not lib.nng_aio_result(aio)
stream = ffi.cast("nng_stream *", lib.nng_aio_get_output(aio, 0))
accepted = peer.accept()[0]
accepted.settimeout(5)
first, second = ffi.new("char[]", b"first"), ffi.new("char[]", b"second")
codes = []
for text, count in ((first, 8), (second, 9)):
    iov = ffi.new("nng_iov[]", [{"iov_buf": text, "iov_len": len(text) - 1}] * count)
    codes.append(lib.nng_aio_set_iov(aio, count, iov))
    lib.nng_stream_send(stream, aio)
    lib.nng_aio_wait(aio)
received = b""
while len(received) < 80:
    received += accepted.recv(80 - len(received))
again = received == 16 * b"first"
print(f"8 buffers: result {codes[0]}; 9: {codes[1]}, and then the first ones are sent again: {again}", flush=True)
os._exit(0 if codes == [0, lib.NNG_EINVAL] and again else 1)  # not sys.exit: NNG's cleanup at exit may hang
