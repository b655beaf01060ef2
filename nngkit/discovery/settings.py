"""Settings of discovery from environment variables: one table, and its three readers (daemon, service, caller).

The variable names of the article this follows (PORT, DEADLINE, SERVICE_NAME ...) work unchanged. The `NNGKIT_...` names
beside them take precedence, and an empty value counts as unset. An invalid value raises ConfigError with its name:

    >>> DaemonSettings.from_environment({"DEADLINE": "5s"})
    Traceback (most recent call last):
    nngkit.errors.ConfigError: DEADLINE: '5s' is not a whole number of milliseconds

Milliseconds, inherited from the article's variables, occur only here; the settings are in seconds. Pure, apart from
reading the environment. docs/discovery.md prints VARIABLES, and a test compares the two.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

from nngkit.discovery.domains import check_domain
from nngkit.discovery.provider import PRIORITIES, PRIORITY, check_name
from nngkit.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nngkit.protocols import TLS
    from nngkit.trust import Choice


@dataclass(frozen=True, slots=True)
class Variable:
    """A row of the table: our name, the article's ("" if it has none), readers, default, unit, meaning."""

    name: str
    article: str
    readers: str
    default: str
    unit: str
    meaning: str


ALL_READERS: Final = "daemon, service, caller"
VARIABLES: Final = (
    Variable("NNGKIT_LISTEN", "", "daemon", "", "addresses", "survey addresses; takes precedence over host and port"),
    Variable(
        "NNGKIT_HOST",
        "",
        "daemon",
        "127.0.0.1",
        "host",
        "survey interface; others than this machine: [trust](trust.md)",
    ),
    Variable("NNGKIT_PORT", "PORT", "daemon", "5555", "port", "survey port; `PORT` alone listens on every interface"),
    Variable("NNGKIT_DEADLINE", "DEADLINE", "daemon", "5000", "ms", "time that a round waits for replies"),
    Variable("NNGKIT_INTERVAL", "INTERVAL", "daemon", "2000", "ms", "pause after a round"),
    Variable("NNGKIT_TEXT", "", "daemon", "yes", "yes or no", "send the article's text query too"),
    Variable("NNGKIT_QUERY", "", "daemon, caller", "", "addresses", "query addresses; unset: the survey port + 1"),
    Variable("NNGKIT_HISTORY", "", "daemon", "", "file", "`nngkit discoverd` keeps the changes here"),
    Variable("NNGKIT_DISCOVERY", "", "service", "", "addresses", "the daemons; takes precedence over host and port"),
    Variable("NNGKIT_DISCOVERY_HOST", "DISCOVERY_HOST", "service, caller", "127.0.0.1", "host", "host of the daemon"),
    Variable("NNGKIT_DISCOVERY_PORT", "DISCOVERY_PORT", "service, caller", "5555", "port", "survey port of the daemon"),
    Variable("NNGKIT_SERVICE_NAME", "SERVICE_NAME", "service", "foo", "name", "name of the service"),
    Variable("NNGKIT_SERVICE_HOST", "SERVICE_HOST", "service", "127.0.0.1", "host", "host that callers dial"),
    Variable("NNGKIT_SERVICE_PORT", "SERVICE_PORT", "service", "9000", "port", "port that callers dial"),
    Variable("NNGKIT_SERVICE_PROTOCOL", "SERVICE_PROTOCOL", "service", "tcp", "scheme", "scheme that callers dial"),
    Variable("NNGKIT_ZONE", "", "service, caller", "", "text", "own zone; callers are sent to their own zone first"),
    Variable("NNGKIT_PREFER", "", "caller", "", "list", "zones in order of preference (default: the own zone)"),
    Variable("NNGKIT_PRIORITY", "", "service", "8", "1 to 16", "the lowest is tried first"),
    Variable("NNGKIT_DOMAIN", "", ALL_READERS, "", "text", "those of other domains are not shown"),
    Variable("NNGKIT_TRUST", "", ALL_READERS, "", "file", "[pass](trust.md) of all connections, or `open`"),
    Variable("NNGKIT_CACERT", "", ALL_READERS, "", "file", "TLS: certificates of the trusted authorities (PEM)"),
    Variable("NNGKIT_CERT", "", ALL_READERS, "", "file", "TLS: own certificate (PEM)"),
    Variable("NNGKIT_KEY", "", ALL_READERS, "", "file", "TLS: own private key (PEM)"),
)
"""Addresses: one or more URLs, separated by commas or spaces."""

_ROWS = {variable.name: variable for variable in VARIABLES}
_EVERYWHERE = {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "": "127.0.0.1", "[::]": "[::1]"}
_YES, _NO = ("yes", "true", "on", "1"), ("no", "false", "off", "0")


class _Environment:
    """Reads rows of the table: `value` is the effective value, `source` the variable it came from."""

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

    def domain(self) -> str:
        text, source = self.value("NNGKIT_DOMAIN")
        try:
            return check_domain(text)
        except ConfigError as error:
            raise ConfigError(source, error.why, text) from error

    def certificates(self) -> Certificates:
        cacert, cert, key = (self.value(f"NNGKIT_{name}")[0] for name in ("CACERT", "CERT", "KEY"))
        if bool(cert) != bool(key):
            one, other = ("NNGKIT_CERT", "NNGKIT_KEY") if cert else ("NNGKIT_KEY", "NNGKIT_CERT")
            raise ConfigError(one, f"requires {other}", cert or key)
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
        # a bare IPv6 address needs brackets in a URL
        return f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text


