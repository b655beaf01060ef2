"""Four names whose DNS server does not answer hold up every dial and listen of the process.

pynng 0.9.0 (NNG 1.11.0). It needs `unshare`, `ip` and `mount`, to make a host with such a server.
Expected: a listener at a number listens at once.
Observed: it waits for the resolver's four threads, which take lookups in order, those of numbers too, until the
system's resolver gives up: 10 s and more.
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
for number in range(4):
    dialer, aio = ffi.new("nng_stream_dialer **"), ffi.new("nng_aio **")
    assert not lib.nng_stream_dialer_alloc(dialer, f"tcp://host{number}.example.test:7000".encode())
    assert not lib.nng_aio_alloc(aio, ffi.NULL, ffi.NULL)
    lib.nng_stream_dialer_dial(dialer[0], aio[0])
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
print("a listener at 127.0.0.1 waits for four names" if late else "a listener at 127.0.0.1 does not wait for names")
sys.stdout.flush()
os._exit(0 if late else 1)
