"""Python's own socket on the descriptor of NNG's stream: one system call reads or writes, without an operation of NNG.

The descriptor stays NNG's, which closes it only after `nng_stream_free` (docs/nng.md): the connection detaches the
socket before that.

May not know: connections, messages.
"""

from __future__ import annotations

import errno
import os
import socket as sockets
from collections.abc import Callable
from functools import partial
from typing import Final

from nngkit.protocols._nng.library import lib

SHORT: Final = 16 * 1024  # bytes of a direct reception that may be one whole small message
NO_SIGNAL: Final = getattr(sockets, "MSG_NOSIGNAL", 0)  # a program may have the default action for SIGPIPE: its end
enabled: object = os.environ.get("NNGKIT_DIRECT", "1") != "0"  # examined for each connection

_CODES: Final = {
    errno.EPIPE: lib.NNG_ECLOSED,
    errno.ECONNRESET: lib.NNG_ECONNRESET,
    errno.ECONNABORTED: lib.NNG_ECONNABORTED,
    errno.ETIMEDOUT: lib.NNG_ETIMEDOUT,
    errno.EHOSTUNREACH: lib.NNG_EUNREACHABLE,
    errno.ENETUNREACH: lib.NNG_EUNREACHABLE,
    errno.ENOMEM: lib.NNG_ENOMEM,
    errno.ENOBUFS: lib.NNG_ENOMEM,
}


def socket_on(descriptor: int) -> Callable[[], sockets.SocketType]:
    """Return a constructor, in C, of a socket on ``descriptor``; it raises OSError.

    It is declared non-blocking: otherwise the program's default timeout would be set on the descriptor.
    """
    return partial(sockets.SocketType, type=sockets.SOCK_STREAM | sockets.SOCK_NONBLOCK, fileno=descriptor)


def code_of(error: OSError) -> int:
    """Return NNG's code for an error of the system, as NNG does for its own calls."""
    number = error.errno or 0
    return int(_CODES.get(number, lib.NNG_ESYSERR + number))
