"""A cooked REQ forgets its request when a wait for the reply times out.

pynng 0.9.0 (NNG 1.11.0).
Expected: a second recv receives the later reply.
Observed: BadState; the reply is dropped.
"""

import pynng
from _harness import attempt, done, url_of

with (
    pynng.Rep0(listen="tcp://127.0.0.1:0", recv_timeout=5000) as rep,
    pynng.Req0(dial=url_of(rep), recv_timeout=50) as req,
):
    req.send(b"question")
    rep.recv()
    assert isinstance(attempt(req.recv), pynng.Timeout)
    rep.send(b"answer")
    result = attempt(req.recv)
done(f"recv after a recv that timed out: {result!r}", isinstance(result, pynng.BadState))
