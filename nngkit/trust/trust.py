"""A trust: a pass and, where one was written, a policy. Both are read again when their files change.

A broken file leaves the last good one in force, and is logged once.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from nngkit.errors import AccessDenied, ConfigError
from nngkit.trust import passes
from nngkit.trust.names import name_in
from nngkit.trust.passes import Pass
from nngkit.trust.policy import LIMIT, Policy

log = logging.getLogger("nngkit.trust")

POLICY: Final = "policy.toml"  # beside the pass ...
SIGNATURE: Final = "policy.sig"  # ... with this
PERIOD: Final = 1.0  # seconds between two looks at the files, besides that of each connection
TRIES: Final = 5  # of files that are being written, as policy and signature are two ...
PAUSE: Final = 0.01  # ... with as many seconds between them

Stamp = tuple[object, ...]


class Trust:
    """``path``: of the pass file. Raises ConfigError if pass or policy cannot be used.

    `name` and `realm` stay, whatever the file becomes: another name needs another trust. Any thread may call.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._policy_files = self._path.with_name(POLICY), self._path.with_name(SIGNATURE)
        self._lock = threading.Lock()
        self._looked_at = 0.0
        self._stamps = self._look()
        self.own: Pass = passes.read(self._path)
        self.name, self.realm = self.own.name, self.own.realm
        self.policy: Policy = self._read_policy(self.own)
        self._contexts: dict[bool, ssl.SSLContext] = {}

    def __repr__(self) -> str:
        return f"<Trust {self.name} of {self.realm}>"

    # ------------------------------------------------------------------ connections

    def context(self, *, server: bool) -> ssl.SSLContext:
        """Return OpenSSL's settings for a new connection, of which `refresh` comes first."""
        with self._lock:
            if server not in self._contexts:
                self._contexts[server] = self.own.context(server=server)
            return self._contexts[server]

    def name_of(self, uris: Sequence[str], serial: str) -> str:
        """Return the name of a peer by its certificate. Raises AccessDenied, with a code and the reason."""
        name = name_in(uris, self.realm)
        if self.policy.is_revoked(name, serial):
            raise AccessDenied(f"revoked: {name} (serial {serial})")
        return name

    def require(self, name: str, right: str, target: str) -> None:
        """Raise AccessDenied unless the policy grants ``right`` on ``target`` to ``name``."""
        if not self.policy.may(name, right, target):
            raise AccessDenied(f"right: {name} may not {right} {target}")

    # ------------------------------------------------------------------ files

    def refresh(self, *, now: bool = False) -> bool:
        """Read what has changed; without ``now`` look once a second at most. Return True if something did."""
        if not now and time.monotonic() - self._looked_at < PERIOD:
            return False
        with self._lock:
            self._looked_at = time.monotonic()
            if self._look() == self._stamps:
                return False
            for left in reversed(range(TRIES)):
                self._stamps = self._look()
                try:
                    self.own, self.policy = self._read()
                except ConfigError as wrong:
                    time.sleep(PAUSE)
                    if left == 0 or self._look() == self._stamps:
                        log.warning("%s: the last good one stays in force", wrong)
                        return False
                else:
                    break
            self._contexts = {}
            return True

    def _read(self) -> tuple[Pass, Policy]:
        own = passes.read(self._path)
        if (own.name, own.realm) != (self.name, self.realm):
            raise ConfigError("pass", f"{self._path}: it is of {own.name} of {own.realm} now, not of {self.name}")
        policy = self._read_policy(own)
        if policy.version < self.policy.version:
            raise ConfigError("policy", f"version {policy.version} is older than {self.policy.version}")
        return own, policy

    def _look(self) -> Stamp:
        stamps: list[object] = []
        for path in (self._path, *self._policy_files):
            with suppress(OSError):
                found = path.stat()
                stamps += (path.name, found.st_ino, found.st_mtime_ns, found.st_size)
        return tuple(stamps)

    def _read_policy(self, own: Pass) -> Policy:
        text_path, signature_path = self._policy_files
        if not text_path.exists() and not signature_path.exists():
            return Policy.open(own.realm)
        texts = []
        for path in (text_path, signature_path):
            try:
                with path.open(encoding="utf-8") as file:
                    texts.append(file.read(LIMIT + 1))
            except (OSError, UnicodeDecodeError) as wrong:
                raise ConfigError("policy", f"{path}: {getattr(wrong, 'strerror', None) or wrong}", path) from wrong
        from nngkit.trust import signing  # loads cryptography, which a trust without a policy does not need

        signing.check(own.authorities, *texts)
        policy = Policy.parse(texts[0])
        if policy.realm != own.realm:
            raise ConfigError("policy", f"{text_path}: it is of realm {policy.realm}, not of {own.realm}")
        return policy
