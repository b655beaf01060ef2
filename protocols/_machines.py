"""The machine of a new connection: SP over a byte stream, or over WebSocket."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ._addresses import Address
from .sp import NAMES, PEERS, Machine


def machines(protocol: int, limit: int, headroom: int) -> Callable[[Address, bool], Any]:
    """Factory of the machines of new connections; it does not know the socket."""

    def machine(address: Address, dialled: bool) -> Any:
        if not address.web:
            return Machine(protocol, limit=limit, headroom=headroom, ipc=address.local, in_place=True)
        from .websocket import ClientMachine, ServerMachine  # h11 and wsproto: most programs do not need them

        listener = PEERS[protocol] if dialled else protocol
        subprotocol = f"{NAMES[listener]}.sp.nanomsg.org"
        if dialled:
            port = f":{address.port}"
            host = f"[{address.host}]" if ":" in address.host else address.host
            return ClientMachine(subprotocol, address.path, host + port, limit, os.urandom, headroom=headroom)
        return ServerMachine(subprotocol, address.path, address.host or None, limit, headroom=headroom)

    return machine
