"""Setting an option to an invalid time raises nothing, and the option keeps its value.

pynng 0.9.0 (NNG 1.11.0). pynng's setters of milliseconds and sizes do not look at NNG's return code.
Expected: an exception.
Observed: no exception; reading the option back gives the old value.
"""

import os
import signal

import pynng

signal.alarm(30)  # ends a run that hangs

with pynng.Push0() as push:
    push.reconnect_time_min = -5
    push.send_timeout = -7
    push.recv_max_size = 1 << 20
    held = push.reconnect_time_min, push.send_timeout
print(f"reconnect_time_min = -5 keeps {held[0]}, send_timeout = -7 keeps {held[1]}, no exception", flush=True)
os._exit(0 if held == (1000, -1) else 1)  # not sys.exit: NNG's cleanup at exit may hang
