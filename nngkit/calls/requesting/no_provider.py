"""Errors of calls without a provider: none is connected, or they and the client refuse each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from nngkit.calls.pool import Member
from nngkit.errors import AccessDenied, TimedOut

REFUSALS: Final = ("right: ", "binding: ", "revoked: ", "expired: ", "other-realm: ", "certificate refused")


def not_connected(name: str, known: Sequence[Member], seconds: float | None, why: str) -> TimedOut:
    """Return the error of a call of which no provider that is known was connected within `seconds`."""
    one = len(known) == 1
    which = f"its provider {known[0].provider.address} is not" if one else f"none of its {len(known)} providers is"
    return TimedOut(f"{name}: {which} connected after {seconds} s{why}", seconds)


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
