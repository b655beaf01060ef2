"""Messages about places in the tree, between neighbours. Pure: rows of CBOR types in and out.

::

    Hello       both ends, first              Accept      to a joiner: it may attach here
    Join        to become a child             Refer       ... or it should ask there
    Attach      the child has attached        Refuse      ... or it may not
    Settled     ... and the parent knows      Wait        ... or it is told later, on this link
    Path        to children, on each change   Leave       the sender ends its part of the link
    Members     to the parent, the changes    Leaving     to children: look for another parent
    Heartbeat   nothing else was sent         Move        down to a node: attach there
    Fresh       up to the root: a newer path  Probe, Alive, Expel     two nodes with one id

A row is ``[kind, ...]``. Items after the known ones are those of a later version and are ignored.

    >>> parse(pack(Fresh(3, 7)), None)
    Fresh(term=3, number=7)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from nngkit.envelope import encode, is_address
from nngkit.errors import BadMessage
from nngkit.mesh.wire import MOST_NUMBER, MOST_ORIGIN

__all__ = [
    "MOST_FACTS",
    "MOST_PATH",
    "MOST_ROWS",
    "Accept",
    "Alive",
    "Attach",
    "Expel",
    "Fresh",
    "Heartbeat",
    "Hello",
    "Join",
    "Label",
    "Leave",
    "Leaving",
    "Member",
    "Members",
    "Message",
    "Move",
    "Path",
    "Probe",
    "Purpose",
    "Refer",
    "Refuse",
    "Settled",
    "Wait",
    "pack",
    "parse",
]

MOST_ADDRESS: Final = 256  # bytes of an address: a host name has 253 at most, few addresses are longer than 60
MOST_ADDRESSES: Final = 16  # of one referral
MOST_FACTS: Final = 512  # bytes of a node's facts: a dozen kinds, version and zone
MOST_PATH: Final = 64  # nodes of a path; a balanced tree of a million nodes with fan-out 2 has 20
MOST_ROWS: Final = 64  # members in one message: 64 KiB hold them with the longest ids, addresses and facts
MOST_VOTERS: Final = 16  # 7 are useful
MOST_WHY: Final = 256  # bytes of a reason
MOST_FANOUT: Final = 4096
_WHAT: Final = "place message"

Purpose: TypeAlias = Literal["join", "standby", "voter", "look"]
_PURPOSES: Final[tuple[str, ...]] = get_args(Purpose)


class Label(NamedTuple):
    """Age of a path: term, number given by the term's root, shortest depth since that number. See place_paths.py."""

    term: int
    number: int
    depth: int


class Hello(NamedTuple):
    """Greeting. ``purpose``: what the dialer wants; the other end repeats nothing and says "look".

    ``address``: where the sender listens, None if nowhere. ``term``: the highest one that it knows.
    """

    id: str
    epoch: int
    purpose: Purpose
    address: str | None
    term: int


class Join(NamedTuple):
    """Request to become a child.

    ``label``: None if the sender has no children, and so attaches anywhere. ``term``: the lowest that it attaches to.
    ``hops``: referrals so far. ``direct``: it has asked the host in vain. ``fanout``: children that it may have.
    ``size``: nodes of its subtree. ``lost``: id of the parent that it has lost. ``ordered``: the root wants it here.
    """

    label: Label | None
    term: int
    hops: int
    direct: bool
    fanout: int
    size: int
    lost: str | None
    ordered: bool = False


class Path(NamedTuple):
    """Place of the sender: ``path`` has the ids from the root to the sender; () without a root.

    ``host``: address of the root. ``grandparent``, ``sibling``: addresses for standby links of the receiver.
    """

    term: int
    number: int
    path: tuple[str, ...]
    host: str | None
    grandparent: str | None
    sibling: str | None


class Accept(NamedTuple):
    """The joiner may attach here, to this path. ``voters``: ids and addresses."""

    place: Path
    voters: dict[str, str]


class Refer(NamedTuple):
    """The joiner should ask at these addresses."""

    addresses: tuple[str, ...]
    term: int
    why: str


class Refuse(NamedTuple):
    """The joiner may not attach. ``final``: nor anywhere else in this cluster."""

    why: str
    final: bool


class Wait(NamedTuple):
    """The joiner will be told on this link. ``soon``: there is a path, and other joiners are about to make room."""

    soon: bool


