"""TLS settings of a socket: one frozen value for both sides. May not know: sockets, NNG.

::

    server = TLS(cert=cert_pem, key=key_pem, ca=ca_pem)         # ca: clients must present a certificate it has signed
    client = TLS(ca=ca_pem, cert=..., key=..., server_name="host.example")

OpenSSL examines names: DNS names, and IPv4 and IPv6 addresses in subject alternative names. Dial one of them, or set
``server_name``.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from nngkit.errors import ConfigError
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._wire.tls_layer import Layer
from nngkit.trust.passes import as_file
from nngkit.trust.trust import Trust

log = logging.getLogger("nngkit.protocols")

Pem = str | bytes | os.PathLike[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class TLS:
    """Certificates that one side presents and requires. Bad files or PEM text raise ConfigError when used.

    ``ca``, ``cert``, ``key``: PEM text, or the path of a PEM file (``cert`` may be a chain, own certificate first).
    ``password``: password of the key. ``server_name``: the name that the listener's certificate must have; default: the
    host in the URL. ``verify``: False accepts any certificate, which protects against passive eavesdropping only.
    ``tls12``: True admits TLS 1.2, which older NNG needs; without it TLS 1.3 is required.

    Files are looked at for each connection: changed ones are used from then on, unless they cannot be read.
    """

    ca: Pem | None = None
    cert: Pem | None = None
    key: Pem | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    server_name: str | None = None
    verify: bool = True
    tls12: bool = False

    @property
    def demands(self) -> bool:
        """True if the other side's certificate is checked."""
        return self.verify and self.ca is not None

    def contexts(self, *, server: bool) -> Callable[[], ssl.SSLContext]:
        """Return a function for OpenSSL's settings of a new connection, as the files are then. Raises ConfigError.

        The function raises nothing: while the files cannot be used, it logs that and returns the last good settings.
        """
        return _Contexts(self, server).now

    def chain(self) -> str:
        """Return the certificate, and the chain that comes with it, as PEM text. Raises ConfigError."""
        if self.cert is None:
            raise ConfigError("tls", "there is no certificate")
        return _pem("cert", self.cert)

    def context(self, *, server: bool) -> ssl.SSLContext:
        """Return OpenSSL's settings for one side. Raises ConfigError."""
        if (self.cert is None) != (self.key is None):
            raise ConfigError("tls", "cert and key must be given together")
        if server and self.cert is None:
            raise ConfigError("tls", "a listener needs cert and key")
        if not server and self.verify and self.ca is None:
            raise ConfigError("tls", "a dialer needs ca, or verify=False")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2 if self.tls12 else ssl.TLSVersion.TLSv1_3
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.check_hostname = self.demands and not server
        context.verify_mode = ssl.CERT_REQUIRED if self.demands else ssl.CERT_NONE
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the ca may be one that another has signed
        if server:
            context.num_tickets = 0  # sessions are not resumed
        what = "ca"
        try:
            if self.ca is not None:
                context.load_verify_locations(cadata=_pem("ca", self.ca))
            what = "cert and key"
            if self.cert is not None and self.key is not None:
                password = "" if self.password is None else self.password
                with _file("cert", self.cert) as cert, _file("key", self.key) as key:
                    context.load_cert_chain(cert, key, password=password)
        except ConfigError:
            raise
        except (ssl.SSLError, ValueError) as refused:  # ValueError: the key needs a password
            reason = getattr(refused, "reason", None)
            why = str(reason).lower().replace("_", " ") if reason else str(refused)
            raise ConfigError("tls", f"{what} refused: {why}") from refused
        return context


@dataclass(frozen=True, slots=True)
class Guests:
    """TLS of a listener that asks for no certificate, at a socket with a trust. It shows this one, or the trust's."""

    shown: TLS | Trust


Security = TLS | Trust | Guests


