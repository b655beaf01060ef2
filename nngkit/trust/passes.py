"""Passes: a name signed by a realm, with a private key of its own, in one file.

The file is PEM: certificates of the realm (two while its key is rotated), the pass, its key; before them may be a line
"issuer: URL", by which the pass is renewed. It is read with the standard library: OpenSSL checks the pass in a
handshake with itself, and so says its name, its end and whether its key fits.

An invitation is a pass of an hour as one line: what PEM encodes, joined, and the issuer's URL, in base64.
"""

from __future__ import annotations

import base64
import binascii
import glob
import os
import re
import ssl
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from nngkit.errors import AccessDenied, ConfigError
from nngkit.file_modes import checked_path
from nngkit.trust.names import name_in

FILES: Final = Path("/proc/self/fd")  # names of open files
LIMIT: Final = 64 * 1024  # bytes of a pass
OTHERS: Final = 0o077  # permissions that a secret must not have
LEFT: Final = 60.0  # seconds after which a new file beside a pass was left by a process that was killed
_BLOCK = re.compile(r"-----BEGIN ([A-Z ]+)-----\r?\n.*?-----END \1-----\r?\n?", re.DOTALL)
_ISSUER = re.compile(r"^issuer: (\S{1,200})$", re.MULTILINE)
_TIMES: Final = re.compile(rb"\x17\x0d\d{12}Z|\x18\x0f\d{14}Z")  # UTCTime and GeneralizedTime of X.509
_KEY: Final = "PRIVATE KEY"
_SCHEME: Final = "spiffe://"


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass that is valid now. ``since``, ``until``: unix time in seconds; ``serial``: hexadecimal.

    ``authorities``, ``chain``, ``key``: PEM. ``issuer``: URL at which it is renewed, "" for none.
    """

    name: str
    realm: str
    serial: str
    since: float
    until: float
    authorities: str
    chain: str
    key: str = field(repr=False)
    issuer: str = ""

    def context(self, *, server: bool) -> ssl.SSLContext:
        """Return OpenSSL's settings for one side: TLS 1.3, both sides show a pass of the realm."""
        return context(self.authorities, self.chain, self.key, server=server)


def read(path: str | os.PathLike[str]) -> Pass:
    """Read a pass file. Raises ConfigError, which says why it cannot be used."""
    try:
        with open(checked_path("pass", path), "rb") as file:
            if os.name == "posix" and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & OTHERS:
                raise ConfigError("pass", f"{path}: others can read it: chmod 600", path)
            data = file.read(LIMIT + 1)
    except OSError as wrong:
        raise ConfigError("pass", f"{path}: {wrong.strerror}", path) from wrong
    if len(data) > LIMIT:
        raise ConfigError("pass", f"{path}: over {LIMIT} bytes", path)
    try:
        return parse(data.decode("latin-1"))
    except ConfigError as wrong:
        raise ConfigError("pass", f"{path}: {wrong.why}", path) from wrong


def parse(text: str) -> Pass:
    """Read the text of a pass. Raises ConfigError."""
    if not text.isascii():
        raise ConfigError("pass", "not PEM text")
    blocks = [(found[1], found[0]) for found in _BLOCK.finditer(text)]
    certificates = [block for kind, block in blocks if kind == "CERTIFICATE"]
    keys = [block for kind, block in blocks if kind.endswith("PRIVATE KEY")]
    if len(certificates) < 2 or len(keys) != 1:
        raise ConfigError("pass", "not a pass: it has a certificate of the realm, its own, and one key")
    authorities, chain = "".join(certificates[:-1]), certificates[-1]
    try:
        told = _told(*(context(authorities, chain, keys[0], server=server) for server in (True, False)))
    except ConfigError as wrong:
        if wrong.why.endswith(("has expired", "not yet valid")):
            raise ConfigError("pass", f"{wrong.why}: {clocks(ssl.PEM_cert_to_DER_cert(chain))}") from wrong
        raise
    uris = [value for kind, value in told.get("subjectAltName", ()) if kind == "URI"]
    realm = uris[0].removeprefix(_SCHEME).partition("/")[0] if uris else ""
    try:
        name = name_in(uris, realm)
    except AccessDenied as wrong:
        raise ConfigError("pass", str(wrong)) from wrong
    since, until = (float(ssl.cert_time_to_seconds(told[each])) for each in ("notBefore", "notAfter"))
    issuer = _ISSUER.search(text)
    given = authorities, chain, keys[0], issuer[1] if issuer else ""
    return Pass(name, realm, told["serialNumber"].lower(), since, until, *given)


def times(certificate: bytes) -> tuple[datetime, datetime]:
    """Return from when to when a certificate (DER) is valid. It is not verified."""
    since, until = (found[2:].decode() for found in _TIMES.findall(certificate)[:2])  # UTCTime has no century
    first, last = (
        datetime.strptime(each if len(each) > 13 else f"20{each}", "%Y%m%d%H%M%S%z") for each in (since, until)
    )
    return first, last


def clocks(certificate: bytes) -> str:
    """Return from when to when a certificate (DER) is valid, and what this machine's clock says. It is not verified."""
    first, last, now = (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in (*times(certificate), datetime.now(UTC)))
    return f"it is valid from {first} until {last}, and here it is {now}"


def text_of(authorities: str, chain: str, key: str, issuer: str = "") -> str:
    """Return the text of a pass file."""
    return (f"issuer: {issuer}\n" if issuer else "") + authorities + chain + key


def invitation(text: str) -> str:
    """Return a pass, with a key of PKCS 8, as one line."""
    blocks = [base64.b64decode("".join(found[0].splitlines()[1:-1])) for found in _BLOCK.finditer(text)]
    issuer = _ISSUER.search(text)
    return base64.urlsafe_b64encode(b"".join(blocks) + (issuer[1] if issuer else "").encode()).decode().rstrip("=")


def from_invitation(line: str) -> str:
    """Return the text of the pass in a line of `invitation`. Raises ConfigError."""
    line = line.strip()
    try:
        left = base64.b64decode(line + "=" * (-len(line) % 4), "-_", validate=True)
        blocks = []
        while left[:2] == b"\x30\x82" or left[:2] == b"\x30\x81":  # DER: a sequence and its length
            size = 4 + int.from_bytes(left[2:4], "big") if left[1] == 0x82 else 3 + left[2]
            blocks.append(left[:size])
            left = left[size:]
        *certificates, key = (ssl.DER_cert_to_PEM_cert(each) for each in blocks)
        issuer = left.decode("ascii")
    except (binascii.Error, ValueError, IndexError) as wrong:
        raise ConfigError("invitation", "not a line of `nngkit trust invite`") from wrong
    return text_of("".join(certificates), "", key.replace("CERTIFICATE", _KEY), issuer)


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
    """Write a secret, for its owner only, in place of a file that may be there: whole, or not at all."""
    path = checked_path("pass", path)
    try:
        for old in path.parent.glob(f"{glob.escape(path.name)}.*.new"):
            with suppress(OSError):
                if time.time() - old.stat().st_mtime > LEFT:
                    old.unlink()
        number, new = tempfile.mkstemp(".new", f"{path.name}.", path.parent)  # 0600; several processes may write
        with open(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as wrong:
        raise ConfigError("pass", f"{path}: cannot be written: {wrong.strerror}", path) from wrong
