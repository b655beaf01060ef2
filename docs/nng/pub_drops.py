"""PUB and SUB silently drop messages.

pynng 0.9.0 (NNG 1.11.0). Default buffers. NNG has no event and no counter for what it drops.
Expected: a way to notice the loss.
Observed: send reports success, and the subscriber receives some of the messages.
"""

import contextlib
import os
import signal
import time

import pynng

signal.alarm(30)  # ends a run that hangs

with (
    pynng.Pub0(listen="tcp://127.0.0.1:0") as pub,
    pynng.Sub0(dial=f"tcp://{pub.listeners[0].local_address}", topics="", recv_timeout=500) as sub,
):
    while not pub.pipes:
        time.sleep(0.002)
    for _ in range(1000):
        pub.send(b"x")
    received = 0
    with contextlib.suppress(pynng.Timeout):
        while True:
            sub.recv()
            received += 1
print(f"1000 sent, {received} received", flush=True)
os._exit(0 if received < 1000 else 1)  # not sys.exit: NNG's cleanup at exit may hang
