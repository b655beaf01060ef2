"""A cooked REP loses the answer, and the request, when a non-blocking send finds no room.

pynng 0.9.0 (NNG 1.11.0).
Expected: NNG_EAGAIN leaves things as they are, and a second try may succeed.
Observed: NNG_EAGAIN, then BadState; the request cannot be answered any more.
"""

import pynng
from _harness import attempt, done, request, stranger

LARGE = b"x" * (8 << 20)  # more than the sender's buffers, 4 MiB at most, and the small one of the receiver

with pynng.Rep0(listen="tcp://127.0.0.1:0", recv_timeout=5000, send_timeout=5000) as rep:
    slow = stranger(rep, 48, receive_buffer=4096)
    for number in (1, 2):
        slow.sendall(request(number))
    rep.recv()
    rep.send(LARGE, block=False)
    rep.recv()
    outcome = [type(attempt(rep.send, LARGE, block=block)).__name__ for block in (False, True)]
done(f"non-blocking send with no room: {outcome[0]}; second try: {outcome[1]}", outcome == ["TryAgain", "BadState"])
