"""A voter's part in recovery: it asks as a blank voter, answers others, and begins a cluster. Pure.

election_recovery.py decides when a voter is blank no longer.
"""

from __future__ import annotations

from nngkit.cluster.election.core import VoterCore
from nngkit.cluster.election.messages import Recover, RecoverReply
from nngkit.cluster.election.values import Recovered

__all__ = ["VoterMemory"]


class VoterMemory(VoterCore):
    """Recovery of a voter."""

    def _ask(self) -> None:
        """Ask all others what they know, as a blank voter."""
        assert self._recovery is not None
        self._due = self._seen + self.limits.heartbeat
        number = self._recovery.begin_round()
        for voter in self._up:
            self._send(voter, Recover(self.epoch, number))

    def _on_recover(self, sender: str, message: Recover) -> None:
        log = self._replica.log
        reply = RecoverReply(
            self.epoch,
            message.epoch,
            message.number,
            self._recovery is not None,
            self.term,
            self.role == "host",
            log.last_term,
            log.last,
            self._known_epochs(),
            tuple(self._began.items()),
        )
        self._send(sender, reply)

    def _on_recover_reply(self, sender: str, message: RecoverReply) -> None:
        self._learn(message.epochs)
        recovery = self._recovery
        if recovery is None or message.nonce != self.epoch:
            return
        fresh = not recovery.complete
        recovery.answered(sender, message)
        if (self.id, self.epoch) in message.began:
            self._began |= {voter: epoch for voter, epoch in message.began if voter in self.voters}
            self._begin()
        elif recovery.all_lost:
            self._began = dict(self._epochs)
            self._begin()
        else:
            self._evaluate()
            if self._recovery is not None and fresh and recovery.complete and recovery.number <= 2 * len(self.voters):
                self._ask()  # the first rounds follow each other at once

    def _begin(self) -> None:
        """Begin a new cluster: at one moment no voter knew anything."""
        self._recovery = None
        self.role = "follower"
        if self.host is None:
            # the others begin within a message's delay of this: a survey before that would miss the preferred voter
            self._promise_until = self._seen
            self._due = self._seen + (self.limits.heartbeat if self._others else 0.0)
        born = max(self._epochs.values()) // 1000
        if born > self.term:
            self.term, self._vote = born, None
        self._replica.effects.events.append(Recovered("began"))

    def _evaluate(self) -> None:
        """Be blank no longer, if this voter has what the host of the last term had."""
        recovery = self._recovery
        if recovery is None:
            return
        target = recovery.target()
        if target is None:
            return
        host, term, index = target
        if self.host != host or self.term != term or self._replica.matched < index:
            return
        lost = len(recovery.survivors()) < self.quorum
        self._recovery = None
        self.role = "follower"
        self._vote = host
        self._promise_until = self._seen + self.limits.lease
        self._due = self._promise_until + self._jitter()
        self._count["beyond"] += lost
        self._replica.effects.events.append(Recovered("beyond" if lost else "recovered"))
