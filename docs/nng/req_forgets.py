"""A cooked REQ forgets its request when a wait for the reply times out.

pynng 0.9.0 (NNG 1.11.0).
Expected: a second recv receives the later reply.
Observed: BadState; the reply is dropped.
"""

import contextlib
import os
import signal

import pynng

signal.alarm(30)  # ends a run that hangs

with (
    pynng.Rep0(listen="tcp://127.0.0.1:0", recv_timeout=5000) as rep,
    pynng.Req0(dial=f"tcp://{rep.listeners[0].local_address}", recv_timeout=50) as req,
):
    req.send(b"question")
    rep.recv()
    with contextlib.suppress(pynng.Timeout):
        req.recv()
    rep.send(b"answer")
    try:
        result = req.recv()
    except pynng.NNGException as error:
        result = error
print(f"recv after a recv that timed out: {result!r}", flush=True)
os._exit(0 if isinstance(result, pynng.BadState) else 1)  # not sys.exit: NNG's cleanup at exit may hang