def query_address(survey: str, source: str = "NNGKIT_QUERY") -> str:
    """Return the query address of a daemon that surveys at `survey`: the next port; 0 stays 0, a path gets `.query`."""
    try:
        parts = urlsplit(survey)
        port = parts.port
    except ValueError as error:
        raise ConfigError("listen", f"{survey}: {error}", survey) from error
    if port is None:
        return survey + ".query"
    if port == 65535:
        raise ConfigError(source, f"has to be set: there is no port after that of {survey}", survey)
    host = parts.netloc.rpartition(":")[0]
    return f"{parts.scheme}://{host}:{port + 1 if port else 0}{parts.path}"


def dialable(address: str) -> str:
    """Return `address`, with a wildcard host replaced by this machine's loopback address."""
    scheme, _, rest = address.partition("://")
    for host, here in _EVERYWHERE.items():
        if rest.startswith(host + ":"):
            return f"{scheme}://{here}{rest[len(host) :]}"
    return address


def _tcp(host: str, port: int) -> str:
    return f"tcp://{host}:{port}"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files for tls+tcp and wss addresses; "" if not given."""

    cacert: str = ""
    cert: str = ""
    key: str = ""

    @property
    def tls(self) -> TLS | None:
        """The files as a TLS configuration; None if no file is given."""
        if self == Certificates():
            return None
        from nngkit.protocols import TLS

        return TLS(ca=self.cacert or None, cert=self.cert or None, key=self.key or None)

    def beside(self, tls: TLS | None, trust: Choice | None) -> TLS | None:
        """Return `tls`, or else these, unless a trust is given."""
        if tls is not None or self == Certificates():
            return tls
        from nngkit.trust import Trust

        return None if isinstance(trust, Trust) else self.tls


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """Settings of a daemon. `listen`, `query`: addresses; `deadline`, `interval`: seconds; `warnings`: for the log.

    `open`: other machines may connect without proof, unless the daemon has a trust or certificates.
    """

    listen: tuple[str, ...] = ("tcp://127.0.0.1:5555",)
    query: tuple[str, ...] = ()
    deadline: float = 5.0
    interval: float = 2.0
    text: bool = True
    warnings: tuple[str, ...] = ()
    certificates: Certificates = Certificates()
    domain: str = ""
    open: bool = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read NNGKIT_LISTEN or NNGKIT_HOST and (NNGKIT_)PORT, and the rest of the table. Raises ConfigError."""
        read = _Environment(environ)
        warnings = []
        listen = read.addresses("NNGKIT_LISTEN")
        if not listen:
            port = read.port("NNGKIT_PORT", low=0)
            host = read.host("NNGKIT_HOST")
            if read.value("NNGKIT_PORT")[1] == "PORT" and not read.value("NNGKIT_HOST")[1]:
                host = "0.0.0.0"
                warnings.append(
                    f"PORT={port} alone listens on every interface; set NNGKIT_HOST=127.0.0.1 for this host only"
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
            domain=read.domain(),
            open=bool(warnings),
        )


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Settings of a service: its record, and its daemons."""

    name: str
    address: str
    discovery: tuple[str, ...]
    zone: str = ""
    priority: int = PRIORITY
    certificates: Certificates = Certificates()
    domain: str = ""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read (NNGKIT_)SERVICE_... and (NNGKIT_)DISCOVERY_... Raises ConfigError."""
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
            domain=read.domain(),
        )


def names_daemons(environ: Mapping[str, str] | None = None) -> bool:
    """Return True if the environment says where services find their daemons."""
    read = _Environment(environ)
    return any(read.value(f"NNGKIT_DISCOVERY{part}")[1] for part in ("", "_HOST", "_PORT"))


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a caller: the query addresses of the daemons, and the preferred zones in order."""

    daemons: tuple[str, ...]
    prefer: tuple[str, ...] = ()
    certificates: Certificates = Certificates()
    domain: str = ""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, *, daemons: tuple[str, ...] = ()) -> Self:
        """Read NNGKIT_QUERY, or (NNGKIT_)DISCOVERY_HOST and the port after (NNGKIT_)DISCOVERY_PORT.

        `daemons`, if given, replaces both. Raises ConfigError.
        """
        read = _Environment(environ)
        daemons = daemons or tuple(dialable(address) for address in read.addresses("NNGKIT_QUERY"))
        if not daemons:
            survey = _tcp(read.host("NNGKIT_DISCOVERY_HOST"), read.port("NNGKIT_DISCOVERY_PORT"))
            daemons = (dialable(query_address(survey)),)
        zones = read.value("NNGKIT_PREFER")[0].replace(",", " ").split() or [read.value("NNGKIT_ZONE")[0]]
        return cls(daemons, tuple(filter(None, zones)), read.certificates(), read.domain())
