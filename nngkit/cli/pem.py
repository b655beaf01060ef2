"""Which of the certificates and keys given is bad, and why: of all of them NNG says "Cryptographic error".

Looked at by the standard library's OpenSSL before a socket is opened. NNG takes a key that is not the certificate's,
and fails in each handshake; this does not let it get so far. Brought in where an address has TLS, and not before.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

from nngkit.errors import ConfigError

__all__ = ["File", "check"]


class File(NamedTuple):
    """A PEM file, and the option that it was given by."""

    option: str
    path: str


def check(ca: File | None, cert: File | None, key: File | None) -> None:
    """Raises ConfigError, which names the option, for what cannot be read, is none, or does not belong together."""
    for file in (ca, cert, key):
        if file is not None:
            try:
                with open(file.path, "rb") as stream:
                    if b"-----BEGIN" not in stream.read(1 << 20):
                        raise ConfigError(file.option, f"{file.path}: not PEM text", file.path)
            except OSError as error:
                raise ConfigError(file.option, f"{file.path}: {error.strerror}", file.path) from error
    for file in (ca, cert):
        if file is not None and not _holds_certificates(file.path):
            raise ConfigError(file.option, f"{file.path}: no certificate that can be read", file.path)
    if cert is not None and key is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # what is too weak, is for the other side to say
        try:
            context.load_cert_chain(cert.path, key.path, password="")
        except (ssl.SSLError, ValueError) as error:  # ValueError: a password is asked for
            if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
                raise ConfigError(key.option, f"{key.path}: not the key of {cert.path}", key.path) from error
            raise ConfigError(key.option, f"{key.path}: no key that can be read", key.path) from error


def _holds_certificates(path: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True
