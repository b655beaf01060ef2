"""A peer made of a plain Python socket: it sends given bytes and returns the bytes it receives.

::

    with Push(listen="tcp://127.0.0.1:0") as push, RawPeer(push.address, PULL) as peer:
        push.send(b"x")
        assert peer.recv() == b"x"           # one frame, its length removed
        peer.socket.sendall(b"nonsense")
"""

import os
import socket
import struct
from base64 import b64encode
from hashlib import sha1
from typing import Self
from urllib.parse import urlsplit

from tests.protocols.wires import WAIT

# the protocols' numbers in a hello
PAIR0, PAIR1, PUB, SUB, REQ, REP, PUSH, PULL, SURVEYOR, RESPONDENT, BUS = 16, 17, 32, 33, 48, 49, 80, 81, 98, 99, 112

LENGTH = struct.Struct(">Q")
WORD = struct.Struct(">I")


def hello(protocol: int) -> bytes:
    """Return the first bytes that each side sends."""
    return b"\0SP\0" + struct.pack(">HH", protocol, 0)


def connect(address: str) -> socket.socket:
    """Return a connection to ``address`` on which nothing was sent."""
    parts = urlsplit(address)
    if parts.scheme in ("ipc", "abstract"):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(WAIT)
        connection.connect(parts.path if parts.scheme == "ipc" else f"\0{parts.netloc}")
        return connection
    return socket.create_connection((parts.hostname, parts.port), timeout=WAIT)


def read(connection: socket.socket, count: int) -> bytes:
    """Return exactly ``count`` bytes. Raises EOFError, carrying the bytes so far, if the other side closed."""
    data = b""
    while len(data) < count:
        try:
            more = connection.recv(count - len(data))
        except ConnectionResetError:
            more = b""
        if not more:
            raise EOFError(data)
        data += more
    return data


class RawPeer:
    """Connects to ``address`` over tcp, ipc or abstract, sends a hello as ``protocol``, and reads the other's."""

    def __init__(self, address: str, protocol: int) -> None:
        self.prefix = b"\x01" if urlsplit(address).scheme in ("ipc", "abstract") else b""
        self.socket = connect(address)
        self.socket.sendall(hello(protocol))
        self.heard = read(self.socket, 8)

    def send(self, message: bytes) -> None:
        """Send one frame."""
        self.socket.sendall(self.prefix + LENGTH.pack(len(message)) + message)

    def recv(self) -> bytes:
        """Return the body of the next frame. Raises EOFError if the other side closed, TimeoutError."""
        prefix = read(self.socket, len(self.prefix))
        assert prefix == self.prefix
        return read(self.socket, LENGTH.unpack(read(self.socket, 8))[0])

    def recv_all(self, last: bytes) -> list[bytes]:
        """Return the bodies up to the one that begins with ``last``."""
        frames = [self.recv()]
        while not frames[-1].startswith(last):
            frames.append(self.recv())
        return frames

    def closed(self) -> bool:
        """Return True if the other side closes the connection without sending more."""
        try:
            read(self.socket, 1)
        except EOFError:
            return True
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


# ---- WebSocket -------------------------------------------------------------------------------------------------------


def upgrade_request(host: str, path: str, subprotocol: str | None) -> bytes:
    """Return the HTTP request that opens a WebSocket."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"]
    lines.append("Origin: http://elsewhere.example")  # as a browser on a page of another site
    lines += [f"Sec-WebSocket-Key: {b64encode(os.urandom(16)).decode()}", "Sec-WebSocket-Version: 13"]
    if subprotocol is not None:
        lines.append(f"Sec-WebSocket-Protocol: {subprotocol}")
    return "\r\n".join([*lines, "", ""]).encode()


def upgrade_answer(request: bytes) -> bytes:
    """Return the HTTP response that accepts ``request``, with the requested subprotocol."""
    fields = dict(line.split(": ", 1) for line in request.decode().split("\r\n")[1:] if line)
    magic = fields["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, 1.3
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines.append(f"Sec-WebSocket-Accept: {b64encode(sha1(magic.encode()).digest()).decode()}")
    lines.append(f"Sec-WebSocket-Protocol: {fields['Sec-WebSocket-Protocol']}")
    return "\r\n".join([*lines, "", ""]).encode()


def http_head(connection: socket.socket) -> bytes:
    """Return the head of the next HTTP message."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += read(connection, 1)
    return head
