"""Peers that violate SP, in a process of their own: ``python _hostile.py KIND URL``, KIND a name in ``KINDS``.

Each uses at most a tenth of a CPU. The process ends when its standard input is closed, with its parent.
"""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from _child import as_many_files_as_allowed

SHARE = 0.1  # of a CPU
REQ = 48  # SP's protocol number
HELLO = b"\0SP\0" + struct.pack(">HH", REQ, 0)
WRONG = (b"GET / HTTP/1.1\r\n\r\n", b"\0SP\1" + bytes(4), b"\0SP\0\0\x50\0\0", b"\xff" * 64, b"\0", b"")
LENGTHS = (*(1 << bit for bit in range(64)), *((1 << bit) - 1 for bit in range(1, 65)))
SILENT, HALVES = 1000, 50


def _connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port))


def hellos(url: str) -> Iterator[None]:
    """Connect, send an invalid hello, and disconnect."""
    for said in itertools.cycle(WRONG):
        with _connect(url) as peer:
            peer.sendall(said)
        yield


def lengths(url: str) -> Iterator[None]:
    """Announce a message of every length, one a connection, and send part of it."""
    for length in itertools.cycle(LENGTHS):
        with _connect(url) as peer:
            peer.sendall(HELLO + struct.pack(">Q", length) + b"\x80\0\0\1some")
        yield


def halves(url: str) -> Iterator[None]:
    """Hold connections with half a message; each new one replaces the oldest."""
    held: list[socket.socket] = []
    while True:
        held.append(_connect(url))
        held[-1].sendall(HELLO + struct.pack(">Q", 1000) + bytes(500))
        if len(held) > HALVES:
            held.pop(0).close()
        yield


def silent(url: str) -> Iterator[None]:
    """Hold silent connections, and open another for each that is closed."""
    held: dict[int, socket.socket] = {}
    while True:
        while len(held) < SILENT:
            peer = _connect(url)
            peer.setblocking(False)
            held[peer.fileno()] = peer
            yield
        for number, peer in list(held.items()):
            with suppress(BlockingIOError):
                while peer.recv(4096):
                    pass
                del held[number]
                peer.close()
        time.sleep(0.1)
        yield


def flood(url: str) -> Iterator[None]:
    """Send requests without end, and read no reply."""
    requests = b"".join(struct.pack(">QI", 20, 1 << 31 | number) + bytes(16) for number in range(1000))
    with _connect(url) as peer:
        peer.sendall(HELLO)
        while True:
            peer.sendall(requests)
            yield


def shakes(url: str) -> Iterator[None]:
    """Begin a handshake of TLS, and leave when the other side has done its part of it."""
    sent = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    begun = sent.read()
    while True:
        with _connect(url) as peer:
            peer.sendall(begun)
            peer.recv(4096)
        yield


KINDS: dict[str, Callable[[str], Iterator[None]]] = {
    one.__name__: one for one in (hellos, lengths, halves, silent, flood, shakes)
}


def attack(kind: str, url: str) -> subprocess.Popen[bytes]:
    """Start a hostile peer, which ends with this process."""
    return subprocess.Popen([sys.executable, Path(__file__), kind, url], stdin=subprocess.PIPE)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    as_many_files_as_allowed()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    kind, url = sys.argv[1:]
    began, spent = time.monotonic(), time.process_time()
    while True:
        with suppress(OSError):  # disconnected, as intended: repeat
            for _ in KINDS[kind](url):
                ahead = (time.process_time() - spent) / SHARE - (time.monotonic() - began)
                if ahead > 0.005:
                    time.sleep(ahead)


if __name__ == "__main__":
    main()
