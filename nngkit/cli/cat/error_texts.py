"""Errors in the words of NNG and of the C library, for the stand-ins. Pure."""

from __future__ import annotations

from typing import Final

from nngkit.errors import NngkitError, TimedOut, Unreachable

_POSIX: Final = {  # NNG's text: strerror's text
    "Address in use": "Address already in use",
    "Address invalid": "Cannot assign requested address",
    "Entry not found": "No such file or directory",
    "Not supported": "Protocol not supported",
    "Timed out": "Connection timed out",
    "Permission denied": "Permission denied",
}


def nng_reason(error: NngkitError, url: str = "") -> str:
    """Return the text of nng_strerror."""
    if isinstance(error, TimedOut):
        return "Timed out"
    if isinstance(error, Unreachable):
        reason = error.reason.removeprefix("cannot listen: ").removeprefix("cannot dial: ")
        if reason == "not an address of this host":
            return "Address invalid"
        return reason[:1].upper() + reason[1:]  # nngkit's are lower-case
    text = str(error)
    if "no transport" in text or "needs tls" in text:
        return "Not supported"
    if "a port from" in text:
        return "Address invalid"
    if "not an address" in text:
        return "Invalid argument"
    return text.removeprefix(f"listen: {url}: ").removeprefix(f"dial: {url}: ").capitalize()


def posix_reason(error: NngkitError, url: str = "") -> str:
    """Return the text of strerror."""
    reason = nng_reason(error, url)
    if reason == "Address invalid":
        host, _, port = url.partition("://")[2].rpartition(":")
        if not port.isdigit() or not 0 < int(port) < 65536:
            return "Invalid argument"
        if any(each.isalpha() for each in host) or not host:
            return "No such device"  # nanomsg expects the name of a network interface
    return _POSIX.get(reason, reason)
