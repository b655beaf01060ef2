"""A cooked SURVEYOR has one survey at a time: the next one ends it.

pynng 0.9.0 (NNG 1.11.0). By design; NNG's contexts are the way to have several.
Expected: wrappers allow for it.
Observed: of two surveys only replies to the second one are received.
"""

import os
import signal
import socket
import struct
import time

import pynng

signal.alarm(30)  # ends a run that hangs

with pynng.Surveyor0(listen="tcp://127.0.0.1:0", survey_time=10000, recv_timeout=500) as surveyor:
    respondent = socket.create_connection(("127.0.0.1", int(str(surveyor.listeners[0].local_address).split(":")[1])))
    respondent.sendall(struct.pack(">4sHH", b"\0SP\0", 99, 0))
    assert len(respondent.recv(8, socket.MSG_WAITALL)) == 8
    while not surveyor.pipes:
        time.sleep(0.002)
    ids = []
    for body in (b"1", b"2"):
        surveyor.send(body)
        ids.append(respondent.recv(8 + 4 + 1, socket.MSG_WAITALL)[8:12])
    for identifier, body in zip(ids, (b"reply to 1", b"reply to 2"), strict=True):
        respondent.sendall(struct.pack(">Q", 4 + len(body)) + identifier + body)
    received = []
    try:
        while True:
            received.append(surveyor.recv())
    except pynng.NNGException as error:
        received.append(error)
print(f"two surveys, a reply to each, received {received!r}", flush=True)
os._exit(0 if received[0] == b"reply to 2" and len(received) == 2 else 1)  # not sys.exit: NNG's cleanup may hang
