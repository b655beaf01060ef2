"""What discovery reads from the environment: one table, and the three who read it (daemon, service, caller).

The names of the article this follows (PORT, DEADLINE, SERVICE_NAME ...) work as they are; `NNGKIT_...` beside them
wins, and an empty value is as good as none. A value that cannot be read is a ConfigError that names the variable:

    >>> DaemonSettings.from_environment({"DEADLINE": "5s"})
    Traceback (most recent call last):
    nngkit.errors.ConfigError: DEADLINE: '5s' is not a whole number of milliseconds

Milliseconds end here, as they came with the article's names: the settings themselves are in seconds. Pure, but for the
environment that it is handed. docs/discovery.md prints VARIABLES, and a test compares the two.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

from nngkit.discovery.provider import PRIORITIES, PRIORITY, check_name
from nngkit.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.protocols import TLS

__all__ = ["VARIABLES", "Certificates", "ClientSettings", "DaemonSettings", "ServiceSettings", "Variable"]


@dataclass(frozen=True, slots=True)
class Variable:
    """One row: our name, the article's ("" where it had none), who reads it, the default and its unit, the meaning."""

    name: str
    article: str
    readers: str
    default: str
    unit: str
    meaning: str


EVERYBODY: Final = "daemon, service, caller"
VARIABLES: Final = (
    Variable("NNGKIT_LISTEN", "", "daemon", "", "addresses", "where it surveys; wins over host and port"),
    Variable("NNGKIT_HOST", "", "daemon", "127.0.0.1", "host", "the interface it surveys at"),
    Variable("NNGKIT_PORT", "PORT", "daemon", "5555", "port", "where it surveys; `PORT` alone is on every interface"),
    Variable("NNGKIT_DEADLINE", "DEADLINE", "daemon", "5000", "ms", "how long a round waits for replies"),
    Variable("NNGKIT_INTERVAL", "INTERVAL", "daemon", "2000", "ms", "the pause after a round"),
    Variable("NNGKIT_TEXT", "", "daemon", "yes", "yes or no", "ask in the article's text form too"),
    Variable("NNGKIT_QUERY", "", "daemon, caller", "", "addresses", "where callers ask; unset: the survey port + 1"),
    Variable("NNGKIT_DISCOVERY", "", "service", "", "addresses", "the daemons to be found by; wins over host and port"),
    Variable("NNGKIT_DISCOVERY_HOST", "DISCOVERY_HOST", "service, caller", "127.0.0.1", "host", "where the daemon is"),
    Variable("NNGKIT_DISCOVERY_PORT", "DISCOVERY_PORT", "service, caller", "5555", "port", "the port it surveys at"),
    Variable("NNGKIT_SERVICE_NAME", "SERVICE_NAME", "service", "foo", "name", "what the service is called"),
    Variable("NNGKIT_SERVICE_HOST", "SERVICE_HOST", "service", "127.0.0.1", "host", "where callers reach it"),
    Variable("NNGKIT_SERVICE_PORT", "SERVICE_PORT", "service", "9000", "port", "where callers reach it"),
    Variable("NNGKIT_SERVICE_PROTOCOL", "SERVICE_PROTOCOL", "service", "tcp", "scheme", "how callers reach it"),
    Variable("NNGKIT_ZONE", "", "service, caller", "", "text", "where this runs; callers get their own zone first"),
    Variable("NNGKIT_PRIORITY", "", "service", "8", "1 to 16", "the lowest is called first"),
    Variable("NNGKIT_CACERT", "", EVERYBODY, "", "file", "TLS: the authority whose certificates are good (PEM)"),
    Variable("NNGKIT_CERT", "", EVERYBODY, "", "file", "TLS: our own certificate (PEM)"),
    Variable("NNGKIT_KEY", "", EVERYBODY, "", "file", "TLS: its key (PEM)"),
)
"""Addresses: one or more URLs, separated by commas or spaces."""

