"""Setting an option to an invalid time raises nothing, and the option keeps its value.

pynng 0.9.0 (NNG 1.11.0). pynng's setters of milliseconds and sizes do not look at NNG's return code.
Expected: an exception.
Observed: no exception; reading the option back gives the old value.
"""

import pynng
from _harness import done

with pynng.Push0() as push:
    push.reconnect_time_min = -5
    push.send_timeout = -7
    push.recv_max_size = 1 << 20
    held = push.reconnect_time_min, push.send_timeout
found = f"reconnect_time_min = -5 keeps {held[0]}, send_timeout = -7 keeps {held[1]}, no exception"
done(found, held == (1000, -1))
