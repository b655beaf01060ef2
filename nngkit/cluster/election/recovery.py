"""Recovery of a voter without a disk: what it must hear from the others before it counts again. Pure.

The voter forgot its votes and acknowledgements, and asks all others in rounds; its new epoch is the nonce. An
acknowledged entry is with at least a minority of the others; a majority of answers meets one of them, and the host of
the greatest term among them has the entry in its log. So the voter may count once its log has all that this host had
when it answered.

If too few others have state, waiting is in vain. A voter that was blank with one epoch in two rounds was blank at the
moment between them; all voters that were, were so at the same moment: `lost` counts them. All: a new cluster begins.
"""

from __future__ import annotations

from collections.abc import Collection

from nngkit.cluster.election.messages import RecoverReply


class Recovery:
    """Answers to one blank voter. `number`: of the present round."""

    def __init__(self, others: Collection[str], quorum: int) -> None:
        self.number = 0
        self.answers: dict[str, RecoverReply] = {}
        self._others, self._quorum = frozenset(others), quorum
        self._now: dict[str, RecoverReply] = {}
        self._before: dict[str, RecoverReply] | None = None
        self._lost = 1
        self._targets: dict[tuple[str, int], int] = {}

    @property
    def complete(self) -> bool:
        """True if all others have answered in the present round."""
        return len(self._now) == len(self._others)

    @property
    def all_lost(self) -> bool:
        """True if all voters were blank at one moment."""
        return self._lost == len(self._others) + 1

    @property
    def beyond(self) -> bool:
        """True if so many voters were blank at one moment that the rest is no majority."""
        return self._lost > len(self._others) + 1 - self._quorum

    def begin_round(self) -> int:
        """Begin the next round; return its number."""
        if self.complete:
            self._before = self._now
        self._now = {}
        self.number += 1
        return self.number

    def answered(self, voter: str, reply: RecoverReply) -> None:
        """Take in an answer to the present epoch."""
        self.answers[voter] = reply
        if reply.hosting:
            # The first answer suffices, and later ones would be a moving target; only those of recent terms matter.
            self._targets = {key: last for key, last in self._targets.items() if key[1] >= reply.term}
            self._targets.setdefault((voter, reply.term), reply.last_index)
        if reply.number == self.number and voter in self._others:
            self._now[voter] = reply
            if self.complete and self._before is not None:
                pairs = [(self._before[voter], self._now[voter]) for voter in self._others]
                self._lost = 1 + sum(old.blank and new.blank and old.epoch == new.epoch for old, new in pairs)

    def survivors(self) -> dict[str, RecoverReply]:
        """Return the answers of voters with state."""
        return {voter: reply for voter, reply in self.answers.items() if not reply.blank}

    def target(self) -> tuple[str, int, int] | None:
        """Return (host, term, index) up to which the voter needs that host's log; None if this is not known yet."""
        found = self.survivors()
        if not found or (len(found) < self._quorum and not self.beyond):
            return None
        term = max(reply.term for reply in found.values())
        for voter, reply in found.items():
            if reply.hosting and reply.term == term:
                return voter, term, self._targets[voter, term]
        return None

    def best(self) -> tuple[int, int]:
        """Return the last term and index of the best log of the survivors."""
        return max((reply.last_term, reply.last_index) for reply in self.survivors().values())
