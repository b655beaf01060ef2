"""Choice of the voter that stands, from the replies to a survey. Pure.

::

    electable   its log is at least that of a majority's, so that a majority would vote for it
    rank        willing, preference, log (last term, last index), less load, id
"""

from __future__ import annotations

from collections.abc import Mapping

from nngkit.cluster.election.messages import SurveyReply


def best_voter(replies: Mapping[str, SurveyReply], quorum: int) -> str | None:
    """Return the best electable voter; None if there is none. All surveyors choose the same from the same replies."""
    free = {voter: reply for voter, reply in replies.items() if not reply.remaining}
    standing = {voter: reply for voter, reply in free.items() if not reply.blank}
    if not standing:
        return None
    longest = max(map(_log, standing.values()))
    last_resort = sum(reply.blank and reply.beyond for reply in free.values())
    found = []
    for voter, reply in standing.items():
        votes = sum(_log(other) <= _log(reply) for other in standing.values())
        if votes + (last_resort if _log(reply) == longest else 0) >= quorum:
            found.append(((reply.willing, reply.preference, *_log(reply), -reply.load, voter), voter))
    return max(found)[1] if found else None


def time_until_free(replies: Mapping[str, SurveyReply], quorum: int) -> float | None:
    """Return the seconds until a majority is free to vote; None without a majority."""
    times = sorted(reply.remaining for reply in replies.values() if not reply.blank or reply.beyond)
    return times[quorum - 1] / 1000 if len(times) >= quorum else None


def _log(reply: SurveyReply) -> tuple[int, int]:
    return reply.last_term, reply.last_index
