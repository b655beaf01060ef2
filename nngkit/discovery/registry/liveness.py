"""Settings, caps and rounds of the registry. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from nngkit.discovery.provider import Event, RoundFigures


@dataclass(frozen=True, slots=True)
class LivenessRules:
    """Thresholds for missed replies. They count surveys, not seconds, so a long interval does not make services seem
    down.

    suspect_after   misses until a provider is suspect. 2: the survey and its quick re-ask. With 5 % of replies lost,
                    that is 1 provider in 400 a round, and the next reply clears it.
    down_after      misses until a provider is down. 8: with 5 % lost, 4e-11 for each provider and round. In time, at
                    the default deadline of 5 s and interval of 2 s: 7 rounds and a re-ask, under a minute.
    mass_count      providers silent at once before a fault of the local network is assumed. 10: below that each is
                    judged by itself, so that a failed rack of three is reported as down.
    mass_share      and the share of silent providers among those that answered before, to be exceeded as well.
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
class RegistryLimits:
    """Caps on the memory and CPU time that peers can use, each with the abuse that it prevents.

    Over a cap, known providers stay; new ones are refused and counted ("over cap"), so a flood evicts no provider.

    providers        rows in total, down ones included (the oldest of those are evicted): a flood that fills memory.
                     At 2 KiB a row, the worst case is 32 MiB.
    names            distinct service names: a flood that makes every listing unreadable.
    per_pipe         rows that one pipe carries: one process posing as many. A reply holds 64; more is for relays.
    pipes            tracked connections: a peer that connects without end.
    work_per_round   cost of reading one pipe between two rounds: 1 a reply, 1 a record, 1 for each 256 bytes.
                     A process that answers one survey ten thousand times ("flood"). 4,096 are about 50 ms.
    keep_down        seconds that a down row is kept for diagnosis.
    max_down         and how many of them: services that crash, restart and crash.
    """

    providers: int = 16_384
    names: int = 12_288
    per_pipe: int = 1_024
    pipes: int = 16_384
    work_per_round: int = 4_096
    keep_down: float = 600.0
    max_down: int = 1_024


@dataclass(frozen=True, slots=True)
class Round:
    """One survey round: its number (ascending), its start, the pipes connected then, and whether it is a re-ask."""

    number: int
    started: float
    asked: frozenset[int]
    reask: bool = False


@dataclass(frozen=True, slots=True)
class RoundResult:
    """Outcome of a round and the actions that follow.

    `ask_again`: start a round with ``reask=True`` now, without the interval. `silent_pipes`: pipes of which all rows
    have just gone down by silence; the caller may disconnect them, so that half-open connections are not kept.
    """

    figures: RoundFigures
    events: tuple[Event, ...] = ()
    ask_again: bool = False
    silent_pipes: tuple[int, ...] = ()


def is_mass_loss(silent: int, of: int, rules: LivenessRules) -> bool:
    """Return True if `silent` of `of` providers that answered before suggest a fault of our own network."""
    return silent >= rules.mass_count and silent > rules.mass_share * of
