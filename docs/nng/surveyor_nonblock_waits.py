"""A cooked SURVEYOR waits in a non-blocking receive until its survey ends.

pynng 0.9.0 (NNG 1.11.0).
Expected: NNG_EAGAIN at once.
Observed: NNG_EAGAIN after the rest of `survey_time`.
"""

import time

import pynng
from _harness import attempt, done, url_of

with (
    pynng.Surveyor0(listen="tcp://127.0.0.1:0", survey_time=400) as surveyor,
    pynng.Respondent0(dial=url_of(surveyor)),
):
    surveyor.send(b"who?")
    start = time.monotonic()
    outcome = type(attempt(surveyor.recv, block=False)).__name__
    took = time.monotonic() - start
done(f"non-blocking recv in a survey of 400 ms: {outcome} after {took * 1000:.0f} ms", took > 0.2)
