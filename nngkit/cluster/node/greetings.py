"""Links of a node before its parts may use them: greetings, admission, and the links between voters. Pure.

::

    dialer                                acceptor
    HELLO cluster, id, epoch, token  ->   the authenticator decides
                                     <-   HELLO cluster, id, epoch       both parts see the link now
                                     <-   or REFUSE why; the link ends

Voters have a link for each pair, beside those of the tree: the voter with the smaller id dials. A heartbeat on it
each `HEARTBEAT` seconds shows that it works.

Invariants:

1. No frame of a link is taken in before its HELLO was accepted; nothing is sent on it but greetings.
2. A link that was admitted until some time ends then; one that does not greet ends after `GREETING` seconds; one of
   voters that is silent for `SILENCE` seconds.
3. Two voters have one link at a time: a later one replaces the earlier.
4. What an authenticator raises or returns by mistake refuses its applicant, and has no other effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from nngkit.calls.texts import text_of
from nngkit.chance import RandomSource
from nngkit.cluster.admission import Applicant, Authenticator
from nngkit.cluster.containing import contained, describe
from nngkit.cluster.frames import HEARTBEAT_FRAME, Greeting, Refusal, greeting_frame, parse_greeting
from nngkit.cluster.log_clock import NEVER
from nngkit.errors import AccessDenied, BadMessage

GREETING: Final = 5.0  # seconds for the first frame: a node that is busy starting up needs one
HEARTBEAT: Final = 0.4  # seconds between two heartbeats on a link of voters
SILENCE: Final = 1.5  # seconds without one after which it is dropped and dialed again: TCP alone would wait for minutes
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0  # seconds between tries to reach a voter
MOST_LINKS: Final = 4096  # links that have not greeted yet, against a flood of connections
FAILED: Final = "the authenticator has failed"  # all that an applicant is told: the rest is for this node's log
ITSELF: Final = "this is the node itself"  # it has dialed itself, by another of its addresses
MOST_FAILURES: Final = 100  # classes of an authenticator's failures that are logged


@dataclass(slots=True, eq=False)
class NodeLink:
    """A link; once it is `open` it may be used. `id` and `epoch` are the neighbour's; `voter`: for elections, else for
    the tree; `until`: when its admission ends, in seconds since 1970."""

    link: int
    peer: str
    dialed: str | None
    voter: bool
    since: float
    open: bool = False
    id: str = ""
    epoch: int = 0
    until: float = NEVER
    heard: float = 0.0


@dataclass(slots=True)
class GreetingsEffects:
    """Work for the node. `refused`: pairs of an address that was dialed and why it did not lead to a neighbour."""

    dials: list[str] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)
    sends: list[tuple[int, bytes]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


class Greetings:
    """Links of one node.

    Args:
        hello: What this node says of itself; `voter` is set for each link.
        voters: Addresses of the other voters by id, if this node is a voter.
        authenticator: Decides on nodes that connect.
        wall: Returns seconds since 1970 for a monotonic time, for permissions that end.
    """

    def __init__(
        self,
        hello: Greeting,
        voters: Mapping[str, str],
        authenticator: Authenticator,
        *,
        rng: RandomSource,
        now: float,
        wall: Callable[[float], float],
    ) -> None:
        self._hello = hello
        self._authenticator = authenticator
        self._rng = rng
        self._wall = wall
        self._links: dict[int, NodeLink] = {}
        self._voter_links: dict[str, int] = {}
        self._to_dial = {name: address for name, address in voters.items() if name > hello.id}
        self._voters = set(voters)
        self._dial_at = dict.fromkeys(self._to_dial, now)
        self._pause = dict.fromkeys(self._to_dial, FIRST_PAUSE)
        self._dialing: dict[str, str] = {}  # address -> id of the voter, until the dial fails or its link ends
        self._unconnected: set[str] = set()  # those of them without a link; the tree may dial the same address
        self._effects = GreetingsEffects()
        self.wake_at = now
        self._failures: set[str] = set()  # of the authenticator: classes, and kinds of wrong results
        self._heartbeat_at = now

    def take(self) -> GreetingsEffects:
        """Return what is to be done since the last call."""
        effects, self._effects = self._effects, GreetingsEffects()
        return effects

    def peer(self, link: int) -> str:
        """Return the address of a neighbour, with its id if it is known, for messages and logs."""
        there = self._links.get(link)
        if there is None:
            return "a link that has ended"
        return f"{there.id} at {there.peer}" if there.id else there.peer

    def opened(self, link: int) -> NodeLink | None:
        """Return a link that may be used; None for others."""
        there = self._links.get(link)
        return there if there is not None and there.open else None

    def knows(self, link: int) -> bool:
        """Return True if the link has not ended."""
        return link in self._links

    def voter_link(self, id: str) -> int | None:
        """Return the link to a voter, or None."""
        return self._voter_links.get(id)

    # ---- events

    def link_up(self, link: int, peer: str, dialed: str | None, now: float) -> None:
        """Greet a new neighbour if this side has dialed."""
        if len(self._links) >= MOST_LINKS and sum(not one.open for one in self._links.values()) >= MOST_LINKS:
            self._effects.drops.append(link)
            return
        voter = dialed in self._unconnected
        self._unconnected.discard(dialed or "")
        self._links[link] = NodeLink(link, peer, dialed, voter, now)
        self.wake_at = min(self.wake_at, now + GREETING)
        if dialed is not None:
            self._effects.sends.append((link, greeting_frame(replace(self._hello, voter=voter))))

    def dial_failed(self, address: str, now: float) -> bool:
        """Try a voter again later. Return False if the address was not dialed for that."""
        if address not in self._unconnected:
            return False
        self._unconnected.discard(address)
        self._later(self._dialing.pop(address), now)
        return True

    def link_down(self, link: int, now: float) -> NodeLink | None:
        """Forget a link; return it if it was open, so that the others hear of its end."""
        there = self._links.pop(link, None)
        if there is None:
            return None
        if there.dialed is not None and there.voter:
            self._later(self._dialing.pop(there.dialed), now)
        if there.voter and self._voter_links.get(there.id) == link:
            del self._voter_links[there.id]
        elif there.voter:
            return None  # it was replaced
        return there if there.open else None

    def _later(self, id: str, now: float) -> None:
        pause = self._pause[id] * (0.5 + self._rng.random())
        self._pause[id] = min(LONGEST_PAUSE, 2 * self._pause[id])
        self._dial_at[id] = now + pause
        self.wake_at = min(self.wake_at, now + pause)

    def greet(self, link: int, row: list[Any], now: float) -> tuple[NodeLink, int | None] | None:
        """Take in the first frame of a link. Return the link if it may be used, and the link that it replaces.

        Raises BadMessage.
        """
        there = self._links[link]
        try:
            greeting = parse_greeting(row, there.peer)
        except BadMessage as error:
            self._refuse(link, there, str(error), tell=there.dialed is None)
            raise
        if isinstance(greeting, Refusal):
            if there.dialed is None:
                raise BadMessage("greeting", "a refusal of nothing", there.peer)
            self._effects.refused.append((there.dialed, greeting.why))
            self._effects.warnings.append(f"{there.peer} refused this node: {greeting.why}")
            self.end(link, now)
            return None
        until = self._decide(there, greeting, now)
        if isinstance(until, str):
            self._refuse(link, there, until, tell=there.dialed is None)
            if there.dialed is not None:
                self._effects.refused.append((there.dialed, until))
            self.end(link, now)
            return None
        there.open, there.id, there.epoch, there.until = True, greeting.id, greeting.epoch, until
        there.heard = now
        self.wake_at = min(self.wake_at, now + max(0.0, until - self._wall(now)))
        replaced = None
        if there.dialed is None:
            there.voter = greeting.voter
            self._effects.sends.append(
                (link, greeting_frame(replace(self._hello, voter=there.voter, token=None, ticket=None)))
            )
        if there.voter:
            if there.dialed is not None:
                self._pause[there.id] = FIRST_PAUSE
            self.wake_at = min(self.wake_at, self._heartbeat_at)
            replaced = self._voter_links.get(there.id)
            self._voter_links[there.id] = link
        return there, replaced

    def _decide(self, there: NodeLink, hello: Greeting, now: float) -> float | str:
        """Return until when a neighbour is admitted, in seconds since 1970, or why it is refused."""
        if hello.cluster != self._hello.cluster:
            return f"this is the cluster {self._hello.cluster!r}, not {hello.cluster!r}"
        if hello.id == self._hello.id:
            same = hello.epoch == self._hello.epoch
            return ITSELF if same else f"{hello.id!r} is the id of this node, at {there.peer}"
        if there.dialed is not None:
            expected = self._dialing.get(there.dialed) if there.voter else None
            if expected not in (None, hello.id):
                return f"voter {expected!r} is expected there, and it is {hello.id!r}"
            return NEVER
        if hello.voter and hello.id not in self._voters:
            return f"{hello.id!r} is not one of this node's voters"
        until = self._ask(Applicant(hello.id, there.peer, hello.token, hello.ticket))
        if not isinstance(until, str) and until <= self._wall(now):
            return "the permission has ended"
        return until

    def _ask(self, applicant: Applicant) -> float | str:
        """Return until when the program's function admits a node, in seconds since 1970, or why it does not."""
        try:
            verdict: object = self._authenticator(applicant)
            if isinstance(verdict, Awaitable):
                if isinstance(verdict, Coroutine):
                    verdict.close()  # else Python warns that it was never awaited
                return self._failed(applicant, "async", "it is async; it has to be a plain function")
            if verdict is True:
                return NEVER
            if not verdict:
                return "not admitted"
            if isinstance(verdict, (int, float)) and (until := float(verdict)) == until:
                return until
        except AccessDenied as error:
            return text_of(error)
        except BaseException as error:
            failure = contained(error)
            return self._failed(applicant, type(failure).__name__, f"it raised {describe(failure)}")
        kind = type(verdict).__name__
        return self._failed(
            applicant, f"result {kind}", f"it returned {kind} that is no time, instead of a bool or one"
        )

    def _failed(self, applicant: Applicant, about: str, why: str) -> str:
        """Log a failure of the authenticator, once for each class; return what the applicant is told."""
        if about not in self._failures and len(self._failures) < MOST_FAILURES:
            self._failures.add(about)
            self._effects.warnings.append(
                f"{FAILED} on {applicant.id!r} at {applicant.address}, which is refused: {why}"
            )
        return FAILED

    def _refuse(self, link: int, there: NodeLink, why: str, *, tell: bool) -> None:
        self._effects.warnings.append(f"{there.peer} is refused: {why}")
        if tell:
            self._effects.sends.append((link, greeting_frame(Refusal(why))))

    def end(self, link: int, now: float) -> NodeLink | None:
        """Drop a link, and forget it. Returns what `link_down` does."""
        if link in self._links:
            self._effects.drops.append(link)
        return self.link_down(link, now)

    # ---- time

    def tick(self, now: float) -> list[NodeLink]:
        """Dial voters that are not connected; end links whose time is over. Return the open ones among these."""
        if now < self.wake_at:
            return []
        ended = []
        wall = self._wall(now)
        self.wake_at = now + 3600.0
        for link, there in list(self._links.items()):
            if not there.open and now >= there.since + GREETING:
                self._effects.warnings.append(f"{there.peer} has not greeted in {GREETING:g} s")
                if there.dialed is not None and not there.voter:
                    self._effects.refused.append((there.dialed, "no greeting"))
                self.end(link, now)
            elif not there.open:
                self.wake_at = min(self.wake_at, there.since + GREETING)
            elif wall >= there.until or (there.voter and now >= there.heard + SILENCE):
                if wall >= there.until:
                    self._effects.warnings.append(f"the permission of {there.id!r} at {there.peer} has ended")
                    self._effects.sends.append((link, greeting_frame(Refusal("the ticket has expired"))))
                if self.end(link, now) is not None:
                    ended.append(there)
            else:
                self.wake_at = min(self.wake_at, now + there.until - wall)
        if self._voter_links:
            if now >= self._heartbeat_at:
                self._heartbeat_at = now + HEARTBEAT
                self._effects.sends += [(link, HEARTBEAT_FRAME) for link in self._voter_links.values()]
            self.wake_at = min(self.wake_at, self._heartbeat_at)
        for name, address in self._to_dial.items():
            if name in self._voter_links or address in self._dialing:
                continue
            if now >= self._dial_at[name]:
                self._dialing[address] = name
                self._unconnected.add(address)
                self._effects.dials.append(address)
            else:
                self.wake_at = min(self.wake_at, self._dial_at[name])
        return ended
