"""TLS between the bytes of a connection and its machine, by Python's `ssl` over memory.

::

    received -> incoming -> read -> the machine         the machine's frames -> write -> outgoing -> sent

What is read and written goes through calls into C whose results the connection notes itself, in the body of a `for`
statement: no signal handler runs in between. That is why the methods of `ssl.SSLObject`, which are Python's, are passed
by (`_sslobj`). But OpenSSL's calls run handlers before they return. A write is then known by what it put into
``outgoing`` (``pledge``). What a read took is lost, so the connection ends (``taking``).

Pure: no socket, no clock. May not know: SP, messages.
"""

from __future__ import annotations

import ssl
from calendar import timegm
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from nngkit.errors import AccessDenied, BadMessage, Broken, NngkitError
from nngkit.trust.refusals import ALERT, spoken

RECORD: Final = 16 * 1024  # bytes of plaintext in one record at most
OVERHEAD: Final = 5 + 2048  # bytes of its head, and by which the rest is longer than that (RFC 5246, 6.2.3), at most
FIRST: Final = 8  # bytes of a peer that are kept until the handshake is complete
# What a listener says to a peer that does not speak TLS, as OpenSSL says nothing: a fatal alert, protocol_version
NO_TLS: Final = ALERT + b"\x03\0\2\2\x46"
PLAIN: Final = ("SP", "HTTP")

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ALERTS: Final = {  # of the peer, about our certificate
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires one",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "it requires one, or there is no common cipher",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority of ours",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "ours is out of its time",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "ours is revoked",
    "SSLV3_ALERT_BAD_CERTIFICATE": "ours is not valid, or not for the name it expects",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept ours",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it does not accept this kind",
    "TLSV1_ALERT_ACCESS_DENIED": "it does not accept ours",
}
_VERSIONS: Final = ("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "NO_SHARED_VERSION", "WRONG_SSL_VERSION")
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE")


class Certificate(NamedTuple):
    """A peer's certificate: DNS names, URIs, IP addresses; serial number (hexadecimal); its times, unix seconds."""

    verified: bool = False
    common: str | None = None
    names: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    serial: str = ""
    begins: int = 0
    ends: int = 0


class Layer:
    """TLS of one connection.

    ``open``: the handshake is complete; ``first``: what the peer sent first in it. ``guests``: the listener asks for no
    certificate. ``fed``: number of receptions. ``parts``: plaintext that the machine does not have yet; ``whole``:
    bytes that the last reception brought, still in the buffer of receptions, as they may be one whole message.
    ``staged``: encrypted bytes to send, ``length`` of them, of which ``sent`` were. ``put`` adds received bytes to
    ``incoming``, each step of ``drains`` takes all bytes of ``outgoing``.
    """

    __slots__ = (
        "_certificate",
        "_server",
        "_tls",
        "drains",
        "fed",
        "first",
        "guests",
        "incoming",
        "length",
        "machine_fed",
        "open",
        "outgoing",
        "parts",
        "pending",
        "placed",
        "pledge",
        "put",
        "read",
        "sent",
        "staged",
        "taking",
        "whole",
        "write",
    )

    def __init__(self, context: ssl.SSLContext, *, server: bool, name: str | None, guests: bool = False) -> None:
        self.guests = guests
        self._server = server
        self._certificate: Certificate | None = None
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self.incoming, self.outgoing, server_side=server, server_hostname=name)
        plain: Any = self._tls._sslobj  # type: ignore[attr-defined]
        self.read, self.write, self.pending = plain.read, plain.write, plain.pending
        self.put = self.incoming.write
        self.drains: Iterator[bytes] = iter(self.outgoing.read, None)  # without end
        self.open = False
        self.fed = 0
        self.first = b""
        self.parts: list[bytes] = []
        self.whole: int | None = None
        self.taking = False  # a read was begun, and its result is not noted
        self.pledge: tuple[int, int] | None = None  # a write was begun: bytes in `outgoing` before it, and its size
        self.placed = 0  # plaintext bytes in place in the machine's body, of which it does not know
        self.machine_fed = 0  # `fed` of the machine when it last had everything
        self.staged = b""
        self.length = 0
        self.sent = 0

    @property
    def unsent(self) -> bool:
        """True if encrypted bytes are to be sent."""
        return self.sent < self.length or self.outgoing.pending > 0

    @property
    def unread(self) -> bool:
        """True if received bytes may hold more plaintext."""
        return self.incoming.pending > 0 or self.pending() > 0

    def feed(self, data: Any) -> None:
        """Add received bytes."""
        first = self.first if self.open else (self.first + bytes(data[:FIRST]))[:FIRST]
        for _ in map(self.put, (data,)):
            # no calls from here: see the module docstring
            self.first = first
            self.fed += 1
            self.whole = None

    def shake(self) -> None:
        """Continue the handshake; ``outgoing`` has what is to be sent. Raises NngkitError."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise trouble(error, shaking=True, first=self.first) from None
        self.open = True

    def end(self, last: bytes) -> None:
        """Stage ``last`` and the notice that we close, or the alert about a failed handshake."""
        try:
            if self.open:
                if last:
                    self.write(last)
                self._tls.unwrap()
        except ssl.SSLError:
            pass  # the peer has not closed yet, or the stream is damaged
        self.staged = self.outgoing.read()
        if not self.staged and not self.open and self._server and spoken(self.first) in PLAIN:
            self.staged = NO_TLS
        self.length = len(self.staged)
        self.sent = 0

    def certificate(self) -> Certificate:
        """Return what the peer's certificate says, once the handshake is complete; nothing of one not verified."""
        if self._certificate is None:
            self._certificate = self._read_certificate()
        return self._certificate

    def _read_certificate(self) -> Certificate:
        found: Any = self._tls.getpeercert()
        if not found:
            return Certificate()
        common = [value for group in found.get("subject", ()) for key, value in group if key == "commonName"]
        names = found.get("subjectAltName", ())
        of = {kind: tuple(value for key, value in names if key == kind) for kind in ("DNS", "URI", "IP Address")}
        life = found["serialNumber"].lower(), seconds(found["notBefore"]), seconds(found["notAfter"])
        return Certificate(True, common[0] if common else None, of["DNS"], of["URI"], of["IP Address"], *life)


def seconds(time: str) -> int:
    """Return the unix time of a time of OpenSSL's, as `ssl.cert_time_to_seconds` does in five times the time.

    >>> seconds("Jan  5 09:34:43 2018 GMT")
    1515144883
    """
    month, day, clock, year, _ = time.split()
    return timegm((int(year), _MONTHS.index(month) + 1, int(day), *map(int, clock.split(":"))))


def trouble(error: ssl.SSLError, *, shaking: bool, first: bytes = b"") -> NngkitError:
    """Return the error that an error of OpenSSL means; ``first``: bytes that the peer has sent in its handshake."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AccessDenied(f"certificate refused: {error.verify_message.rstrip('.')}")
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return AccessDenied("certificate refused: the peer presented none")
    if reason in _ALERTS:
        return AccessDenied(f"certificate refused by the peer: {_ALERTS[reason]}")
    if reason in _VERSIONS:
        return Broken("TLS handshake failed: no common version; the default is 1.3, TLS(tls12=True) admits 1.2")
    if shaking and reason in _NO_TLS:
        what = spoken(first)
        said = f"speaks {what} without TLS" if what in PLAIN else "does not speak TLS"
        return Broken(f"TLS handshake failed: the peer {said}")
    said = reason.lower().replace("_", " ") or str(error)
    return Broken(f"TLS handshake failed: {said}") if shaking else BadMessage("tls", said)
