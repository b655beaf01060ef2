"""Change notification by long polling: the caller asks the daemon to reply only once something has changed. Pure.

::

    WatchQuery(daemon, version, wait)   ->   WatchReply(daemon, version)

The caller names the state it has: the daemon's id and its count of changes. The daemon replies as soon as its own state
differs, or after `wait` seconds. Nothing is pushed, so nothing can be lost: a caller that was away asks with an old
version and gets its reply at once, and so does one that reaches a restarted daemon, which has a new id. The caller then
fetches the snapshot. CBOR maps with `v` and `type`, beside those of queries.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nngkit import envelope
from nngkit.discovery.messages import FIRST_VERSION, VERSION_WHAT
from nngkit.discovery.provider import MAX_ID, PROTOCOL_VERSION
from nngkit.errors import BadMessage, TooLarge

__all__ = ["MAX_WAIT", "WatchQuery", "WatchReply", "parse_watch_query", "parse_watch_reply"]

MAX_WAIT: Final = 60.0
"""Cap on `wait`, in seconds."""
_WHAT = "discovery watch"


@dataclass(frozen=True, slots=True)
class WatchQuery:
    """Reply once the daemon's id is not `daemon` or its count of changes not `version`, or after `wait` seconds."""

    daemon: str = ""
    version: int = 0
    wait: float = 0.0

    def encode(self) -> bytes:
        """Encode the message."""
        fields = {"daemon": self.daemon, "version": self.version, "wait": float(self.wait)}
        return envelope.encode({"v": FIRST_VERSION, "type": "ask-watch", **fields}, limit=envelope.CONTROL_LIMIT)


@dataclass(frozen=True, slots=True)
class WatchReply:
    """The daemon's id and its current count of changes."""

    daemon: str
    version: int

    def encode(self) -> bytes:
        """Encode the message."""
        fields = {"daemon": self.daemon, "version": self.version}
        return envelope.encode({"v": FIRST_VERSION, "type": "changed", **fields}, limit=envelope.CONTROL_LIMIT)


def parse_watch_query(body: bytes, peer: str | None = None) -> WatchQuery | None:
    """Decode a watch query; return None for any other message (perhaps one of queries.py). Never raises."""
    try:
        fields = _fields(body, "ask-watch", peer)
        return WatchQuery(
            daemon=envelope.field(fields, "daemon", str, what=_WHAT, peer=peer, max_len=MAX_ID),
            version=envelope.field(fields, "version", int, what=_WHAT, peer=peer, low=0),
            wait=envelope.field(fields, "wait", float, what=_WHAT, peer=peer, low=0, high=MAX_WAIT),
        )
    except (BadMessage, TooLarge):
        return None


def parse_watch_reply(body: bytes, peer: str | None = None) -> WatchReply:
    """Decode a watch reply. Raises BadMessage or TooLarge."""
    fields = _fields(body, "changed", peer)
    return WatchReply(
        daemon=envelope.field(fields, "daemon", str, what=_WHAT, peer=peer, max_len=MAX_ID),
        version=envelope.field(fields, "version", int, what=_WHAT, peer=peer, low=0),
    )


def _fields(body: bytes, kind: str, peer: str | None) -> dict[str, object]:
    fields = envelope.as_map(envelope.decode(body, what=_WHAT, peer=peer), what=_WHAT, peer=peer)
    envelope.check_version(fields, PROTOCOL_VERSION, what=VERSION_WHAT, peer=peer)
    if envelope.field(fields, "type", str, what=_WHAT, peer=peer) != kind:
        raise BadMessage(_WHAT, f"not {kind}", peer)
    return fields
