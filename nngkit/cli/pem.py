"""Checks of certificate and key files, with an error that names the file. NNG reports "Cryptographic error" for all.

The standard library's OpenSSL checks them before a socket is opened. NNG accepts a key that does not belong to the
certificate, and then fails in every handshake. Loaded only if an address has TLS.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

from nngkit.errors import ConfigError


class File(NamedTuple):
    """A PEM file, and the option that names it."""

    option: str
    path: str


def check(ca: File | None, cert: File | None, key: File | None) -> None:
    """Check that the files are readable, valid and match. Raises ConfigError that names the option."""
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
            raise ConfigError(file.option, f"{file.path}: not a readable certificate", file.path)
    if cert is not None and key is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # the other side decides what is too weak
        try:
            context.load_cert_chain(cert.path, key.path, password="")
        except (ssl.SSLError, ValueError) as error:  # ValueError: the key needs a password
            if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
                raise ConfigError(key.option, f"{key.path}: not the key of {cert.path}", key.path) from error
            raise ConfigError(key.option, f"{key.path}: not a readable key", key.path) from error


def _holds_certificates(path: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True
