"""A realm for tests: passes and a policy in one folder, as `nngkit trust` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nngkit.trust import Folder, Trust, passes

ANY = "tls+tcp://127.0.0.1:0"
WAIT = 15.0  # seconds for any one event, on a busy machine


class Farm:
    """The realm "farm" in a folder. All passes have one policy beside them, which `grant` replaces."""

    def __init__(self, path: Path, **grants: Mapping[str, object]) -> None:
        self.path = path
        self.folder = Folder.new(path, "farm")
        self._version = 1
        self._trusts: list[Trust] = []
        if grants:
            self.grant(**grants)

    def own(self, name: str) -> Trust:
        """Return the trust of a new pass."""
        path = self.path / f"{name}.pass"
        passes.write(path, self.folder.realm.issue(name))
        trust = Trust(path)
        self._trusts.append(trust)
        return trust

    def grant(self, **roles: Mapping[str, object]) -> None:
        """Write and sign a policy of these roles, and have the trusts read it: ``grant(pay={"names": ["pay.*"]})``."""
        self._version += 1
        lines = ['realm = "farm"', f"version = {self._version}"]
        for role, table in roles.items():
            lines += [f"[role.{role}]", *(f"{key} = {value!r}".replace("'", '"') for key, value in table.items())]
        (self.path / "policy.toml").write_text("\n".join(lines) + "\n")
        self.folder.sign()
        for trust in self._trusts:
            trust.refresh(now=True)
