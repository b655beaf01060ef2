"""BUS queues 16 messages a connection and silently drops the rest.

pynng 0.9.0 (NNG 1.11.0). Default buffers; the best-effort delivery is documented, the small queue is not obvious.
Expected: a burst of 1,000 small messages arrives, or something reports the loss.
Observed: some of it arrives, send reports success.
"""

import contextlib
import os
import signal
import time

import pynng

signal.alarm(30)  # ends a run that hangs

with (
    pynng.Bus0(listen="tcp://127.0.0.1:0") as one,
    pynng.Bus0(dial=f"tcp://{one.listeners[0].local_address}", recv_timeout=500) as other,
):
    while not one.pipes:
        time.sleep(0.002)
    for _ in range(1000):
        one.send(b"x")
    received = 0
    with contextlib.suppress(pynng.Timeout):
        while True:
            other.recv()
            received += 1
print(f"1000 sent, {received} received", flush=True)
os._exit(0 if received < 1000 else 1)  # not sys.exit: NNG's cleanup at exit may hang
