"""Limits of a mesh node, and what its state asks the shell to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Protocol

from nngkit.errors import ConfigError
from nngkit.mesh.values import MeshGap, MeshMessage
from nngkit.silence import Silent

OVERHEAD = 200  # bytes that Python needs for a kept message beside its frame, measured: 190
ASK_DELAY = 0.02  # seconds before a gap is asked for: the message may be on its way over another link
ASK_MESSAGES = 512  # messages asked for at once ...
ANSWER_BYTES = 256 * 1024  # ... and bytes of an answer, so that answers do not fill a neighbour's queue
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 1.0  # seconds until an ask is repeated: a round trip of most networks, and x2 to this
ANSWERS_A_DIGEST = 256  # answers to one link between two digests: 64 MiB, then asks of that link are ignored
SLICE = 200  # lines about idle streams in each digest, in turn
RECENT = 4  # digests that describe a stream after a change, in case some are lost
MOST_GIVEN_UP = 64  # ranges remembered to tell a late message from a duplicate
CLOCK_STEP = 1.0  # seconds by which a run must be younger before its smaller epoch is a warning
MOST_WARNINGS = 100  # lines for the log, so that a hostile neighbour cannot fill it
SPEED = 1_000_000  # messages/s that an origin may have sent since its birth: more is absurd
SLACK = 60.0  # seconds allowed on top: suspended machines, late clocks


def check_numbers(limits: Any, below: float = 1e15) -> None:
    """Raise ConfigError unless the fields of a dataclass are numbers: integers from 1, and seconds from 0.001."""
    for each in fields(limits):
        value = getattr(limits, each.name)
        least = 1 if isinstance(each.default, int) else 0.001
        if type(value) not in (int, type(each.default)) or not least <= value < below:
            raise ConfigError(each.name, f"{value!r} is not a number from {least}", value)


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
        check_numbers(self)


class Voices(Protocol):
    """In whose names neighbours may speak. Refusals are counted there."""

    def speaks(self, link: int, origin: str) -> bool:
        """Return True if the neighbour may send messages of ``origin``, or call itself so."""

    def tells(self, link: int, origin: str) -> bool:
        """Return True if what the neighbour says of the messages of ``origin`` counts."""

    def carries(self, link: int) -> bool:
        """Return True if this node may speak for others on the link."""


class Effects:
    """Work for the shell, in this order.

    Attributes:
        events: Messages and gaps for the program.
        relays: Pairs of a frame and the link it came from (None: an own message): to all other links.
        sends: Pairs of a link and a frame, for that link only.
        digests: Frames for all links.
        silent: Links to end, as their neighbours have stopped sending digests; the shell's dialer, or theirs, returns.
        heard: Neighbours that were silent and are heard again, with the seconds in between.
        warnings: Lines for the log.
    """

    __slots__ = ("digests", "events", "heard", "relays", "sends", "silent", "warnings")

    def __init__(self) -> None:
        self.events: list[MeshMessage | MeshGap] = []
        self.relays: list[tuple[bytes, int | None]] = []
        self.sends: list[tuple[int, bytes]] = []
        self.digests: list[bytes] = []
        self.silent: list[Silent[str]] = []
        self.heard: list[tuple[str, float]] = []
        self.warnings: list[str] = []


def size_of(frames: dict[int, bytes]) -> int:
    """Return the memory that messages take, as the limits count it."""
    return sum(map(len, frames.values())) + OVERHEAD * len(frames)
