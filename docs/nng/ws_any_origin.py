"""A WebSocket listener lets in every Origin.

pynng 0.9.0 (NNG 1.11.0). A page of any site may connect to a listener on the visitor's own machine.
Expected: an option for allowed origins.
Observed: "101 Switching Protocols" for a foreign one. A request for another path or host, or without the listener's
protocol, is refused.
"""

import socket

import pynng
from _harness import done, port_of

with pynng.Bus0(listen="ws://127.0.0.1:0/x") as bus:
    port = port_of(bus)
    status = {}
    for what, path, host, protocol in (
        ("foreign origin", "/x", "127.0.0.1", "bus.sp.nanomsg.org"),
        ("other path", "/y", "127.0.0.1", "bus.sp.nanomsg.org"),
        ("other host", "/x", "localhost", "bus.sp.nanomsg.org"),
        ("other protocol", "/x", "127.0.0.1", "pair.sp.nanomsg.org"),
    ):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Origin: https://attacker.example\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
            f"dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n".encode()
        )
        status[what] = connection.recv(4096).split()[1].decode()
done(", ".join(f"{what}: {code}" for what, code in status.items()), status["foreign origin"] == "101")
