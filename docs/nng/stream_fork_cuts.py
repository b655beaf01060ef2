"""nng_stream_close in a forked child cuts the parent's connection.

pynng 0.9.0 (NNG 1.11.0). It calls shutdown, which works on the connection and not on the descriptor.
Expected: wrappers allow for it: a child must not touch the streams of its parent.
Observed: the other end receives the end of the stream.
"""

import os
import signal
import time

from pynng import ffi, lib

signal.alarm(30)  # ends a run that hangs


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
aio, buffer = new_aio(), ffi.new("char[]", 100)
post(lib.nng_stream_recv, other, aio, buffer, 100)
if not (child := os.fork()):
    signal.alarm(3)
    os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
    lib.nng_stream_close(one)
    os._exit(0)
_, status = os.waitpid(child, 0)
time.sleep(0.2)
pending, result = lib.nng_aio_busy(aio), lib.nng_aio_result(aio)
print(f"child ended with {os.waitstatus_to_exitcode(status)}; the other end's receive: ", end="")
print("pending" if pending else ffi.string(lib.nng_strerror(result)).decode(), flush=True)
os._exit(0 if not pending and result else 1)  # not sys.exit: NNG's cleanup at exit may hang