class Attach(NamedTuple):
    """The sender has attached here. ``move``: how often it has attached since its start. ``facts``: about it."""

    move: int
    fanout: int
    facts: dict[str, Any]


class Settled(NamedTuple):
    """The parent counts the sender of Attach among its children."""


class Leave(NamedTuple):
    """The sender is no longer a child, a joiner or a parent on this link."""

    why: str


class Leaving(NamedTuple):
    """The parent leaves the tree: its children attach elsewhere first."""

    addresses: tuple[str, ...]


class Member(NamedTuple):
    """One node and its place. (``epoch``, ``move``) orders its places."""

    id: str
    epoch: int
    move: int
    parent: str
    address: str | None
    fanout: int
    facts: dict[str, Any]


class Members(NamedTuple):
    """Changes below the sender, since the last such message on this link."""

    added: tuple[Member, ...]
    removed: tuple[str, ...]


class Heartbeat(NamedTuple):
    """Sign of life."""


class Fresh(NamedTuple):
    """Request for a path with a number above this one."""

    term: int
    number: int


class Move(NamedTuple):
    """Order of the root to the node ``id`` of that epoch: attach to ``parent``."""

    id: str
    epoch: int
    parent: str
    address: str


class Probe(NamedTuple):
    """Question to the node ``id`` of that epoch, for a later one with its id."""

    id: str
    epoch: int


class Alive(NamedTuple):
    """Answer to Probe, up the tree. ``address``: where the node listens, or some other description."""

    id: str
    epoch: int
    address: str


class Expel(NamedTuple):
    """Order to the node ``id`` of that epoch to leave the cluster."""

    id: str
    epoch: int
    why: str


Message: TypeAlias = (
    Hello
    | Join
    | Accept
    | Refer
    | Refuse
    | Wait
    | Attach
    | Settled
    | Leave
    | Leaving
    | Path
    | Members
    | Heartbeat
    | Fresh
    | Move
    | Probe
    | Alive
    | Expel
)


def pack(message: Message) -> list[Any]:
    """Return the row of a message."""
    kind = _KINDS[type(message)]
    if isinstance(message, Members):
        return [kind, [list(each) for each in message.added], list(message.removed)]
    if isinstance(message, Accept):
        return [kind, _plain(message.place), message.voters]
    return [kind, *_plain(message)]


def _plain(message: tuple[Any, ...]) -> list[Any]:
    return [list(item) if isinstance(item, tuple) else item for item in message]


def parse(row: object, peer: str | None) -> Message | None:
    """Return the message of a row; None for a kind that a later version has added. Raises BadMessage."""
    if type(row) is not list or not row or type(row[0]) is not int:
        raise BadMessage(_WHAT, "it is not an array that begins with a kind", peer)
    reader = _READERS.get(row[0])
    if reader is None:
        return None
    try:
        return reader(_Row(row, 1))
    except (ValueError, IndexError) as error:
        reason = "it is too short" if isinstance(error, IndexError) else str(error)
        raise BadMessage(_WHAT, f"kind {row[0]}: {reason}", peer) from None


