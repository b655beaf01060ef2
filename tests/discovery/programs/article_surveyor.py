"""The article's discovery daemon as far as the wire goes: listens, sends `service query`, prints each reply as it is.

article_surveyor.py PORT DEADLINE ROUNDS: deadline in seconds, number of rounds; prints a line for each round, replies
separated by spaces. Does not use nngkit.
"""

# ruff: noqa: T201

import selectors
import socket
import struct
import sys
import time

port, deadline, rounds = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
server = socket.create_server(("127.0.0.1", port))
print(server.getsockname()[1], flush=True)
selector = selectors.DefaultSelector()
selector.register(server, selectors.EVENT_READ)
peers: dict[socket.socket, bytes] = {}


def attend(until: float) -> list[str]:
    replies = []
    while (left := until - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if sock is server:
                peer, _ = server.accept()
                peer.sendall(b"\0SP\0" + struct.pack(">HH", 98, 0))
                peer.recv(8, socket.MSG_WAITALL)
                peers[peer] = b""
                selector.register(peer, selectors.EVENT_READ)
                continue
            chunk = sock.recv(65536)
            if not chunk:
                selector.unregister(sock)
                del peers[sock]
                continue
            rest = peers[sock] + chunk
            while len(rest) >= 8 and len(rest) >= 8 + (size := struct.unpack(">Q", rest[:8])[0]):
                replies.append(rest[12 : 8 + size].decode())
                rest = rest[8 + size :]
            peers[sock] = rest
    return replies


while not peers:
    attend(time.monotonic() + 0.02)
for number in range(rounds):
    query = struct.pack(">I", 0x80000000 | number) + b"service query"
    for peer in peers:
        peer.sendall(struct.pack(">Q", len(query)) + query)
    print(*sorted(attend(time.monotonic() + deadline)), flush=True)
