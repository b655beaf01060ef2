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
from typing import Final

from nngkit import envelope
from nngkit.discovery.messages import FIRST_VERSION, VERSION_WHAT
from nngkit.discovery.provider import MAX_EPOCH, MAX_ID, PROTOCOL_VERSION, Key, Status
from nngkit.discovery.queries import PAGE, REPLY_LIMIT
from nngkit.errors import BadMessage, TooLarge

__all__ = ["MAX_WAIT", "Changes", "WatchQuery", "WatchReply", "parse_watch_query", "parse_watch_reply"]

SMALL: Final = 256
"""Bytes of a message that is remembered; a query has about 100."""
MAX_WAIT: Final = 60.0
"""Cap on `wait`, in seconds."""
_WHAT = "discovery watch"


@dataclass(frozen=True, slots=True)
class WatchQuery:
    """Reply once the daemon's id is not `daemon` or its count of changes not `version`, or after `wait` seconds.

    `changes`: with the rows that changed since `version`, if the daemon knows them.
    """

    daemon: str = ""
    version: int = 0
    wait: float = 0.0
    changes: bool = False

    def encode(self) -> bytes:
        """Encode the message."""
        fields: dict[str, object] = {"daemon": self.daemon, "version": self.version, "wait": float(self.wait)}
        if self.changes:
            fields["changes"] = True
        return envelope.encode({"v": FIRST_VERSION, "type": "ask-watch", **fields}, limit=envelope.CONTROL_LIMIT)


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
        fields: dict[str, object] = {"daemon": self.daemon, "version": self.version}
        if self.changes is not None:
            fields["rows"] = [row.as_map(now) for row in self.changes.rows]
            fields["gone"] = [list(key) for key in self.changes.gone]
            return envelope.encode({"v": PROTOCOL_VERSION, "type": "changed", **fields}, limit=REPLY_LIMIT)
        return envelope.encode({"v": FIRST_VERSION, "type": "changed", **fields}, limit=envelope.CONTROL_LIMIT)


def parse_watch_query(body: bytes, peer: str | None = None) -> WatchQuery | None:
    """Decode a watch query; return None for any other message (perhaps one of queries.py). Never raises.

    The watchers that wait for one change send the same bytes, so small messages are decoded once.
    """
    return _known_query(body) if len(body) <= SMALL else _decode_query(body, peer)


@lru_cache(maxsize=64)
def _known_query(body: bytes) -> WatchQuery | None:
    return _decode_query(body, None)


def _decode_query(body: bytes, peer: str | None) -> WatchQuery | None:
    try:
        fields, _ = _fields(body, "ask-watch", peer, envelope.CONTROL_LIMIT)
        return WatchQuery(
            daemon=envelope.field(fields, "daemon", str, what=_WHAT, peer=peer, max_len=MAX_ID),
            version=envelope.field(fields, "version", int, what=_WHAT, peer=peer, low=0),
            wait=envelope.field(fields, "wait", float, what=_WHAT, peer=peer, low=0, high=MAX_WAIT),
            changes=envelope.field(fields, "changes", bool, what=_WHAT, peer=peer, default=False),
        )
    except (BadMessage, TooLarge):
        return None


def parse_watch_reply(body: bytes, now: float = 0.0, peer: str | None = None) -> WatchReply:
    """Decode a watch reply, with times on the clock of `now`. Raises BadMessage or TooLarge."""
    fields, version = _fields(body, "changed", peer, REPLY_LIMIT)
    changes = None
    if "rows" in fields:
        rows = envelope.field(fields, "rows", list, what=_WHAT, peer=peer, max_len=PAGE)
        gone = envelope.field(fields, "gone", list, what=_WHAT, peer=peer, default=[], max_len=PAGE)
        statuses = tuple(Status.from_map(row, now, what=_WHAT, peer=peer, version=version) for row in rows)
        changes = Changes(statuses, tuple(_key(parts, peer) for parts in gone))
    return WatchReply(
        daemon=envelope.field(fields, "daemon", str, what=_WHAT, peer=peer, max_len=MAX_ID),
        version=envelope.field(fields, "version", int, what=_WHAT, peer=peer, low=0),
        changes=changes,
    )


def _key(parts: object, peer: str | None) -> Key:
    if not isinstance(parts, list) or [type(part) for part in parts] != [str, str, str, int]:
        raise BadMessage(_WHAT, "gone are not [name, address, id, epoch]", peer)
    if not 0 <= parts[3] <= MAX_EPOCH:
        raise BadMessage(_WHAT, "epoch is out of range", peer)
    return (parts[0], parts[1], parts[2], parts[3])


def _fields(body: bytes, kind: str, peer: str | None, limit: int) -> tuple[dict[str, object], int]:
    fields = envelope.as_map(envelope.decode(body, what=_WHAT, limit=limit, peer=peer), what=_WHAT, peer=peer)
    version = envelope.check_version(fields, PROTOCOL_VERSION, what=VERSION_WHAT, peer=peer)
    if envelope.field(fields, "type", str, what=_WHAT, peer=peer) != kind:
        raise BadMessage(_WHAT, f"not {kind}", peer)
    return fields, version
