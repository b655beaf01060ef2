"""A cooked SURVEYOR has one survey at a time: the next one ends it.

pynng 0.9.0 (NNG 1.11.0). By design; NNG's contexts are the way to have several.
Expected: wrappers allow for it.
Observed: of two surveys only replies to the second one are received.
"""

import pynng
from _harness import done, framed, message_from, received_by, stranger

with pynng.Surveyor0(listen="tcp://127.0.0.1:0", survey_time=10000, recv_timeout=500) as surveyor:
    respondent = stranger(surveyor, 99)
    ids = []
    for body in (b"1", b"2"):
        surveyor.send(body)
        ids.append(message_from(respondent)[:4])
    for identifier, body in zip(ids, (b"reply to 1", b"reply to 2"), strict=True):
        respondent.sendall(framed(identifier + body))
    received = received_by(surveyor)
found = f"two surveys, a reply to each, received {received!r}"
done(found, received[0] == b"reply to 2" and len(received) == 2)
