"""BUS queues 16 messages a connection and silently drops the rest.

pynng 0.9.0 (NNG 1.11.0). Default buffers; the best-effort delivery is documented, the small queue is not obvious.
Expected: a burst of 1,000 small messages arrives, or something reports the loss.
Observed: some of it arrives, send reports success.
"""

import pynng
from _harness import done, peer_of, received_by, url_of

with pynng.Bus0(listen="tcp://127.0.0.1:0") as one:
    started = peer_of(one)
    with pynng.Bus0(dial=url_of(one), recv_timeout=500) as other:
        started.wait()
        for _ in range(1000):
            one.send(b"x")
        received = len(received_by(other)) - 1
done(f"1000 sent, {received} received", received < 1000)