class Contexts:
    """Makes the TLS of the connections of one listener or dialer. ``make``: OpenSSL's settings for each.

    ``trust``: whose files ``now`` reads again first.
    """

    def __init__(
        self,
        make: Callable[[], ssl.SSLContext],
        name: str | None,
        *,
        server: bool,
        guests: bool,
        trust: Trust | None = None,
    ) -> None:
        self._make = make
        self._trust = trust
        self._name = name
        self._server = server
        self._guests = guests

    def layer(self) -> Layer:
        """Return the TLS of a new connection."""
        return Layer(self._make(), server=self._server, name=self._name, guests=self._guests)

    def now(self) -> ssl.SSLContext:
        """Return the settings of a new connection: another object than before if what it is made of has changed."""
        if self._trust is not None:
            self._trust.refresh(now=True)
        return self._make()


class _Contexts:
    """OpenSSL's settings by files that may change."""

    def __init__(self, tls: TLS, server: bool) -> None:
        self._tls = tls
        self._server = server
        self._stamp = self._look()
        self._context = tls.context(server=server)

    def _look(self) -> tuple[object, ...]:
        """Return what changes when one of the files does."""
        stamp: list[object] = []
        for pem in (self._tls.ca, self._tls.cert, self._tls.key):
            if _is_path(pem):
                with suppress(OSError, ValueError):  # which `_pem` reports: ValueError for a null byte
                    found = os.stat(pem)  # type: ignore[arg-type]
                    stamp += (found.st_ino, found.st_mtime_ns, found.st_size)
        return tuple(stamp)

    def now(self) -> ssl.SSLContext:
        """Return those of a new connection."""
        stamp = self._look()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = self._tls.context(server=self._server)
            except ConfigError as wrong:
                log.warning("%s: the last good certificates are used", wrong)
        return self._context


def exposed(address: Address, tls: TLS | None) -> str | None:
    """Return in words that other machines can reach a listener and nothing keeps strangers out; None if not so."""
    if address.stays_here or (address.tls and tls is not None and tls.ca is not None):
        return None
    meant = "give a trust, or say that it is meant (trust=OPEN, or NNGKIT_TRUST=open)"
    return f"other machines can reach it, and nothing keeps strangers out: {meant}"


def contexts(security: Security | None, address: Address, what: str) -> Contexts | None:
    """Return what makes the TLS of connections, or None if the transport is not TLS. Raises ConfigError."""
    if not address.tls:
        return None
    server, guests = what == "listen", isinstance(security, Guests)
    by = security.shown if isinstance(security, Guests) else security
    if by is None:
        raise ConfigError(what, f"{address.url}: needs tls=TLS(...), or trust=", address.url)
    if isinstance(by, Trust):
        make = partial(by.context, server=server, asks=not guests)
        return Contexts(make, None, server=server, guests=guests, trust=by)
    by = replace(by, ca=None) if guests else by
    name = None if server else by.server_name or address.host.partition("%")[0]
    return Contexts(by.contexts(server=server), name, server=server, guests=guests)


def _is_path(pem: Pem | None) -> bool:
    return pem is not None and not (b"-----BEGIN" in pem if isinstance(pem, bytes) else "-----BEGIN" in os.fspath(pem))


def _pem(what: str, value: Pem) -> str:
    if not _is_path(value):
        return value.decode("ascii", "replace") if isinstance(value, bytes) else os.fspath(value)
    path = os.fsdecode(value)
    try:
        content = Path(path).read_text("ascii")
        if "-----BEGIN" not in content:
            raise ValueError("no PEM header")
        return content
    except (OSError, ValueError) as unreadable:
        reason = unreadable.strerror if isinstance(unreadable, OSError) and unreadable.strerror else "not PEM text"
        raise ConfigError(f"tls {what}", f"{path}: {reason}") from unreadable


@contextmanager
def _file(what: str, value: Pem) -> Iterator[str]:
    text = _pem(what, value)
    if _is_path(value):
        yield os.fsdecode(value)
    else:
        with as_file(text) as path:
            yield path
