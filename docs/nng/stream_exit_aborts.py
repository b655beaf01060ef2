"""An interpreter that exits while byte streams carry data is aborted.

pynng 0.9.0 (NNG 1.11.0). pynng registers nng_fini with atexit; the callbacks of receives and sends post the next ones.
Expected: the process ends with its own exit code.
Observed: "panic: pthread_mutex_lock: Invalid argument" and SIGABRT. Closing the streams in an atexit hook that was
registered after pynng's avoids it.
"""

import atexit
import signal
import sys
import threading
import time

from _harness import CHILD, child, connected, done, failed, new_aio, post
from pynng import ffi, lib

SIZE = 100_000
lock, closed, ended, callbacks = threading.Lock(), False, [], {}


@ffi.callback("void (*)(void *)")
def completed(number):
    callbacks[int(ffi.cast("uintptr_t", number))]()


def endless(number, call, stream):
    """Post a receive or a send again and again, until it fails or the streams are closed."""
    buffer, aio = ffi.new("char[]", SIZE), new_aio(completed, ffi.cast("void *", number))

    def again():
        with lock:
            if closed or lib.nng_aio_result(aio):
                ended.append(number)
            else:
                post(call, stream, aio, buffer, SIZE)

    callbacks[number] = again
    post(call, stream, aio, buffer, SIZE)


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


if CHILD:
    signal.alarm(5)
    one, other = connected()
    endless(1, lib.nng_stream_recv, one)
    endless(2, lib.nng_stream_send, other)
    if CHILD[0] == "closed":
        atexit.register(close, (one, other))
    time.sleep(0.1)
    sys.exit(0)

signal.alarm(60)
found = {how: [child(how)[0] for _ in range(5)] for how in ("open", "closed")}
endings = f"{found['open']}; closed by an atexit hook: {found['closed']}"
done(f"exit codes with streams open: {endings}", any(map(failed, found["open"])))
