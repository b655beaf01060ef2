"""Links of a node before its parts may use them: greetings, admission, and the links between voters. Pure.

::

    dialer                                acceptor
    HELLO cluster, id, epoch         ->
                                     <-   CHALLENGE id, epoch, nonce, ticket's content     if it has token or ticket
    PROOF nonce, ticket's content, MAC ->
                                     <-   PROOF nonce, ticket's content, MAC               the authenticator decides
                                     <-   HELLO cluster, id, epoch       both parts see the link now
                                     <-   or REFUSE why; the link ends

The key of both MACs is what the two have in common of token and ticket (admission.py). They are over the cluster, who
dialed, both ids and epochs, both nonces and what both show, so a proof is good for one link of these two nodes, in one
direction. A stranger that passes the frames on between them gains no more than by passing on the connection.
A node that has a token or a ticket wants the proof of nodes that it dials, too.

Voters have a link for each pair, beside those of the tree: the voter with the smaller id dials. A heartbeat on it
each `HEARTBEAT` seconds shows that it works.

Invariants:

1. No frame of a link is taken in before its HELLO was accepted; nothing is sent on it but greetings.
2. A link that was admitted until some time ends then; one that does not greet ends after `GREETING` seconds; one of
   voters that is silent for `SILENCE` seconds.
3. Two voters have one link at a time: a later one replaces the earlier.
4. Neither token nor the MAC of a ticket is ever sent. A link that either end has a secret for is open only if that
   end has seen a proof, or its authenticator admits a node without one.
5. What an authenticator raises or returns by mistake refuses its applicant, and has no other effect.
6. With `rights` a link is open only as long as the neighbour may call itself by its id, and may join, or vote.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from msgspec.structs import replace

from nngkit.calls.texts import text_of
from nngkit.chance import RandomSource
from nngkit.cluster.admission import NOT_SIGNED, Applicant, Authenticator, Secret, prove, proves
from nngkit.cluster.containing import contained, describe
from nngkit.cluster.frames import (
    HEARTBEAT_FRAME,
    Challenge,
    FirstFrame,
    Greeting,
    Proof,
    Refusal,
    greeting_frame,
    parse_greeting,
)
from nngkit.cluster.log_clock import NEVER
from nngkit.cluster.rights import NodeRights
from nngkit.errors import AccessDenied, BadMessage

GREETING: Final = 5.0  # seconds for the first frame: a node that is busy starting up needs one
HEARTBEAT: Final = 0.4  # seconds between two heartbeats on a link of voters
SILENCE: Final = 1.5  # seconds without one after which it is dropped and dialed again: TCP alone would wait for minutes
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0  # seconds between tries to reach a voter
MOST_LINKS: Final = 4096  # links that have not greeted yet, against a flood of connections
FAILED: Final = "the authenticator has failed"  # all that an applicant is told: the rest is for this node's log
NONCE: Final = 16  # bytes
EARLIER: Final = "it sends its token or ticket, as versions before proofs do: upgrade nngkit there"
NO_PROOF: Final = "it does not prove that it belongs to this cluster: it has no token, or is of an earlier version"
NO_KEY: Final = "its ticket is another one, and neither of both nodes has the token"
ITSELF: Final = "this is the node itself"  # it has dialed itself, by another of its addresses
MOST_FAILURES: Final = 100  # classes of an authenticator's failures that are logged


@dataclass(slots=True, eq=False)
class NodeLink:
    """A link; once it is `open` it may be used. `id` and `epoch` are the neighbour's; `voter`: for elections, else for
    the tree; `until`: when its admission ends, in seconds since 1970. `hello`: what it greeted with, if it has to prove
    something; `challenge`, `nonce`: of this link; `proven`: it has proven itself to the dialer; `who`: the name that
    the connection proves."""

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
    hello: Greeting | None = None
    challenge: Challenge | None = None
    nonce: bytes = b""
    proven: bool = False
    who: str | None = None


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
        secret: Its token or ticket; None without one.
        entropy: Returns random bytes that cannot be predicted, as many as it is asked for.
        wall: Returns seconds since 1970 for a monotonic time, for permissions that end.
        rights: Of its neighbours; None where connections prove no names.
    """

    def __init__(
        self,
        hello: Greeting,
        voters: Mapping[str, str],
        authenticator: Authenticator,
        *,
        secret: Secret | None,
        entropy: Callable[[int], bytes],
        rng: RandomSource,
        now: float,
        wall: Callable[[float], float],
        rights: NodeRights | None = None,
    ) -> None:
        self._rights = rights
        self._hello = hello
        self._authenticator = authenticator
        self._secret = secret
        self._entropy = entropy
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

    def link_up(self, link: int, peer: str, dialed: str | None, now: float, who: str | None = None) -> None:
        """Greet a new neighbour if this side has dialed."""
        if len(self._links) >= MOST_LINKS and sum(not one.open for one in self._links.values()) >= MOST_LINKS:
            self._effects.drops.append(link)
            return
        voter = dialed in self._unconnected
        self._unconnected.discard(dialed or "")
        self._links[link] = NodeLink(link, peer, dialed, voter, now, who=who)
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
        if isinstance(greeting, Challenge):
            self._challenged(there, greeting, now)
            return None
        if isinstance(greeting, Proof):
            return self._proof(there, greeting, now)
        why = self._unfit(there, greeting)
        if why is not None:
            return self._turn_away(there, why, now)
        if there.dialed is not None:
            challenge = there.challenge
            if self._secret is not None and not there.proven:
                return self._turn_away(there, NO_PROOF, now)
            if challenge is not None and (challenge.id, challenge.epoch) != (greeting.id, greeting.epoch):
                return self._turn_away(there, f"it greets as {greeting.id!r} after it was {challenge.id!r}", now)
            return self._open(there, greeting, there.until, now)
        if self._secret is None:
            applicant = Applicant(greeting.id, there.peer, voter=greeting.voter, who=there.who)
            return self._admit(there, greeting, applicant, NEVER, now)
        if greeting.token is not None or greeting.ticket is not None:
            return self._turn_away(there, EARLIER, now)
        there.hello, there.nonce = greeting, self._entropy(NONCE)
        there.challenge = Challenge(self._hello.id, self._hello.epoch, there.nonce, self._secret.shown)
        self._send(there, there.challenge)
        return None

    def _challenged(self, there: NodeLink, challenge: Challenge, now: float) -> None:
        """Prove the secret to a node that was dialed."""
        if there.dialed is None or there.challenge is not None:
            self._unexpected(there, "a challenge")
        there.challenge, there.nonce = challenge, self._entropy(NONCE)
        secret = self._secret
        if secret is None:
            self._send(there, Proof(there.nonce, None, b""))
        elif (key := secret.key(challenge.shown)) is None:
            self._turn_away(there, NO_KEY, now)
        else:
            said = self._said(there, self._hello, challenge, there.nonce, secret.shown, there.voter)
            self._send(there, Proof(there.nonce, secret.shown, prove(key, "dialer", *said)))

    def _proof(self, there: NodeLink, proof: Proof, now: float) -> tuple[NodeLink, int | None] | None:
        """Verify the proof of a neighbour; of one that has dialed, decide on it."""
        secret, challenge = self._secret, there.challenge
        if there.dialed is not None:
            if secret is None or challenge is None or there.proven:
                self._unexpected(there, "a proof")
            key = secret.key(challenge.shown)
            said = self._said(there, self._hello, challenge, there.nonce, secret.shown, there.voter)
            same = (proof.nonce, proof.shown) == (challenge.nonce, challenge.shown)
            if key is None or not same or not proves(proof.mac, key, "acceptor", *said):
                return self._turn_away(there, NO_PROOF, now)
            try:
                there.until = secret.check(challenge.shown, challenge.id, voter=there.voter)
            except AccessDenied as error:
                return self._turn_away(there, text_of(error), now)
            there.proven = True
            return None
        hello = there.hello
        if hello is None or secret is None or challenge is None:
            self._unexpected(there, "a proof")
        if proof.shown is None:
            if secret.token is None:
                return self._turn_away(there, "this cluster demands the token", now)
            return self._admit(there, hello, Applicant(hello.id, there.peer, voter=hello.voter), NEVER, now)
        said = self._said(there, hello, challenge, proof.nonce, proof.shown, hello.voter)
        if (key := secret.key(proof.shown)) is None:
            return self._turn_away(there, NO_KEY, now)
        if not proves(proof.mac, key, "dialer", *said):
            return self._turn_away(there, NOT_SIGNED if proof.shown else "wrong token", now)
        try:
            until = secret.check(proof.shown, hello.id, voter=hello.voter)
        except AccessDenied as error:
            return self._turn_away(there, text_of(error), now)
        token = None if proof.shown else secret.token
        applicant = Applicant(hello.id, there.peer, token, secret.ticket_of(proof.shown), hello.voter)
        answer = Proof(there.nonce, secret.shown, prove(key, "acceptor", *said))
        return self._admit(there, hello, applicant, until, now, answer)

    def _said(
        self, there: NodeLink, dialer: Greeting, challenge: Challenge, nonce: bytes, shown: bytes, voter: bool
    ) -> tuple[object, ...]:
        """Return what both ends of a link have said, which their proofs are about."""
        of_dialer = (dialer.id, dialer.epoch, nonce, shown, voter)
        return (self._hello.cluster, *of_dialer, challenge.id, challenge.epoch, challenge.nonce, challenge.shown)

    def _admit(
        self, there: NodeLink, hello: Greeting, applicant: Applicant, most: float, now: float, *before: Proof
    ) -> tuple[NodeLink, int | None] | None:
        """Decide on a node that has dialed, `most` at the longest; greet it, after the frames `before`."""
        until = self._ask(applicant)
        if not isinstance(until, str) and until <= self._wall(now):
            until = "the permission has ended"
        if isinstance(until, str):
            return self._turn_away(there, until, now)
        there.voter = hello.voter
        frames: list[FirstFrame] = [*before, replace(self._hello, voter=there.voter)]
        for frame in frames:
            self._send(there, frame)
        return self._open(there, hello, min(until, most), now)

    def _open(self, there: NodeLink, hello: Greeting, until: float, now: float) -> tuple[NodeLink, int | None]:
        """Have the parts use a link. Return the one that it replaces, too."""
        there.open, there.id, there.epoch, there.until = True, hello.id, hello.epoch, until
        there.heard = now
        there.hello = there.challenge = None
        self.wake_at = min(self.wake_at, now + max(0.0, until - self._wall(now)))
        replaced = None
        if there.voter:
            if there.dialed is not None:
                self._pause[there.id] = FIRST_PAUSE
            self.wake_at = min(self.wake_at, self._heartbeat_at)
            replaced = self._voter_links.get(there.id)
            self._voter_links[there.id] = there.link
        return there, replaced

    def _unfit(self, there: NodeLink, hello: Greeting) -> str | None:
        """Return why a node is refused, whatever it proves; None if it is not."""
        if hello.cluster != self._hello.cluster:
            return f"this is the cluster {self._hello.cluster!r}, not {hello.cluster!r}"
        if hello.id == self._hello.id:
            same = hello.epoch == self._hello.epoch
            return ITSELF if same else f"{hello.id!r} is the id of this node, at {there.peer}"
        if there.dialed is not None:
            expected = self._dialing.get(there.dialed) if there.voter else None
            if expected not in (None, hello.id):
                return f"voter {expected!r} is expected there, and it is {hello.id!r}"
        elif there.hello is not None:
            self._unexpected(there, "a second greeting")
        elif hello.voter and hello.id not in self._voters:
            return f"{hello.id!r} is not one of this node's voters"
        voter = hello.voter if there.dialed is None else there.voter
        return None if self._rights is None else self._rights.greeted(there.who, hello.id, voter=voter)

    def _turn_away(self, there: NodeLink, why: str, now: float) -> tuple[NodeLink, int | None] | None:
        """Refuse a neighbour, and end its link. Returns None, for `greet`."""
        self._refuse(there.link, there, why, tell=there.dialed is None)
        if there.dialed is not None:
            self._effects.refused.append((there.dialed, why))
        self.end(there.link, now)
        return None

    def _unexpected(self, there: NodeLink, what: str) -> NoReturn:
        raise BadMessage("greeting", f"{what} was not expected", there.peer)

    def _send(self, there: NodeLink, frame: FirstFrame) -> None:
        self._effects.sends.append((there.link, greeting_frame(frame)))

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

    def look_again(self, now: float) -> list[NodeLink]:
        """End the links of neighbours that have lost their rights; return them."""
        ended = []
        for link, there in list(self._links.items()):
            if not there.open or self._rights is None:
                continue
            why = self._rights.greeted(there.who, there.id, voter=there.voter)
            if why is not None:
                self._refuse(link, there, why, tell=True)
                if self.end(link, now) is not None:
                    ended.append(there)
        return ended

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
