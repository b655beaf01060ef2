"""Guests: people with a browser, who prove a name by a pass of hours that came in a link.

::

    text = guest_pass(realm, "guest.ada", hours=8)            # certificate and key, for the fragment of a link
    guest = check_guest(trust, certificate, signature, signed(nonce, host, path))
    is_for(chain, host)                                       # at a peer with TLS: the host is one of its certificate

The page signs a random number of the peer, with host and path as it has dialed them, so that the signature is of no use
elsewhere. A guest is known until the pass ends, or the policy revokes it.

A bearer token is for programs that do not sign: a certificate with the signature of one sentence, that its owner asks a
gateway. It is of use at the gateway of that name alone, and holds no key::

    token = bearer_token(realm, "guest.ada", "gateway.edge", hours=8)       # Authorization: Bearer TOKEN
    guest = check_bearer(trust, token)                                      # at gateway.edge
"""

from __future__ import annotations

import base64
import time
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from nngkit.errors import AccessDenied, ConfigError

if TYPE_CHECKING:
    from cryptography import x509

    from nngkit.trust.realm import Realm
    from nngkit.trust.trust import Trust

LONGEST: Final = 4096  # bytes of a certificate
HALF: Final = 32  # bytes of a key, and of each of the two numbers of a signature
MOST_HOURS: Final = 24.0 * 31
_LABEL: Final = b"nngkit page 1\0"
_BEARER: Final = b"nngkit gateway 1\0"


@dataclass(frozen=True, slots=True)
class Guest:
    """A name that a page has proven. ``until``: unix time in seconds; ``serial``: of its pass."""

    name: str
    serial: str
    until: float


def guest_pass(realm: Realm, name: str, hours: float = 8.0) -> str:
    """Return a pass for a link: certificate and key in base64 for URLs, with a dot between. Raises ConfigError."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    from nngkit.trust.realm import new_key

    if not 0 < hours <= MOST_HOURS:
        raise ConfigError("hours", f"{hours!r} is not from 0 to {MOST_HOURS:.0f}", hours)
    key = new_key()
    certificate = x509.load_pem_x509_certificate(realm.sign(name, key.public_key(), hours / 24).encode())
    parts = certificate.public_bytes(Encoding.DER), key.private_numbers().private_value.to_bytes(HALF, "big")
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def bearer_token(realm: Realm, name: str, gateway: str, hours: float = 8.0) -> str:
    """Return a token that proves ``name`` to the gateway whose pass says ``gateway``. Raises ConfigError."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    certificate, _, secret = guest_pass(realm, name, hours).partition(".")
    key = ec.derive_private_key(int.from_bytes(_decoded(secret), "big"), ec.SECP256R1())
    halves = decode_dss_signature(key.sign(_BEARER + gateway.encode(), ec.ECDSA(SHA256())))
    signature = b"".join(half.to_bytes(HALF, "big") for half in halves)
    return f"{certificate}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def check_bearer(trust: Trust, token: str) -> Guest:
    """Return the guest of a token for the gateway that has this trust. Raises AccessDenied, as `check_guest`."""
    certificate, _, signature = token.partition(".")
    if len(token) > 2 * LONGEST:
        raise AccessDenied("binding: not a token: too long")
    try:
        parts = _decoded(certificate), _decoded(signature)
    except ValueError as wrong:
        raise AccessDenied("binding: not a token") from wrong
    return check_guest(trust, *parts, _BEARER + trust.name.encode())


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def signed(nonce: bytes, host: str, path: str) -> bytes:
    """Return what a page signs. ``host``: with the port, as in its request; ``path``: without a query."""
    return _LABEL + nonce + host.encode() + path.encode()


def is_for(chain: str, host: str) -> bool:
    """Return True if the first certificate (PEM) of a chain is for a host, with or without a port. Raises ConfigError.

    The page's browser has checked this too, so that a signature names a host that no one else has a certificate of.
    """
    from cryptography import x509

    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # unmatched brackets
        return False
    try:
        shown = x509.load_pem_x509_certificates(chain.encode())[0]
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    except ValueError as wrong:
        raise ConfigError("certificate", str(wrong)) from wrong
    try:
        return ip_address(name) in names.get_values_for_type(x509.IPAddress)
    except ValueError:
        wild = f"*.{name.partition('.')[2]}"  # RFC 6125, 6.4.3: in place of the first label
        return any(each.lower() in (name, wild) for each in names.get_values_for_type(x509.DNSName))


def check_guest(trust: Trust, certificate: bytes, signature: bytes, message: bytes) -> Guest:
    """Return the guest who signed a message. Raises AccessDenied, whose text begins with a code."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        shown = x509.load_der_x509_certificate(certificate)
        key = shown.public_key()
        extension = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        uris = extension.value.get_values_for_type(x509.UniformResourceIdentifier)
        begins, ends = shown.not_valid_before_utc.timestamp(), shown.not_valid_after_utc.timestamp()
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension) as wrong:
        raise AccessDenied(f"binding: not a pass: {wrong}") from wrong
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise AccessDenied("binding: the key of the pass is not P-256")
    if not any(_issued(shown, each) for each in x509.load_pem_x509_certificates(trust.own.authorities.encode())):
        raise AccessDenied("other-realm: the realm has not signed the pass of the link")
    if not begins <= time.time() < ends:
        late = time.time() >= ends
        raise AccessDenied(f"{'expired' if late else 'not-yet'}: the link is not valid {'any more' if late else 'yet'}")
    serial = f"{shown.serial_number:x}"
    name = trust.name_of(uris, serial)
    halves = (int.from_bytes(part, "big") for part in (signature[:HALF], signature[HALF:]))
    try:
        key.verify(encode_dss_signature(*halves), message, ec.ECDSA(SHA256()))
    except InvalidSignature as wrong:
        raise AccessDenied(f"binding: the signature is not of {name} for this place") from wrong
    return Guest(name, serial, ends)


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True
