"""A cooked REQ has one request at a time: the next one abandons it.

pynng 0.9.0 (NNG 1.11.0). By design; NNG's contexts are the way to have several.
Expected: wrappers allow for it.
Observed: of two requests only the second one's reply is received.
"""

import os
import signal
import socket
import struct

import pynng

signal.alarm(30)  # ends a run that hangs


def receive(connection):
    """Return one message as the server receives it: 4 bytes of request id, then the body."""
    (size,) = struct.unpack(">Q", connection.recv(8, socket.MSG_WAITALL))
    return connection.recv(size, socket.MSG_WAITALL)


server = socket.create_server(("127.0.0.1", 0))
with pynng.Req0(recv_timeout=500) as req:
    req.dial(f"tcp://127.0.0.1:{server.getsockname()[1]}", block=False)
    rep = server.accept()[0]
    rep.sendall(struct.pack(">4sHH", b"\0SP\0", 49, 0))
    rep.recv(8, socket.MSG_WAITALL)
    ids = []
    for body in (b"1", b"2"):
        req.send(body)
        ids.append(receive(rep)[:4])
    for identifier, body in zip(ids, (b"reply to 1", b"reply to 2"), strict=True):
        rep.sendall(struct.pack(">Q", 4 + len(body)) + identifier + body)
    received = []
    try:
        while True:
            received.append(req.recv())
    except pynng.NNGException as error:
        received.append(error)
print(f"two requests, two replies sent, received {received!r}", flush=True)
os._exit(0 if received[0] == b"reply to 2" and len(received) == 2 else 1)  # not sys.exit: NNG's cleanup may hang
