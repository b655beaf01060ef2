"""TLS settings of a socket: one frozen value for both sides. May not know: sockets.

::

    server = TLS(cert=cert_pem, key=key_pem, ca=ca_pem)         # ca: clients must present a certificate it has signed
    client = TLS(ca=ca_pem, cert=..., key=..., server_name="host.example")

By default NNG accepts clients without a certificate; here a side with a ``ca`` requires one, unless ``verify=False`` is
given. NNG's engine checks DNS names and IPv4 addresses in subject alternative names (mbedTLS; measured,
tests/cli/test_doctor.py): dial one of them, or set ``server_name``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynng

from nngkit.errors import ConfigError
from nngkit.protocols._nng.library import lib

Pem = str | bytes | os.PathLike[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class TLS:
    """Certificates that one side presents and requires. Bad files or PEM text raise ConfigError when used.

    ``ca``, ``cert``, ``key``: PEM text, or the path of a PEM file (``cert`` may be a chain, own certificate first).
    ``password``: password of the key. ``server_name``: the name that the listener's certificate must have; default: the
    host in the URL. ``verify``: False accepts any certificate, which protects against passive eavesdropping only.
    """

    ca: Pem | None = None
    cert: Pem | None = None
    key: Pem | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    server_name: str | None = None
    verify: bool = True

    @property
    def demands(self) -> bool:
        """True if the other side's certificate is checked."""
        return self.verify and self.ca is not None

    def config(self, *, server: bool, host: str) -> Any:
        """Return pynng's configuration object for one listener or dialer."""
        if (self.cert is None) != (self.key is None):
            raise ConfigError("tls", "cert and key must be given together")
        if server and self.cert is None:
            raise ConfigError("tls", "a listener needs cert and key")
        if not server and self.verify and self.ca is None:
            raise ConfigError("tls", "a dialer needs ca, or verify=False")
        try:
            config = pynng.TLSConfig(
                pynng.TLSConfig.MODE_SERVER if server else pynng.TLSConfig.MODE_CLIENT,
                server_name=None if server else _zero_ended(self.server_name or host),
                ca_string=_pem("ca", self.ca),
                own_cert_string=_pem("cert", self.cert),
                own_key_string=_pem("key", self.key),
                passwd=None if self.password is None else _zero_ended(self.password),
            )
            # not as an argument: pynng takes NONE, which is 0, for "not given", and NNG's clients then require a
            # certificate
            config.set_auth_mode(int(lib.NNG_TLS_AUTH_MODE_REQUIRED if self.demands else lib.NNG_TLS_AUTH_MODE_NONE))
            return config
        except pynng.NNGException as refused:
            raise ConfigError("tls", f"certificate, key or ca refused: {refused}") from refused


def _zero_ended(text: str) -> str:
    # C expects a terminating null; pynng 0.9.0 adds one, which is not relied upon
    return text + "\0"


def _pem(what: str, value: Pem | None) -> str | None:
    if value is None:
        return None
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else value
    if isinstance(text, str) and "-----BEGIN" in text:
        return _zero_ended(text)
    try:
        content = Path(text).read_text("ascii")
        if "-----BEGIN" not in content:
            raise ValueError("no PEM header")
        return _zero_ended(content)
    except (OSError, ValueError) as unreadable:
        reason = unreadable.strerror if isinstance(unreadable, OSError) and unreadable.strerror else "not PEM text"
        raise ConfigError(f"tls {what}", f"{text}: {reason}") from unreadable
