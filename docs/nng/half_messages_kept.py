"""NNG never closes a connection that stops in the middle of a message, or of a WebSocket handshake.

pynng 0.9.0 (NNG 1.11.0). A connection without a hello is closed after 10 s; these are not. Argument: SECONDS to wait
(2; with more than 10 the connection without a hello is closed, the others stay).
Expected: an option for a time limit.
Observed: both are still open when the script ends.
"""

import socket
import struct
import time

import pynng
from _harness import done, greet, port_of, seconds_to_try


def is_open(connection):
    connection.setblocking(False)
    try:
        while connection.recv(100):  # NNG's own hello
            pass
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False


seconds = seconds_to_try(2.0)
with (
    pynng.Pull0(listen="tcp://127.0.0.1:0") as tcp,
    pynng.Pull0(listen="ws://127.0.0.1:0/x") as ws,
):
    connections = [socket.create_connection(("127.0.0.1", port_of(sock))) for sock in (tcp, ws, tcp)]
    greet(connections[0], 80)
    connections[0].sendall(struct.pack(">Q", 100) + b"half")
    connections[1].sendall(b"GET /x HTTP/1.1\r\nHost: 127")
    time.sleep(seconds)
    held = [is_open(connection) for connection in connections]
found = f"half a message open {held[0]}, half a WebSocket handshake {held[1]}, no hello {held[2]}"
done(f"after {seconds:g} s: {found}", all(held[:2]))
