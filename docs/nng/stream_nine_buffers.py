"""An operation takes 8 buffers; with more, the previous ones are used again.

pynng 0.9.0 (NNG 1.11.0). `nng_aio_set_iov` copies the buffers to an array of 8 in the operation, and fails beyond.
Expected: a documented limit; an operation without valid buffers fails.
Observed: nng_aio_set_iov returns NNG_EINVAL, and the next send sends the buffers of the one before again.
"""

import socket

from _harness import dialed, dialer_to, done, new_aio
from pynng import ffi, lib

peer = socket.create_server(("127.0.0.1", 0))
stream, aio = dialed(dialer_to(f"tcp://127.0.0.1:{peer.getsockname()[1]}")), new_aio()
accepted = peer.accept()[0]
accepted.settimeout(5)
first, second = ffi.new("char[]", b"first"), ffi.new("char[]", b"second")
codes = []
for text, count in ((first, 8), (second, 9)):
    iov = ffi.new("nng_iov[]", [{"iov_buf": text, "iov_len": len(text) - 1}] * count)
    codes.append(lib.nng_aio_set_iov(aio, count, iov))
    lib.nng_stream_send(stream, aio)
    lib.nng_aio_wait(aio)
again = accepted.recv(80, socket.MSG_WAITALL) == 16 * b"first"
found = f"8 buffers: result {codes[0]}; 9: {codes[1]}, and then the first ones are sent again: {again}"
done(found, codes == [0, lib.NNG_EINVAL] and again)
