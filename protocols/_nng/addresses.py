"""Addresses: the transport a URL names, whether it can be used, and the bound URL.

May not know: sockets, connections.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from nngkit.errors import ConfigError

SCHEMES: Final = ("tcp", "tcp4", "tcp6", "ipc", "unix", "abstract", "shm", "inproc", "ws", "ws4", "ws6")
TLS_SCHEMES: Final = ("tls+tcp", "tls+tcp4", "tls+tcp6", "wss", "wss4", "wss6")
MOST_PATH: Final = 107  # bytes of an ipc path: the size of a sockaddr_un
_WEB: Final = ("ws", "ws4", "ws6", "wss", "wss4", "wss6")
_LINUX: Final = sys.platform == "linux"
_PORTS: Final = {"ws": 80, "wss": 443}  # default ports


@dataclass(frozen=True, slots=True)
class Address:
    """Parts of a URL. ``path`` is a WebSocket's, "/" by default.

    ``stream`` is the URL given to NNG, or for a transport with ports its scheme: ``at`` returns the URL.
    """

    url: str
    scheme: str
    stream: str
    host: str
    port: int | None
    path: str

    @property
    def tls(self) -> bool:
        return self.scheme in TLS_SCHEMES

    @property
    def web(self) -> bool:
        """True for a WebSocket."""
        return self.scheme in _WEB

    @property
    def local(self) -> bool:
        """True for a Unix socket, whose SP frames have one more byte."""
        return self.scheme in ("ipc", "unix", "abstract", "shm")

    @property
    def filed(self) -> bool:
        """True for a Unix socket with a path in the file system."""
        return self.scheme in ("ipc", "unix", "shm")

    @property
    def shared(self) -> bool:
        """True for a Unix socket with large bodies in shared memory."""
        return self.scheme == "shm"

    @property
    def ported(self) -> bool:
        """True for a transport with ports."""
        return not self.local and self.scheme != "inproc"

    @property
    def stays_here(self) -> bool:
        """True if no other machine can be reached by this address, or reach it."""
        host = self.host
        return not self.ported or host in ("localhost", "::1") or (host.startswith("127.") and host.count(".") == 3)

    @property
    def version(self) -> int:
        """The only IP version of the transport, 4 or 6; 0 if it has both."""
        return int(self.scheme[-1]) if self.scheme[-1] in "46" else 0

    def at(self, host: str, port: int) -> str:
        """Return the URL given to NNG for a numeric host, with brackets if it has colons."""
        return f"{self.stream}://{host}:{port}"

    def bound(self, port: int) -> str:
        """Return the bound URL, with ``port`` in place of 0."""
        host = self.host
        if host in ("", "*"):
            host = "::" if self.version == 6 else "0.0.0.0"
        if ":" in host:
            host = f"[{host}]"
        return f"{self.scheme}://{host}:{port}{'' if self.path == '/' and not self.url.endswith('/') else self.path}"


def parse(what: str, url: str) -> Address:
    """Return the parts of ``url``; ``what`` is "listen" or "dial". Raises ConfigError, which names the URL."""
    if not isinstance(url, str) or "://" not in url:
        raise ConfigError(what, f"{url}: not an address such as tcp://host:port or ipc:///path", url)
    if "\0" in url:  # C ends there: it would be another address
        raise ConfigError(what, f"{url!r}: an address has no NUL", url)
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES and scheme not in TLS_SCHEMES:
        known = ", ".join(sorted({*SCHEMES, *TLS_SCHEMES}))
        raise ConfigError(what, f"{url}: no transport {scheme!r}; known are {known}", url)
    if scheme in ("ipc", "unix", "abstract", "shm", "inproc"):
        why = _unusable_name(what, scheme, rest)
        if why:
            raise ConfigError(what, f"{url}: {why}", url)
        return Address(url, scheme, url, "", None, "/")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as malformed:  # unmatched brackets
        raise ConfigError(what, f"{url}: {malformed}", url) from malformed
    port = _port(what, url, parts)
    if port is None and scheme in _WEB:
        port = _PORTS[scheme[:3] if scheme.startswith("wss") else "ws"]
    if what == "dial" and not port:
        raise ConfigError(what, f"{url}: dial needs a port from 1 to 65535", url)
    if what == "dial" and host in ("", "*"):
        raise ConfigError(what, f"{url}: dial needs a host", url)
    # urlsplit lower-cases the host, which does not change a name
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(url, scheme, "tcp", host, port, path)


def _unusable_name(what: str, scheme: str, rest: str) -> str | None:
    if scheme == "shm" and not _LINUX:
        return "shared memory needs Linux"
    if scheme in ("ipc", "unix", "shm"):
        if not rest:
            return f"{what} needs a path or a name"
        if len(rest.encode()) > MOST_PATH:
            return f"path longer than {MOST_PATH} bytes"
    elif scheme == "abstract":
        if what == "dial" and not rest:
            return "dial needs a path or a name"
        if len(rest.encode()) > MOST_PATH:
            return f"name longer than {MOST_PATH} bytes"
    elif not rest:
        return f"{what} needs a path or a name"
    return None


def _port(what: str, url: str, parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError as wrong:  # not a number, or out of range
        least = 1 if what == "dial" else 0
        raise ConfigError(what, f"{url}: {what} needs a port from {least} to 65535", url) from wrong


def several(what: str, value: object) -> tuple[str, ...]:
    """Return one address, several or none as a tuple. Raises ConfigError."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    try:
        return tuple(value)  # type: ignore[arg-type]
    except TypeError:
        raise ConfigError(what, f"{value!r}: neither an address nor an iterable of addresses", value) from None
