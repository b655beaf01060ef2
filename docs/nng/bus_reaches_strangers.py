"""BUS sends to every connection with a valid hello.

pynng 0.9.0 (NNG 1.11.0). By design: SP has no authentication below TLS.
Expected: wrappers allow for it.
Observed: eight bytes of hello are enough to receive everything.
"""

import os
import signal
import socket
import struct
import time

import pynng

signal.alarm(30)  # ends a run that hangs

with pynng.Bus0(listen="tcp://127.0.0.1:0") as bus:
    stranger = socket.create_connection(("127.0.0.1", int(str(bus.listeners[0].local_address).split(":")[1])))
    stranger.sendall(struct.pack(">4sHH", b"\0SP\0", 112, 0))
    while not bus.pipes:
        time.sleep(0.002)
    bus.send(b"secret")
    received = stranger.recv(8 + 8 + 6, socket.MSG_WAITALL)[16:]
print(f"a plain TCP connection received {received!r}", flush=True)
os._exit(0 if received == b"secret" else 1)  # not sys.exit: NNG's cleanup at exit may hang
