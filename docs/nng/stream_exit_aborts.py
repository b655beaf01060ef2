"""An interpreter that exits while byte streams carry data is aborted.

pynng 0.9.0 (NNG 1.11.0). pynng registers nng_fini with atexit; the callbacks of receives and sends post the next ones.
Expected: the process ends with its own exit code.
Observed: "panic: pthread_mutex_lock: Invalid argument" and SIGABRT. Closing the streams in an atexit hook that was
registered after pynng's avoids it.
"""

import atexit
import signal
import subprocess
import sys
import threading
import time

from pynng import ffi, lib

signal.alarm(60)  # ends a run that hangs


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


SIZE = 100_000
lock, closed, ended, callbacks = threading.Lock(), False, [], {}


@ffi.callback("void (*)(void *)")
def completed(number):
    callbacks[int(ffi.cast("uintptr_t", number))]()


def endless(number, call, stream):
    """Post a receive or a send again and again, until it fails or the streams are closed."""
    slot, buffer = ffi.new("nng_aio **"), ffi.new("char[]", SIZE)
    assert not lib.nng_aio_alloc(slot, completed, ffi.cast("void *", number))

    def again():
        with lock:
            if closed or lib.nng_aio_result(slot[0]):
                ended.append(number)
            else:
                post(call, stream, slot[0], buffer, SIZE)

    callbacks[number] = again
    post(call, stream, slot[0], buffer, SIZE)


def close(streams):
    """Close and free the streams, and wait until both callbacks have come for the last time."""
    global closed
    with lock:
        closed = True
    for stream in streams:
        lib.nng_stream_close(stream)
        lib.nng_stream_free(stream)
    while len(ended) < 2:
        time.sleep(0.001)


if len(sys.argv) > 2 and sys.argv[1] == "child":
    signal.alarm(5)
    one, other = connected()
    endless(1, lib.nng_stream_recv, one)
    endless(2, lib.nng_stream_send, other)
    if sys.argv[2] == "closed":
        atexit.register(close, (one, other))
    time.sleep(0.1)
    sys.exit(0)

found = {}
for how in ("open", "closed"):
    child = [sys.executable, __file__, "child", how]
    found[how] = [subprocess.run(child, check=False, stderr=subprocess.DEVNULL).returncode for _ in range(5)]
print(f"exit codes with streams open: {found['open']}; closed by an atexit hook: {found['closed']}")
sys.exit(0 if min(found["open"]) < 0 else 1)
