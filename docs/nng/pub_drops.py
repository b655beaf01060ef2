"""PUB and SUB silently drop messages.

pynng 0.9.0 (NNG 1.11.0). Default buffers. NNG has no event and no counter for what it drops.
Expected: a way to notice the loss.
Observed: send reports success, and the subscriber receives some of the messages.
"""

import pynng
from _harness import done, peer_of, received_by, url_of

with pynng.Pub0(listen="tcp://127.0.0.1:0") as pub:
    started = peer_of(pub)
    with pynng.Sub0(dial=url_of(pub), topics="", recv_timeout=500) as sub:
        started.wait()
        for _ in range(1000):
            pub.send(b"x")
        received = len(received_by(sub)) - 1
done(f"1000 sent, {received} received", received < 1000)
