"""Connections that a listener has accepted, and that are still shaking hands. May not know: messages, protocols.

Closed meanwhile, NNG 1.11 leaks their descriptors (tests/protocols/test_defects_connections.py), and it counts them
nowhere until they are connections. But each is a descriptor of this process: a socket with the listener's port and a
peer is either one of the connections that NNG has told of, or one of these.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

__all__ = ["shaking"]

DESCRIPTORS: Final = "/proc/self/fd"
LOCAL: Final = ("ipc", "unix", "abstract", "inproc")


def shaking(listening: Iterable[str], accepted: Iterable[str]) -> bool:
    """Whether more connections are held by listeners at the addresses `listening` than those `accepted` from.

    False where that cannot be known: other systems, and transports without ports.
    """
    ports = {port for address in listening if (port := _port(address))}
    if not ports:
        return False
    known = sum(not address.startswith(LOCAL) for address in accepted)
    return sum(port in ports for port in _held()) > known


def _port(address: str) -> int | None:
    return None if address.startswith(LOCAL) else urlsplit(address).port


def _held() -> Iterator[int]:
    """The local ports of all connections that this process holds."""
    try:
        descriptors = os.listdir(DESCRIPTORS)
    except OSError:
        return
    for descriptor in descriptors:
        try:
            held = socket.socket(fileno=int(descriptor))
        except OSError:  # no socket, or gone meanwhile
            continue
        try:
            if held.family in (socket.AF_INET, socket.AF_INET6):
                held.getpeername()
                yield held.getsockname()[1]
        except OSError:  # a listener, or a connection that has ended
            continue
        finally:
            held.detach()  # it is NNG's, or somebody else's