_ROWS = {variable.name: variable for variable in VARIABLES}
_EVERYWHERE = {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "": "127.0.0.1", "[::]": "[::1]"}
_YES, _NO = ("yes", "true", "on", "1"), ("no", "false", "off", "0")


class _Environment:
    """Reads rows of the table: `value` is what counts, `source` the variable that it came from."""

    def __init__(self, environ: Mapping[str, str] | None) -> None:
        self._environ = os.environ if environ is None else environ

    def value(self, name: str) -> tuple[str, str]:
        row = _ROWS[name]
        for source in filter(None, (row.name, row.article)):
            if found := self._environ.get(source, "").strip():
                return found, source
        return row.default, ""

    def number(self, name: str, low: int, high: int, what: str) -> int:
        text, source = self.value(name)
        if not (text.isascii() and text.isdigit()):
            raise ConfigError(source, f"{text!r} is not a whole number{what}", text)
        number = int(text) if len(text) < 20 else high + 1
        if not low <= number <= high:
            raise ConfigError(source, f"{text} is not from {low} to {high}", text)
        return number

    def port(self, name: str, low: int = 1) -> int:
        return self.number(name, low, 65535, ", as a port is")

    def seconds(self, name: str, low: int) -> float:
        return self.number(name, low, 86_400_000, " of milliseconds") / 1000

    def certificates(self) -> Certificates:
        cacert, cert, key = (self.value(f"NNGKIT_{name}")[0] for name in ("CACERT", "CERT", "KEY"))
        if bool(cert) != bool(key):
            one, other = ("NNGKIT_CERT", "NNGKIT_KEY") if cert else ("NNGKIT_KEY", "NNGKIT_CERT")
            raise ConfigError(one, f"goes together with {other}", cert or key)
        return Certificates(cacert, cert, key)

    def yes(self, name: str) -> bool:
        text, source = self.value(name)
        if text.lower() not in _YES + _NO:
            raise ConfigError(source, f"{text!r} is neither yes nor no", text)
        return text.lower() in _YES

    def addresses(self, name: str) -> tuple[str, ...]:
        text, source = self.value(name)
        found = tuple(text.replace(",", " ").split())
        for address in found:
            if "://" not in address:
                raise ConfigError(source, f"{address!r} is not an address like tcp://host:port", address)
        return found

    def host(self, name: str) -> str:
        text, source = self.value(name)
        if any(c.isspace() or c in "/@?#" for c in text) or not text.isprintable():
            raise ConfigError(source, f"{text!r} is not a host", text)
        # a bare IPv6 address gets the brackets that a URL needs
        return f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text


def query_address(survey: str, source: str = "NNGKIT_QUERY") -> str:
    """Where callers ask a daemon that surveys at `survey`: the next port; port 0 stays 0, a path gets `.query`."""
    parts = urlsplit(survey)
    try:
        port = parts.port
    except ValueError as error:
        raise ConfigError("listen", f"{survey}: {error}", survey) from error
    if port is None:
        return survey + ".query"
    if port == 65535:
        raise ConfigError(source, f"has to be set, as there is no port after that of {survey}", survey)
    host = parts.netloc.rpartition(":")[0]
    return f"{parts.scheme}://{host}:{port + 1 if port else 0}{parts.path}"


def dialable(address: str) -> str:
    """`address`, or for one that is listened on at every interface, the same on this machine."""
    scheme, _, rest = address.partition("://")
    for host, here in _EVERYWHERE.items():
        if rest.startswith(host + ":"):
            return f"{scheme}://{here}{rest[len(host) :]}"
    return address


