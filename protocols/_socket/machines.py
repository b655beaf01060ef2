"""Machines of new connections: SP over a byte stream, or over WebSocket."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._shm.machine import SharedMachine
from nngkit.protocols._shm.sharing import Sharing
from nngkit.protocols.sp import NAMES, PEERS, Machine


def machines(protocol: int, limit: int, headroom: int, sharing: Sharing) -> Callable[[Address, bool], Any]:
    """Return a factory of machines for new connections; it does not refer to the socket."""

    def machine(address: Address, dialed: bool) -> Any:
        if address.shared:
            return SharedMachine(protocol, limit=limit, headroom=headroom, sharing=sharing)
        if not address.web:
            return Machine(protocol, limit=limit, headroom=headroom, ipc=address.local, in_place=True)
        from nngkit.protocols.websocket import (  # imports h11 and wsproto, which most programs do not need
            ClientMachine,
            ServerMachine,
        )

        listener = PEERS[protocol] if dialed else protocol
        subprotocol = f"{NAMES[listener]}.sp.nanomsg.org"
        host = address.host.partition("%")[0]  # a zone means nothing to the peer
        if dialed:
            port = f":{address.port}"
            asked = f"[{host}]{port}" if ":" in host else host + port
            return ClientMachine(subprotocol, address.path, asked, limit, os.urandom, headroom=headroom)
        return ServerMachine(subprotocol, address.path, host or None, limit, headroom=headroom)

    return machine
