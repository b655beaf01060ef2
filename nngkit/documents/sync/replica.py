"""Replica: which edits of one document were received, which are missing, and which peer is asked for them. Pure.

Events change the state (`replica_state.py`); then one function, `evaluate`, decides on all actions. It knows no clock
(`now` is given, in seconds), no socket, and nothing of the content of an edit. The caller applies delivered edits in
order, sends the requests, and reports their outcomes::

    replica.heard(updates, via, now)            edits from the BUS or a reply (`via`: the sending peer, None if unknown)
    replica.receive_heartbeat(peer, message, now)   the versions that a peer reports
    replica.edited(payload, now)                a local edit -> the message to publish
    replica.ready()                             -> edits to apply now, after each of these
    replica.catch_up(now)                       begin to fetch what all peers have now; see `catch_up_status`
    replica.evaluate(now)                       -> requests, and when to evaluate again

BUS loses messages silently. A loss shows as a gap in the numbers, as a missing dependency, or in a heartbeat with newer
versions; if none of these shows it, digests that differ once the document is quiet do.

Invariants when `evaluate` returns (tests/documents/test_replica.py checks them after every step):

1. Causality: edits 1 to `versions[stream]` of each stream were delivered, once, in order, after their `deps`.
   (pycrdt 0.14 loses text when updates arrive in another order: 187 of 400 tries, measured.)
2. No deliverable edit is held.
3. Every edit known to exist and missing, if a present peer can be asked for it, is being requested or has a due time.
4. A peer has at most one pending request; AskAll is pending at one peer at most.
5. `held` and the log of recent edits are within their caps.
6. While an edit is missing, or after a change within `quiet` (or two of the slowest round trips), digests are not
   compared.

Choice of the request: a few missing edits are requested by number (`AskEdits`), from a random peer that reports them,
which spreads the load of a popular author. Many, or those that no peer keeps any more, are requested by `AskAll`, which
returns one update with everything missing. A late reply is requested elsewhere, with a growing delay after each
failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nngkit.documents import versions as vectors
from nngkit.documents.sync.decisions import NEVER, Ask, AskAll, AskEdits, Decisions, Gap, Offer
from nngkit.documents.sync.history import Counts, Deliver, Settings
from nngkit.documents.sync.messages import RANGES, Range
from nngkit.documents.sync.replica_state import LATE, ReplicaState
from nngkit.documents.sync.timing import UNKNOWN
from nngkit.documents.versions import EditStream

__all__ = ["Ask", "AskAll", "AskEdits", "Counts", "Decisions", "Deliver", "Offer", "Replica", "Settings"]


class Replica(ReplicaState):
    """One document at one peer. The first lines of this file hold the invariants of `evaluate`."""

    def evaluate(self, now: float) -> Decisions:
        """Decide on all actions that follow from the state."""
        asks: list[Ask] = []
        wakes = [NEVER]
        wakes += self._repair_gaps(now, asks)
        needs_digest = False
        if self.is_quiet(now):
            needs_digest = self._our_content() is None
            wakes += self._compare(now, asks)
        elif not self._gaps:
            wakes.append(self.history.changed_at + self._quiet())
        if self._catching:
            wakes += self._ask_to_catch_up(now, asks)
        if not self.askable:
            wakes += self._offer(now, asks)
        return Decisions(asks, needs_digest, min(wakes))

    def _repair_gaps(self, now: float, asks: list[Ask]) -> Iterator[float]:
        lacking = 0
        runs = 0
        due: list[tuple[EditStream, list[Range]]] = []
        desperate = self.history.needs_snapshot
        incomplete = self.history.incomplete()
        for stream, missing in incomplete.items():
            here = self.versions.get(stream, 0)
            gap = self._gaps.get(stream)
            if gap is None:
                # it may still arrive by itself; on a slow machine that takes longer
                order = max(self.settings.order, self._round_trips.slowest() / 4)
                gap = self._gaps[stream] = Gap(now + order, here)
                self.counts.gaps += 1
            elif gap.at != here:
                gap.at, gap.tries, gap.lost = here, 0, False
                if gap.peer not in self._peers or self._peers[gap.peer].asked_at is None:
                    gap.due = min(gap.due, now + self.settings.order)  # that request was answered; this is another gap
            desperate = desperate or gap.lost
            if gap.due > now:
                yield gap.due
                continue
            due.append((stream, list(self.history.ranges(stream))))
            runs += len(due[-1][1])
            lacking += missing
        for stream in self._gaps.keys() - incomplete.keys():
            del self._gaps[stream]
        if self._wanted_from is not None:
            return  # AskAll brings everything
        if lacking > self.settings.few or runs > RANGES or (desperate and (due or self.history.needs_snapshot)):
            yield from self._ask_all(self._who_has(stream for stream, _ in due), now, asks)
            if self._wanted_from is None:  # AskAll has to wait; small gaps do not, whatever large ones are claimed
                due = [(stream, ranges) for stream, ranges in due if self.history.lacking(stream) <= self.settings.few]
                yield from self._ask_edits(due, now, asks)
        elif due:
            yield from self._ask_edits(due, now, asks)

    def _ask_edits(self, due: list[tuple[EditStream, list[Range]]], now: float, asks: list[Ask]) -> Iterator[float]:
        chosen: dict[EditStream, list[Range]] = {}
        for stream, ranges in due:
            first, last = ranges[0].first, ranges[-1].last
            knowing = [(name, peer) for name, peer in self._peers.items() if peer.claims.get(stream, 0) >= first]
            able = [(name, peer) for name, peer in knowing if peer.source]
            if any(not peer.carries for _, peer in able):
                able = [(name, peer) for name, peer in able if peer.carries or name.origin == stream.origin]
                self._gaps[stream].lost = not able  # a peer that may not carry sends them in whole only
            free = [name for name, peer in able if peer.asked_at is None and peer.not_before <= now]
            if not free:
                if able:  # a reply or its failure triggers the next evaluation
                    yield from (peer.not_before for _, peer in able if peer.asked_at is None)
                else:  # a heartbeat may tell soon which peer has them
                    yield self._postpone(stream, UNKNOWN, now)
                    self._gaps[stream].lost = self._gaps[stream].tries >= 3
                continue
            best = [name for name in free if self._peers[name].claims[stream] >= last] or free
            name = next((name for name in best if name in chosen), None) or self._rng.choice(best)
            has = self._peers[name].claims[stream]
            wanted = [Range(*stream, one.first, min(one.last, has)) for one in ranges if one.first <= has]
            chosen.setdefault(name, []).extend(wanted)
            self._gaps[stream].peer = name
            yield self._postpone(stream, self._round_trips.patience(name), now)
        for name, all_wanted in chosen.items():
            self._mark_asked(name, now)
            asks.append(AskEdits(name, tuple(all_wanted[:RANGES])))

    def _postpone(self, stream: EditStream, patience: float, now: float) -> float:
        """Return when to ask again for a missing stream, after another failure."""
        gap = self._gaps[stream]
        gap.tries += 1
        gap.due = now + patience * min(2.0 ** (gap.tries - 1), 16.0)
        return gap.due

    def _who_has(self, streams: Iterable[EditStream]) -> list[EditStream]:
        """Return the askable peers that report missing edits; all, if none does."""
        wanted = list(streams) or list(self._gaps)
        able = [name for name, peer in self._peers.items() if peer.source]
        found = [
            name
            for name in able
            if any(self._peers[name].claims.get(stream, 0) > self.versions.get(stream, 0) for stream in wanted)
        ]
        if not found and self.history.needs_snapshot and self._snapshot_source in able:
            found = [self._snapshot_source]
        return found or able

    def _ask_all(self, names: list[EditStream], now: float, asks: list[Ask], whole: bool = False) -> Iterator[float]:
        able = [name for name in names if self._peers[name].source]
        free = [name for name in able if self._peers[name].asked_at is None and self._peers[name].not_before <= now]
        if not free:
            yield from (self._peers[name].not_before for name in able if self._peers[name].asked_at is None)
        elif self._want_due > now:
            yield self._want_due
        else:
            asks.append(self._all_from(self._rng.choice(free), now, whole))

    def _all_from(self, name: EditStream, now: float, whole: bool = False) -> AskAll:
        self._wanted_from = name
        self._peers[name].all_asked_at = now
        self._mark_asked(name, now)
        return AskAll(name, whole)

    def _mark_asked(self, name: EditStream, now: float) -> None:
        self._peers[name].asked_at = now

    def _compare(self, now: float, asks: list[Ask]) -> Iterator[float]:
        if self._wanted_from is not None:
            return
        ours, content = self.history.digest(), self._our_content()
        unlike, differing = [], []
        for name, peer in self._peers.items():
            if peer.versions is None or peer.reported_at <= self.history.changed_at or not peer.gives:
                continue  # it is being edited there, or the report is older than our last change
            if peer.versions != ours:
                if peer.fruitless != (ours, peer.versions):
                    unlike.append(name)
            elif peer.content is not None and content is not None and peer.content != content:
                differing.append(name)
        if unlike:
            yield from self._ask_all(unlike, now, asks)
        elif differing:
            before = len(asks)
            yield from self._ask_all(differing, now, asks, whole=True)
            self.counts.differed += len(asks) - before

    def _offer(self, now: float, asks: list[Ask]) -> Iterator[float]:
        due = self._edited_at + 2 * self.settings.order
        for name, peer in self._peers.items():
            if not peer.askable or not peer.reported or peer.versions == self.history.digest():
                continue
            if vectors.covers(peer.claims, self.history.shared_versions()):
                continue
            again = max(due + self._round_trips.patience(name), peer.not_before)
            if again > now:
                yield again
            elif peer.asked_at is None and peer.offered != self.versions:
                peer.offered = dict(self.versions)
                self._mark_asked(name, now)
                asks.append(Offer(name, whole=peer.failures % 2 == 1))

    def _ask_to_catch_up(self, now: float, asks: list[Ask]) -> Iterator[float]:
        """Ask all peers in turn, as heartbeats report little during edits; the first reply contains most of them."""
        since = max(self._catching)
        for name, peer in self._peers.items():
            if not peer.source or self._peer_status(peer, since, now) is not None:
                continue
            if peer.asked_at is not None:
                if peer.asked_at + LATE > now:
                    yield peer.asked_at + LATE
            elif peer.not_before > now:
                yield peer.not_before
            elif self._wanted_from is None:
                asks.append(self._all_from(name, now))
