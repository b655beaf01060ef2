"""fleet.py NAME COUNT PORT: COUNT respondents with raw sockets in one thread; prints `ready` when all are connected.

They implement SP over tcp themselves, so that 400 of them need only a few megabytes and little CPU.
"""

# ruff: noqa: T201

import selectors
import socket
import struct
import sys

from nngkit.discovery.messages import TEXT_QUERY, SurveyReply
from nngkit.discovery.provider import Provider

name, count, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
selector = selectors.DefaultSelector()
for number in range(count):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"\0SP\0" + struct.pack(">HH", 99, 0))
    provider = Provider(name, f"tcp://10.2.{number // 250}.{number % 250}:9000", f"fleet{number}", 1)
    body = SurveyReply(f"sender{number}", (provider,)).encode()
    selector.register(connection, selectors.EVENT_READ, [body, b"", False])
print("ready", flush=True)
while True:
    for key, _ in selector.select():
        body, rest, greeted = key.data
        connection = key.fileobj  # type: ignore[assignment]
        chunk = connection.recv(65536)
        if not chunk:
            selector.unregister(connection)
            continue
        rest += chunk
        if not greeted and len(rest) >= 8:
            rest, greeted = rest[8:], True
        while greeted and len(rest) >= 8 and len(rest) >= 8 + (size := struct.unpack(">Q", rest[:8])[0]):
            header, query, rest = rest[8:12], rest[12 : 8 + size], rest[8 + size :]
            if query != TEXT_QUERY:
                connection.sendall(struct.pack(">Q", 4 + len(body)) + header + body)
        key.data[1:] = [rest, greeted]
