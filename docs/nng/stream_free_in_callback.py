"""Dialers that are freed in the callbacks of their dials hold up all callbacks of the process.

pynng 0.9.0 (NNG 1.11.0). It needs `unshare`, `ip` and `mount`, to make a host whose DNS server does not answer.
Expected: nng_stream_dialer_free returns, or is documented not to be called in a callback.
Observed: it waits for the lookup's own callback (nni_aio_stop), which needs one of the threads that run callbacks. If
each of these is inside nng_stream_dialer_free, none returns.
"""

import os
import signal
import socket
import sys
import tempfile
import threading

if "inside" not in sys.argv:
    with tempfile.NamedTemporaryFile("w", delete=False) as configuration:
        configuration.write("nameserver 127.0.0.9\n")
    mount = f"mount --bind {configuration.name} /etc/resolv.conf; rm -f {configuration.name}"
    again = f'ip link set lo up && {mount}; exec "$@"'
    os.execvp("unshare", ["unshare", "-r", "-n", "-m", "sh", "-c", again, "sh", sys.executable, __file__, "inside"])

from pynng import ffi, lib

signal.alarm(30)  # ends a run that hangs

silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
silent.bind(("127.0.0.9", 53))
lib.nng_init_set_parameter(lib.NNG_INIT_NUM_TASK_THREADS, 2)
count, returned = 2, threading.Semaphore(0)
together = threading.Barrier(count)
dialers, aios = ([ffi.new(f"nng_{kind} **") for _ in range(count)] for kind in ("stream_dialer", "aio"))


@ffi.callback("void (*)(void *)")
def ended(number):
    """Free the dialer."""
    together.wait(5)
    lib.nng_stream_dialer_free(dialers[int(ffi.cast("uintptr_t", number))][0])
    returned.release()


for number in range(count):
    assert not lib.nng_stream_dialer_alloc(dialers[number], f"tcp://host{number}.example.test:7000".encode())
    assert not lib.nng_aio_alloc(aios[number], ended, ffi.cast("void *", number))
    lib.nng_stream_dialer_dial(dialers[number][0], aios[number][0])
for _ in range(count):
    silent.recv(512)  # its lookup is in progress
for dialer in dialers:
    lib.nng_stream_dialer_close(dialer[0])
freed = 0
while freed < count and returned.acquire(timeout=2):
    freed += 1
print(f"{count - freed} of {count} dialers are not freed 2 s after their close")
sys.stdout.flush()
os._exit(0 if freed < count else 1)
