"""A realm as a folder: its key, its certificates, its policy with the signature.

::

    realm.key       0600: it signs passes; keep it away from the machines that use them
    realm.key.next  0600: the key of the future, from `begin` to `use`
    realm.pem       certificates that are trusted: of one key, of two while one replaces the other
    policy.toml   rights of names; policy.sig: its signature
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, Self

from nngkit.errors import ConfigError
from nngkit.file_modes import checked_path
from nngkit.trust import passes, signing
from nngkit.trust.policy import Policy
from nngkit.trust.realm import Realm
from nngkit.trust.trust import POLICY, SIGNATURE

KEY: Final = "realm.key"
NEXT: Final = "realm.key.next"
CERTIFICATES: Final = "realm.pem"
_VERSION = re.compile(r"^version\s*=\s*(\d+)\s*$", re.MULTILINE)
_REVOKED = re.compile(r"^revoked\s*=\s*\[(.*?)\]", re.MULTILINE | re.DOTALL)

FIRST_POLICY: Final = """\
# The rights of names in this realm. What is not granted is refused. After a change: a higher version, and
# `nngkit trust sign`. docs/trust.md has the rights.
realm = "{name}"
version = 1
revoked = []

[role.everyone]
names = ["*"]
offer = ["*"]
call = ["*"]
publish = [""]
subscribe = [""]
consume = ["*"]
edit = ["*"]
work = ["*"]
submit = ["*"]
join = ["*"]

[role.hubs] # voters of clusters; relays, devices and inner nodes, which speak for others
names = ["hub", "hub.*"]
vote = ["*"]
carry = ["*"]
"""


class Folder:
    """The files of a realm in ``path``. Raises ConfigError for what cannot be read or written."""

    def __init__(self, path: str | os.PathLike[str], realm: Realm) -> None:
        self.path = checked_path("realm", path)
        self.realm = realm

    @classmethod
    def new(cls, path: str | os.PathLike[str], name: str, secret: str | None = None) -> Self:
        """Make a realm, whose key follows from ``secret`` if there is one. Raises ConfigError if there is a realm."""
        folder = cls(path, Realm.new(name) if secret is None else Realm.shared(name, secret))
        if (folder.path / KEY).exists():
            raise ConfigError("realm", f"{folder.path / KEY} is there already")
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        passes.write(folder.path / KEY, folder.realm.key)
        passes.write(folder.path / CERTIFICATES, folder.realm.certificate)
        if not (folder.path / POLICY).exists():
            passes.write(folder.path / POLICY, FIRST_POLICY.format(name=name))
        folder.sign()
        return folder

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Read a realm."""
        folder = checked_path("realm", path)
        key, certificates = read_text(folder / KEY), read_text(folder / CERTIFICATES)
        try:
            return cls(path, Realm.read(key, certificates))
        except ConfigError as wrong:
            raise ConfigError("realm", f"{folder}: {wrong}", path) from wrong

    def policy(self) -> Policy:
        """Read the policy, signed or not. Raises ConfigError for a wrong one."""
        return Policy.parse(read_text(self.path / POLICY))

    def sign(self) -> Policy:
        """Sign the policy. Raises ConfigError for a wrong one."""
        text = read_text(self.path / POLICY)
        policy = Policy.parse(text)
        if policy.realm != self.realm.name:
            raise ConfigError("policy", f"{self.path / POLICY}: it is of realm {policy.realm}, not {self.realm.name}")
        passes.write(self.path / SIGNATURE, signing.sign(self.realm.key, text))
        return policy

    # Each step of a rotation can be made again if it was killed halfway: one file is what makes it done.

    def begin(self) -> None:
        """Trust a new key, too. Raises ConfigError if one replaces another already."""
        if self.realm.others:
            raise ConfigError("rotate", "a new key is trusted already: --use, then --finish")
        path = self.path / NEXT
        if not path.exists():
            passes.write(path, Realm.new(self.realm.name).key)
        new = Realm.load(self.realm.name, read_text(path).encode())
        passes.write(self.path / CERTIFICATES, self.realm.certificate + new.certificate)

    def use(self) -> None:
        """Sign by the new key from now on. Raises ConfigError if there is none that is trusted."""
        if not self.realm.others:
            raise ConfigError("rotate", "there is no new key: --begin")
        if (self.path / NEXT).exists():
            os.replace(self.path / NEXT, self.path / KEY)
        self.open(self.path).sign()

    def finish(self) -> None:
        """Trust the key that signs only. Raises ConfigError if the new one is not used yet."""
        if (self.path / NEXT).exists() or not self.realm.others:
            raise ConfigError("rotate", "the new key does not sign yet: --begin, then --use")
        self.sign()
        passes.write(self.path / CERTIFICATES, self.realm.certificate)

    def revoke(self, what: str) -> Policy:
        """Add a name, or "serial:" and a serial number, to what is revoked; sign the policy with the next version."""
        path = self.path / POLICY
        text = read_text(path)
        policy = Policy.parse(text)
        if what in policy.revoked:
            raise ConfigError("revoke", f"{what} is revoked already")
        if not _VERSION.search(text) or not _REVOKED.search(text):
            raise ConfigError("policy", f'{path}: needs lines "version = N" and "revoked = []"')
        listed = "".join(f'"{each}", ' for each in sorted(policy.revoked)) + f'"{what}"'
        text = _VERSION.sub(f"version = {policy.version + 1}", text, count=1)
        text = _REVOKED.sub(lambda _: f"revoked = [{listed}]", text, count=1)
        Policy.parse(text)
        passes.write(path, text)
        return self.sign()


def read_text(path: Path) -> str:
    """Return the text of a file. Raises ConfigError."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        raise ConfigError("realm", f"{path}: {getattr(wrong, 'strerror', None) or wrong}", path) from wrong
