"""Socket.recv raises RuntimeError for an empty message.

pynng 0.9.0 (NNG 1.11.0). An empty message is valid; `recv_msg` receives it.
Expected: b"".
Observed: RuntimeError, and the message is lost.
"""

import os
import signal

import pynng

signal.alarm(30)  # ends a run that hangs

result = None
with (
    pynng.Pair0(listen="tcp://127.0.0.1:0") as one,
    pynng.Pair0(dial=f"tcp://{one.listeners[0].local_address}", recv_timeout=5000) as other,
):
    one.send(b"")
    try:
        result = other.recv()
    except RuntimeError as error:
        result = error
print(f"recv() of an empty message: {result!r}", flush=True)
os._exit(0 if isinstance(result, RuntimeError) else 1)  # not sys.exit: NNG's cleanup at exit may hang
