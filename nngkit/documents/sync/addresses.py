"""Where a peer's sockets are, and how others are told: pure, text in and text out.

A peer has a BUS and a REP beside it. Who listens on all interfaces cannot know by which name others see it, so it says
`*`, which stands for the host that the connection came from::

    >>> repair_beside("tcp://10.0.0.7:4711"), repair_beside("ipc:///run/notes")
    ('tcp://10.0.0.7:0', 'ipc:///run/notes.repair')
    >>> advertised("tcp://0.0.0.0:4712"), resolved("tcp://*:4712", "tcp://10.0.0.9:51234")
    ('tcp://*:4712', 'tcp://10.0.0.9:4712')
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

__all__ = ["advertised", "repair_beside", "repair_for_dialer", "resolved", "with_token"]

ANY: Final = ("0.0.0.0", "[::]", "*", "")
HERE: Final = ("localhost", "127.0.0.1", "[::1]")
WEB: Final = ("ws", "ws4", "ws6", "wss", "wss4", "wss6")
TCP: Final = ("tcp", "tcp4", "tcp6", "tls+tcp", "tls+tcp4", "tls+tcp6")
LOCAL: Final = ("ipc", "unix", "abstract", "inproc")


def repair_beside(bus: str) -> str:
    """Where the REP of a BUS at `bus` listens, if nothing else was said; port 0 is any free one."""
    parts = urlsplit(bus)
    if parts.scheme in WEB:
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/repair"
    if "tcp" in parts.scheme:
        return f"{parts.scheme}://{_host(parts.netloc)}:0"
    return f"{bus}.repair"


def repair_for_dialer(other: str, name: str) -> str | None:
    """Where the REP of a peer listens that only dials `other`: on this host only, None if `other` is elsewhere.

    Nobody asked for a port that the network can reach; who wants to be asked from there says where.
    """
    parts = urlsplit(other)
    if parts.scheme in LOCAL:
        return f"{other}.{name}.repair"
    if "tls" in parts.scheme or parts.scheme.startswith("wss"):
        return None  # a listener needs a certificate of its own
    return "tcp://127.0.0.1:0" if _host(parts.netloc) in HERE else None


def with_token(bus: str, token: str) -> str:
    """The address of a BUS on the web that only those find who have the token: the same at every start."""
    secret = hashlib.sha256(b"nngkit bus\0" + token.encode()).hexdigest()[:32]
    return f"{bus.rstrip('/')}/{secret}"


@lru_cache(256)
def advertised(address: str) -> str:
    """`address` as others are told of it."""
    parts = urlsplit(address)
    host = _host(parts.netloc)
    if host not in ANY or ("tcp" not in parts.scheme and parts.scheme not in WEB):
        return address
    return f"{parts.scheme}://*{parts.netloc[len(host) :]}{parts.path}"


@lru_cache(1024)  # a beat tells it every time
def resolved(address: str, seen: str | None) -> str | None:
    """`address` as told by a peer whose connection is at `seen`; None if it cannot be known, or is no address."""
    try:
        parts = urlsplit(address)
    except ValueError:  # a bracket that does not close, as only a stranger writes it
        return None
    if parts.scheme not in (*TCP, *WEB, *LOCAL):
        return None
    if _host(parts.netloc) != "*":
        return address
    host = "" if seen is None else _host(urlsplit(seen).netloc)
    if host in ANY:
        return None
    return f"{parts.scheme}://{host}{parts.netloc[1:]}{parts.path}"


def _host(netloc: str) -> str:
    host, colon, _ = netloc.rpartition(":")
    return host if colon and not netloc.endswith("]") else netloc
