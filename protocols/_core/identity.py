"""Names of the peers of a socket, and whether they are let in: by pass, by the kernel, or by their place.

May not know: messages, protocols.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from nngkit.errors import AccessDenied, ConfigError
from nngkit.protocols._core.pool import loopback
from nngkit.protocols._nng import streams
from nngkit.protocols._nng.addresses import Address
from nngkit.protocols._nng.tls import TLS, Guests, Security, exposed
from nngkit.protocols._wire.tls_layer import Layer
from nngkit.trust.choice import OPEN, Choice, chosen, may_be_open
from nngkit.trust.names import ANYONE, LOCAL, matches, uid
from nngkit.trust.policy import Policy
from nngkit.trust.refusals import code_of
from nngkit.trust.trust import Decision, Trust

log = logging.getLogger("nngkit.protocols")

Check = Callable[["str | None"], object]  # of a name, which raises AccessDenied

ROOM: Final = "connections"  # of what is told to the watchers of a trust
EARLY: Final = 0.1  # part of a pass's life by which its connections end earlier, spread, so that not all end at once


class Identity:
    """Decides for one socket. ``trust``: None without one; ``peers``: patterns of the names that are let in, or a check
    of a name, which is made again when the policy has changed.

    ``guarded``: the program decides itself, by ``admit``.
    """

    def __init__(self, trust: Choice | None, peers: Sequence[str] | Check, tls: TLS | None, *, guarded: bool) -> None:
        self.trust = trust if isinstance(trust, Trust) else None
        self._peers = peers
        self._tls = tls
        self._may_be_open = guarded or trust is OPEN

    def security(self, what: str, address: Address, guests: TLS | Trust | None = None) -> Security | None:
        """Return what the TLS of an address is made of: of NNGKIT_TRUST, if the socket has none.

        ``guests``: the certificate where peers need no pass. Raises ConfigError if a socket with a trust may not listen
        or dial there.
        """
        if address.tls and self.trust is None and self._tls is None and isinstance(found := chosen(None), Trust):
            self.trust = found
        if self.trust is not None and not address.tls and not address.stays_here:
            why = f"a socket with a trust needs tls+tcp:// or wss:// where other machines are; {self.trust!r}"
            raise ConfigError(what, f"{address.url}: {why}", address.url)
        if guests is None:
            return self.trust or self._tls
        if self.trust is None or not address.tls:
            raise ConfigError("guests", f"{address.url}: needs a trust, and tls+tcp:// or wss://", address.url)
        return Guests(guests)

    def warn(self, address: Address, bound: str) -> None:
        """Log that strangers may connect at the bound address, unless the program has said so."""
        guarded = self.trust is not None or self._may_be_open or may_be_open()
        if not guarded and (why := exposed(address, self._tls)) is not None:
            log.warning("%s: %s", bound, why)

    def of(self, address: Address, stream: Any, tls: Layer | None, where: str) -> Peer:
        """Return the name of a peer. Raises AccessDenied, whose text begins with a code, for one that is not let in.

        Either is told to the watchers of the trust.
        """
        try:
            peer = self._of(address, stream, tls, where)
        except AccessDenied as denied:
            self.refused(where, denied)
            raise
        self._tell(where, peer.name, "")
        return peer

    def refused(self, where: str, reason: Exception) -> None:
        """Tell the watchers of the trust that a peer is not let in, or must leave."""
        if self.trust is not None:
            text = str(reason)
            said = _SAID.match(text)
            self._tell(where, said[1] if said is not None else "", code_of(text))

    def _tell(self, where: str, name: str | None, refused: str) -> None:
        if self.trust is not None:
            self.trust.tell(Decision(time.time(), ROOM, name or "", f"connect {where}", refused))

    def _of(self, address: Address, stream: Any, tls: Layer | None, where: str) -> Peer:
        if tls is None:
            peer = Peer(_by_place(address, stream, where))
        elif self.trust is None:
            return Peer(None)
        elif tls.guests:
            peer = Peer(ANYONE)
        else:
            shown = tls.certificate()
            name = self.trust.name_of(shown.uris, shown.serial)
            early = random.uniform(0.0, EARLY) * (shown.ends - shown.begins)
            peer = Peer(name, shown.serial, shown.ends - early)
        self._check(peer)
        return peer

    def _check(self, peer: Peer) -> None:
        if self.trust is not None:
            peer.policy = self.trust.policy
        if callable(self._peers):
            self._peers(peer.name)
        elif self._peers and not any(matches(peer.name or "", pattern) for pattern in self._peers):
            raise AccessDenied(f"right: {peer.name} is none of the peers {', '.join(self._peers)}")

    def objection(self, where: str, peer: Peer) -> AccessDenied | None:
        """Return why a peer that was let in must leave, and tell the watchers of the trust; None if it may stay."""
        denied = self._objection(peer)
        if denied is not None:
            self.refused(where, denied)
        return denied

    def _objection(self, peer: Peer) -> AccessDenied | None:
        if self.trust is None:
            return None
        if peer.serial and time.time() >= peer.until:
            return AccessDenied(f"expired: the pass of {peer.name} ends")
        if self.trust.policy is peer.policy:
            return None
        if self.trust.policy.is_revoked(peer.name or "", peer.serial):
            return AccessDenied(f"revoked: {peer.name} (serial {peer.serial})")
        try:
            self._check(peer)
        except AccessDenied as denied:
            return denied
        return None


class Peer:
    """A peer that is let in. ``until``: unix time in seconds at which its connection ends; ``serial``: of its pass.

    ``policy``: by which it was let in.
    """

    __slots__ = ("name", "policy", "serial", "until")

    def __init__(self, name: str | None, serial: str = "", until: float = 0.0) -> None:
        self.name = name
        self.serial = serial
        self.until = until
        self.policy: Policy | None = None


_SAID = re.compile(r"(?:right|revoked|expired): (?:the pass of )?(\S+)")


def _by_place(address: Address, stream: Any, where: str) -> str:
    if address.local:
        user = streams.peer_user(stream)
        return LOCAL if user is None else uid(user)
    if not address.ported or address.stays_here:
        return LOCAL
    return LOCAL if loopback(where) else ANYONE
