"""Certificates in files, for the command's options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme

from nngkit.protocols import TLS

__all__ = ["Certificate", "issue"]


@dataclass(frozen=True)
class Certificate:
    """A certificate, its key and its authority, as files."""

    ca: Path
    cert: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options of a command that shows it and requires one of the same authority."""
        return ("--cacert", str(self.ca), "--cert", str(self.cert), "--key", str(self.key))

    def tls(self, **options: Any) -> TLS:
        """Return the same as a TLS setting."""
        return TLS(**{"ca": self.ca, "cert": self.cert, "key": self.key, **options})


def issue(folder: Path, *names: str, authority: trustme.CA | None = None, **options: Any) -> Certificate:
    """Create a certificate for `names`, in files in `folder`."""
    authority = authority or trustme.CA()
    issued = authority.issue_cert(*names, **options)
    folder.mkdir(exist_ok=True)
    made = Certificate(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    authority.cert_pem.write_to_path(made.ca)
    issued.cert_chain_pems[0].write_to_path(made.cert)
    issued.private_key_pem.write_to_path(made.key)
    return made
