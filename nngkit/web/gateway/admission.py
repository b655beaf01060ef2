"""Names of HTTP clients and their rights: bearer tokens, the policy of a trust, and a rate for each client.

Without a trust every client may do everything: such a gateway listens on loopback only, or says that it is open. With
one each request has a token (nngkit.trust.guests) by which it is a name of the realm, and the policy says what that
name may `call`, `publish`, `subscribe` to and `submit`.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from hashlib import sha256
from ipaddress import ip_address
from typing import Final

from nngkit.errors import AccessDenied
from nngkit.trust import Choice, Rights, Trust
from nngkit.trust.guests import Guest, check_bearer
from nngkit.web.exchange import Request
from nngkit.web.gateway.limits import Rates
from nngkit.web.gateway.problems import Problem

REMEMBERED: Final = 4096  # tokens whose signature was checked
CHALLENGE: Final = (("WWW-Authenticate", "Bearer"),)


class Admission:
    """Names of clients and their rights. `rate`: requests a second of one name or address; None: any."""

    def __init__(
        self, trust: Choice | None, rate: float | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.trust = trust if isinstance(trust, Trust) else None
        self.rights = Rights(trust, "gateway", carry="gateway")
        self.refused: Counter[str] = Counter()
        """Requests that were refused, by code: "token", "rate"; those without the right are in `rights.refusals`."""
        self._rates = None if rate is None else Rates(rate)
        self._clock = clock
        self._guests: OrderedDict[bytes, Guest] = OrderedDict()

    def name_of(self, request: Request, *, query: bool = False) -> str | None:
        """Return the name of the client, None without a trust. Raises Problem without a valid token, or over the rate.

        `query`: the token may be in the query, as EventSource and WebSocket of browsers send no headers of a page's.
        """
        if self.trust is None:
            self._limit(network_of(request.client))
            return None
        name = self._guest(request, query).name
        self._limit(name)
        return name

    def _limit(self, client: str) -> None:
        """Count a request of a name or address. Raises Problem over the rate."""
        wait = 0.0 if self._rates is None else self._rates.take(client, self._clock())
        if wait > 0:
            self.refused["rate"] += 1
            after = (("Retry-After", str(int(wait) + 1)),)
            raise Problem(429, "rate", "too many requests", headers=after, ran=False)

    def _guest(self, request: Request, query: bool) -> Guest:
        assert self.trust is not None
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            token = request.query().get("access_token", [""])[0] if query else ""
        key = sha256(token.encode("utf-8", "surrogateescape")).digest()
        guest = self._guests.get(key)
        if guest is None:
            self._limit(network_of(request.client))  # a signature takes longer to check than to send
        if not token:
            self.refused["token"] += 1
            raise Problem(401, "token", "a token is needed: Authorization: Bearer TOKEN", headers=CHALLENGE, ran=False)
        self.trust.refresh()
        try:
            if guest is None:
                guest = self._guests[key] = check_bearer(self.trust, token)
                if len(self._guests) > REMEMBERED:
                    self._guests.popitem(last=False)
            self.check_still(guest)
        except AccessDenied as denied:
            self._guests.pop(key, None)
            self.refused["token"] += 1
            raise Problem(401, "token", str(denied), headers=CHALLENGE, ran=False) from denied
        return guest

    def check_still(self, guest: Guest) -> None:
        """Raise AccessDenied if the pass of a token has ended or was revoked since."""
        assert self.trust is not None
        if time.time() >= guest.until:
            raise AccessDenied("expired: the token is not valid any more")
        if self.trust.policy.is_revoked(guest.name, guest.serial):
            raise AccessDenied(f"revoked: {guest.name} (serial {guest.serial})")

    def validity(self, request: Request) -> Callable[[], bool]:
        """Return a function that is True while the token of a stream's request is valid."""
        if self.trust is None:
            return lambda: True
        guest = self._guest(request, query=True)

        def valid() -> bool:
            try:
                self.check_still(guest)
            except AccessDenied:
                return False
            return True

        return valid

    def require(self, name: str | None, right: str, target: str) -> None:
        """Raise Problem unless the policy grants it."""
        try:
            self.rights.require(name, right, target)
        except AccessDenied as denied:
            raise Problem(403, "denied", str(denied), ran=False) from denied


def network_of(address: str) -> str:
    """Return the address by which a client is known: of IPv6 the network, as each client has all of its addresses."""
    if ":" not in address:
        return address
    number = ip_address(address.partition("%")[0])
    mapped = getattr(number, "ipv4_mapped", None)
    return str(mapped) if mapped is not None else f"{int(number) >> 64:x}/64"
