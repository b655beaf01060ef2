"""close() drops messages whose send has returned.

pynng 0.9.0 (NNG 1.11.0). NNG has no linger: closing discards the send queue.
Expected by users of other libraries: accepted messages are sent, or a linger option bounds the time for it.
Observed: most of it is lost, without an error.
"""

import contextlib
import os
import signal
import socket
import struct
import time

import pynng

signal.alarm(30)  # ends a run that hangs
TOTAL, SIZE = 200, 65536  # far more than the system's buffers of a connection hold

with pynng.Push0(listen="tcp://127.0.0.1:0", send_buffer_size=1000) as push:
    slow = socket.create_connection(("127.0.0.1", int(str(push.listeners[0].local_address).split(":")[1])))
    slow.sendall(struct.pack(">4sHH", b"\0SP\0", 81, 0))
    assert len(slow.recv(8, socket.MSG_WAITALL)) == 8
    while not push.pipes:
        time.sleep(0.002)
    for _ in range(TOTAL):
        push.send(b"x" * SIZE)
received = 0
with contextlib.suppress(ConnectionResetError):
    while more := slow.recv(1 << 20):
        received += len(more)
received //= SIZE + 8
print(f"{TOTAL} sent, {received} received", flush=True)
os._exit(0 if received < TOTAL else 1)  # not sys.exit: NNG's cleanup at exit may hang
