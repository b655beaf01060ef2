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

    >>> KINDS.parse(KINDS.pack(Fresh(3, 7)))
    Fresh(term=3, number=7)
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta

from nngkit.cluster.frames import Id
from nngkit.messages import ANY_TEXT, Address, Flag, Natural, Row, Rows, packed

MOST_ADDRESSES: Final = 16  # of one referral
MOST_FACTS: Final = 512  # bytes of a node's facts: a dozen kinds, version and zone
MOST_PATH: Final = 64  # nodes of a path; a balanced tree of a million nodes with fan-out 2 has 20
MOST_ROWS: Final = 64  # members in one message: 64 KiB hold them with the longest ids, addresses and facts
MOST_VOTERS: Final = 16  # 7 are useful

Purpose: TypeAlias = Literal["join", "standby", "voter", "look"]
Text: TypeAlias = Annotated[str, Meta(max_length=256)]
Fanout: TypeAlias = Annotated[int, Meta(ge=0, le=4096)]
Addresses: TypeAlias = Annotated[tuple[Address, ...], Meta(max_length=MOST_ADDRESSES)]
Facts: TypeAlias = Annotated[
    dict[Annotated[str, Meta(extra=ANY_TEXT)], Any],
    Meta(extra=packed(MOST_FACTS)),
]


class Message(Row, frozen=True):
    """A message about places."""


class Label(Row, frozen=True):
    """Age of a path: term, number given by the term's root, shortest depth since that number. See path.py."""

    term: Natural
    number: Natural
    depth: Annotated[int, Meta(ge=0, le=MOST_PATH)]


class Hello(Message, frozen=True, tag=0):
    """Greeting. ``purpose``: what the dialer wants; the other end repeats nothing and says "look".

    ``address``: where the sender listens, None if nowhere. ``term``: the highest one that it knows.
    """

    id: Id
    epoch: Natural
    purpose: Purpose
    address: Address | None
    term: Natural


class Join(Message, frozen=True, tag=1):
    """Request to become a child.

    ``label``: None if the sender has no children, and so attaches anywhere. ``term``: the lowest that it attaches to.
    ``hops``: referrals so far. ``direct``: it has asked the host in vain. ``fanout``: children that it may have.
    ``size``: nodes of its subtree. ``lost``: id of the parent that it has lost. ``ordered``: the root wants it here.
    """

    label: Label | None
    term: Natural
    hops: Natural
    direct: Flag
    fanout: Fanout
    size: Natural
    lost: Id | None
    ordered: Flag


class Ancestry(Row, frozen=True):
    """Place of the sender: ``path`` has the ids from the root to the sender; () without a root.

    ``host``: address of the root. ``grandparent``, ``sibling``: addresses for standby links of the receiver.
    """

    term: Natural
    number: Natural
    path: Annotated[tuple[Id, ...], Meta(max_length=MOST_PATH)]
    host: Address | None
    grandparent: Address | None
    sibling: Address | None


class Path(Ancestry, Message, frozen=True, tag=10):
    """Ancestry of the sender, to its children and to joiners that it has accepted."""


class Accept(Message, frozen=True, tag=2):
    """The joiner may attach here, to this path. ``voters``: ids and addresses."""

    place: Ancestry
    voters: Annotated[dict[Id, Address], Meta(max_length=MOST_VOTERS)]


class Refer(Message, frozen=True, tag=3):
    """The joiner should ask at these addresses."""

    addresses: Addresses
    term: Natural
    why: Text


class Refuse(Message, frozen=True, tag=4):
    """The joiner may not attach. ``final``: nor anywhere else in this cluster."""

    why: Text
    final: Flag


class Wait(Message, frozen=True, tag=5):
    """The joiner will be told on this link. ``soon``: there is a path, and other joiners are about to make room."""

    soon: Flag


class Attach(Message, frozen=True, tag=6):
    """The sender has attached here. ``move``: how often it has attached since its start. ``facts``: about it."""

    move: Natural
    fanout: Fanout
    facts: Facts


class Settled(Message, frozen=True, tag=7):
    """The parent counts the sender of Attach among its children."""


class Leave(Message, frozen=True, tag=8):
    """The sender is no longer a child, a joiner or a parent on this link."""

    why: Text


class Leaving(Message, frozen=True, tag=9):
    """The parent leaves the tree: its children attach elsewhere first."""

    addresses: Addresses


class Member(Row, frozen=True):
    """One node and its place. (``epoch``, ``move``) orders its places."""

    id: Id
    epoch: Natural
    move: Natural
    parent: Id
    address: Address | None
    fanout: Fanout
    facts: Facts


class Members(Message, frozen=True, tag=11):
    """Changes below the sender, since the last such message on this link."""

    added: Annotated[tuple[Member, ...], Meta(max_length=MOST_ROWS)]
    removed: Annotated[tuple[Id, ...], Meta(max_length=8 * MOST_ROWS)]


class Heartbeat(Message, frozen=True, tag=12):
    """Sign of life."""


class Fresh(Message, frozen=True, tag=13):
    """Request for a path with a number above this one."""

    term: Natural
    number: Natural


class Move(Message, frozen=True, tag=14):
    """Order of the root to the node ``id`` of that epoch: attach to ``parent``."""

    id: Id
    epoch: Natural
    parent: Id
    address: Address


class Probe(Message, frozen=True, tag=15):
    """Question to the node ``id`` of that epoch, for a later one with its id."""

    id: Id
    epoch: Natural


class Alive(Message, frozen=True, tag=16):
    """Answer to Probe, up the tree. ``address``: where the node listens, or some other description."""

    id: Id
    epoch: Natural
    address: Text


class Expel(Message, frozen=True, tag=17):
    """Order to the node ``id`` of that epoch to leave the cluster."""

    id: Id
    epoch: Natural
    why: Text


KINDS: Final = Rows[Message]("place message", Message)
