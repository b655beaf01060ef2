"""Limits of a mesh node, and what its state asks the shell to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields

from nngkit.errors import ConfigError
from nngkit.fanout.mesh_events import MeshGap, MeshMessage

__all__ = ["Effects", "MeshLimits"]


@dataclass(frozen=True, kw_only=True)
class MeshLimits:
    """Limits of a node. Times are in seconds.

    Attributes:
        buffer_bytes: Messages kept for neighbours that ask, with 200 bytes for each; and half as much for messages
            that wait for earlier ones.
        window: How far ahead of a missing message others are held, in messages.
        digest: Time between two digests.
        patience: Time without progress after which missing messages are given up.
        streams: Runs of origins that are remembered.
        forget: Idle time after which a stream may be forgotten, if there is no room for another.
    """

    buffer_bytes: int = 64 * 1024 * 1024
    window: int = 65_536
    digest: float = 0.5
    patience: float = 10.0
    streams: int = 4096
    forget: float = 3600.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            least = 1 if isinstance(each.default, int) else 0.001
            if type(value) not in (int, type(each.default)) or not least <= value < 1e15:
                raise ConfigError(each.name, f"{value!r} is not a number from {least}", value)


class Effects:
    """What a shell has to do, in this order.

    Attributes:
        events: Messages and gaps for the program.
        relays: Pairs of a frame and the link it came from (None: an own message): to all other links.
        sends: Pairs of a link and a frame, for that link only.
        digests: Frames for all links.
    """

    __slots__ = ("digests", "events", "relays", "sends")

    def __init__(self) -> None:
        self.events: list[MeshMessage | MeshGap] = []
        self.relays: list[tuple[bytes, int | None]] = []
        self.sends: list[tuple[int, bytes]] = []
        self.digests: list[bytes] = []
