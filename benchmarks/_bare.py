"""Python's own sockets, without framing or protocol: what a round trip costs at least, on this machine."""

from __future__ import annotations

import socket
from typing import Any

from _child import report
from _numbered import ask_all

MOST = 1 << 16


def reply(task: dict[str, Any]) -> None:
    tcp = task["transport"] == "tcp"
    at: Any = ("127.0.0.1", 0) if tcp else task["url"].partition("://")[2]
    with socket.create_server(at, family=socket.AF_INET if tcp else socket.AF_UNIX) as server:
        report(url=f"tcp://127.0.0.1:{server.getsockname()[1]}" if tcp else task["url"])
        sock, _ = server.accept()
        if tcp:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        while request := sock.recv(MOST):
            sock.sendall(request)


def ask(task: dict[str, Any]) -> None:
    at = task["url"].partition("://")[2]
    if task["transport"] == "tcp":
        sock = socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2])))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
    else:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(at)

    def once(body: bytes) -> bytes:
        sock.sendall(body)
        return sock.recv(MOST)

    ask_all(once, task)
