"""A cooked SURVEYOR waits in a non-blocking receive until its survey ends.

pynng 0.9.0 (NNG 1.11.0).
Expected: NNG_EAGAIN at once.
Observed: NNG_EAGAIN after the rest of `survey_time`.
"""

import os
import signal
import time

import pynng

signal.alarm(30)  # ends a run that hangs

with (
    pynng.Surveyor0(listen="tcp://127.0.0.1:0", survey_time=400) as surveyor,
    pynng.Respondent0(dial=f"tcp://{surveyor.listeners[0].local_address}"),
):
    surveyor.send(b"who?")
    start = time.monotonic()
    try:
        surveyor.recv(block=False)
    except pynng.NNGException as error:
        outcome = type(error).__name__
    took = time.monotonic() - start
print(f"non-blocking recv in a survey of 400 ms: {outcome} after {took * 1000:.0f} ms", flush=True)
os._exit(0 if took > 0.2 else 1)  # not sys.exit: NNG's cleanup at exit may hang
