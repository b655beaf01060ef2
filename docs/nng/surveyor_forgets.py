"""A cooked SURVEYOR ends its survey when a wait for a reply times out.

pynng 0.9.0 (NNG 1.11.0). `recv_timeout` shorter than `survey_time`.
Expected: a second recv receives the later reply, within the survey's time.
Observed: BadState; the reply is dropped.
"""

import pynng
from _harness import attempt, done, peer_of, url_of

with pynng.Surveyor0(listen="tcp://127.0.0.1:0", survey_time=10000, recv_timeout=50) as surveyor:
    started = peer_of(surveyor)
    with pynng.Respondent0(dial=url_of(surveyor), recv_timeout=5000) as respondent:
        started.wait()
        surveyor.send(b"who?")
        respondent.recv()
        assert isinstance(attempt(surveyor.recv), pynng.Timeout)
        respondent.send(b"I")
        result = attempt(surveyor.recv)
done(f"recv after a recv that timed out: {result!r}", isinstance(result, pynng.BadState))