def _tcp(host: str, port: int) -> str:
    # `localhost` may be ::1 first, where the article's and our own daemons do not listen
    return f"{'tcp4' if host == 'localhost' else 'tcp'}://{host}:{port}"


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files for tls+tcp and wss addresses; "" for one that is not given."""

    cacert: str = ""
    cert: str = ""
    key: str = ""

    @property
    def tls(self) -> TLS | None:
        """The same as a setting of a socket; None if no file is given."""
        if self == Certificates():
            return None
        from nngkit.protocols import TLS

        return TLS(ca=self.cacert or None, cert=self.cert or None, key=self.key or None)


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """How a daemon is run. `listen`, `query`: addresses; `deadline`, `interval`: seconds; `warnings`: to be shown."""

    listen: tuple[str, ...] = ("tcp://127.0.0.1:5555",)
    query: tuple[str, ...] = ()
    deadline: float = 5.0
    interval: float = 2.0
    text: bool = True
    warnings: tuple[str, ...] = ()
    certificates: Certificates = Certificates()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """From NNGKIT_LISTEN or NNGKIT_HOST and (NNGKIT_)PORT, and the rest of the table. Raises ConfigError."""
        read = _Environment(environ)
        warnings = []
        listen = read.addresses("NNGKIT_LISTEN")
        if not listen:
            port = read.port("NNGKIT_PORT", low=0)
            host = read.host("NNGKIT_HOST")
            if read.value("NNGKIT_PORT")[1] == "PORT" and not read.value("NNGKIT_HOST")[1]:
                host = "0.0.0.0"
                warnings.append(
                    f"PORT={port} alone: open to every interface; NNGKIT_HOST=127.0.0.1 keeps it to this host"
                )
            listen = (f"tcp://{host}:{port}",)
        return cls(
            listen=listen,
            query=read.addresses("NNGKIT_QUERY"),
            deadline=read.seconds("NNGKIT_DEADLINE", 1),
            interval=read.seconds("NNGKIT_INTERVAL", 0),
            text=read.yes("NNGKIT_TEXT"),
            warnings=tuple(warnings),
            certificates=read.certificates(),
        )


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """What a service says of itself, and to whom."""

    name: str
    address: str
    discovery: tuple[str, ...]
    zone: str = ""
    priority: int = PRIORITY
    certificates: Certificates = Certificates()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """From (NNGKIT_)SERVICE_... and (NNGKIT_)DISCOVERY_... Raises ConfigError."""
        read = _Environment(environ)
        name, source = read.value("NNGKIT_SERVICE_NAME")
        try:
            check_name(name)
        except ValueError as error:
            raise ConfigError(source, str(error), name) from error
        scheme, source = read.value("NNGKIT_SERVICE_PROTOCOL")
        if not scheme.replace("+", "").isalnum():
            raise ConfigError(source, f"{scheme!r} is not a scheme like tcp", scheme)
        host, port = read.host("NNGKIT_SERVICE_HOST"), read.port("NNGKIT_SERVICE_PORT", low=0)
        return cls(
            name=name,
            address=f"{scheme}://{host}:{port}",
            discovery=read.addresses("NNGKIT_DISCOVERY")
            or (_tcp(read.host("NNGKIT_DISCOVERY_HOST"), read.port("NNGKIT_DISCOVERY_PORT")),),
            zone=read.value("NNGKIT_ZONE")[0],
            priority=read.number("NNGKIT_PRIORITY", *PRIORITIES, ""),
            certificates=read.certificates(),
        )


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where a caller asks: the query addresses of the daemons."""

    daemons: tuple[str, ...]
    zone: str = ""
    certificates: Certificates = Certificates()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, *, daemons: tuple[str, ...] = ()) -> Self:
        """From NNGKIT_QUERY, or (NNGKIT_)DISCOVERY_HOST and the port after (NNGKIT_)DISCOVERY_PORT. ConfigError.

        `daemons`, if given, are asked instead.
        """
        read = _Environment(environ)
        daemons = daemons or tuple(dialable(address) for address in read.addresses("NNGKIT_QUERY"))
        if not daemons:
            survey = _tcp(read.host("NNGKIT_DISCOVERY_HOST"), read.port("NNGKIT_DISCOVERY_PORT"))
            daemons = (dialable(query_address(survey)),)
        return cls(daemons, read.value("NNGKIT_ZONE")[0], read.certificates())
