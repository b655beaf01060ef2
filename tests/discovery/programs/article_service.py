"""The article's service as far as discovery goes: blocking sockets, the text form, and its environment variables.

It answers the text query, ignores everything else, and reconnects when the daemon restarts. Does not use nngkit. Prints
`ready` after its first reply.
"""

# ruff: noqa: T201

import contextlib
import os
import socket
import struct
import time

host, port = os.environ.get("DISCOVERY_HOST", "localhost"), int(os.environ.get("DISCOVERY_PORT", "5555"))
name = os.environ.get("SERVICE_NAME", "foo")
address = "{}://{}:{}".format(
    os.environ.get("SERVICE_PROTOCOL", "tcp"),
    os.environ.get("SERVICE_HOST", "localhost"),
    os.environ.get("SERVICE_PORT", "9000"),
)


def take(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


said = False
while True:
    with contextlib.suppress(OSError), socket.create_connection((host, port)) as connection:
        connection.sendall(b"\0SP\0" + struct.pack(">HH", 99, 0))
        take(connection, 8)
        while True:
            (size,) = struct.unpack(">Q", take(connection, 8))
            message = take(connection, size)
            if message[4:] == b"service query":
                reply = message[:4] + f"{name}|{address}".encode()
                connection.sendall(struct.pack(">Q", len(reply)) + reply)
                if not said:
                    print("ready", flush=True)
                    said = True
    time.sleep(0.05)
