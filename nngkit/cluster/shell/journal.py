"""Records of an endpoint for a journal: ends of jobs, changes of the host, messages. Knows no file: see `Door`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Protocol

from nngkit.cluster.containing import contained, describe
from nngkit.cluster.election.values import Deposed, Elected, HostChanged
from nngkit.cluster.jobs.values import JobEnd
from nngkit.cluster.records import ClusterRecord, ClusterRecords, HostChange

log = logging.getLogger("nngkit.cluster")


class Door(Protocol):
    """The part of nngkit.journal.Recorder that is needed."""

    def put(
        self,
        value: bytes,
        *,
        topic: str,
        protocol: str,
        key: bytes | None = ...,
        headers: Iterable[tuple[str, bytes]] | None = ...,
        peer: str | None = ...,
    ) -> bool:
        """Queue a record; return False if there is no room."""


class ClusterJournal:
    """Records of one endpoint. A record that the journal does not take is counted; the cluster goes on."""

    def __init__(self, door: Door, cluster: str, id: str, epoch: int, *, messages: bool) -> None:
        self.messages = messages
        self.dropped = 0
        self._failed = False
        self._door = door
        self._cluster = cluster
        self._id = id
        self._records = ClusterRecords(cluster, id, epoch)

    def ends(self, ends: list[JobEnd]) -> None:
        """Record ended jobs; at the host."""
        for record in self._records.ends(ends, time.time()):
            self._put(record)

    def election(self, event: object) -> None:
        """Record what a voter has learned of the host."""
        match event:
            case Elected(term):
                self._change(term, self._id, "elected")
            case Deposed(term, why):
                self._change(term, None, f"deposed: {why}")
            case HostChanged(term, host) if host != self._id:  # of itself, Elected has said so
                self._change(term, host, "heard" if host else "its lease ran out")
            case _:
                pass

    def _change(self, term: int, host: str | None, why: str) -> None:
        self._put(self._records.host_change(HostChange(self._cluster, term, host, time.time(), why)))

    def message(self, kind: str, origin: str, epoch: int, sequence: int, body: bytes, to: str | None = None) -> None:
        """Record a message that was sent or received here."""
        self._put(self._records.message(kind, origin, epoch, sequence, body, to=to))

    def _put(self, record: ClusterRecord) -> None:
        try:
            kept = self._door.put(**record._asdict())
        except BaseException as error:  # a door of the program may raise anything
            kept, failure = False, contained(error)
            if not self._failed:
                self._failed = True
                log.warning("%s: the journal takes no records: %s", self._id, describe(failure))
        self.dropped += not kept
