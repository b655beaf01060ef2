"""Defaults that a wrapper should know: no limit on sizes, no TCP keepalive, 1 s before a dialer tries again.

pynng 0.9.0 (NNG 1.11.0). pynng's docstring gives 1 MB for `recv_max_size`.
Expected: a size limit, keepalive on, a reconnection within 100 ms.
Observed: 0 (unlimited), off, 1,000 ms.
"""

import pynng
from _harness import done

with pynng.Pair0() as pair:
    held = pair.recv_max_size, pair.tcp_keepalive, pair.reconnect_time_min
done("recv_max_size {}, tcp_keepalive {}, reconnect_time_min {}".format(*held), held == (0, False, 1000))
