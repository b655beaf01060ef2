"""Admission: who may join a cluster. Pure, but for the secrets that HMAC needs; the wall clock is an argument.

A node has a token, or a ticket that was signed with it::

    ticket = issue_ticket("s3cret", "render", until=time.time() + 3600, id="worker-7")
    Member("render", dial=[...], ticket=ticket)       # needs no token

Both ends of each link prove that to the other (see `Secret`), and send neither. Each node that accepts a neighbour then
decides by its own `Authenticator`: `TokenAuthenticator` demands a proof; a function of the program may decide by what
was proven, id and address. The frames after that are neither encrypted nor signed: use tls+tcp where others can listen.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from typing import Annotated, Any, Final

from msgspec import Meta, field

from nngkit.cluster.frames import check_id, check_kind
from nngkit.envelope import encode
from nngkit.errors import AccessDenied, BadMessage, ConfigError, TooLarge
from nngkit.messages import Fields, Maps

MOST_TOKEN: Final = 1024  # bytes of a token or a ticket
MOST_ID: Final = 64  # bytes of an id
DIGEST: Final = "sha256"
MAC: Final = 32  # bytes of a signature
NOT_SIGNED: Final = "the ticket is not signed with this cluster's token"


@dataclass(frozen=True, slots=True)
class Applicant:
    """A node that asks to be a neighbour: its id, its address as the connection shows it, and what it has proven.

    `voter`: it asks for a link between voters. Nodes that have neither token nor ticket cannot be asked for a proof.
    `who`: the name that its connection proves, as `Pipe.who`.
    """

    id: str
    address: str
    token: str | None = None
    ticket: str | None = None
    voter: bool = False
    who: str | None = None


class Ticket(Fields, frozen=True):
    """Permission to join `cluster`, until a time in seconds since 1970. `id`: the only id that may use it; "": any."""

    cluster: Annotated[str, Meta(max_length=MOST_TOKEN)] = field(name="c")
    id: Annotated[str, Meta(max_length=MOST_ID)] = field(name="i")
    until: float = field(name="u")


_TICKETS: Final = Maps[Ticket]("ticket", Ticket, limit=MOST_TOKEN)


Authenticator = Callable[[Applicant], float | bool | None]
"""Decides on an applicant: a false value or AccessDenied refuses it; a float admits it until then (since 1970).

