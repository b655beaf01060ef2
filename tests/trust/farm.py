"""A realm with a policy that tests rewrite while programs use it."""

from __future__ import annotations

from pathlib import Path

from nngkit.trust import Folder, Trust, passes


class Farm:
    """Passes and policy of one folder: all trusts read the same policy."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = Folder.new(path, "farm")
        self._version = 1
        self._trusts: list[Trust] = []

    def trust(self, name: str) -> Trust:
        """Return a trust with a new pass of this name."""
        path = self._path / f"{name} {len(self._trusts)}.pass"
        passes.write(path, self._folder.realm.issue(name))
        self._trusts.append(Trust(path))
        return self._trusts[-1]

    def policy(self, revoked: tuple[str, ...] = (), **roles: str) -> None:
        """Write the policy, of a role for each name given, with dots for underscores; trusts read it at once."""
        self._version += 1
        names = [(each.removeprefix("at_"), "@" if each.startswith("at_") else "") for each in roles]
        text = f'realm = "farm"\nversion = {self._version}\nrevoked = {list(revoked)}\n'
        for (name, mark), grants in zip(names, roles.values(), strict=True):
            text += f'[role.{name}]\nnames = ["{mark}{name.replace("_", ".")}"]\n{grants}\n'
        (self._path / "policy.toml").write_text(text)
        self._folder.sign()
        for trust in self._trusts:
            trust.refresh(now=True)
