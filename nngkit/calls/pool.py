"""Providers that a client may call: which are usable, which lane is in use, and which one gets the next call. Pure.

::

    discovery --apply--> Pool <--connected, disconnected-- sockets
                          |  choose, begin
                          v
                        Member  --end(outcome)--> Pool

The lanes are those of discovery/lanes.py. The client uses the first lane that has a usable member: connected, not
ejected, not leaving. When that lane has none left, it fails over at once; it fails back to a lane that it has left
after that lane was usable for `failback` seconds without a break, so that a flapping lane is not followed.

A suspect has missed surveys, and a missed survey is weaker evidence than a reply: a suspect that replied to a call of
this client within the last second counts as up.

Invariants (tests/calls/test_pool.py)
-------------------------------------
 1. `choose` returns a connected member that is not leaving, and an ejected one only if no other is left.
 2. It returns a member of a worse lane only if each better lane has no usable untried member, or is held back.
 3. outstanding is never negative, and is 0 after every call has ended.
 4. At most `Ejection.most` of the connected members are ejected, but one may always be, if another is connected.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import exp
from typing import Any, Final, Literal, TypeAlias, get_args

from nngkit.calls.health import Ejection, Health
from nngkit.chance import RandomSource
from nngkit.discovery.lanes import ANY, Preference, Rank, explain
from nngkit.discovery.provider import Provider, State
from nngkit.discovery.registry.resolution import give_reason
from nngkit.errors import ConfigError, ServiceNotFound
from nngkit.histogram import Histogram

Policy: TypeAlias = Literal["two-choices", "random", "weighted", "latency"]
Outcome: TypeAlias = Literal["reply", "error", "refused", "timeout", "lost", "bad", "cancelled"]
Place: TypeAlias = tuple[str, str]  # name and address: what a member is, over restarts

TRUSTED: Final = 1.0
"""Seconds after a reply in which a suspect counts as up: shorter than the two surveys that make a suspect."""
RECENT: Final = 256
"""Requests to a provider after which the times of its replies are counted together, in a quarter of the time."""
RECHECK: Final = 0.1
"""Seconds between two checks of suspects."""
DECAY: Final = 10.0
"""Time constant, in seconds, of the peak-sensitive moving average of latencies, as in Finagle and linkerd."""


@dataclass(eq=False, slots=True)
class Member:
    """One provider as this client sees it.

    link      the socket that calls it, None without one; the pool does not look inside
    joined    time of its last connection
    latency   peak-sensitive moving average in seconds, 0 without a call; `since` is the time of its last change
    leaving   it gets no new calls: it drains, has left, or is down
    beside    another process that is said to be at its address, with an earlier epoch; used once this one leaves
    streams   of `outstanding`
    recent    seconds of the last replies, not yet in `times`
    """

    provider: Provider
    state: State
    health: Health
    link: Any = None
    connected: bool = False
    joined: float = float("-inf")
    outstanding: int = 0
    streams: int = 0
    latency: float = 0.0
    since: float = 0.0
    last_reply: float = float("-inf")
    requests: int = 0
    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(get_args(Outcome)[1:], 0))
    leaving: bool = False
    beside: tuple[Provider, State] | None = None
    recent: list[float] = field(default_factory=list)
    _times: Histogram = field(default_factory=Histogram)

    @property
    def stale(self) -> bool:
        """False: a pool does not know of rounds."""
        return False

    @property
    def place(self) -> Place:
        """Name and address."""
        return self.provider.name, self.provider.address

    def move(self, state: State) -> None:
        """Set the state."""
        self.state = state
        self.leaving = state not in (State.UP, State.SUSPECT)

    @property
    def replies(self) -> int:
        """Attempts that were answered with a result: all that have ended otherwise are counted."""
        return self.requests - (self.outstanding - self.streams) - sum(self.outcomes.values())

    @property
    def times(self) -> Histogram:
        """Seconds from request to reply."""
        recent = self.recent[:]
        self._times.add_many(recent)
        del self.recent[: len(recent)]  # others may have been added meanwhile
        return self._times

    def observe(self, seconds: float, now: float) -> None:
        """Record the time of one reply: a rise counts at once, a fall with the time constant DECAY."""
        if seconds >= self.latency:
            self.latency = seconds
        else:
            share = exp(-(now - self.since) / DECAY)
            self.latency = self.latency * share + seconds * (1.0 - share)
        self.since = now


@dataclass(frozen=True, slots=True)
class _Other:
    """Provider that the preference does not accept: a Candidate."""

    provider: Provider
    state: State
    stale: bool = False


def check_policy(policy: str) -> Policy:
    """Return the policy. Raises ConfigError."""
    for known in get_args(Policy):
        if policy == known:
            return known  # type: ignore[no-any-return]
    raise ConfigError("policy", f"{policy!r} is none of {', '.join(get_args(Policy))}", policy)


class Pool:
    """Members, and the choice among them. Not thread-safe: one lock owns it. `now`: seconds on one monotonic clock.

    But a call of `only` may begin and end without that lock, in one step of the interpreter: see `Client.request`.

    salt   differs between clients: each connects to another subset if there are more than `most` providers
    most   members that are connected to
    """

    def __init__(
        self,
        *,
        preference: Preference = ANY,
        policy: Policy = "two-choices",
        failback: float = 2.0,
        ejection: Ejection | None = None,
        most: int = 128,
        salt: bytes = b"",
        rng: RandomSource,
    ) -> None:
        self._preference = preference
        self._policy = policy
        self._failback = failback
        self._ejection = ejection or Ejection()
        self._most = most
        self._salt = salt
        self._rng = rng
        self.members: dict[Place, Member] = {}
        self._others: dict[Place, _Other] = {}  # providers that the preference does not accept
        self.failovers = 0
        self.failbacks = 0
        self._dirty = True
        self._recheck = float("inf")
        self._lanes: list[tuple[Rank, list[Member]]] = []  # usable members, in the order of their ranks
        # what `choose` returns until something changes, whatever was tried; its replies leave nothing to decide
        self.only: Member | None = None
        self._active: Rank | None = None
        self._failed: set[Rank] = set()  # lanes that were left because they had no usable member
        self._returning: tuple[Rank, float] | None = None  # a better lane that is usable again, and since when

    # Inputs

    def missing(self, name: str) -> ServiceNotFound:
        """Return the error for a pool without members: with the reason, if there are providers of other tags."""
        return explain(name, self._others.values(), self._preference)

    def apply(self, provider: Provider, state: State) -> Member | None:
        """Note a provider's record and state; return its member, None if it is not accepted or already gone."""
        place = provider.name, provider.address
        member = self.members.get(place)
        if member is not None and provider.key != member.provider.key:  # news of another process at this address
            if state not in (State.UP, State.SUSPECT):
                if member.beside is not None and member.beside[0].key == provider.key:
                    member.beside = None
                return member
            if provider.epoch < member.provider.epoch and not member.leaving:
                member.beside = provider, state  # an earlier one, or one whose clock went back
                return member
        accepted = state is not State.DOWN and self._preference.accepts(provider)
        self._others.pop(place, None)
        if not accepted and state is not State.DOWN:
            self._others[place] = _Other(provider, state)
        self._change()
        if member is None:
            if accepted:
                member = self.members[place] = Member(provider, state, Health(self._ejection))
                member.move(state)
            return member
        if provider.key != member.provider.key:  # restarted: the failures were another process's
            member.health = Health(self._ejection)
        member.provider = provider
        member.move(state if accepted else State.DOWN)
        if member.leaving and member.beside is not None:
            (provider, state), member.beside = member.beside, None
            return self.apply(provider, state)
        return member

    def forget(self, member: Member) -> None:
        """Remove a member that has left and has no calls in progress."""
        if self.members.get(member.place) is member:
            del self.members[member.place]
            self._change()

    def connected(self, member: Member, connected: bool) -> None:
        """Note that the member's socket has connected, or lost its connection."""
        if member.connected != connected:
            member.connected = connected
            self._change()

    def _change(self) -> None:
        self._dirty = True
        self.only = None

    def begin(self, member: Member) -> None:
        """Count a call in progress."""
        if not member.requests % RECENT:
            _ = member.times
        member.outstanding += 1
        member.requests += 1

    def end(self, member: Member, outcome: Outcome, seconds: float, now: float) -> bool:
        """Count the end of a call that took `seconds`; return True if the member was ejected for it."""
        member.outstanding -= 1
        if outcome == "reply" or outcome == "error":  # the frequent ones: kept short
            if outcome == "error":
                member.outcomes["error"] += 1
            member.last_reply = now
            member.recent += (seconds,)
            health = member.health
            health.failures = 0
            if self._policy == "latency":
                member.observe(seconds, now)
            if health.ejections:
                health.succeeded(now)
            return False
        member.outcomes[outcome] += 1
        if outcome == "refused":
            member.last_reply = now  # it lives
        elif outcome != "cancelled":
            if outcome == "timeout":
                member.observe(seconds, now)
            if member.health.failed() and self._may_eject():
                member.health.eject(now)
                self._change()
                return True
        return False

    # Questions

    def present(self) -> list[Member]:
        """Return the members that are not leaving."""
        return [member for member in self.members.values() if not member.leaving]

    def wanted(self) -> list[Member]:
        """Return the members to connect to: in the order of their lanes, at most `most`, within a lane a subset.

        The subset of a lane is by rendezvous hashing: stable while providers come and go, and each client's own.
        """
        present = self.present()
        if len(present) > self._most:
            present.sort(key=lambda member: (self._preference.rank(member.provider), self._hash(member)))
        return present[: self._most]

    def choose(self, now: float, tried: Collection[Member] = ()) -> Member | None:
        """Return the member for the next call: not in `tried`, unless no other is usable. None if none is usable."""
        if self._dirty or now >= self._recheck:
            self._rebuild(now)
        if self.only is not None:
            return self.only
        lanes = self._lanes
        if not lanes:
            return None
        start = 0
        if self._active is not None and lanes[0][0] != self._active:
            start = next((index for index, (rank, _) in enumerate(lanes) if rank == self._active), 0)
        if tried:
            order = [*lanes[start:], *lanes[:start]]
            for _, members in order:
                if rest := [member for member in members if member not in tried]:
                    return self._pick(rest, now)
        return self._pick(lanes[start][1], now)

    def reason(self, member: Member) -> str:
        """Return why `choose` has returned this member: its rank, how many have the same, and the policy among them."""
        equals = next((len(lane) for _, lane in self._lanes if member in lane), 1)
        return f"{give_reason(member.provider, member, self._preference, equals)}, {self._policy}"

    def usable(self, now: float) -> int:
        """Return the number of members that calls can go to."""
        if self._dirty or now >= self._recheck:
            self._rebuild(now)
        return sum(len(members) for _, members in self._lanes)

    @property
    def lane(self) -> Rank | None:
        """Rank of the lane in use."""
        return self._active

    # Lanes

    def _rebuild(self, now: float) -> None:
        self._dirty = False
        self._recheck = float("inf")
        groups: dict[Rank, list[Member]] = {}
        ejected: list[Member] = []
        for member in self.present():
            if not member.connected:
                continue
            if member.health.review(now):
                self._recheck = min(self._recheck, member.health.until)
                ejected.append(member)
                continue
            groups.setdefault(self._rank(member, now), []).append(member)
        if not groups:  # a call to an ejected provider can succeed, and one to none cannot
            for member in ejected:
                groups.setdefault(self._rank(member, now), []).append(member)
        self._lanes = sorted(groups.items(), key=lambda lane: lane[0])
        usable = [member for _, members in self._lanes for member in members]
        self._move(now)
        if len(usable) == 1 and self._recheck == float("inf") and self._policy != "latency":
            self.only = None if usable[0].health.ejections else usable[0]

    def _rank(self, member: Member, now: float) -> Rank:
        doubtful = False
        if member.state is State.SUSPECT:
            doubtful = now - member.last_reply > TRUSTED
            self._recheck = min(self._recheck, now + RECHECK)
        return self._preference.rank(member.provider, suspect=doubtful)

    def _move(self, now: float) -> None:
        """Choose the lane in use."""
        active = self._active
        ranks = [rank for rank, _ in self._lanes]
        if not ranks:
            self._returning = None
            return  # the active lane stays: on return to it nothing has changed
        if active is None:
            self._active = ranks[0]
        elif active not in ranks:
            better = [rank for rank in ranks if rank < active and rank not in self._failed]
            self._active = better[0] if better else ranks[0]
            self._failed.add(active)
            self._returning = None
            if self._active > active:
                self.failovers += 1
        elif ranks[0] < active:
            best = ranks[0]
            if best not in self._failed:  # it was never left: it has just been found
                self._active = best
            elif self._returning is None or self._returning[0] != best:
                self._returning = best, now
            if best in self._failed and self._returning is not None:
                due = self._returning[1] + self._failback
                if now >= due:
                    self._active, self._returning = best, None
                    self.failbacks += 1
                else:
                    self._recheck = min(self._recheck, due)
        else:
            self._returning = None
        self._failed = {rank for rank in self._failed if self._active is not None and rank < self._active}

    def _may_eject(self) -> bool:
        connected = [member for member in self.present() if member.connected]
        ejected = sum(member.health.until > 0 for member in connected)
        return len(connected) > 1 and ejected + 1 <= max(1, int(self._ejection.most * len(connected)))

    # Policies

    def _pick(self, members: Sequence[Member], now: float) -> Member:
        """Return a member by the policy; a returning one only with its present share."""
        member = self._by_policy(members)
        if member.health.returned and len(members) > 1 and self._rng.random() >= member.health.share(now):
            rest = [other for other in members if other is not member]
            return self._by_policy(rest)
        return member

    def _by_policy(self, members: Sequence[Member]) -> Member:
        count = len(members)
        if count == 1:
            return members[0]
        random = self._rng.random
        if self._policy == "random":
            return members[int(random() * count)]
        if self._policy == "weighted":
            return self._by_weight(members)
        first = int(random() * count)
        second = int(random() * (count - 1))
        one, other = members[first], members[second + (second >= first)]
        if self._policy == "latency" and one.latency and other.latency:  # else a newcomer would get all calls
            return one if _expected(one) <= _expected(other) else other
        return one if _burden(one) <= _burden(other) else other

    def _by_weight(self, members: Sequence[Member]) -> Member:
        total = sum(member.provider.weight for member in members)
        if not total:
            return members[int(self._rng.random() * len(members))]
        point = self._rng.random() * total
        for member in members:
            point -= member.provider.weight
            if point < 0:  # for one of them: weights are integers, so nothing is rounded
                break
        return member

    def _hash(self, member: Member) -> bytes:
        return blake2b("|".join(member.place).encode(), key=self._salt[:64], digest_size=8).digest()


def _burden(member: Member) -> float:
    """Return the calls in progress with one more, by weight: a provider of weight 0 comes last."""
    weight = member.provider.weight
    return (member.outstanding + 1) / weight if weight else float("inf")


def _expected(member: Member) -> float:
    """Return the time that a further call is expected to take, as in linkerd's peak EWMA."""
    return member.latency * (member.outstanding + 1)
