"""Choice of a provider: lanes in order of preference, then a policy within the first lane. Pure.

::

    rank of a provider, compared from left to right        the lowest is tried first
    ------------------------------------------------------------------------------------------------------------
    up, or suspect                     suspects come last (`suspects="near"`: after the zone)
    its zone in `prefer`               in the order of `prefer`; all other zones come after these, as equals
    stale                              missed a round together with most others; after those that have answered
    its priority                       1 to 16, 1 first, as nanomsg's NN_SNDPRIO

Providers of equal rank are a lane. `resolve` chooses in the first lane, at random in proportion to weight. A Client
knows its own calls and has more policies (nngkit/calls/pool.py); it moves to the next lane if the first fails.

A suspect has missed two surveys: it is most likely dead or frozen, and a call to it costs a timeout. A provider in
another zone costs a longer round trip. Therefore suspects come last by default.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Final, Literal, Protocol, TypeAlias

from nngkit.chance import RandomSource
from nngkit.discovery.provider import MAX_WORD, Provider, State
from nngkit.errors import ConfigError, ServiceNotFound

Suspects: TypeAlias = Literal["last", "near"]
Rank: TypeAlias = tuple[int, int, int, int]
MAX_PREFERRED: Final = 16
"""Cap on the zones of a preference: more than a company has sites, and it crosses the wire in queries."""


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


@dataclass(frozen=True, slots=True)
class Preference:
    """A caller's preference. Raises ConfigError for an unusable value.

    prefer    zones in order; "" and zones without a provider have no effect
    tags      a provider must have all of them
    version   a provider's version must be this, or begin with it and a dot: "2" accepts "2" and "2.1", not "20"
    suspects  "last": after all others; "near": a suspect of a preferred zone comes before other zones
    """

    prefer: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    version: str = ""
    suspects: Suspects = "last"
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __hash__(self) -> int:
        return self._hash  # made once: each `resolve` looks its lane up by its preference

    def __post_init__(self) -> None:
        for what, words in (("prefer", self.prefer), ("tags", self.tags), ("version", (self.version,))):
            for word in words:
                if not isinstance(word, str) or not word.isprintable() or len(word.encode()) > MAX_WORD:
                    raise ConfigError(what, f"{word!r} is not a printable text of up to {MAX_WORD} bytes", word)
        object.__setattr__(self, "prefer", tuple(dict.fromkeys(zone for zone in self.prefer if zone != "")))
        if len(self.prefer) > MAX_PREFERRED:
            raise ConfigError("prefer", f"{len(self.prefer)} zones, over the limit of {MAX_PREFERRED}", self.prefer)
        if self.suspects not in ("last", "near"):
            raise ConfigError("suspects", f"{self.suspects!r} is neither 'last' nor 'near'", self.suspects)
        object.__setattr__(self, "_hash", hash((self.prefer, self.tags, self.version, self.suspects)))

    def accepts(self, provider: Provider) -> bool:
        """Return True if the provider has the version and the tags."""
        if self.tags and not self.tags <= provider.tags:
            return False
        wanted, version = self.version, provider.version
        return not wanted or version == wanted or version.startswith(f"{wanted}.")

    def rank(self, provider: Provider, *, suspect: bool = False, stale: bool = False) -> Rank:
        """Return the rank of a provider: the lowest is tried first."""
        try:
            zone = self.prefer.index(provider.zone)
        except ValueError:
            zone = len(self.prefer)
        if self.suspects == "near":
            return (zone, suspect, stale, provider.priority)
        return (suspect, zone, stale, provider.priority)


NO_TAGS: Final[frozenset[str]] = frozenset()
ANY: Final = Preference()
"""No preference."""


def make_preference(
    prefer: str | Iterable[str], tags: str | Iterable[str], version: str, suspects: Suspects
) -> Preference:
    """Return the preference, ANY without one. Raises ConfigError."""
    if not prefer and not tags and not version and suspects == "last":
        return ANY
    try:
        zones = (prefer,) if isinstance(prefer, str) else tuple(prefer)
    except TypeError as error:
        raise ConfigError("prefer", f"{prefer!r} is neither a zone nor a list of zones", prefer) from error
    try:
        wanted = frozenset((tags,) if isinstance(tags, str) else tags) if tags else NO_TAGS
    except TypeError as error:
        raise ConfigError("tags", f"{tags!r} is neither a tag nor a list of tags", tags) from error
    try:
        return _known_preference(zones, wanted, version, suspects)
    except TypeError:  # not texts
        return Preference(zones, wanted, version, suspects)


@lru_cache(maxsize=256)
def _known_preference(zones: tuple[str, ...], tags: frozenset[str], version: str, suspects: Suspects) -> Preference:
    return Preference(zones, tags, version, suspects)


class Lane:
    """Providers of equal rank, in the order of their keys; not empty."""

    __slots__ = ("_bounds", "_count", "providers", "rank")

    def __init__(self, rank: Rank, providers: Iterable[Provider]) -> None:
        self.rank = rank
        self.providers = tuple(sorted(providers, key=lambda provider: provider.key))
        self._count = len(self.providers)
        weights = {provider.weight for provider in self.providers}
        self._bounds = None if len(weights) == 1 else list(accumulate(p.weight for p in self.providers))

    def choose(self, rng: RandomSource) -> Provider:
        """Return a random provider, in proportion to weight; if all have weight 0, each is as likely."""
        bounds = self._bounds
        if bounds is None:
            return self.providers[int(rng.random() * self._count)]
        # a number below 1 times a sum below 2**53 is below the sum, rounded too: so never one without weight at the end
        return self.providers[bisect(bounds, rng.random() * bounds[-1])]


def lanes(rows: Iterable[Candidate], preference: Preference = ANY) -> tuple[Lane, ...]:
    """Return all lanes, in order. Each address appears once, with its newest epoch in the best lane that has it."""
    groups: dict[Rank, list[Provider]] = {}
    for row in rows:
        if row.state in _CALLABLE and preference.accepts(row.provider):
            rank = preference.rank(row.provider, suspect=row.state is State.SUSPECT, stale=row.stale)
            groups.setdefault(rank, []).append(row.provider)
    found = []
    taken: set[str] = set()
    for rank in sorted(groups):
        newest = _one_per_address(groups[rank])
        if members := [provider for address, provider in newest.items() if address not in taken]:
            found.append(Lane(rank, members))
            taken.update(newest)
    return tuple(found)


def find_lane(rows: Iterable[Candidate], preference: Preference = ANY) -> Lane | None:
    """Return the first lane, None without a provider: `lanes(...)[0]`, in a fifth of the time."""
    best: Rank | None = None
    members: list[Provider] = []
    for row in rows:
        if row.state in _CALLABLE and preference.accepts(row.provider):
            rank = preference.rank(row.provider, suspect=row.state is State.SUSPECT, stale=row.stale)
            if best is None or rank < best:
                best, members = rank, [row.provider]
            elif rank == best:
                members.append(row.provider)
    return None if best is None else Lane(best, _one_per_address(members).values())


def explain(name: str, rows: Iterable[Candidate], preference: Preference) -> ServiceNotFound:
    """Return the error for a name without a lane: with the reason, if providers exist that are not accepted."""
    present = [row.provider for row in rows if row.state in _CALLABLE]
    wanted = [f"the tag {tag}" for tag in sorted(preference.tags)]
    if preference.version:
        wanted.append(f"version {preference.version}")
    if not present or not wanted:
        return ServiceNotFound(name)
    one = len(present) == 1
    return ServiceNotFound(
        name, f"{'its only provider lacks' if one else f'all {len(present)} providers lack'} {' or '.join(wanted)}"
    )


_CALLABLE = (State.UP, State.SUSPECT)


def _one_per_address(providers: Iterable[Provider]) -> dict[str, Provider]:
    return {provider.address: provider for provider in sorted(providers, key=lambda p: (p.epoch, p.id))}
