"""The first connection owns a PAIR socket, so a silent stranger keeps the real peer out.

pynng 0.9.0 (NNG 1.11.0). By design of PAIR; NNG closes every later connection right after its handshake.
Expected: wrappers allow for it.
Observed: the message of the second peer never arrives, its send reports success.
"""

import os
import signal
import socket
import struct
import time

import pynng

signal.alarm(30)  # ends a run that hangs

with pynng.Pair0(listen="tcp://127.0.0.1:0", recv_timeout=1000) as pair:
    address = str(pair.listeners[0].local_address)
    stranger = socket.create_connection(("127.0.0.1", int(address.split(":")[1])))
    stranger.sendall(struct.pack(">4sHH", b"\0SP\0", 16, 0))
    while not pair.pipes:
        time.sleep(0.002)
    with pynng.Pair0(dial=f"tcp://{address}", send_buffer_size=10) as honest:
        honest.send(b"it is me")
        try:
            received = pair.recv()
        except pynng.Timeout:
            received = None
print(f"from the second peer within 1 s: {received!r}", flush=True)
os._exit(0 if received is None else 1)  # not sys.exit: NNG's cleanup at exit may hang
