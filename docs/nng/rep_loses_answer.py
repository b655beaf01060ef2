"""A cooked REP loses the answer, and the request, when a non-blocking send finds no room.

pynng 0.9.0 (NNG 1.11.0).
Expected: NNG_EAGAIN leaves things as they are, and a second try may succeed.
Observed: NNG_EAGAIN, then BadState; the request cannot be answered any more.
"""

import os
import signal
import socket
import struct

import pynng

signal.alarm(30)  # ends a run that hangs
LARGE = b"x" * (8 << 20)  # more than the sender's buffers, 4 MiB at most, and the small one of the receiver

with pynng.Rep0(listen="tcp://127.0.0.1:0", recv_timeout=5000, send_timeout=5000) as rep:
    slow = socket.socket()
    slow.setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVBUF, 4096
    )  # before it connects: otherwise it grows with the system's
    slow.connect(("127.0.0.1", int(str(rep.listeners[0].local_address).split(":")[1])))
    slow.sendall(struct.pack(">4sHH", b"\0SP\0", 48, 0))
    for number in (1, 2):
        slow.sendall(struct.pack(">QI", 4 + 8, 0x80000000 + number) + b"question")
    rep.recv()
    rep.send(LARGE, block=False)
    rep.recv()
    outcome = []
    for block in (False, True):
        try:
            rep.send(LARGE, block=block)
            outcome.append("accepted")
        except pynng.NNGException as error:
            outcome.append(type(error).__name__)
print(f"non-blocking send with no room: {outcome[0]}; second try: {outcome[1]}", flush=True)
os._exit(0 if outcome == ["TryAgain", "BadState"] else 1)  # not sys.exit: NNG's cleanup at exit may hang
