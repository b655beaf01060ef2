"""Proof of a token on a connection, without sending it, and BUS paths for sessions. Pure; `now` in seconds.

A peer that needs a token replies to a request on a connection that has not proven it by `Prove`, with a random number
that is for this connection. The asking peer sends a `Proof`: a random number of its own, and a MAC over both numbers
and its stream. The `Welcome` that follows holds a MAC over the same the other way round, so each knows that the other
one has the token::

    gate.challenge(pipe, nonce, now)             -> the Prove's number
    gate.check(proof, now)                       -> the MAC for the Welcome, or None; the connection has proven it
    path = gate.session(random, now)             -> of a BUS, for one connection within 10 s
    gate.enter(path, now)                        -> True once

On a network in the clear, a listener learns neither the token nor a path that is good for it. It may still read, and
change what passes: that takes TLS.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from typing import Final

from nngkit.documents.sync.messages import Proof
from nngkit.documents.versions import EditStream

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
    """Proofs and sessions at the peer that needs the token. Any thread may call `enter`."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._challenges: OrderedDict[int, tuple[bytes, float]] = OrderedDict()
        self._proven: OrderedDict[int, None] = OrderedDict()
        self._sessions: OrderedDict[str, float] = OrderedDict()

    def has_proven(self, pipe: int) -> bool:
        """Return True if the token was proven on this connection."""
        return pipe in self._proven

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
        pipe = next((each for each, (nonce, _) in self._challenges.items() if nonce == proof.nonce), None)
        if pipe is None:
            return None
        _, until = self._challenges.pop(pipe)
        expected = mac(self._token, ASKING, proof.nonce, proof.own, proof.sender)
        if now > until or not hmac.compare_digest(proof.mac, expected):
            return None
        self._proven[pipe] = None
        _limit(self._proven)
        return mac(self._token, ASKED, proof.nonce, proof.own, proof.sender)

    def session(self, random: bytes, now: float) -> str:
        """Return the query of a BUS address for one connection."""
        session = random.hex()
        self._sessions[session] = now + WITHIN
        _limit(self._sessions)
        return session

    def enter(self, session: str, now: float) -> bool:
        """Return True, once, for a session that was given out within the last seconds."""
        return now <= self._sessions.pop(session, -1.0)


def _limit(known: OrderedDict[int, tuple[bytes, float]] | OrderedDict[int, None] | OrderedDict[str, float]) -> None:
    while len(known) > MOST:
        known.popitem(last=False)
