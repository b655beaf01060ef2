"""Limits of a voter, and what its state machine returns: effects, events, counters. Pure.

A shell does the effects in this order: `persist` (in a thread; then `persisted(token)`), `sends`, `restore`,
`committed`, `events`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from nngkit.cluster.election.log import Snapshot
from nngkit.cluster.election.messages import Message
from nngkit.errors import ConfigError
from nngkit.instruments import Bytes, Gauge, Total
from nngkit.mesh.limits import check_numbers

Role: TypeAlias = Literal["blank", "follower", "candidate", "host"]

GUARD = 0.8  # of a lease that the host uses: clocks that differ by 10 % each way differ by 0.9 / 1.1 = 0.818


@dataclass(frozen=True, kw_only=True)
class ElectionLimits:
    """Limits of a voter. Times are in seconds.

    Attributes:
        heartbeat: Time between two heartbeats of the host.
        lease: Time for which a voter that has answered a heartbeat votes for no other: at least 3 heartbeats, so that
            one late heartbeat deposes no host.
        entry_bytes: Largest entry.
        append_bytes: Entries sent in one message, unless one is larger; also the size of a snapshot's parts.
        window_bytes: Entries sent to a voter that it has not acknowledged. 4 MiB fill 1 Gbit/s over 32 ms.
        log_bytes: Entries held in memory; beyond that, `propose` raises Full until `compact` is called.
        keep_bytes: Entries before the snapshot that are kept for voters that are behind, at most.
        snapshot_bytes: Largest snapshot that is accepted from a host.
    """

    heartbeat: float = 0.1
    lease: float = 0.5
    entry_bytes: int = 1024 * 1024
    append_bytes: int = 256 * 1024
    window_bytes: int = 4 * 1024 * 1024
    log_bytes: int = 256 * 1024 * 1024
    keep_bytes: int = 8 * 1024 * 1024
    snapshot_bytes: int = 1024 * 1024 * 1024

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.lease < 3 * self.heartbeat:
            raise ConfigError(
                "lease", f"{self.lease!r} s is less than 3 heartbeats of {self.heartbeat!r} s", self.lease
            )


class Restored(NamedTuple):
    """State of a voter on disk. The default is that of a new voter.

    `entries`: pairs of term and bytes, from the one after the snapshot on (without a snapshot, from index 1 on).
    """

    term: int = 0
    vote: str | None = None
    epochs: tuple[tuple[str, int], ...] = ()
    snapshot: Snapshot | None = None
    entries: tuple[tuple[int, bytes], ...] = ()


class SaveMeta(NamedTuple):
    """Store the term, the vote in it, and the known epochs."""

    token: int
    term: int
    vote: str | None
    epochs: tuple[tuple[str, int], ...]


class SaveEntries(NamedTuple):
    """Remove all entries from `first` on, then store `entries`, all of `term`."""

    token: int
    first: int
    term: int
    entries: tuple[bytes, ...]


class SaveSnapshot(NamedTuple):
    """Store a snapshot; entries up to its index go. `keep`: later entries stay valid; else they go as well."""

    token: int
    snapshot: Snapshot
    keep: bool


Persist: TypeAlias = SaveMeta | SaveEntries | SaveSnapshot


class Elected(NamedTuple):
    """This voter is host of `term`, and all that earlier terms have committed was delivered before this event.

    A voter that stalled may say so of a term that is over, while a later one has committed more: it has no lease then.
    """

    term: int


class Deposed(NamedTuple):
    """This voter is host no longer. `why`: "lease", "term" (a later one is known), "handover", "clock"."""

    term: int
    why: str


class HostChanged(NamedTuple):
    """The host known to this voter is another; None: its lease ran out, and none is known."""

    term: int
    host: str | None


class Recovered(NamedTuple):
    """This voter is blank no longer.

    `how`: "began" (a new cluster), "recovered" (nothing is lost), "beyond" (over a minority had lost its memory:
    committed entries may be lost), "restored" (from disk).
    """

    how: Literal["began", "recovered", "beyond", "restored"]


ElectionEvent: TypeAlias = Elected | Deposed | HostChanged | Recovered


class ElectionEffects:
    """Work for the shell.

    Attributes:
        sends: Pairs of a voter's id and a message.
        persist: In this order; `persisted(token)` reports all up to a token. Empty unless the voter is durable.
        committed: Pairs of index and entry, ascending.
        restore: A snapshot's index and state, which replaces the state machine's before `committed`; else None.
        events: In order.
    """

    __slots__ = ("committed", "events", "persist", "restore", "sends")

    def __init__(self) -> None:
        self.sends: list[tuple[str, Message]] = []
        self.persist: list[Persist] = []
        self.committed: list[tuple[int, bytes]] = []
        self.restore: tuple[int, bytes] | None = None
        self.events: list[ElectionEvent] = []


@dataclass(frozen=True, slots=True)
class ElectionStats:
    """Counters of a voter since its start, and its present sizes."""

    surveys: Total = 0
    """Surveys begun."""
    stands: Total = 0
    """Elections in which it stood."""
    elected: Total = 0
    """Elections won."""
    deposed: Total = 0
    """Times that it ceased to be host."""
    votes: Total = 0
    """Votes for others."""
    beyond: Total = 0
    """Recoveries after more than a minority had lost its memory."""
    proposed: Total = 0
    """Entries proposed."""
    full: Total = 0
    """Proposals refused because the log is full."""
    committed: Total = 0
    """Entries committed, without those of new hosts."""
    rejected: Total = 0
    """Appends that did not match."""
    snapshots_sent: Total = 0
    """Snapshots sent completely."""
    snapshots_received: Total = 0
    """Snapshots received completely."""
    stale: Total = 0
    """Messages of an older epoch or term, ignored."""
    refused: Total = 0
    """Messages over a limit, or of no voter, ignored."""
    jumps: Total = 0
    """Gaps or steps back of the clock."""
    log_bytes: Bytes = 0
    """Entries in memory."""
    log_entries: Gauge = 0
    """Number of entries in memory."""
