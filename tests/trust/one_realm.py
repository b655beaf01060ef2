"""A realm in one folder: passes, and a policy that is written anew while programs run."""

from __future__ import annotations

from pathlib import Path

from nngkit.trust import Folder, Trust, passes
from nngkit.trust.realm import Realm

FARM = Realm.new("farm")


class OneRealm:
    """Passes of one realm, all beside one policy. Without `policy` there is none."""

    def __init__(self, path: Path, realm: Realm = FARM) -> None:
        self.folder = Folder(path, realm)
        self._version = 0
        self._made: list[Trust] = []
        path.mkdir(parents=True, exist_ok=True)

    def trust(self, name: str, hosts: tuple[str, ...] = ()) -> Trust:
        """Return a trust of its own, as of another process."""
        self._made.append(Trust(self.file(name, hosts)))
        return self._made[-1]

    def file(self, name: str, hosts: tuple[str, ...] = ()) -> Path:
        """Return the file of a pass."""
        path = self.folder.path / f"{name}.pass"
        if not path.exists():
            passes.write(path, self.folder.realm.issue(name, hosts=hosts))
        return path

    def policy(self, *roles: str, revoked: tuple[str, ...] = (), **named: str) -> None:
        """Write the next version of the policy: roles as `names | right = [...] | ...`, or `name="right = [...]"`.

        In a keyword `_` stands for a dot. All trusts have read it then, as sockets have them do within two seconds.
        """
        self._version += 1
        roles += tuple(f"{name.replace('_', '.')} | {rights}" for name, rights in named.items())
        lines = [f'realm = "{self.folder.realm.name}"', f"version = {self._version}", f"revoked = {list(revoked)}"]
        for number, role in enumerate(roles):
            names, *grants = (each.strip() for each in role.split("|"))
            listed = ", ".join(f'"{name}"' for name in names.split())
            lines += [f"[role.r{number}]", f"names = [{listed}]", *grants]
        (self.folder.path / "policy.toml").write_text("\n".join(lines) + "\n")
        self.folder.sign()
        for trust in self._made:
            trust.refresh(now=True)
