"""Rights in discovery under a trust: which providers a connection may state.

::

    offers = Offers(trust)
    offers.admits("pay.a", Provider("pay", "tls+tcp://10.0.0.7:9000", id="pay.a:3f9c", epoch=1))

A provider's id is the name of its pass or an instance of it, and the policy grants `offer` on the service to that name.
Connections that state providers of others need ``carry = ["discovery"]``. Without a trust everything is admitted.
"""

from __future__ import annotations

from typing import Final

from nngkit.discovery.provider import Provider
from nngkit.trust import Choice, Rights

CARRY: Final = "discovery"


class Offers:
    """Decisions about what the peers of a daemon may state. `rights` counts the refusals. Any thread may call."""

    def __init__(self, trust: Choice | None) -> None:
        self.rights = Rights(trust, "discovery", carry=CARRY)
        self._policy = None if self.rights.trust is None else self.rights.trust.policy

    def admits(self, who: str | None, record: Provider) -> bool:
        """Return True if `who` may state `record`, as its own or for the peer that its id names. Counts a refusal."""
        rights = self.rights
        if rights.trust is None:
            return True
        if not rights.speaks(who, record.id):
            return False
        return rights.grants(who, "offer", record.name) or rights.may(record.id.partition(":")[0], "offer", record.name)

    def offers(self, who: str | None, name: str) -> bool:
        """Return True if `who` may have providers of the service `name` to state."""
        return self.rights.grants(who, "offer", name) or self.carries(who)

    def carries(self, who: str | None) -> bool:
        """Return True if `who` may state providers of others."""
        return self.rights.grants(who, "carry", CARRY)

    def changed(self) -> bool:
        """Return True if the policy is another one than at the last call."""
        trust = self.rights.trust
        if trust is None or trust.policy is self._policy:
            return False
        self._policy = trust.policy
        return True
