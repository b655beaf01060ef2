"""Questions to the issuer of a realm, `nngkit trust serve`: for a new certificate, for the policy.

The question is JSON, sent as REQ of SP over TLS, with the pass or invitation of the program that asks. It is written
with the standard library, as sockets stand on trusts, and not the reverse.

::

    {"key": PEM, "trusted": sha256, "policy": 6, "due": true}
    {"chain": PEM, "authorities": PEM, "policy": TOML, "signature": base64}, of which parts may be missing
    {"refused": "binding: ..."}

``key``: a public key for an invitation, else the pass's own certificate, whose key stays. ``trusted``: of the
certificates that check passes; if those of the realm differ, or ``due`` says so, the reply has a new certificate.
``policy``: version of the policy that is there; a higher one is replied, unless it is null.
"""

from __future__ import annotations

import socket
import ssl
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

    key: str
    trusted: str = ""
    policy: int | None = None
    due: bool = True


class Reply(msgspec.Struct, omit_defaults=True):
    """A reply as it is sent; "" stands for nothing new."""

    chain: str = ""
    authorities: str = ""
    policy: str = ""
    signature: str = ""
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
    where = urlsplit(check_issuer(own.issuer))
    body = _FIRST + msgspec.json.encode(question)
    try:
        with (
            socket.create_connection((where.hostname or "", where.port or 0), timeout) as plain,
            own.context(server=False).wrap_socket(plain) as tls,
        ):
            found: Any = tls.getpeercert()
            name = name_in([value for kind, value in found.get("subjectAltName", ()) if kind == "URI"], own.realm)
            if name != ISSUER:
                raise AccessDenied(f"binding: {own.issuer} is {name}, and not the issuer of {own.realm}")
            tls.sendall(_HELLO + len(body).to_bytes(8, "big") + body)
            return _reply(tls, own.issuer)
    except OSError as wrong:
        why = wrong.reason if isinstance(wrong, ssl.SSLError) and wrong.reason else wrong.strerror or str(wrong)
        raise Unreachable(own.issuer, why.lower().replace("_", " ")) from wrong


def _reply(tls: ssl.SSLSocket, url: str) -> Reply:
    hello = _exactly(tls, 4)
    if hello == _REFUSED:
        raise AccessDenied(_exactly(tls, int.from_bytes(_exactly(tls, 2), "big")).decode(errors="replace"))
    size = int.from_bytes(_exactly(tls, 12)[4:], "big")
    if hello != _OTHER[:4] or not len(_FIRST) <= size <= LIMIT:
        raise BadMessage("issuer", f"{url} does not reply as one")
    try:
        reply = msgspec.json.decode(_exactly(tls, size)[len(_FIRST) :], type=Reply)
    except msgspec.MsgspecError as wrong:
        raise BadMessage("issuer", f"{url}: {wrong}") from wrong
    if reply.refused:
        raise AccessDenied(reply.refused)
    return reply


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
