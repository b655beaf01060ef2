"""Addresses of a peer's sockets, as bound and as advertised. Pure: text in, text out.

A peer has a BUS and, beside it, a REP. A peer that listens on all interfaces does not know the host that others see, so
it advertises `*`, which stands for the host of the connection::

    >>> repair_beside("tcp://10.0.0.7:4711"), repair_beside("ipc:///run/notes")
    ('tcp://10.0.0.7:0', 'ipc:///run/notes.repair')
    >>> advertised("tcp://0.0.0.0:4712"), resolved("tcp://*:4712", "tcp://10.0.0.9:51234")
    ('tcp://*:4712', 'tcp://10.0.0.9:4712')
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

ANY: Final = ("0.0.0.0", "[::]", "*", "")
HERE: Final = ("localhost", "127.0.0.1", "[::1]")
WEB: Final = ("ws", "ws4", "ws6", "wss", "wss4", "wss6")
TCP: Final = ("tcp", "tcp4", "tcp6", "tls+tcp", "tls+tcp4", "tls+tcp6")
LOCAL: Final = ("ipc", "unix", "abstract", "inproc")


def repair_beside(bus: str) -> str:
    """Return the default REP address beside a BUS at `bus`; port 0 is any free one."""
    parts = urlsplit(bus)
    if parts.scheme in WEB:
        return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/repair"
    if "tcp" in parts.scheme:
        return f"{parts.scheme}://{_host(parts.netloc)}:0"
    return f"{bus}.repair"


def repair_for_dialer(other: str, name: str) -> str | None:
    """Return the default REP address of a peer that only dials `other`: on this host; None if `other` is remote.

    A network port is not opened unasked: a peer that is to be reachable sets `repair`.
    """
    parts = urlsplit(other)
    if parts.scheme in LOCAL:
        return f"{other}.{name}.repair"
    if "tls" in parts.scheme or parts.scheme.startswith("wss"):
        return None  # a listener would need a certificate of its own
    return "tcp://127.0.0.1:0" if _host(parts.netloc) in HERE else None


@lru_cache(256)
def advertised(address: str) -> str:
    """Return `address` as advertised to other peers."""
    parts = urlsplit(address)
    host = _host(parts.netloc)
    if host not in ANY or ("tcp" not in parts.scheme and parts.scheme not in WEB):
        return address
    return f"{parts.scheme}://*{parts.netloc[len(host) :]}{parts.path}"


@lru_cache(1024)  # advertised in every heartbeat
def resolved(address: str, seen: str | None) -> str | None:
    """Resolve an advertised address by the connection's remote address `seen`; None if that is impossible."""
    try:
        parts = urlsplit(address)
    except ValueError:  # an unbalanced bracket, from a hostile peer
        return None
    if parts.scheme not in (*TCP, *WEB, *LOCAL):
        return None
    if _host(parts.netloc) != "*":
        return address
    host = "" if seen is None else _host(urlsplit(seen).netloc)
    if host in ANY:
        return None
    return parts._replace(netloc=f"{host}{parts.netloc[1:]}").geturl()


def _host(netloc: str) -> str:
    host, colon, _ = netloc.rpartition(":")
    return host if colon and not netloc.endswith("]") else netloc
