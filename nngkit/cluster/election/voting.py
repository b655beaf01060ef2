"""A voter's part in elections: surveys, nominations, votes. Pure. election_choice.py ranks the voters."""

from __future__ import annotations

from typing import Final

from nngkit.cluster.election.choice import best_voter, time_until_free
from nngkit.cluster.election.hosting import Hosting
from nngkit.cluster.election.messages import Stand, Survey, SurveyReply, VoteReply, VoteRequest
from nngkit.cluster.election.replication import VoterReplication

__all__ = ["VoterElections"]

MOST_LOAD: Final = 1e9


class VoterElections(VoterReplication):
    """Elections of a voter."""

    # ---- survey

    def _state(self, number: int) -> SurveyReply:
        recovery, log = self._recovery, self._replica.log
        beyond = recovery is not None and recovery.beyond
        remaining = self._promised()
        return SurveyReply(
            self.epoch,
            max(self.term, self.epoch // 1000) if beyond else self.term,
            number,
            int(remaining * 1000) + 1 if remaining > 0.0 else 0,
            recovery is not None,
            beyond,
            self.willing,
            self.preference,
            int(min(max(self.load, 0.0), MOST_LOAD) * 1000),
            log.last_term,
            log.last,
        )

    def _begin_survey(self) -> None:
        self._count["surveys"] += 1
        self._survey += 1
        self._replies = {self.id: self._state(self._survey)}
        self._due = self._seen + self.limits.heartbeat
        for voter in self._up:
            self._send(voter, Survey(self.epoch, self.term, self._survey))
        if not self._up:
            self._decide()

    def _on_survey_reply(self, sender: str, message: SurveyReply) -> None:
        if self._replies is None or message.number != self._survey or self.role != "follower":
            return
        self._replies[sender] = message
        if len(self._replies) > len(self._up):
            self._decide()

    def _decide(self) -> None:
        """Evaluate the survey: stand, nominate, or try again later."""
        replies, self._replies = self._replies or {}, None
        best = best_voter(replies, self.quorum)
        if best is None:
            free = time_until_free(replies, self.quorum)
            pause = self.limits.lease / 2 if free is None else min(free, self.limits.lease) * 1.1
            self._due = self._seen + pause + self._jitter()
            return
        term = max(reply.term for reply in replies.values())
        if best == self.id:
            self._stand(max(term, self.term) + 1, 0)
        else:
            self._send(best, Stand(self.epoch, term, 0))
            self._due = self._seen + 2 * self.limits.heartbeat + 2 * self._jitter()

    def _on_stand(self, message: Stand) -> None:
        if self.role != "follower":
            return
        if self._promised() and not (message.over and message.over == self._promise_term == self.term):
            return
        self._stand(max(message.term, self.term) + 1, message.over)

    # ---- votes

    def _stand(self, term: int, over: int) -> None:
        self._count["stands"] += 1
        self._replies = None
        self.role = "candidate"
        self.term, self._vote, self._over = term, self.id, over
        if self.host is not None:
            self._set_host(None)
        self._save_meta()
        self._stand_token = self._replica.meta
        self._votes = {self.id: self.epoch}
        self._due = self._seen + 0.4 * self.limits.lease + 2 * self._jitter()
        for voter in self._up:
            self._request_vote(voter)
        self._count_votes()

    def _request_vote(self, id: str) -> None:
        log = self._replica.log
        self._send(id, VoteRequest(self.epoch, self.term, log.last_term, log.last, self._over))

    def _on_vote_request(self, sender: str, message: VoteRequest) -> None:
        log, recovery = self._replica.log, self._recovery
        freed = message.over and message.over == self._promise_term
        held = self._promised() and not freed and (self._hosting is not None or sender != self._promise_to)
        mine = (log.last_term, log.last)
        if recovery is not None:
            survivors = recovery.survivors()
            if recovery.beyond and sender in survivors:
                mine = recovery.best()
            else:
                held = True
        if held or message.term < self.term:
            self._send(sender, VoteReply(self.epoch, self.term, False, ()))
            return
        self._new_term(message.term)
        granted = (message.last_term, message.last_index) >= mine and self._vote in (None, sender)
        if granted:
            self._count["votes"] += 1
            if self._vote is None:
                self._vote = sender
                self._save_meta()
            if recovery is None:
                self._replies = None
                self._due = self._seen + self.limits.lease + self._jitter()
        self._send(sender, VoteReply(self.epoch, self.term, granted, self._known_epochs()))

    def _on_vote(self, sender: str, message: VoteReply) -> None:
        self._learn(message.epochs)
        if message.term > self.term:
            self._new_term(message.term)
        elif self.role == "candidate" and message.granted and message.term == self.term:
            if message.epoch == self._epochs[sender]:
                self._votes[sender] = message.epoch
            self._count_votes()

    def _count_votes(self) -> None:
        if self.role != "candidate" or len(self._votes) < self.quorum or self._replica.written < self._stand_token:
            return
        self._count["elected"] += 1
        self.role = "host"
        self._leaving = float("inf")
        self._promise_until, self._promise_to, self._promise_term = 0.0, None, self.term
        self._lease_seen, self._lease_until = self._seen, 0.0
        replica = self._replica
        self._hosting = Hosting(self.epoch, self.term, replica.log, self._others, self.quorum, self.limits)
        self._hosting.commit = replica.commit
        self._set_host(self.id)
        replica.append(self.term, (b"",))
        self._first = replica.log.last
        self._due = self._seen + self.limits.heartbeat
        for voter in self._up:
            self._send_all(voter, self._hosting.heartbeat(voter, self._now))
        self._commit_as_host()
