"""inproc ignores `recv_max_size`.

pynng 0.9.0 (NNG 1.11.0).
Expected: a message over the limit is refused, as on every other transport.
Observed: it is received.
"""

import os
import signal

import pynng

signal.alarm(30)  # ends a run that hangs

with (
    pynng.Pair0(listen="inproc://limit", recv_max_size=100, recv_timeout=5000) as one,
    pynng.Pair0(dial="inproc://limit") as other,
):
    other.send(b"x" * 1000)
    received = len(one.recv())
print(f"recv_max_size 100 let {received} bytes through", flush=True)
os._exit(0 if received == 1000 else 1)  # not sys.exit: NNG's cleanup at exit may hang
