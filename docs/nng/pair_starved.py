"""The first connection owns a PAIR socket, so a silent stranger keeps the real peer out.

pynng 0.9.0 (NNG 1.11.0). By design of PAIR; NNG closes every later connection right after its handshake.
Expected: wrappers allow for it.
Observed: the message of the second peer never arrives, its send reports success.
"""

import pynng
from _harness import attempt, done, stranger, url_of

with pynng.Pair0(listen="tcp://127.0.0.1:0", recv_timeout=1000) as pair:
    silent = stranger(pair, 16)
    with pynng.Pair0(dial=url_of(pair), send_buffer_size=10) as honest:
        honest.send(b"it is me")
        received = attempt(pair.recv)
done(f"from the second peer within 1 s: {received!r}", isinstance(received, pynng.Timeout))
