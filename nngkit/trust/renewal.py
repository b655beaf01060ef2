"""Questions to the issuer of a realm, `nngkit trust serve`: for a new certificate, for the policy.

The question is JSON, sent as REQ of SP over TLS, with the pass or invitation of the program that asks. It is written
with the standard library, as sockets stand on trusts, and not the reverse.

::

    {"key": PEM, "trusted": sha256, "policy": 6, "due": true, "wait": 20.0}
    {"chain": PEM, "authorities": PEM, "policy": TOML, "signature": base64}, of which parts may be missing
    {"invite": "render.w7", "hours": 1.0, "key": URL of the issuer}
    {"invitation": line}
    {"refused": "binding: ..."}

``key``: a public key for an invitation, else the pass's own certificate, whose key stays. ``trusted``: of the
certificates that check passes; if those of the realm differ, or ``due`` says so, the reply has a new certificate.
``policy``: version of the policy that is there; a higher one is replied, unless it is null. ``wait``: seconds that the
reply may wait for something new. ``invite``: a name that the pass's own may `enrol`.
"""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from nngkit.errors import AccessDenied, BadMessage, ConfigError, Unreachable
from nngkit.trust.names import name_in
from nngkit.trust.passes import Pass, parse, text_of

ISSUER: Final = "issuer"  # name of an issuer's pass, which no other program gets
SCHEME: Final = "tls+tcp"
LIMIT: Final = 2 * 1024 * 1024  # bytes of a reply
_HELLO: Final = b"\0SP\0\0\x30\0\0"  # of REQ ...
_OTHER: Final = b"\0SP\0\0\x31\0\0"  # ... and of REP
_REFUSED: Final = b"\0NO\0"
_FIRST: Final = b"\x80\0\0\1"  # id of the request


class Question(msgspec.Struct):
    """A question as it is sent."""

    key: str = ""
    trusted: str = ""
    policy: int | None = None
    due: bool = True
    wait: float = 0.0
    invite: str = ""
    hours: float = 1.0


class Reply(msgspec.Struct, omit_defaults=True):
    """A reply as it is sent; "" stands for nothing new."""

    chain: str = ""
    authorities: str = ""
    policy: str = ""
    signature: str = ""
    invitation: str = ""
    refused: str = ""


def digest_of(authorities: str) -> str:
    """Return what stands for certificates in a question."""
    return sha256(authorities.encode()).hexdigest()


def check_issuer(url: str) -> str:
    """Return the URL of an issuer. Raises ConfigError."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme == SCHEME and parts.hostname and parts.port and not parts.path
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError("issuer", f"{url!r} is not {SCHEME}://HOST:PORT", url)
    return url


def ask(own: Pass, question: Question, timeout: float = 10.0) -> Reply:
    """Return the reply of the issuer that a pass names. ``timeout``: seconds, for each step.

    Raises AccessDenied, BadMessage, Unreachable; ConfigError for a URL that is none.
    """
    line = Line()
    try:
        return line.ask(own, question, timeout)
    finally:
        line.close()


class Line:
    """A connection to an issuer for several questions. It is made anew after an error, and for another pass."""

    def __init__(self) -> None:
        self._of: Pass | None = None
        self._tls: ssl.SSLSocket | None = None

    def ask(self, own: Pass, question: Question, timeout: float = 10.0) -> Reply:
        """Return the reply, as the function `ask` does; ``timeout`` is besides what the question waits."""
        body = _FIRST + msgspec.json.encode(question)
        try:
            fresh = self._tls is None or self._of != own
            tls = self._connect(own, timeout) if fresh or self._tls is None else self._tls
            tls.settimeout(timeout + question.wait)
            tls.sendall((_HELLO if fresh else b"") + len(body).to_bytes(8, "big") + body)
            return _reply(tls, own.issuer, fresh=fresh)
        except OSError as wrong:
            self.close()
            why = wrong.reason if isinstance(wrong, ssl.SSLError) and wrong.reason else wrong.strerror or str(wrong)
            raise Unreachable(own.issuer, why.lower().replace("_", " ")) from wrong
        except BaseException:
            self.close()
            raise

    def _connect(self, own: Pass, timeout: float) -> ssl.SSLSocket:
        self.close()
        where = urlsplit(check_issuer(own.issuer))
        with socket.create_connection((where.hostname or "", where.port or 0), timeout) as plain:
            self._tls = tls = own.context(server=False).wrap_socket(plain)
        self._of = own
        found: Any = tls.getpeercert()
        name = name_in([value for kind, value in found.get("subjectAltName", ()) if kind == "URI"], own.realm)
        if name != ISSUER:
            raise AccessDenied(f"binding: {own.issuer} is {name}, and not the issuer of {own.realm}")
        return tls

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._tls is not None:
            self._tls.close()
            self._tls = None

    def interrupt(self) -> None:
        """Have a question that another thread asks raise Unreachable now."""
        tls = self._tls
        if tls is not None:
            with suppress(OSError):
                socket.socket.shutdown(tls, socket.SHUT_RDWR)


def _reply(tls: ssl.SSLSocket, url: str, *, fresh: bool) -> Reply:
    if fresh:
        hello = _exactly(tls, 4)
        if hello == _REFUSED:
            raise AccessDenied(_exactly(tls, int.from_bytes(_exactly(tls, 2), "big")).decode(errors="replace"))
        if hello + _exactly(tls, 4) != _OTHER:
            raise BadMessage("issuer", f"{url} does not reply as one")
    size = int.from_bytes(_exactly(tls, 8), "big")
    if not len(_FIRST) <= size <= LIMIT:
        raise BadMessage("issuer", f"{url} does not reply as one")
    reply = read_reply(_exactly(tls, size)[len(_FIRST) :], url)
    if reply.refused:
        raise AccessDenied(reply.refused)
    return reply


def read_reply(body: bytes, url: str) -> Reply:
    """Return a reply as it was received. Raises BadMessage."""
    try:
        return msgspec.json.decode(body, type=Reply)
    except (msgspec.MsgspecError, ValueError) as wrong:
        raise BadMessage("issuer", f"{url}: {wrong}") from wrong


def _exactly(tls: ssl.SSLSocket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = tls.recv(size - len(received))
        if not part:
            raise ConnectionResetError(0, "the issuer closed")
        received += part
    return bytes(received)


def with_reply(own: Pass, reply: Reply, key: str) -> str:
    """Return the text of the pass that a reply makes of the present one. Raises BadMessage for one of another name."""
    text = text_of(reply.authorities, reply.chain, key, own.issuer)
    try:
        made = parse(text)
    except ConfigError as wrong:
        raise BadMessage("issuer", f"{own.issuer}: {wrong.why}") from wrong
    if (made.name, made.realm) != (own.name, own.realm):
        raise BadMessage("issuer", f"{own.issuer}: the new pass is of {made.name} of {made.realm}")
    return text
