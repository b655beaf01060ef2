"""The registry's settings, caps and rounds, and how one of several providers is chosen. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nngkit.discovery.provider import Event, Provider, RoundFigures, State

__all__ = ["Chance", "Limits", "Round", "RoundEnd", "Rules", "Standing", "choose", "is_mass_loss", "shortlists"]


class Chance(Protocol):
    """Where chance comes from: `random.Random`, or a test's script."""

    def random(self) -> float:
        """A number from 0 up to, not including, 1."""
        ...


class Standing(Protocol):
    """A provider and how it stands: a row of the registry, or a Status."""

    @property
    def provider(self) -> Provider:
        """The provider."""

    @property
    def state(self) -> State:
        """Its state."""

    @property
    def stale(self) -> bool:
        """Return True after silence in a mass loss: it still counts as up, but providers that replied are preferred."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When silence means something. Counts of surveys, not seconds: a slow interval must not make services look dead.

    suspect_after   misses until a provider is passed over. 2: the question and the quick second one. With 5 % of
                    replies lost that is 1 provider in 400 a round, and the next reply clears it.
    down_after      misses until it is given up. 8: with 5 % lost, 4e-11 for each provider and round. In time, at the
                    default deadline of 5 s and pause of 2 s: 7 rounds and a second question, under a minute.
    mass_count      so many silent at once may be our own trouble, fewer are theirs. 10: below that, each is looked at
                    by itself, or a rack of three that fails would be held up as healthy.
    mass_share      and they are more than this share of those that answered before.
    """

    suspect_after: int = 2
    down_after: int = 8
    mass_count: int = 10
    mass_share: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.suspect_after <= self.down_after:
            raise ValueError("suspect_after is not from 1 to down_after")
        if self.mass_count < 1 or not 0 <= self.mass_share <= 1:
            raise ValueError("mass_count is under 1, or mass_share is not from 0 to 1")


@dataclass(frozen=True, slots=True)
class Limits:
    """What strangers can make us keep, and the abuse that each cap stops. Over a cap, the known stay and the new are
    refused and counted ("over cap"), so that nobody is pushed out by a crowd.

    providers        rows in all, down ones included (the oldest of those give way): a crowd that fills our memory.
                     At 2 KiB a row, the worst case is 32 MiB.
    names            different service names: a crowd that makes every listing unreadable.
    per_pipe         rows that one pipe carries: one process that plays the crowd. A reply holds 64; more is for relays.
    pipes            connections that are tracked: a peer that connects without end.
    work_per_round   what one pipe may make us read between two rounds: 1 a reply, 1 a record, 1 for each 256 bytes.
                     A process that answers one question ten thousand times ("flood"). 4,096 are about 50 ms.
    keep_down        seconds that a down row is kept, for people who ask what happened.
    max_down         and so many of them: services that crash, restart and crash.
    """

    providers: int = 16_384
    names: int = 4_096
    per_pipe: int = 1_024
    pipes: int = 16_384
    work_per_round: int = 4_096
    keep_down: float = 600.0
    max_down: int = 1_024


@dataclass(frozen=True, slots=True)
class Round:
    """One survey: its number (they count up), its start, the pipes that were connected then, whether it is a re-ask."""

    number: int
    started: float
    asked: frozenset[int]
    reask: bool = False


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """What a round has shown, and what is to be done.

    `ask_again`: start a round with ``reask=True`` now, without the pause. `silent_pipes`: everything that these pipes
    carry has just gone down by silence; the caller may disconnect them, so that a half-open connection is not kept.
    """

    figures: RoundFigures
    events: tuple[Event, ...] = ()
    ask_again: bool = False
    silent_pipes: tuple[int, ...] = ()


def is_mass_loss(silent: int, of: int, rules: Rules) -> bool:
    """Whether `silent` of `of` providers that answered until now point at our own network rather than at them."""
    return silent >= rules.mass_count and silent > rules.mass_share * of


def shortlists(rows: Iterable[Standing]) -> dict[str, tuple[Provider, ...]]:
    """Return the candidates for callers of each zone and, under "", for all others; empty if there are none.

    Candidates are those up, or if there is none, the suspects. Of each zone those that answered come before the stale,
    and of these the lowest priority counts; each address once (with its newest epoch), in the order of the keys.
    """
    there = [row for row in rows if row.state in (State.UP, State.SUSPECT)]
    state = State.UP if any(row.state is State.UP for row in there) else State.SUSPECT
    found: dict[str, tuple[Provider, ...]] = {}
    for stale in (False, True):
        tier = [row.provider for row in there if row.state is state and row.stale is stale]
        at = {provider.address: provider for provider in sorted(tier, key=lambda p: (p.epoch, p.id))}
        zones: dict[str, list[Provider]] = {}
        for provider in at.values():
            for zone in {"", provider.zone}:
                zones.setdefault(zone, []).append(provider)
        for zone, members in zones.items():
            if zone not in found:
                first = min(provider.priority for provider in members)
                found[zone] = tuple(sorted((p for p in members if p.priority == first), key=lambda p: p.key))
    return found


def choose(lists: Mapping[str, Sequence[Provider]], rng: Chance, zone: str = "") -> Provider:
    """Return one of the shortlist of `zone`, or of "" if it has none (which is not empty), by chance and weight."""
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
