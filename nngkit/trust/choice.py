"""The trust of a room or socket: what it is given, else that of the process: of ``use``, or of NNGKIT_TRUST."""

from __future__ import annotations

import os
from enum import Enum
from functools import cache
from typing import Final

from nngkit.errors import ConfigError
from nngkit.trust.trust import Trust

VARIABLE: Final = "NNGKIT_TRUST"


class Open(Enum):
    """The type of ``OPEN``: no trust, and it is meant. Other machines may connect."""

    OPEN = "open"


OPEN: Final = Open.OPEN
Choice = Trust | Open


def chosen(given: Choice | None, tls: object = None) -> Choice | None:
    """Return ``given``, else that of the process, by ``use`` or NNGKIT_TRUST; None without. Raises ConfigError.

    ``tls``: other settings of TLS, if there are any, with which a pass of the process does not count.
    """
    if given is not None:
        return given
    if tls is not None:
        return OPEN if may_be_open() else None
    if _used is not None:
        return _used
    named = os.environ.get(VARIABLE, "")
    return read(named, VARIABLE) if named else None


def may_be_open() -> bool:
    """Return True if the process has said that other machines may connect: by ``use`` or NNGKIT_TRUST."""
    return os.environ.get(VARIABLE) == OPEN.value if _used is None else _used is OPEN


def use(trust: Choice | str | os.PathLike[str]) -> Choice:
    """Make ``trust`` that of the process, in place of NNGKIT_TRUST, and return it. Raises ConfigError.

    It may be the path of a pass, or "open". Rooms and sockets made from now on have it, unless they are given another,
    or certificates; a socket without a room has it at tls+tcp and wss addresses.
    """
    global _used
    _used = trust if isinstance(trust, Choice) else read(os.fsdecode(trust))
    return _used


def read(named: str, what: str = "trust") -> Choice:
    """Return the trust of a pass file, one for each path, or ``OPEN`` for "open". Raises ConfigError with ``what``."""
    if named == OPEN.value:
        return OPEN
    try:
        return _read(named)
    except ConfigError as error:
        raise ConfigError(what, str(error), named) from error


_read = cache(Trust)
_used: Choice | None = None
