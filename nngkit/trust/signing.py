"""Signatures of policies by a realm. Needs the extra ``trust``, which is `cryptography`."""

from __future__ import annotations

import base64
import binascii
import re

from nngkit.errors import ConfigError

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509 import load_pem_x509_certificates
except ImportError as missing:
    raise ConfigError("trust", "cryptography is not installed: pip install 'nngkit[trust]'") from missing

_PURPOSE = b"nngkit policy 1\0"  # a signature of anything else is none of a policy
_ENDS = re.compile(r"\s")


def sign(key: str, text: str) -> str:
    """Return the signature of a policy's text by a realm's key (PEM), as one line of base64."""
    found = load_pem_private_key(key.encode(), None)
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise ConfigError("realm key", "not a P-256 key")
    return base64.b64encode(found.sign(_PURPOSE + text.encode(), ec.ECDSA(SHA256()))).decode() + "\n"


def check(authorities: str, text: str, signature: str) -> None:
    """Raise ConfigError unless one of the authorities (PEM) has signed a policy's text."""
    try:
        wanted = base64.b64decode(_ENDS.sub("", signature), validate=True)
    except (binascii.Error, ValueError) as wrong:
        raise ConfigError("policy", "the signature is not base64") from wrong
    for certificate in load_pem_x509_certificates(authorities.encode()):
        public = certificate.public_key()
        if isinstance(public, ec.EllipticCurvePublicKey):
            try:
                public.verify(wanted, _PURPOSE + text.encode(), ec.ECDSA(SHA256()))
            except InvalidSignature:
                continue
            return
    raise ConfigError("policy", "it is not signed by the realm: nngkit trust sign")
