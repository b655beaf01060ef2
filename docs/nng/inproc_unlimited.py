"""inproc ignores `recv_max_size`.

pynng 0.9.0 (NNG 1.11.0).
Expected: a message over the limit is refused, as on every other transport.
Observed: it is received.
"""

import pynng
from _harness import done

with (
    pynng.Pair0(listen="inproc://limit", recv_max_size=100, recv_timeout=5000) as one,
    pynng.Pair0(dial="inproc://limit") as other,
):
    other.send(b"x" * 1000)
    received = len(one.recv())
done(f"recv_max_size 100 let {received} bytes through", received == 1000)
