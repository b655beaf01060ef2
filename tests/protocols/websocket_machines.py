"""WebSocket machines and frames for the tests of SP over WebSocket."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Sequence
from itertools import cycle

from nngkit.protocols.websocket import ClientMachine, Machine, ServerMachine

PUSH = "push.sp.nanomsg.org"
MIB = 1 << 20
KEY = b"\x01\x80\x7f\xff"
WHOLE, TEXT, CLOSE, PING, PONG = 0x82, 0x81, 0x88, 0x89, 0x8A


def server_of(path: str = "/", host: str | None = None, limit: int = MIB, large: int = 32768) -> ServerMachine:
    return ServerMachine(PUSH, path, host, limit, large=large)


def client_of(path: str = "/", host: str = "127.0.0.1:9000", limit: int = MIB, large: int = 32768) -> ClientMachine:
    return ClientMachine(PUSH, path, host, limit, os.urandom, large=large)


def sent_by(machine: Machine) -> bytes:
    taken, machine.to_send = machine.to_send, []
    return b"".join(taken)


def take(machine: Machine, data: bytes = b"") -> list[bytes]:
    out: list[bytes] = []
    machine.feed(data)
    machine.take(out)
    return out


def join(client: ClientMachine, server: ServerMachine) -> None:
    assert take(server, sent_by(client)) == []
    assert server.awaits_accept
    server.accept()
    assert take(client, sent_by(server)) == []
    assert client.open
    assert server.open


def joined(limit: int = MIB, large: int = 32768) -> tuple[ClientMachine, ServerMachine]:
    client, server = client_of(limit=limit, large=large), server_of(limit=limit, large=large)
    join(client, server)
    return client, server


def to_server(limit: int = MIB) -> ServerMachine:
    return joined(limit)[1]


def to_client(limit: int = MIB) -> ClientMachine:
    return joined(limit)[0]


def frame(first: int, body: bytes, key: bytes | None = None) -> bytes:
    """Return a frame as in RFC 6455, 5.2, byte by byte."""
    size, bit = len(body), 0x80 if key else 0
    if size < 126:
        head = bytes((first, bit | size))
    elif size < 65536:
        head = bytes((first, bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((first, bit | 127)) + size.to_bytes(8, "big")
    return head + key + bytes(a ^ b for a, b in zip(body, cycle(key))) if key else head + body


def pieces(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    out: list[bytes] = []
    at = 0
    for size in cycle(sizes):
        if at >= len(data):
            return out
        out.append(data[at : at + size])
        at += size
    raise AssertionError


FIELDS = {
    "Host": "127.0.0.1:9000",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": b64encode(bytes(16)).decode(),
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": PUSH,
}


def request_of(line: str = "GET /brick HTTP/1.1", **changes: str | None) -> bytes:
    fields: dict[str, str | None] = {**FIELDS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    lines = [line, *(f"{name}: {value}" for name, value in fields.items() if value is not None), "", ""]
    return "\r\n".join(lines).encode()


ANSWER = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Accept": "ICX+Yqv66kxgM0FcWaLWlFLwTAI=",
    "Sec-WebSocket-Protocol": PUSH,
}


def answer_of(line: str = "HTTP/1.1 101 Switching Protocols", **changes: str | None) -> bytes:
    fields: dict[str, str | None] = {**ANSWER, **{name.replace("_", "-"): value for name, value in changes.items()}}
    lines = [line, *(f"{name}: {value}" for name, value in fields.items() if value is not None), "", ""]
    return "\r\n".join(lines).encode()
