"""Resolution: a chosen provider with the reason for the choice and the age of the view behind it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from nngkit.discovery.lanes import Candidate, Preference
from nngkit.discovery.provider import Provider, State


@dataclass(frozen=True, slots=True)
class Resolution:
    """A provider and why it was chosen.

    age       seconds since the newest of `daemons` confirmed its view; an idle daemon confirms every few seconds
    reason    its state, zone and priority, and the number of providers of equal rank: "up, zone ny, priority 8, 1 of 3"
    daemons   addresses (a ServiceDiscovery: the id) of the daemons that list the provider
    fresh     False while no daemon answers: then this is the last known view
    """

    provider: Provider
    age: float
    reason: str
    daemons: tuple[str, ...]
    fresh: bool


def give_reason(provider: Provider, row: Candidate | None, preference: Preference, equals: int) -> str:
    """Return the reason for the choice of `provider` from a lane of `equals` providers."""
    state = State.UP if row is None else row.state
    words = [state.value + (" but silent in the last round" if row is not None and row.stale else "")]
    if provider.zone:
        wanted = provider.zone in preference.prefer
        place = f" (choice {preference.prefer.index(provider.zone) + 1})" if wanted else ""
        words.append(f"zone {provider.zone}{place}")
    return ", ".join([*words, f"priority {provider.priority}", f"1 of {equals}"])