class _Row:
    """Items of a row, read in order. Raises ValueError, IndexError."""

    __slots__ = ("at", "items")

    def __init__(self, items: object, at: int = 0) -> None:
        if type(items) is not list:
            raise ValueError("an item is not an array")
        self.items: list[Any] = items
        self.at = at

    def next(self) -> Any:
        self.at += 1
        return self.items[self.at - 1]

    def number(self, most: int = MOST_NUMBER) -> int:
        value = self.next()
        if type(value) is not int or not 0 <= value <= most:
            raise ValueError(f"a number is not an integer from 0 to {most}")
        return value

    def flag(self) -> bool:
        value = self.next()
        if type(value) is not bool:
            raise ValueError("a flag is not a bool")
        return value

    def text(self, most: int, value: object = None) -> str:
        value = self.next() if value is None else value
        if type(value) is not str or len(value.encode(errors="replace")) > most or not value.isprintable():
            raise ValueError(f"a text is not printable or has more than {most} bytes")
        return value

    def id(self, value: object = None) -> str:
        text = self.text(MOST_ORIGIN, value)
        if not text:
            raise ValueError("an id is empty")
        return text

    def optional_id(self) -> str | None:
        value = self.next()
        return None if value is None else self.id(value)

    def address(self, value: object = None) -> str:
        text = self.text(MOST_ADDRESS, value)
        if not is_address(text):
            raise ValueError("an address has a space")
        return text

    def optional_address(self) -> str | None:
        value = self.next()
        return None if value is None else self.address(value)

    def addresses(self) -> tuple[str, ...]:
        return tuple(self.address(each) for each in self.array(MOST_ADDRESSES))

    def array(self, most: int) -> list[Any]:
        value = self.next()
        if type(value) is not list or len(value) > most:
            raise ValueError(f"an item is not an array of at most {most}")
        return value

    def ids(self, most: int) -> tuple[str, ...]:
        return tuple(self.id(each) for each in self.array(most))

    def label(self) -> Label | None:
        value = self.next()
        if value is None:
            return None
        inner = _Row(value)
        return Label(inner.number(), inner.number(), inner.number(MOST_PATH))

    def facts(self) -> dict[str, Any]:
        value = self.next()
        if type(value) is not dict or len(encode(value)) > MOST_FACTS:
            raise ValueError(f"facts are not a map of at most {MOST_FACTS} bytes")
        return value

    def path(self) -> Path:
        term, number, ids = self.number(), self.number(), self.ids(MOST_PATH)
        return Path(term, number, ids, self.optional_address(), self.optional_address(), self.optional_address())


def _hello(row: _Row) -> Hello:
    name, epoch, purpose = row.id(), row.number(), row.text(16)
    if purpose not in _PURPOSES:
        raise ValueError("its purpose is unknown")
    return Hello(name, epoch, purpose, row.optional_address(), row.number())  # type: ignore[arg-type]


def _join(row: _Row) -> Join:
    return Join(
        row.label(),
        row.number(),
        row.number(),
        row.flag(),
        row.number(MOST_FANOUT),
        row.number(),
        row.optional_id(),
        row.flag(),
    )


def _accept(row: _Row) -> Accept:
    place = _Row(row.next()).path()
    voters: Mapping[object, object] = row.next()
    if type(voters) is not dict or len(voters) > MOST_VOTERS:
        raise ValueError(f"voters are not a map of at most {MOST_VOTERS}")
    return Accept(place, {row.id(voter): row.address(address) for voter, address in voters.items()})


def _member(items: object) -> Member:
    row = _Row(items)
    name, epoch, move, parent = row.id(), row.number(), row.number(), row.id()
    return Member(name, epoch, move, parent, row.optional_address(), row.number(MOST_FANOUT), row.facts())


def _members(row: _Row) -> Members:
    return Members(tuple(map(_member, row.array(MOST_ROWS))), row.ids(MOST_ROWS * 8))


_FORMATS: Final[tuple[tuple[type[Message], Callable[[_Row], Message]], ...]] = (  # the kind is the position
    (Hello, _hello),
    (Join, _join),
    (Accept, _accept),
    (Refer, lambda row: Refer(row.addresses(), row.number(), row.text(MOST_WHY))),
    (Refuse, lambda row: Refuse(row.text(MOST_WHY), row.flag())),
    (Wait, lambda row: Wait(row.flag())),
    (Attach, lambda row: Attach(row.number(), row.number(MOST_FANOUT), row.facts())),
    (Settled, lambda row: Settled()),
    (Leave, lambda row: Leave(row.text(MOST_WHY))),
    (Leaving, lambda row: Leaving(row.addresses())),
    (Path, lambda row: row.path()),
    (Members, _members),
    (Heartbeat, lambda row: Heartbeat()),
    (Fresh, lambda row: Fresh(row.number(), row.number())),
    (Move, lambda row: Move(row.id(), row.number(), row.id(), row.address())),
    (Probe, lambda row: Probe(row.id(), row.number())),
    (Alive, lambda row: Alive(row.id(), row.number(), row.text(MOST_ADDRESS))),
    (Expel, lambda row: Expel(row.id(), row.number(), row.text(MOST_WHY))),
)
_KINDS: Final[dict[type[Any], int]] = {kind: number for number, (kind, _) in enumerate(_FORMATS)}
_READERS: Final = {number: reader for number, (_, reader) in enumerate(_FORMATS)}
