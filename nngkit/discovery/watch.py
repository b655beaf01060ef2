"""Change notification by long polling: the caller asks the daemon to reply only once something has changed. Pure.

::

    WatchQuery(daemon, version, wait, changes=True)   ->   WatchReply(daemon, version, Changes(rows, gone))

The caller names the state it has: the daemon's id and its count of changes. The daemon replies as soon as its own state
differs, or after `wait` seconds. Nothing is pushed, so nothing can be lost: a caller that was away asks with an old
version and gets its reply at once, and so does one that reaches a restarted daemon, which has a new id.

A caller that asks for `changes` gets the rows that changed since its version, so that a change costs as much among
1,000 services as alone. Without them in the reply (an older daemon, another daemon, too many changes missed), the
caller fetches the snapshot. CBOR maps with `v` and `type`, beside those of queries.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Final

from msgspec import Meta

from nngkit.discovery.messages import FIRST_VERSION, VERSION_WHAT, read
from nngkit.discovery.provider import PROTOCOL_VERSION, IdText, Key, Status, StatusRecord, Version, WireKey
from nngkit.discovery.queries import PAGE, REPLY_LIMIT
from nngkit.errors import BadMessage, TooLarge
from nngkit.messages import Fields, Flag, Maps, Natural63, always

SMALL: Final = 256
"""Bytes of a message that is remembered; a query has about 100."""
MAX_WAIT: Final = 60.0
"""Cap on `wait`, in seconds."""
_WHAT = "discovery watch"


class WatchQuery(Fields, frozen=True, tag="ask-watch", omit_defaults=True):
    """Reply once the daemon's id is not `daemon` or its count of changes not `version`, or after `wait` seconds.

    `changes`: with the rows that changed since `version`, if the daemon knows them.
    """

    daemon: IdText = always("")
    version: Natural63 = always(0)
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT)] = always(0.0)
    changes: Flag = False
    v: Version = FIRST_VERSION

    def encode(self) -> bytes:
        """Encode the message."""
        return QUERIES.encode(self)


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows that changed, as they are now, and the keys of rows that the daemon has forgotten since."""

    rows: tuple[Status, ...] = ()
    gone: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class WatchReply:
    """The daemon's id, the count of changes to ask from next, and the changes; None if they are to be fetched."""

    daemon: str
    version: int
    changes: Changes | None = None

    def encode(self, now: float = 0.0) -> bytes:
        """Encode the message. `now`: the current time on the clock of the rows."""
        if self.changes is None:
            return REPLIES.encode(ChangedMessage(self.daemon, self.version))
        rows = tuple(StatusRecord.of(row, now) for row in self.changes.rows)
        return REPLIES.encode(ChangedMessage(self.daemon, self.version, rows, self.changes.gone, PROTOCOL_VERSION))


class ChangedMessage(Fields, frozen=True, tag="changed", omit_defaults=True):
    """WatchReply on the wire."""

    daemon: IdText
    version: Natural63
    rows: Annotated[tuple[StatusRecord, ...], Meta(max_length=PAGE)] | None = None
    gone: Annotated[tuple[WireKey, ...], Meta(max_length=PAGE)] | None = None
    v: Version = FIRST_VERSION


QUERIES: Final = Maps[WatchQuery](_WHAT, WatchQuery, version=PROTOCOL_VERSION, version_what=VERSION_WHAT)
REPLIES: Final = Maps[ChangedMessage](
    _WHAT, ChangedMessage, version=PROTOCOL_VERSION, version_what=VERSION_WHAT, limit=REPLY_LIMIT
)


def parse_watch_query(body: bytes) -> WatchQuery | None:
    """Decode a watch query; return None for any other message (perhaps one of queries.py). Never raises.

    The watchers that wait for one change send the same bytes, so small messages are decoded once.
    """
    return _known_query(body) if len(body) <= SMALL else _decode_query(body)


def _decode_query(body: bytes) -> WatchQuery | None:
    try:
        return QUERIES.decode(body)
    except (BadMessage, TooLarge):
        return None


_known_query = lru_cache(maxsize=64)(_decode_query)


def parse_watch_reply(body: bytes, now: float = 0.0, peer: str | None = None) -> WatchReply:
    """Decode a watch reply, with times on the clock of `now`. Raises BadMessage or TooLarge."""
    found = REPLIES.parse(read(REPLIES, body, peer), peer)
    if found.rows is None:
        return WatchReply(found.daemon, found.version)
    try:
        rows = tuple(row.status(now) for row in found.rows)
    except ValueError as error:
        raise BadMessage(_WHAT, str(error), peer) from error
    return WatchReply(found.daemon, found.version, Changes(rows, found.gone or ()))
