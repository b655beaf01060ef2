"""A cooked SURVEYOR keeps 128 unread replies and silently drops the rest.

pynng 0.9.0 (NNG 1.11.0). No option changes the number.
Expected: `recv_buffer_size` bounds it, and something reports the loss.
Observed: of 1,000 replies to one survey 128 are received.
"""

import time

import pynng
from _harness import done, framed, message_from, received_by, stranger

with pynng.Surveyor0(
    listen="tcp://127.0.0.1:0", survey_time=10000, recv_timeout=500, recv_buffer_size=8192
) as surveyor:
    respondent = stranger(surveyor, 99)
    surveyor.send(b"who?")
    survey = message_from(respondent)[:4]
    respondent.sendall(1000 * framed(survey + b"I"))
    time.sleep(0.5)
    received = len(received_by(surveyor)) - 1
done(f"1000 replies sent, {received} received", received == 128)
