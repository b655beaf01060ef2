"""Search for a parent: which nodes are asked, when, and in what order. Pure.

An attempt dials an address (or uses a standby link), sends Join, and ends with an answer or in time::

    dialing -> asked -> referred to other addresses | refused | waiting | offered -> attached
                                                    offered: accepted, but the own label forbids it yet

The candidates that others name (standbys, referrals, the root's order) come first, then the known addresses in a random
order, round after round with a growing pause. While nothing has been answered for `stagger`, the next one is asked as
well, up to MOST_ATTEMPTS at once: a dead address costs 50 ms, not the time of a dial.

Invariants:

1. At most MOST_ATTEMPTS are under way.
2. A referral is followed at most MOST_HOPS times.
3. Without a search there is no attempt but those that the root has ordered.
4. Each attempt ends in time: `attempt`, twice, and `wait` or `handshake`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from nngkit.chance import Chance
from nngkit.cluster.log_clock import NEVER
from nngkit.cluster.tree.links import Link, Neighbours
from nngkit.cluster.tree.messages import Join, Leave

MOST_ATTEMPTS: Final = 3
MOST_HOPS: Final = 48  # referrals of one joiner; more than the depth of any tree here, so it ends in a confused one
MOST_CANDIDATES: Final = 64
SOON: Final = 0.5  # seconds in which a busy node has answered all joiners that wait


class Candidate(NamedTuple):
    """A node to ask. ``link``: a standby link to it. ``direct``: it should not refer to the host, which fails."""

    address: str | None
    link: int | None = None
    hops: int = 0
    direct: bool = False


@dataclass(slots=True, eq=False)
class Attempt:
    """One candidate that is being asked."""

    address: str | None
    hops: int
    direct: bool
    since: float
    ordered: bool
    link: Link | None = None
    state: Literal["dialing", "asked", "waiting", "offered"] = "dialing"


class Search:
    """The attempts of one node. `join` makes the request; `sources` returns the known addresses."""

    def __init__(
        self,
        near: Neighbours,
        rng: Chance,
        own: str | None,
        *,
        join: Callable[[int, bool, bool], Join],
        sources: Callable[[], list[str]],
    ) -> None:
        self.near = near
        self.rng = rng
        self.own = own
        self.wanted = False
        self.avoid: str | None = None  # address of the present parent
        self.attempts: list[Attempt] = []
        self.next_at = NEVER
        self._join, self._sources = join, sources
        self._first: deque[Candidate] = deque(maxlen=MOST_CANDIDATES)
        self._round: deque[Candidate] = deque()
        self._rounds = 0
        self._backoff = 0.0

    def start(self, first: Sequence[Candidate], now: float) -> None:
        """Search until `stop`; these candidates first. A search under way gets them as well."""
        if not self.wanted:
            self.wanted = True
            self._rounds, self._backoff = 0, self.near.limits.first_backoff
            self._fill()
        self._first.extend(first)
        self.next_at = now

    def stop(self) -> None:
        """End the search, and all attempts but that of a link which became the parent's."""
        self.wanted = False
        self.next_at = NEVER
        self._first.clear()
        self._round.clear()
        attempts, self.attempts = self.attempts, []
        for attempt in attempts:
            self._abandon(attempt)

    def order(self, address: str, now: float) -> None:
        """Ask one node, without a search: the root wants it."""
        if not self.wanted and len(self.attempts) < MOST_ATTEMPTS and not self._known(address):
            self._ask(Candidate(address, hops=1), now, ordered=True)

    def of(self, link: Link) -> Attempt | None:
        """Return the attempt on a link."""
        return next((each for each in self.attempts if each.link is link), None)

    def dialed(self, address: str) -> Attempt | None:
        """Return the attempt that dials an address."""
        return next((each for each in self.attempts if each.link is None and each.address == address), None)

    @property
    def offered(self) -> bool:
        """True if a node has accepted, and only a newer number of its path is missing."""
        return any(each.state == "offered" for each in self.attempts)

    def connected(self, attempt: Attempt, link: Link, now: float) -> None:
        """Send the request of an attempt."""
        attempt.link, attempt.state, attempt.since = link, "asked", now
        self.near.send(link, self._join(attempt.hops, attempt.direct, attempt.ordered))

    def waits(self, attempt: Attempt, soon: bool, now: float) -> None:
        """Note that an attempt waits. `soon`: for other joiners only, so there is no hurry to ask elsewhere."""
        attempt.state, attempt.since = "waiting", now
        if soon and self.wanted:
            self.next_at = max(self.next_at, now + SOON)

    def referred(self, attempt: Attempt, addresses: Sequence[str], now: float) -> None:
        """End an attempt by a referral."""
        self.end(attempt, now, answered=True)
        if self.wanted and not attempt.ordered and attempt.hops < MOST_HOPS:
            for address in reversed(addresses):
                self._first.appendleft(Candidate(address, hops=attempt.hops + 1))

    def end(self, attempt: Attempt, now: float, *, answered: bool = False, link_ended: bool = False) -> None:
        """End an attempt without success; the next one begins at once if none is left."""
        if attempt not in self.attempts:
            return
        self.attempts.remove(attempt)
        if not link_ended:
            self._abandon(attempt, answered)
        if self.wanted and (self._first or self._round):
            self.next_at = now

    def _abandon(self, attempt: Attempt, answered: bool = False) -> None:
        link = attempt.link
        if link is None or link.role not in ("asked", "standby"):
            return
        if not answered:
            self.near.send(link, Leave("not needed"))
        if link.role == "asked":
            self.near.drop(link)

    def _known(self, address: str) -> bool:
        return address in (self.own, self.avoid) or any(each.address == address for each in self.attempts)

    def _fill(self) -> None:
        addresses = list(dict.fromkeys(self._sources()))
        self.rng.shuffle(addresses)
        # From the second round on the host may be out of reach, and any node should take the joiner in.
        self._round.extend(Candidate(address, direct=self._rounds > 0) for address in addresses)
        self._rounds += 1

    def _ask(self, candidate: Candidate, now: float, *, ordered: bool = False) -> None:
        attempt = Attempt(candidate.address, candidate.hops, candidate.direct, now, ordered)
        self.attempts.append(attempt)
        link = self.near.links.get(candidate.link) if candidate.link is not None else None
        if link is None and candidate.address is not None:
            link = next(
                (each for each in self.near.having("standby") if each.dialed == candidate.address and each.hello), None
            )
        if link is not None:
            self.connected(attempt, link, now)
        elif candidate.address is not None:
            self.near.dial(candidate.address)

    def step(self, now: float) -> None:
        """Do what is due: end late attempts, begin the next one."""
        limits = self.near.limits
        for attempt in list(self.attempts):
            if now >= self._ends_at(attempt):
                self.end(attempt, now)
        if not self.wanted or now < self.next_at:
            return
        while len(self.attempts) < MOST_ATTEMPTS and (self._first or self._round):
            candidate = self._first.popleft() if self._first else self._round.popleft()
            link = self.near.links.get(candidate.link) if candidate.link is not None else None
            if link is not None and (link.role != "standby" or self.of(link) is not None):
                continue
            if link is None and (candidate.address is None or self._known(candidate.address)):
                continue
            self._ask(candidate, now)
            self.next_at = now + limits.stagger
            return
        if self._first or self._round:
            self.next_at = now + limits.stagger  # all attempts are under way
            return
        self.next_at = now + self._backoff * (0.5 + self.rng.random())
        self._backoff = min(limits.longest_backoff, self._backoff * 2)
        self._fill()

    @property
    def wake_at(self) -> float:
        at = self.next_at if self.wanted else NEVER
        for attempt in self.attempts:
            at = min(at, self._ends_at(attempt))
        return at

    def _ends_at(self, attempt: Attempt) -> float:
        limits = self.near.limits
        if attempt.state == "offered":  # a request travels up to the root, and a number down again
            return attempt.since + limits.handshake
        return attempt.since + (limits.wait if attempt.state == "waiting" else limits.attempt)
