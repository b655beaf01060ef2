"""Passes: a name signed by a realm, with a private key of its own, in one file.

The file is PEM: certificates of the realm (two while its key is rotated), the pass, its key. It is read with the
standard library: OpenSSL checks the pass in a handshake with itself, and so says its name, its end and whether its key
fits.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nngkit.errors import AccessDenied, ConfigError
from nngkit.trust.names import name_in

FILES: Final = Path("/proc/self/fd")  # names of open files
LIMIT: Final = 64 * 1024  # bytes of a pass
OTHERS: Final = 0o077  # permissions that a secret must not have
_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----\r?\n.*?-----END \1-----\r?\n?", re.DOTALL)
_SCHEME: Final = "spiffe://"


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass that is valid now. ``until``: unix time in seconds at which it ends; ``serial``: hexadecimal.

    ``authorities``, ``chain``, ``key``: PEM.
    """

    name: str
    realm: str
    serial: str
    until: float
    authorities: str
    chain: str
    key: str = field(repr=False)

    def context(self, *, server: bool) -> ssl.SSLContext:
        """Return OpenSSL's settings for one side: TLS 1.3, both sides show a pass of the realm."""
        return context(self.authorities, self.chain, self.key, server=server)


def read(path: str | os.PathLike[str]) -> Pass:
    """Read a pass file. Raises ConfigError, which says why it cannot be used."""
    try:
        with open(path, "rb") as file:
            if os.name == "posix" and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & OTHERS:
                raise ConfigError("pass", f"{path}: others can read it: chmod 600", path)
            data = file.read(LIMIT + 1)
    except OSError as wrong:
        raise ConfigError("pass", f"{path}: {wrong.strerror}", path) from wrong
    if len(data) > LIMIT:
        raise ConfigError("pass", f"{path}: over {LIMIT} bytes", path)
    try:
        return parse(data.decode("ascii"))
    except (ConfigError, UnicodeDecodeError) as wrong:
        why = wrong.why if isinstance(wrong, ConfigError) else "not PEM text"
        raise ConfigError("pass", f"{path}: {why}", path) from wrong


def parse(text: str) -> Pass:
    """Read the text of a pass. Raises ConfigError."""
    blocks = [(found[1], found[0]) for found in _BLOCK.finditer(text)]
    certificates = [block for kind, block in blocks if kind == "CERTIFICATE"]
    keys = [block for kind, block in blocks if kind.endswith("PRIVATE KEY")]
    if len(certificates) < 2 or len(keys) != 1:
        raise ConfigError("pass", "not a pass: it has a certificate of the realm, its own, and one key")
    authorities, chain = "".join(certificates[:-1]), certificates[-1]
    told = _told(*(context(authorities, chain, keys[0], server=server) for server in (True, False)))
    uris = [value for kind, value in told.get("subjectAltName", ()) if kind == "URI"]
    realm = uris[0].removeprefix(_SCHEME).partition("/")[0] if uris else ""
    try:
        name = name_in(uris, realm)
    except AccessDenied as wrong:
        raise ConfigError("pass", str(wrong)) from wrong
    until = float(ssl.cert_time_to_seconds(told["notAfter"]))
    return Pass(name, realm, told["serialNumber"].lower(), until, authorities, chain, keys[0])


def context(authorities: str, chain: str, key: str, *, server: bool) -> ssl.SSLContext:
    """Return OpenSSL's settings for one side of a realm. Raises ConfigError for PEM that is none."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False  # names are of the realm, not of hosts
    made.verify_mode = ssl.CERT_REQUIRED
    if server:
        made.num_tickets = 0
    try:
        made.load_verify_locations(cadata=authorities)
        with as_file(chain + key) as path:
            made.load_cert_chain(path)
    except ssl.SSLError as wrong:
        raise ConfigError("pass", (wrong.reason or str(wrong)).lower().replace("_", " ")) from wrong
    return made


def _told(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, Any]:
    """Return what the pass says, after it was checked as a peer checks it. Raises ConfigError."""
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = server.wrap_bio(here, there, server_side=True), client.wrap_bio(there, here)
    try:
        for _ in range(3):
            for end in reversed(ends):
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLError as wrong:
        reason = getattr(wrong, "verify_message", "") or (wrong.reason or str(wrong)).lower().replace("_", " ")
        raise ConfigError("pass", reason) from wrong
    return ends[0].getpeercert() or {}


@contextmanager
def as_file(text: str) -> Iterator[str]:
    """Give the name of a file with this text, as OpenSSL reads certificates and keys from files only."""
    if hasattr(os, "memfd_create") and FILES.is_dir():  # in memory, of this process alone
        with open(os.memfd_create("nngkit"), "wb", buffering=0) as memory:
            memory.write(text.encode())
            yield str(FILES / str(memory.fileno()))
    else:
        with tempfile.NamedTemporaryFile() as file:  # 0600
            file.write(text.encode())
            file.flush()
            yield file.name


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a secret, for its owner only, in place of a file that may be there."""
    new = f"{os.fspath(path)}.new"
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), 0o600)  # it may have been there
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as wrong:
        raise ConfigError("pass", f"{path}: cannot be written: {wrong.strerror}", path) from wrong
