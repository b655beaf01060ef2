"""Socket.recv raises RuntimeError for an empty message.

pynng 0.9.0 (NNG 1.11.0). An empty message is valid; `recv_msg` receives it.
Expected: b"".
Observed: RuntimeError, and the message is lost.
"""

import pynng
from _harness import done, url_of

result = None
with (
    pynng.Pair0(listen="tcp://127.0.0.1:0") as one,
    pynng.Pair0(dial=url_of(one), recv_timeout=5000) as other,
):
    one.send(b"")
    try:
        result = other.recv()
    except RuntimeError as error:
        result = error
done(f"recv() of an empty message: {result!r}", isinstance(result, RuntimeError))
