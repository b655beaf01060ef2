"""BUS sends to every connection with a valid hello.

pynng 0.9.0 (NNG 1.11.0). By design: SP has no authentication below TLS.
Expected: wrappers allow for it.
Observed: eight bytes of hello are enough to receive everything.
"""

import pynng
from _harness import done, message_from, stranger

with pynng.Bus0(listen="tcp://127.0.0.1:0") as bus:
    connection = stranger(bus, 112)
    bus.send(b"secret")
    received = message_from(connection)
done(f"a plain TCP connection received {received!r}", received == b"secret")
