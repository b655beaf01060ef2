"""Rights of calls under a trust: which callers a server lets in, and which of their calls it serves.

The right is `call`, on SERVICE or SERVICE/METHOD. A caller that may call nothing of the service is not let in. What it
may call is looked up for each call: a policy that was read again holds from the next call on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from nngkit.trust import Rights, Trust

REMEMBERED: Final = 65_536  # grants, by which one look-up decides; then they are looked up in the policy again


class Permits:
    """Decides for the server of one service. `methods`: returns the names of its methods."""

    def __init__(self, trust: Trust, service: str, methods: Callable[[], Iterable[str]]) -> None:
        self.rights = Rights(trust, "calls", carry="calls")
        self._trust = trust
        self._service = service
        self._methods = methods
        self._policy = trust.policy
        self._granted: set[tuple[str | None, str]] = set()

    def admit(self, who: str | None) -> None:
        """Raise AccessDenied if `who` may call nothing of the service."""
        if not any(self.rights.grants(who, "call", self.target(method)) for method in self._methods()):
            self.rights.require(who, "call", self._service)

    def may(self, who: str | None, method: str) -> bool:
        """Return True if `who` may call `method`, "" for a call that names none. A refusal is counted."""
        policy = self._trust.policy
        if policy is not self._policy or len(self._granted) > REMEMBERED:
            self._policy = policy
            self._granted = set()
        if (who, method) in self._granted:
            return True
        granted = self.rights.may(who, "call", self.target(method))
        if granted:
            self._granted.add((who, method))
        return granted

    def target(self, method: str) -> str:
        """Return what a call of `method` is called in policies."""
        return f"{self._service}/{method}" if method else self._service
