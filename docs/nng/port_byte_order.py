"""The `port` of pynng's addresses is in network byte order.

pynng 0.9.0 (NNG 1.11.0). `str(address)` is right.
Expected: the port number.
Observed: its bytes swapped, on a little-endian machine.
"""

import os
import signal

import pynng

signal.alarm(30)  # ends a run that hangs

with pynng.Pair0(listen="tcp://127.0.0.1:0") as pair:
    address = pair.listeners[0].local_address
    port, text = address.port, str(address)
print(f"port {port} of {text}", flush=True)
os._exit(0 if port != int(text.split(":")[1]) else 1)  # not sys.exit: NNG's cleanup at exit may hang
