"""A cooked SURVEYOR keeps 128 unread replies and silently drops the rest.

pynng 0.9.0 (NNG 1.11.0). No option changes the number.
Expected: `recv_buffer_size` bounds it, and something reports the loss.
Observed: of 1,000 replies to one survey 128 are received.
"""

import contextlib
import os
import signal
import socket
import struct
import time

import pynng

signal.alarm(30)  # ends a run that hangs

with pynng.Surveyor0(
    listen="tcp://127.0.0.1:0", survey_time=10000, recv_timeout=500, recv_buffer_size=8192
) as surveyor:
    respondent = socket.create_connection(("127.0.0.1", int(str(surveyor.listeners[0].local_address).split(":")[1])))
    respondent.sendall(struct.pack(">4sHH", b"\0SP\0", 99, 0))
    while not surveyor.pipes:
        time.sleep(0.002)
    surveyor.send(b"who?")
    survey = respondent.recv(8 + 8 + 4 + 4, socket.MSG_WAITALL)[16:20]
    respondent.sendall(1000 * (struct.pack(">Q", 5) + survey + b"I"))
    time.sleep(0.5)
    received = 0
    with contextlib.suppress(pynng.Timeout):
        while True:
            surveyor.recv()
            received += 1
print(f"1000 replies sent, {received} received", flush=True)
os._exit(0 if received == 128 else 1)  # not sys.exit: NNG's cleanup at exit may hang
