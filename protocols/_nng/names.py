"""Numeric addresses: which hosts need no lookup, and how NNG reads a number.

NNG is given numbers only. It looks up even these, with AI_ADDRCONFIG: on a host whose only IPv4 address is 127.0.0.1,
it finds no IPv4 address usable. They are then spelled as IPv4-mapped IPv6 addresses (docs/nng.md).

May not know: connections, threads.
"""

from __future__ import annotations

import socket as sockets
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from nngkit.errors import ConfigError
from nngkit.protocols._nng.addresses import Address

EVERY: Final = ("0.0.0.0", "::")  # all interfaces
_FAMILIES: Final = {4: sockets.AF_INET, 6: sockets.AF_INET6}
_LOOPBACK: Final = {4: "127.0.0.1", 6: "::1"}


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric address: IP version 4 or 6, and its text without the zone, which is an interface's name or index."""

    version: int
    host: str
    zone: str = ""

    @property
    def family(self) -> sockets.AddressFamily:
        """The address family of a socket for it."""
        return _FAMILIES[self.version]

    def __str__(self) -> str:
        return f"{self.host}%{self.zone}" if self.zone else self.host


def known(what: str, address: Address) -> tuple[Number, ...] | None:
    """Return the addresses that the host of ``address`` stands for without a lookup; None for any other name.

    ``localhost`` is both loopback addresses. Raises ConfigError for a number that the transport does not have.
    """
    host, only = address.host, address.version
    if what == "listen" and host in ("", "*"):
        return (Number(6, "::"),) if only == 6 else (Number(4, "0.0.0.0"),)
    if host == "localhost":
        return tuple(Number(version, _LOOPBACK[version]) for version in (6, 4) if only in (0, version))
    number = _read(host)
    if number is not None and only not in (0, number.version):
        raise ConfigError(what, f"{address.url}: {address.scheme} has no IPv{number.version} addresses", address.url)
    return None if number is None else (number,)


def _read(host: str) -> Number | None:
    host, _, zone = host.partition("%")
    for version, family in _FAMILIES.items():
        with suppress(OSError, ValueError):
            return Number(version, sockets.inet_ntop(family, sockets.inet_pton(family, host)), zone)
    return None


def spelled(number: Number, address: Address) -> str:
    """Return ``number`` as NNG reads it in the URL of ``address``. Raises OSError if the zone is no interface."""
    host = number.host
    if number.version == 4:
        if usable(4):
            return host
        return "[::]" if host == EVERY[0] and not address.version else f"[::ffff:{host}]"
    if host == EVERY[1] and not address.version and not usable(6):
        return EVERY[0]
    if not number.zone:
        return f"[{host}]"
    # NNG decodes % and two hexadecimal digits. It keeps %00 to %1F, so a zero before the index is safe.
    index = int(number.zone) if number.zone.isdecimal() else sockets.if_nametoindex(number.zone)
    return f"[{host}%0{index}]"


def usable(version: int) -> bool:
    """Return True if NNG finds addresses of this IP version usable; one of them must be on more than loopback."""
    flags = sockets.AI_ADDRCONFIG | sockets.AI_NUMERICHOST
    try:
        sockets.getaddrinfo(_LOOPBACK[version], None, type=sockets.SOCK_STREAM, flags=flags)
    except OSError:
        return False
    return True


def found(answer: list[Any]) -> tuple[Number, ...]:
    """Return the numbers in an answer of ``getaddrinfo``, in its order (RFC 6724)."""
    versions = {family: version for version, family in _FAMILIES.items()}
    numbers = []
    for family, _, _, _, place in answer:
        if (version := versions.get(family)) is not None:
            zone = str(place[3]) if version == 6 and place[3] else ""
            numbers.append(Number(version, str(place[0]).partition("%")[0], zone))
    return tuple(dict.fromkeys(numbers))
