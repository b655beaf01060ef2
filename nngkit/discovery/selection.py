"""Selection of a provider: by zone, staleness and priority, then at random in proportion to weight. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from nngkit.discovery.provider import Provider, State

__all__ = ["Candidate", "RandomSource", "choose_provider", "shortlists"]


class RandomSource(Protocol):
    """Source of randomness: `random.Random`, or a test's script."""

    def random(self) -> float:
        """Return a number from 0 up to, not including, 1."""
        ...


class Candidate(Protocol):
    """A provider with its state: a row of the registry, or a Status."""

    @property
    def provider(self) -> Provider:
        """The provider."""

    @property
    def state(self) -> State:
        """Its state."""

    @property
    def stale(self) -> bool:
        """True if it missed a round with mass loss: still up, but ranked behind providers that have answered."""


def shortlists(rows: Iterable[Candidate]) -> dict[str, tuple[Provider, ...]]:
    """Return the candidates for callers of each zone and, under "", for all others; empty if there are none.

    Candidates are the providers that are up or, if there is none, the suspects. In each zone those that answered come
    before the stale, and among these the lowest priority wins. Each address appears once, with its newest epoch, in
    the order of the keys.
    """
    present = [row for row in rows if row.state in (State.UP, State.SUSPECT)]
    state = State.UP if any(row.state is State.UP for row in present) else State.SUSPECT
    found: dict[str, tuple[Provider, ...]] = {}
    for stale in (False, True):
        tier = [row.provider for row in present if row.state is state and row.stale is stale]
        by_address = {provider.address: provider for provider in sorted(tier, key=lambda p: (p.epoch, p.id))}
        zones: dict[str, list[Provider]] = {}
        for provider in by_address.values():
            for zone in {"", provider.zone}:
                zones.setdefault(zone, []).append(provider)
        for zone, members in zones.items():
            if zone not in found:
                first = min(provider.priority for provider in members)
                found[zone] = tuple(sorted((p for p in members if p.priority == first), key=lambda p: p.key))
    return found


def choose_provider(lists: Mapping[str, Sequence[Provider]], rng: RandomSource, zone: str = "") -> Provider:
    """Return a weighted random choice from the shortlist of `zone`, else of "", which must not be empty."""
    candidates = lists.get(zone) or lists[""]
    total = sum(provider.weight for provider in candidates)
    if not total:
        return candidates[min(int(rng.random() * len(candidates)), len(candidates) - 1)]
    point = rng.random() * total
    for provider in candidates:
        point -= provider.weight
        if point < 0:
            return provider
    return next(provider for provider in reversed(candidates) if provider.weight)  # rounding at the very end
