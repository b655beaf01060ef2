"""Posting an aio that is pending aborts the process, or loses the completion.

pynng 0.9.0 (NNG 1.11.0).
Expected: an error, and the first operation continues.
Observed: nng_sleep_aio posted twice: the process ends by SIGABRT. A receive on a stream posted twice: data arrives, and
the aio is pending for ever.
"""

import os
import signal
import subprocess
import sys
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


def receive(times):
    """Post a receive `times` times, send data; return whether it is still pending half a second later."""
    one, other = connected()
    aio, sending, buffer, data = new_aio(), new_aio(), ffi.new("char[]", 100), ffi.new("char[]", 50)
    for _ in range(times):
        post(lib.nng_stream_recv, one, aio, buffer, 100)
    post(lib.nng_stream_send, other, sending, data, 50)
    lib.nng_aio_wait(sending)
    time.sleep(0.5)
    return bool(lib.nng_aio_busy(aio))


if len(sys.argv) > 1 and sys.argv[1] == "child":
    aio = new_aio()
    for _ in range(2):
        lib.nng_sleep_aio(1000, aio)
    os._exit(0)

code = subprocess.run([sys.executable, __file__, "child"], check=False, stderr=subprocess.DEVNULL).returncode
once, twice = receive(1), receive(2)
print(f"a sleep posted twice: exit code {code}; a receive still pending: posted once {once}, twice {twice}", flush=True)
os._exit(0 if code < 0 and twice and not once else 1)  # not sys.exit: NNG's cleanup at exit may hang
