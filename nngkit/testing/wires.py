"""Wires: transports with fresh addresses, and the options that both ends need."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nngkit.protocols import TLS

TRANSPORTS: Final = ("tcp", "tcp6", "ipc", "abstract", "ws", "wss", "tls+tcp", "inproc")
TLS_TRANSPORTS: Final = ("wss", "tls+tcp")

_numbers = itertools.count()


@dataclass(frozen=True)
class Wire:
    """A transport for the two ends of a pattern, on this machine.

    Attributes:
        transport: One of TRANSPORTS.
        directory: Directory of the sockets of ipc. Its path is short: a socket's path has at most 107 bytes.
        tls: Settings for both ends, required for wss and tls+tcp: a certificate for their `server_name`, its key, and
            the CA that issued it.
    """

    transport: str
    directory: Path | None = None
    tls: TLS | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Options for the constructors of both ends."""
        return {} if self.tls is None else {"tls": self.tls}

    def address(self, port: int = 0) -> str:
        """Return an address for a listener that no other listener has; with `port` for transports that have ports.

        Raises:
            ValueError: `directory` is needed for ipc.
        """
        match self.transport:
            case "tcp" | "tls+tcp":
                return f"{self.transport}://127.0.0.1:{port}"
            case "tcp6":
                return f"tcp6://[::1]:{port}"
            case "ws" | "wss":
                return f"{self.transport}://127.0.0.1:{port}/brick"
            case "ipc":
                if self.directory is None:
                    raise ValueError("a wire over ipc needs a directory for its sockets")
                return f"ipc://{self.directory}/{next(_numbers)}"
            case _:
                return f"{self.transport}://nngkit-{os.getpid()}-{next(_numbers)}"

    @contextmanager
    def reserved(self) -> Iterator[str]:
        """Yield an address to dial before a listener is there; until the block ends, no other socket gets its port."""
        family = socket.AF_INET6 if self.transport == "tcp6" else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as holder:
            # bound and not listening: the kernel gives the port to no other socket, but lets NNG listen, which sets the
            # same option
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
            yield self.address(holder.getsockname()[1])


def make_wires(directory: Path | None = None, tls: TLS | None = None) -> tuple[Wire, ...]:
    """Return a wire for each transport that the arguments allow.

    Args:
        directory: Directory for ipc, with a short path; without it, ipc is left out.
        tls: Settings for both ends; without them, wss and tls+tcp are left out.
    """
    return tuple(
        Wire(transport, directory, tls if transport in TLS_TRANSPORTS else None)
        for transport in TRANSPORTS
        if (transport != "ipc" or directory is not None) and (transport not in TLS_TRANSPORTS or tls is not None)
    )
