"""Four names whose DNS server does not answer hold up every dial and listen of the process.

pynng 0.9.0 (NNG 1.11.0). It needs `unshare`, `ip` and `mount`, to make a host with such a server.
Expected: a listener at a number listens at once.
Observed: it waits for the resolver's four threads, which take lookups in order, those of numbers too, until the
system's resolver gives up: 10 s and more.
"""

import threading

from _harness import dialer_to, done, new_aio, with_silent_dns
from pynng import ffi, lib

silent = with_silent_dns()
for number in range(4):
    lib.nng_stream_dialer_dial(dialer_to(f"tcp://host{number}.example.test:7000"), new_aio())
for _ in range(4):
    silent.recv(512)  # its lookup is in progress
listened = threading.Event()


def listen():
    """Listen at a number."""
    listener = ffi.new("nng_stream_listener **")
    lib.nng_stream_listener_alloc(listener, b"tcp://127.0.0.1:0")
    listened.set()


threading.Thread(target=listen, daemon=True).start()
late = not listened.wait(2)
done(f"a listener at 127.0.0.1 {'waits for four' if late else 'does not wait for'} names", late)
