"""Dialers that are freed in the callbacks of their dials hold up all callbacks of the process.

pynng 0.9.0 (NNG 1.11.0). It needs `unshare`, `ip` and `mount`, to make a host whose DNS server does not answer.
Expected: nng_stream_dialer_free returns, or is documented not to be called in a callback.
Observed: it waits for the lookup's own callback (nni_aio_stop), which needs one of the threads that run callbacks. If
each of these is inside nng_stream_dialer_free, none returns.
"""

import threading

from _harness import dialer_to, done, new_aio, with_silent_dns
from pynng import ffi, lib

COUNT = 2
silent = with_silent_dns()
lib.nng_init_set_parameter(lib.NNG_INIT_NUM_TASK_THREADS, COUNT)
returned, together = threading.Semaphore(0), threading.Barrier(COUNT)


@ffi.callback("void (*)(void *)")
def ended(number):
    """Free the dialer."""
    together.wait(5)
    lib.nng_stream_dialer_free(dialers[int(ffi.cast("uintptr_t", number))])
    returned.release()


dialers = [dialer_to(f"tcp://host{number}.example.test:7000") for number in range(COUNT)]
for number, dialer in enumerate(dialers):
    lib.nng_stream_dialer_dial(dialer, new_aio(ended, ffi.cast("void *", number)))
for _ in dialers:
    silent.recv(512)  # its lookup is in progress
for dialer in dialers:
    lib.nng_stream_dialer_close(dialer)
freed = 0
while freed < COUNT and returned.acquire(timeout=2):
    freed += 1
done(f"{COUNT - freed} of {COUNT} dialers are not freed 2 s after their close", freed < COUNT)