It is a plain function. What else it raises or returns refuses the applicant too, and is logged once for each class.
"""


def check_secret(name: str, value: Any) -> str | None:
    """Return a token or a ticket: text that UTF-8 can carry, of at most MOST_TOKEN bytes. Raises ConfigError."""
    if value is None:
        return None
    try:
        size = len(value.encode()) if isinstance(value, str) else None
    except UnicodeError:
        size = None
    if size is None:
        raise ConfigError(name, f"it is {type(value).__name__} instead of text, or has surrogates")  # not shown
    if not 1 <= size <= MOST_TOKEN:
        raise ConfigError(name, f"it has {size} bytes instead of 1 to {MOST_TOKEN}")
    return value  # type: ignore[no-any-return]


def issue_ticket(token: str, cluster: str, *, until: float, id: str = "") -> str:
    """Return a ticket, signed with `token`, as printable text.

    Args:
        token: The token of the cluster.
        cluster: Name of the cluster.
        until: End of the permission, in seconds since 1970. A link that uses the ticket ends then.
        id: The only id that may use it; "": any.

    Raises ConfigError.
    """
    check_secret("token", token)
    check_kind(cluster, "cluster")
    if id:
        check_id(id)
    if not isinstance(until, (int, float)) or not isfinite(until):
        raise ConfigError("until", f"{until!r} is not a time in seconds since 1970", until)
    body = _TICKETS.encode(Ticket(cluster, id, float(until)))
    ticket = urlsafe_b64encode(hmac.digest(token.encode(), body, DIGEST) + body).decode()
    # one of 64 would be an option in a command line; readers of base64 skip the dot
    return f".{ticket}" if ticket.startswith("-") else ticket


def read_ticket(token: str, text: str) -> Ticket:
    """Return the content of a ticket that was signed with `token`. Raises AccessDenied."""
    try:
        data = urlsafe_b64decode(text.encode("ascii"))
    except (UnicodeError, Error) as error:
        raise AccessDenied(f"the ticket is not one: {error}") from error
    mac, body = data[:MAC], data[MAC:]
    if not hmac.compare_digest(mac, hmac.digest(token.encode(), body, DIGEST)):
        raise AccessDenied(NOT_SIGNED)
    return _read_body(body)


def _read_body(body: bytes) -> Ticket:
    try:
        return _TICKETS.decode(body)
    except (BadMessage, TooLarge) as error:
        raise AccessDenied(f"the ticket is not one: {error}") from error


def check_ticket(ticket: Ticket, cluster: str, id: str, now: float, *, voter: bool) -> float:
    """Return the end of the permission that a ticket gives a node. Raises AccessDenied."""
    if ticket.cluster != cluster:
        raise AccessDenied(f"the ticket is for the cluster {ticket.cluster!r}")
    if ticket.id and ticket.id != id:
        raise AccessDenied(f"the ticket is for {ticket.id!r}")
    if voter and not ticket.id:
        raise AccessDenied(f"the ticket is for any id: a voter needs the token, or a ticket for {id!r}")
    if ticket.until <= now:
        raise AccessDenied(f"the ticket has expired {now - ticket.until:.0f} s ago")
    return ticket.until


class Secret:
    """Token or ticket of a node, and what it has in common with those of others.

    A ticket is its content, which a node may show to all, and a MAC of it, which only the ticket's holder has, and
    every holder of the token can compute. So a holder of the token has a key in common with every node: that MAC, or,
    with another holder of the token, the one of an empty content, which no ticket has. Two tickets have none in common.

    `shown`: content of the ticket; empty for the token.
    """

    def __init__(self, cluster: str, token: str | None, ticket: str | None, clock: Callable[[], float]) -> None:
        self.token = token
        self.shown, self._mac = b"", b""
        self._cluster = cluster
        self._clock = clock
        if token is None and ticket is not None:
            try:
                data = urlsafe_b64decode(ticket.encode("ascii"))
            except (UnicodeError, Error):
                data = b""
            # what is no ticket is shown as it is, and refused
            self.shown, self._mac = data[MAC:] or ticket.encode(), data[:MAC]

    def key(self, shown: bytes) -> bytes | None:
        """Return the key in common with a node that shows this; None without one."""
        if self.token is not None:
            return hmac.digest(self.token.encode(), shown, DIGEST)
        return self._mac if shown in (b"", self.shown) else None

    def check(self, shown: bytes, id: str, *, voter: bool) -> float:
        """Return the end of the permission of a node that has proven what it shows. Raises AccessDenied."""
        if not shown:
            return inf
        return check_ticket(_read_body(shown), self._cluster, id, self._clock(), voter=voter)

    def ticket_of(self, shown: bytes) -> str | None:
        """Return the ticket with this content, as text; None for the token, and without it."""
        if not shown or self.token is None:
            return None
        return urlsafe_b64encode(hmac.digest(self.token.encode(), shown, DIGEST) + shown).decode()


def make_secret(cluster: str, token: str | None, ticket: str | None, clock: Callable[[], float]) -> Secret | None:
    """Return the secret of a node that has a token or a ticket; None for another."""
    return None if token is None and ticket is None else Secret(cluster, token, ticket, clock)


def prove(key: bytes, *said: object) -> bytes:
    """Return the proof that its sender has `key`, for all that both sides have said."""
    return hmac.digest(key, encode(list(said)), DIGEST)


def proves(mac: bytes, key: bytes, *said: object) -> bool:
    """Return True if `mac` is that proof."""
    return hmac.compare_digest(mac, prove(key, *said))


class TokenAuthenticator:
    """Admit nodes that have proven the cluster's token, or a ticket signed with it. Without a token: admit all.

    `clock` returns seconds since 1970.
    """

    def __init__(self, cluster: str, token: str | None, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._token = token
        self._clock = clock

    def __call__(self, applicant: Applicant) -> float | bool:
        if self._token is None:
            return True
        if applicant.token is not None:
            if hmac.compare_digest(applicant.token.encode(), self._token.encode()):
                return True
            raise AccessDenied("wrong token")
        if applicant.ticket is None:
            raise AccessDenied("this cluster demands a token or a ticket")
        ticket = read_ticket(self._token, applicant.ticket)
        return check_ticket(ticket, self._cluster, applicant.id, self._clock(), voter=applicant.voter)
