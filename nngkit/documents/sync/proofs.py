"""Proof of a token or a name on a connection, and BUS addresses for sessions. Pure; `now` in seconds.

A peer that needs a token replies to a request on a connection that has not proven it by `Prove`, with a random number
that is for this connection. The asking peer sends a `Proof`: a random number of its own, and a MAC over both numbers
and its stream. The `Welcome` that follows holds a MAC over the same the other way round, so each knows that the other
one has the token. Under a trust, a page proves the name of a guest instead, by a signature::

    gate.challenge(pipe, nonce, now)             -> the Prove's number
    gate.check(proof, now)                       -> the MAC for the Welcome, or None; the connection has proven it
    gate.answered(nonce, now)                    -> the connection that was asked, for a signature
    gate.names[pipe] = guest                     the name of a connection
    query = gate.session(random, now, guest)     -> of a BUS address, for one connection within 10 s
    gate.enter(query, pipe, now)                 -> True once; the connection has the name

On a network in the clear, a listener learns neither the token nor an address that is good for it. It may still read,
and change what passes, and one that is dialed may pass a proof on to the real peer: against that there is TLS.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from typing import Any, Final

from nngkit.documents.sync.messages import Proof
from nngkit.documents.versions import EditStream
from nngkit.trust.guests import Guest

NONCE: Final = 32  # bytes
WITHIN: Final = 10.0  # seconds from a challenge to its proof, and from a welcome to the BUS
MOST: Final = 4096  # challenges, proven connections, and sessions that are remembered, the newest
_KEY: Final = b"nngkit documents 1\0"
ASKING, ASKED = b"asking\0", b"asked\0"


def mac(token: str, role: bytes, asked: bytes, own: bytes, sender: EditStream) -> bytes:
    """Return the proof of a token. ``asked``: the number of the Prove; ``own``: that of its reply, by ``sender``."""
    key = hashlib.sha256(_KEY + token.encode()).digest()
    return hmac.digest(key, b"".join((role, asked, own, sender.origin, sender.epoch.to_bytes(8, "big"))), "sha256")


class Gate:
    """Proofs and sessions at the peer that needs a token, or None: names. Any thread may call `enter`."""

    def __init__(self, token: str | None) -> None:
        self.token = token
        self.names: OrderedDict[int, Guest] = OrderedDict()
        self._challenges: OrderedDict[int, tuple[bytes, float]] = OrderedDict()
        self._proven: OrderedDict[int, None] = OrderedDict()
        self._sessions: OrderedDict[str, tuple[float, Guest | None]] = OrderedDict()

    def has_proven(self, pipe: int) -> bool:
        """Return True if the token was proven on this connection."""
        return pipe in self._proven

    def lets(self, pipe: int, of_guest: bool) -> bool:
        """Return True if requests of a connection are answered: without a token, only guests have to prove a name."""
        return pipe in self.names or not of_guest if self.token is None else self.has_proven(pipe)

    def challenge(self, pipe: int, nonce: bytes, now: float) -> bytes:
        """Return a number to be proven on a connection: ``nonce``, or a recent one, as requests come side by side."""
        known = self._challenges.get(pipe)
        if known is None or known[1] - now < WITHIN / 2:
            known = self._challenges[pipe] = nonce, now + WITHIN
            _limit(self._challenges)
        return known[0]

    def check(self, proof: Proof, now: float) -> bytes | None:
        """Return our proof in turn, and let in the connection that was challenged; None if the proof is wrong.

        It may come on another connection, as REQ sends to any of several.
        """
        pipe = self.answered(proof.nonce, now)
        if pipe is None or self.token is None:
            return None
        if not hmac.compare_digest(proof.proof, mac(self.token, ASKING, proof.nonce, proof.own, proof.sender)):
            return None
        self._proven[pipe] = None
        _limit(self._proven)
        return mac(self.token, ASKED, proof.nonce, proof.own, proof.sender)

    def answered(self, nonce: bytes, now: float) -> int | None:
        """Return the connection that was asked for a proof with this number, once; None if it is too late."""
        pipe = next((each for each, (asked, _) in self._challenges.items() if asked == nonce), None)
        if pipe is None or now > self._challenges.pop(pipe)[1]:
            return None
        return pipe

    def name(self, pipe: int, guest: Guest) -> None:
        """Give a connection the name that it has proven."""
        self.names[pipe] = guest
        _limit(self.names)

    def session(self, random: bytes, now: float, guest: Guest | None = None) -> str:
        """Return the query of a BUS address for one connection, of a guest."""
        session = random.hex()
        self._sessions[session] = now + WITHIN, guest
        _limit(self._sessions)
        return session

    def enter(self, session: str, pipe: int, now: float) -> bool:
        """Return True, once, for a session that was given out within the last seconds; name its connection."""
        until, guest = self._sessions.pop(session, (now - 1.0, None))
        if now > until:
            return False
        if guest is not None:
            self.name(pipe, guest)
        return True


def _limit(known: OrderedDict[Any, Any]) -> None:
    while len(known) > MOST:
        known.popitem(last=False)
