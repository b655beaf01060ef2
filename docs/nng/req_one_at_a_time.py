"""A cooked REQ has one request at a time: the next one abandons it.

pynng 0.9.0 (NNG 1.11.0). By design; NNG's contexts are the way to have several.
Expected: wrappers allow for it.
Observed: of two requests only the second one's reply is received.
"""

import socket

import pynng
from _harness import done, framed, greet, message_from, received_by

server = socket.create_server(("127.0.0.1", 0))
with pynng.Req0(recv_timeout=500) as req:
    req.dial(f"tcp://127.0.0.1:{server.getsockname()[1]}", block=False)
    rep = server.accept()[0]
    greet(rep, 49)
    ids = []
    for body in (b"1", b"2"):
        req.send(body)
        ids.append(message_from(rep)[:4])
    for identifier, body in zip(ids, (b"reply to 1", b"reply to 2"), strict=True):
        rep.sendall(framed(identifier + body))
    received = received_by(req)
found = f"two requests, two replies sent, received {received!r}"
done(found, received[0] == b"reply to 2" and len(received) == 2)
