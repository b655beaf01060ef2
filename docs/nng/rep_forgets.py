"""A cooked REP forgets a request when it receives the next one.

pynng 0.9.0 (NNG 1.11.0). By design; NNG's contexts are the way to have several.
Expected: wrappers allow for it.
Observed: of two requests received only the second one can be answered.
"""

import os
import signal
import socket
import struct

import pynng

signal.alarm(30)  # ends a run that hangs

with pynng.Rep0(listen="tcp://127.0.0.1:0", recv_timeout=5000) as rep:
    req = socket.create_connection(("127.0.0.1", int(str(rep.listeners[0].local_address).split(":")[1])))
    req.sendall(struct.pack(">4sHH", b"\0SP\0", 48, 0))
    for number in (1, 2):
        req.sendall(struct.pack(">QI", 4 + 8, 0x80000000 + number) + b"question")
        rep.recv()
    rep.send(b"answer")
    answered = req.recv(8 + 8 + 4 + 6, socket.MSG_WAITALL)[16:20]
    try:
        rep.send(b"answer")
        second = "accepted"
    except pynng.NNGException as error:
        second = repr(error)
print(f"first answer goes to request {answered.hex()}, second answer: {second}", flush=True)
os._exit(0 if "BadState" in second and answered == b"\x80\0\0\2" else 1)  # not sys.exit: NNG's cleanup may hang
