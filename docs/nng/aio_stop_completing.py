"""An aio that is stopped or cancelled while it completes is idle for NNG before its callback has run.

pynng 0.9.0 (NNG 1.11.0). nng_aio_stop and nng_aio_wait may return while the callback is still queued (nni_task_abort);
a program that then frees what the callback uses is left with a callback on freed memory.
Expected: after nng_aio_stop, and after nng_aio_cancel and nng_aio_wait, no callback runs any more.
Observed: after sleeps some run later (receives of a stream are tried as well). By chance; argument: SECONDS to try for
(10).
"""

import random
import sys
import time

from _harness import connected, done, new_aio, post, seconds_to_try
from pynng import ffi, lib

seconds = seconds_to_try(10.0)


def sleeping():
    """Return a way to post an operation that completes within a millisecond."""
    return lambda aio: lib.nng_sleep_aio(1, aio)


def receiving():
    one, other = connected()
    buffer, data, sending = ffi.new("char[]", 100), ffi.new("char[]", 1), new_aio()

    def begin(aio):
        lib.nng_aio_wait(sending)
        post(lib.nng_stream_recv, one, aio, buffer, 100)
        post(lib.nng_stream_send, other, sending, data, 1)

    return begin


@ffi.callback("void (*)(void *)")
def completed(number):
    global last
    last = int(ffi.cast("uintptr_t", number))


def stop(aio):
    lib.nng_aio_stop(aio)


def cancel(aio):
    lib.nng_aio_cancel(aio)
    lib.nng_aio_wait(aio)


last, late, tried = 0, {}, {}
sys.setswitchinterval(1e-5)
for name, begin in (("sleep", sleeping()), ("receive", receiving())):
    for finish in (stop, cancel):
        key, end = f"{name}, {finish.__name__}", time.monotonic() + seconds / 4
        late[key], tried[key] = 0, 0
        while time.monotonic() < end:
            number = random.getrandbits(32)
            aio = new_aio(completed, ffi.cast("void *", number))
            begin(aio)
            if random.random() < 0.5:
                time.sleep(random.random() * (0.0012 if name == "sleep" else 0.0001))
            finish(aio)
            idle = not lib.nng_aio_busy(aio)
            if last != number:
                time.sleep(0.02)
                late[key] += idle and last == number
            tried[key] += 1
            lib.nng_aio_free(aio)
found = "; ".join(f"{key}: {late[key]} of {tried[key]}" for key in late)
done(f"callbacks after the end: {found}", sum(late.values()))
