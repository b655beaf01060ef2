"""How a caller is told of changes: it asks the daemon to answer only once there is one. Pure.

::

    AskWatch(daemon, version, wait)   ->   Changed(daemon, version)

The caller names the state that it has (a daemon's id, and that daemon's count of changes); the daemon answers as soon
as its own is another one, or after `wait` seconds. No message is pushed, so none can be lost: a caller that was away
asks with an old version and is answered at once, and so is one that meets a restarted daemon, which has another id.
Then it fetches the snapshot. CBOR maps with `v` and `type`, beside those of queries.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nngkit import envelope
from nngkit.discovery.messages import FIRST_VERSION, VERSION_WHAT
from nngkit.discovery.provider import MAX_ID, PROTOCOL_VERSION
from nngkit.errors import BadMessage, TooLarge

__all__ = ["MAX_WAIT", "AskWatch", "Changed", "parse_ask_watch", "parse_changed"]

MAX_WAIT: Final = 60.0
"""Seconds a daemon keeps a caller waiting at most."""
_WHAT = "discovery watch"


@dataclass(frozen=True, slots=True)
class AskWatch:
    """Answer when the daemon is not `daemon` or its count of changes not `version`, or in `wait` seconds."""

    daemon: str = ""
    version: int = 0
    wait: float = 0.0

    def encode(self) -> bytes:
        """As bytes."""
        fields = {"daemon": self.daemon, "version": self.version, "wait": float(self.wait)}
        return envelope.encode({"v": FIRST_VERSION, "type": "ask-watch", **fields}, limit=envelope.CONTROL_LIMIT)


@dataclass(frozen=True, slots=True)
class Changed:
    """The daemon, and its count of changes now."""

    daemon: str
    version: int

    def encode(self) -> bytes:
        """As bytes."""
        fields = {"daemon": self.daemon, "version": self.version}
        return envelope.encode({"v": FIRST_VERSION, "type": "changed", **fields}, limit=envelope.CONTROL_LIMIT)


def parse_ask_watch(body: bytes, peer: str | None = None) -> AskWatch | None:
    """What a caller asks, or None if it is no such question (but perhaps one of queries.py). Never raises."""
    try:
        fields = _fields(body, "ask-watch", peer)
        return AskWatch(
            daemon=envelope.field(fields, "daemon", str, what=_WHAT, peer=peer, max_len=MAX_ID),
            version=envelope.field(fields, "version", int, what=_WHAT, peer=peer, low=0),
            wait=envelope.field(fields, "wait", float, what=_WHAT, peer=peer, low=0, high=MAX_WAIT),
        )
    except (BadMessage, TooLarge):
        return None


def parse_changed(body: bytes, peer: str | None = None) -> Changed:
    """What the daemon answered. Raises BadMessage or TooLarge."""
    fields = _fields(body, "changed", peer)
    return Changed(
        daemon=envelope.field(fields, "daemon", str, what=_WHAT, peer=peer, max_len=MAX_ID),
        version=envelope.field(fields, "version", int, what=_WHAT, peer=peer, low=0),
    )


def _fields(body: bytes, kind: str, peer: str | None) -> dict[str, object]:
    fields = envelope.as_map(envelope.decode(body, what=_WHAT, peer=peer), what=_WHAT, peer=peer)
    envelope.check_version(fields, PROTOCOL_VERSION, what=VERSION_WHAT, peer=peer)
    if envelope.field(fields, "type", str, what=_WHAT, peer=peer) != kind:
        raise BadMessage(_WHAT, f"not {kind}", peer)
    return fields
