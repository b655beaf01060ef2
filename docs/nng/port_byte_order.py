"""The `port` of pynng's addresses is in network byte order.

pynng 0.9.0 (NNG 1.11.0). `str(address)` is right.
Expected: the port number.
Observed: its bytes swapped, on a little-endian machine.
"""

import pynng
from _harness import done, port_of

with pynng.Pair0(listen="tcp://127.0.0.1:0") as pair:
    address = pair.listeners[0].local_address
    port, right, text = address.port, port_of(pair), str(address)
done(f"port {port} of {text}", port != right)
