"""A cooked REP forgets a request when it receives the next one.

pynng 0.9.0 (NNG 1.11.0). By design; NNG's contexts are the way to have several.
Expected: wrappers allow for it.
Observed: of two requests received only the second one can be answered.
"""

import pynng
from _harness import attempt, done, message_from, request, stranger

with pynng.Rep0(listen="tcp://127.0.0.1:0", recv_timeout=5000) as rep:
    req = stranger(rep, 48)
    for number in (1, 2):
        req.sendall(request(number))
        rep.recv()
    rep.send(b"answer")
    answered = message_from(req)[:4]
    second = attempt(rep.send, b"answer")
found = f"first answer goes to request {answered.hex()}, second answer: {second!r}"
done(found, isinstance(second, pynng.BadState) and answered == b"\x80\0\0\2")
