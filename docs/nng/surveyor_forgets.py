"""A cooked SURVEYOR ends its survey when a wait for a reply times out.

pynng 0.9.0 (NNG 1.11.0). `recv_timeout` shorter than `survey_time`.
Expected: a second recv receives the later reply, within the survey's time.
Observed: BadState; the reply is dropped.
"""

import contextlib
import os
import signal
import time

import pynng

signal.alarm(30)  # ends a run that hangs

with (
    pynng.Surveyor0(listen="tcp://127.0.0.1:0", survey_time=10000, recv_timeout=50) as surveyor,
    pynng.Respondent0(dial=f"tcp://{surveyor.listeners[0].local_address}", recv_timeout=5000) as respondent,
):
    while not surveyor.pipes:
        time.sleep(0.002)
    surveyor.send(b"who?")
    respondent.recv()
    with contextlib.suppress(pynng.Timeout):
        surveyor.recv()
    respondent.send(b"I")
    try:
        result = surveyor.recv()
    except pynng.NNGException as error:
        result = error
print(f"recv after a recv that timed out: {result!r}", flush=True)
os._exit(0 if isinstance(result, pynng.BadState) else 1)  # not sys.exit: NNG's cleanup at exit may hang
