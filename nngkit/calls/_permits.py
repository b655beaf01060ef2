"""Rights of calls under a trust: which callers a server lets in and serves, and why providers do not serve a client.

The right is `call`, on SERVICE or SERVICE/METHOD. A caller that may call nothing of the service is not let in. What it
may call is looked up for each call: a policy that was read again holds from the next call on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from nngkit.calls.pool import Member
from nngkit.errors import AccessDenied
from nngkit.trust import Rights, Trust

REMEMBERED: Final = 65_536  # grants, by which one look-up decides; then they are looked up in the policy again
REFUSALS: Final = ("right: ", "binding: ", "revoked: ", "expired: ", "other-realm: ", "certificate refused")


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


def refusal_of(member: Member) -> str:
    """Return why a provider and the client have not let each other in since they were last connected; "" if they have.

    The provider's reasons begin with a code, as ours do.
    """
    cuts = () if member.link is None or member.connected else member.link.cuts
    if not cuts or cuts[-1].time < member.joined or not cuts[-1].reason.startswith(REFUSALS):
        return ""
    reason: str = cuts[-1].reason
    return reason


def denied(members: Iterable[Member], me: str, *, final: bool) -> AccessDenied | None:
    """Return the error of a call for which no provider is connected, if all `members` have refused `me`, or `me` them.

    `final`: nothing more is waited for. Before, only what the policy refuses to `me` ends a call: it is the same at all
    providers, while another provider may come in place of one that may not offer the service.
    """
    reasons = {member.provider.address: refusal_of(member) for member in members}
    if not reasons or not all(reasons.values()):
        return None
    ours = (f"right: {me} ", f"revoked: {me} ")
    if not final and not all(reason.startswith(ours) for reason in reasons.values()):
        return None
    address, reason = next(iter(reasons.items()))
    more = f"; and {len(reasons) - 1} more providers" if len(reasons) > 1 else ""
    return AccessDenied(f"{reason} (at {address}{more})")
