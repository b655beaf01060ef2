"""State machine of known providers: its inputs are pipes, rounds and replies. Pure: no clock, no randomness.

Theory
------
A survey proves that a provider is present, never that it is absent: its reply may be lost, late, or stuck behind a
stall of our own. A connection proves the opposite: when it is lost, its process has closed it. So the two count
differently. A lost pipe takes its providers down at once. A missed survey is re-asked immediately, and only a series of
misses takes a provider down. When most are silent at the same time while their pipes stand, the fault is more likely
ours.

A provider is represented by a *row*, identified by name, address, id and epoch together. Pipes *carry* rows: a row
carried by several pipes (a service that dials the same daemon twice, a relay beside the direct connection) lives as
long as one of them. Two rows may have the same name and address: two processes behind one balancer, a process and its
successor, a CBOR and a text provider. Each then lives by its own pipes, both are in `snapshot`, and `resolve` counts
their address once. A restarted process has a new epoch and is therefore a new row; the old row ends with its pipe. No
row is taken over by another id or epoch, so two processes configured with one id are both visible. A process that
reconnects with the same id and epoch gets its old row back.

Under a trust a pipe has a name, and `admission` says which records it may state (offers.py): others make and change no
row. Without one, access control is up to TLS and `admit`: an admitted peer is believed about the rows it describes,
except about one that another connection carries. Only the process that sent that row, known by its sender id, may state
it on a further pipe; the records of others are refused ("foreign records"), so they can neither drain nor change nor
withdraw it, and the row is not carried by their pipe, so their answers to questions do not count. A sender id is told
to daemons and relays only. The process that stated a row first gets it back, should another have stated it while its
connection was lost. Behind a relay all is one pipe, and the relay is believed; under a trust only a pipe that may state
providers of others is one. Questions about a name go only to pipes that may offer it.

States
------
*joining* is a connected pipe that has not sent anything yet; it has no name, so it has no row. It is the state from
which a row's first event starts.

======================================  =========================================  ============================
input                                   from                                       to (reason)
======================================  =========================================  ============================
reply                                   joining, suspect, draining, down           up (answered; late reply)
reply with `draining`                   joining, up, suspect, down                 draining (draining)
reply with `bye`                        up, suspect                                draining (bye)
1st miss                                up, draining                               no change: asked again
2nd miss                                up                                         suspect (missed)
8th miss                                suspect, draining                          down (missed)
last pipe lost                          up, suspect, draining                      down (pipe lost; bye after a bye)
not in the sender's newest reply        up, suspect, draining                      down (withdrawn)
a policy no longer admits it            up, suspect, draining                      down (withdrawn)
CBOR on a pipe that spoke text          up, suspect, draining                      down (replaced), for the text row
missed, with most others                any but down                               no change: stale
reply with another weight, zone ...     up, draining                               no change: an event (changed)
======================================  =========================================  ============================

`resolve` chooses among the providers that are up or, where a name has none, among its suspects; draining and down ones
are never chosen.

Rounds
------
A round is one `Round` and may consist of several surveys. At its end a row is silent if it was asked (one of its
pipes was connected at the start) and has given no sign of life *since the start*; a late reply to an earlier round is
such a sign. Silence is counted once: a round that began before the last miss was counted is ignored. A re-ask counts
misses only of its targets, and is never followed by another.

Mass loss: 10 or more, and more than half of those below two misses, silent in one round. Then no miss is counted in
that round, and the silent rows are labelled stale until they answer or a miss is counted after all. This lasts as long
as more than half stay silent. Stale rows stay up and in the snapshot; `resolve` prefers rows that have answered.

Text form: `name|address` makes a row without id; under a trust with that of an instance, `text`, of the pipe's name. On
a pipe whose process has answered in CBOR only CBOR counts, and text shows only that the process is alive; except behind
a relay, where text belongs to another process unless it names the same address. Text rows are never withdrawn: they end
by silence or with their pipe.

Down rows are kept for `view` (RegistryLimits.keep_down, RegistryLimits.max_down), then forgotten.

Invariants (tests/discovery/test_registry.py)
---------------------------------------------
 1. A row that is up, suspect or draining is carried by a connected pipe.
 2. `resolve` returns an element of `snapshot`, or raises; neither ever holds draining or down, or adds a name.
 3. The events, applied in order to an empty table, give the states and records of `view`.
 4. up has fewer than 2 misses, suspect 2 to 7; silence puts a row down after 8, never before, and never by garbage.
 5. Bytes from a pipe affect only rows that this pipe carries afterwards or carried before. While another pipe carries a
    row, only the row's first sender, or that pipe's, can change it.
 6. The caps of `RegistryLimits` hold.
 7. Each reply is counted once as a reply; a refused one, also under the kind of its refusal.
 8. No input raises, in any order; time that goes backwards stands still.
 9. A round with mass loss moves no row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, Protocol

from nngkit.chance import RandomSource
from nngkit.discovery.lanes import ANY, Preference, explain
from nngkit.discovery.messages import TEXT_INSTANCE, VERSION_WHAT, SurveyReply, TextReply, is_cbor, parse_survey_reply
from nngkit.discovery.provider import PROTOCOL_VERSION, Event, Key, Provider, Reason, RoundFigures, State, Status
from nngkit.discovery.registry.evaluation import OpenRound, evaluate_round, reask_targets
from nngkit.discovery.registry.liveness import LivenessRules, RegistryLimits, Round, RoundResult
from nngkit.discovery.registry.table import TEXT, ProviderRow, ProviderTable, TrackedPipe
from nngkit.errors import BadMessage, TooLarge

COUNTERS: Final = (
    "replies",  # all that arrived
    "late",  # accepted, after their round had ended
    "duplicate",  # accepted, a second reply of one process to one round
    "text beaten",  # text on a pipe that speaks CBOR
    "empty",
    "bad cbor",
    "bad text",
    "newer version",
    "other domain",  # from a service of another domain, or in text while ours is not the default
    "older version",  # accepted, with priority 8 whatever the records say
    "too large",
    "after leaving",  # from a pipe that was lost
    "unknown round",  # of a round that never was, or is over 16 rounds old
    "flood",  # over RegistryLimits.work_per_round
    "foreign records",  # records that another connection carries, of another process
    "over cap",  # pipes over RegistryLimits.pipes; and each record over one of the other caps
)
_ROUNDS_OPEN = 16  # rounds that accept replies: an older reply is no evidence of the present
_FIGURES_KEPT = 64  # rounds of history
_BODY_KEPT = 4_096  # bytes of a reply kept to recognize a repeat: 20 providers, and 64 MiB for RegistryLimits.pipes


class Admission(Protocol):
    """Decisions about what the peers of a daemon may state, by the names of their passes."""

    def admits(self, who: str | None, record: Provider) -> bool:
        """Return True if `who` may state `record`."""
        ...

    def offers(self, who: str | None, name: str) -> bool:
        """Return True if `who` may have providers of the service `name` to state."""
        ...

    def carries(self, who: str | None) -> bool:
        """Return True if `who` may state providers of others."""
        ...


class Registry:
    """State machine of this module's docstring. `now`: seconds on one monotonic clock.

    Not thread-safe: one task, or one lock, owns it. Inputs return the events that they caused, in order. Services of
    another `domain` are counted and make no row. `admission`: None without a trust, then each record is admitted.
    """

    def __init__(
        self,
        *,
        rules: LivenessRules | None = None,
        limits: RegistryLimits | None = None,
        domain: str = "",
        admission: Admission | None = None,
    ) -> None:
        self._domain = domain
        self._admission = admission
        self._rules = rules or LivenessRules()
        self._limits = limits or RegistryLimits()
        self._table = ProviderTable(self._limits)
        self._relays: set[int] = set()
        self._rounds: dict[int, OpenRound] = {}
        self._number = 0
        self._now = float("-inf")
        self._counters = dict.fromkeys(COUNTERS, 0)
        self._foreign = ""
        self._figures: deque[RoundFigures] = deque(maxlen=_FIGURES_KEPT)

    # Inputs

    def pipe_joined(self, pipe: int, now: float, who: str | None = None) -> tuple[Event, ...]:
        """Add a connected pipe of the peer `who`. Idempotent. A lost pipe cannot join again: ids are never reused."""
        self._clock(now)
        self._table.join(pipe, who)
        return ()

    def pipe_left(self, pipe: int, now: float) -> tuple[Event, ...]:
        """Remove a lost pipe: rows that no other pipe carries are down at once."""
        now = self._clock(now)
        gone = self._table.pipes.get(pipe)
        if gone is not None:
            for key in list(gone.rows):
                row = self._table.rows[key]
                self._drop(row, gone, Reason.BYE if row.leaving else Reason.PIPE_LOST)
            self._relays.discard(pipe)
            for this in self._rounds.values():
                this.waiting.discard(pipe)
        self._table.leave(pipe)
        self._table.forget_old(now)
        return self._table.take_events()

    def start_round(self, now: float, *, reask: bool = False, new: bool = False) -> Round:
        """Start a round with the pipes connected now; `new`: with those of them that no round has asked yet.

        `reask`: the second one, after ``RoundResult.ask_again``.
        """
        now = self._clock(now)
        self._number += 1
        asked = [pipe for pipe in self._table.pipes.values() if not (new and pipe.asked)]
        for pipe in asked:
            pipe.asked = True
            pipe.work = 0
        this = Round(self._number, now, frozenset(pipe.number for pipe in asked), reask)
        targets = reask_targets(self._table.rows.values(), self._rules) if reask else None
        self._rounds[this.number] = OpenRound(this, set(this.asked), targets)
        if len(self._rounds) > _ROUNDS_OPEN:
            del self._rounds[next(iter(self._rounds))]
        return this

    def review(self, now: float) -> tuple[Event, ...]:
        """Drop what a changed policy does not admit. What is admitted again comes with the next reply."""
        self._clock(now)
        for pipe in self._table.pipes.values():
            pipe.last_body = None
            for key in list(pipe.rows):
                row = self._table.rows[key]
                if self._admission is not None and not self._admission.admits(pipe.who, row.provider):
                    self._drop(row, pipe, Reason.WITHDRAWN)
            if not self._may_relay(pipe):
                pipe.relay = False
                self._relays.discard(pipe.number)
        return self._table.take_events()

    def reply(
        self,
        pipe: int,
        round: int | Round,
        body: bytes,
        now: float,
        elapsed: float | None = None,
        who: str | None = None,
    ) -> tuple[Event, ...]:
        """Process a pipe's reply to a round, in time or late. Whatever its bytes, it affects no other pipe's rows.

        `elapsed`: seconds since the pipe was asked; default: since the round began. Events cross threads, so an unknown
        pipe counts as joined, with the name `who`; replies of a lost one are ignored.
        """
        self._clock(now)
        self._counters["replies"] += 1
        this = self._rounds.get(_number(round))
        if pipe in self._table.left:
            self._counters["after leaving"] += 1
        elif this is None:
            self._counters["unknown round"] += 1
        elif (known := self._table.join(pipe, who)) is None:
            self._counters["over cap"] += 1
        else:
            known.elapsed = self._now - this.round.started if elapsed is None else elapsed
            self._receive(known, this, body)
        return self._table.take_events()

    def end_round(self, round: int | Round, now: float) -> RoundResult:
        """End a round at its deadline and count the misses. A second call does nothing."""
        now = self._clock(now)
        this = self._rounds.get(_number(round))
        if this is None:
            return RoundResult(RoundFigures(_number(round), False, now, now, 0, 0, 0, 0, 0))
        if this.figures is not None:
            return RoundResult(this.figures)
        verdict = evaluate_round(this, self._table.rows.values(), self._rules)
        this.figures = RoundFigures(
            number=this.round.number,
            reask=this.round.reask,
            started=this.round.started,
            ended=now,
            asked=len(this.round.asked),
            answered=len(this.heard),
            due=verdict.due,
            missed=len(verdict.missed),
            held=len(verdict.held),
        )
        self._figures.append(this.figures)
        doubts = bool(verdict.held)
        died: list[ProviderRow] = []
        if verdict.held:
            for row in verdict.held:
                if not row.stale:
                    row.stale = True
                    self._table.mark(row)
        else:
            for row in verdict.missed:
                doubts |= self._count_miss(row)
                if row.state is State.DOWN:
                    died.append(row)
        silent_pipes = self._pipes_all_down(died)
        self._table.forget_old(now)
        return RoundResult(this.figures, self._table.take_events(), doubts and not this.round.reask, silent_pipes)

    # Questions

    def complete(self, round: int | Round) -> bool:
        """Return True if every asked pipe that still stands has answered, and none relays for others.

        True at once if no pipe was asked; the caller decides whether that is worth waiting for.
        """
        this = self._rounds.get(_number(round))
        return this is None or (not this.waiting and self._relays.isdisjoint(this.round.asked))

    def text_pipes(self, round: int | Round) -> frozenset[int]:
        """Return the pipes of the round that may answer the text query: all but those of one CBOR process."""
        this = self._rounds.get(_number(round))
        pipes = self._table.pipes
        return frozenset(
            number
            for number in (() if this is None else this.round.asked)
            if (pipe := pipes.get(number)) is not None and (pipe.relay or not pipe.cbor)
        )

    @property
    def unasked(self) -> int:
        """Number of connected pipes that no round has asked yet: a reason to start the next one early."""
        return sum(not pipe.asked for pipe in self._table.pipes.values())

    @property
    def joining(self) -> tuple[int, ...]:
        """Connected pipes without an intelligible reply so far."""
        return tuple(number for number, pipe in self._table.pipes.items() if not pipe.spoke)

    @property
    def older(self) -> int:
        """Number of replies of an older version."""
        return self._counters["older version"]

    @property
    def foreign(self) -> tuple[int, str]:
        """Number of refused records that another connection carries, and the name of the last one."""
        return self._counters["foreign records"], self._foreign

    @property
    def counters(self) -> Mapping[str, int]:
        """Counters of replies and refusals: a copy, with every key of COUNTERS."""
        return MappingProxyType(dict(self._counters))

    @property
    def figures(self) -> tuple[RoundFigures, ...]:
        """Figures of the last 64 rounds that ended, oldest first."""
        return tuple(self._figures)

    def resolve(self, name: str, rng: RandomSource, preference: Preference = ANY) -> Provider:
        """Return a provider of `name`, at random by weight in the first lane (lanes.py). Raises ServiceNotFound."""
        lane = self._table.lane(name, preference)
        if lane is None:
            raise explain(name, self._table.named(name), preference)
        return lane.choose(rng)

    def snapshot(self, now: float) -> Mapping[str, frozenset[Provider]]:
        """Return the providers that can be resolved, by name; immutable. A name without any is not in it."""
        self._clock(now)
        return self._table.snapshot()

    def view(self, now: float) -> tuple[Status, ...]:
        """Return all rows, down and draining included, in the order of the keys."""
        self._table.forget_old(self._clock(now))
        return self._table.view()

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the numbers of providers by state, and of those that are up by service."""
        return self._table.counts()

    @property
    def version(self) -> int:
        """Number of events so far."""
        return self._table.version

    def changes(self, since: int, limit: int) -> tuple[int, tuple[Status, ...], tuple[Key, ...]] | None:
        """Return the rows that changed after event `since`, as they are now, and the keys of rows that were forgotten.

        First the number to ask from next. None if the changes are no longer known: then fetch all rows.
        """
        found = self._table.changes(since, limit)
        if found is None:
            return None
        rows = self._table.rows
        present = tuple(rows[key].status() for key in found[1] if key in rows)
        return found[0], present, tuple(key for key in found[1] if key not in rows)

    def over(self, pipes: Iterable[int]) -> tuple[int, ...]:
        """Return those of `pipes` of which each row is down or has said goodbye."""
        table = self._table
        return tuple(
            number
            for number in pipes
            if (pipe := table.pipes.get(number)) is not None
            and all(table.rows[key].leaving or table.rows[key].state is State.DOWN for key in pipe.rows)
        )

    def named(self, name: str | None) -> tuple[Status, ...]:
        """Return the rows of a name, of all without one, down and draining included, in no order."""
        rows = self._table.rows.values() if name is None else self._table.named(name)
        return tuple(row.status() for row in rows)

    def pipes_of(self, name: str) -> frozenset[int]:
        """Return the pipes that may reach providers of a name: those that carry them, relays, and joining ones.

        Of the joining ones those that may offer it: a silent peer is not told of questions to others.
        """
        carrying = {number for row in self._table.named(name) for number in row.pipes}
        allowed, pipes = self._admission, self._table.pipes
        joining = [each for each in self.joining if allowed is None or allowed.offers(pipes[each].who, name)]
        return frozenset(carrying.union(self._relays, joining))

    # Replies

    def _clock(self, now: float) -> float:
        if now > self._now:
            self._now = now
        return self._now

    def _receive(self, pipe: TrackedPipe, this: OpenRound, body: bytes) -> None:
        """Decode and apply the bytes, or count why not."""
        pipe.asked = True
        pipe.work += 1 + len(body) // 256
        if pipe.work > self._limits.work_per_round:
            self._counters["flood"] += 1
            return
        reply: SurveyReply | TextReply | None = pipe.last_reply if body == pipe.last_body else None
        if reply is None:
            try:
                reply = parse_survey_reply(body)
            except TooLarge:
                self._counters["too large"] += 1
                return
            except BadMessage as error:
                newer = error.what == VERSION_WHAT
                kind = "newer version" if newer else "bad cbor" if is_cbor(body) else "bad text" if body else "empty"
                self._counters[kind] += 1
                return
        pipe.spoke = True
        if this.ended:
            self._counters["late"] += 1
        if (reply.domain if isinstance(reply, SurveyReply) else "") != self._domain:
            self._counters["other domain"] += 1
            self._mark_answered(pipe, this)
            return
        if isinstance(reply, SurveyReply) and reply.version < PROTOCOL_VERSION:
            self._counters["older version"] += 1
        if isinstance(reply, TextReply):
            self._apply_text(pipe, reply, this)
            return
        if pipe.number in this.heard and not pipe.relay and not reply.bye:
            self._counters["duplicate"] += 1
        self._mark_answered(pipe, this)
        if reply.bye:
            self._apply_goodbye(pipe, reply.sender, this)
        elif body != pipe.last_body or not self._apply_repeat(pipe, this):
            pipe.last_body = None
            self._apply(pipe, reply, this, body)

    def _mark_answered(self, pipe: TrackedPipe, this: OpenRound) -> None:
        this.waiting.discard(pipe.number)
        this.heard.add(pipe.number)

    def _apply_text(self, pipe: TrackedPipe, reply: TextReply, this: OpenRound) -> None:
        known = pipe.places.get((reply.name, reply.address))
        if pipe.cbor and (known is not None or not pipe.relay):
            self._counters["text beaten"] += 1
            if known is not None:  # no more than a sign of life
                row = self._table.rows[known]
                ending = row.leaving or row.provider.draining
                if not (ending and row.state is State.DOWN):
                    self._note_life(row, pipe, this)
                    if not ending and row.state is not State.UP:
                        self._bring_up(row, this)
            return
        self._mark_answered(pipe, this)
        record = reply.provider
        if self._admission is not None and pipe.who:
            record = replace(record, id=f"{pipe.who}{TEXT_INSTANCE}")
        before = self._table.rows.get(record.key)
        if before is not None and before.round == this.round.number and pipe.number in before.pipes:
            self._counters["duplicate"] += 1
        self._claim(pipe, record, TEXT, this)

    def _apply_repeat(self, pipe: TrackedPipe, this: OpenRound) -> bool:
        """Fast path: a reply with the same bytes as the last, whose rows are up. Return False if nothing was done.

        The rows are still this pipe's: only a newer reply, or being down, takes them off it.
        """
        for row, record in pipe.last_rows:
            if row.provider is not record or row.state is not State.UP:
                return False
        pipe.work += len(pipe.last_rows)
        for row, _ in pipe.last_rows:
            self._note_life(row, pipe, this)
        return True

    def _apply(self, pipe: TrackedPipe, reply: SurveyReply, this: OpenRound, body: bytes) -> None:
        pipe.work += len(reply.providers)
        if (reply.relay or (pipe.cbor and pipe.sender != reply.sender)) and self._may_relay(pipe):
            pipe.relay = True
            self._relays.add(pipe.number)
        pipe.sender, pipe.cbor = reply.sender, True
        listed = {record.key for record in reply.providers}
        places = {key[:2] for key in listed}
        for key, sender in list(pipe.rows.items()):
            if sender == reply.sender and key not in listed:
                self._drop(self._table.rows[key], pipe, Reason.WITHDRAWN)
            elif sender == TEXT and (not pipe.relay or key[:2] in places):
                self._drop(self._table.rows[key], pipe, Reason.REPLACED)
        rows = [self._claim(pipe, record, reply.sender, this) for record in reply.providers]
        found = tuple((row, record) for row, record in zip(rows, reply.providers, strict=True) if row is not None)
        if len(found) == len(rows) and len(body) <= _BODY_KEPT:  # records refused by a cap are tried again
            pipe.last_body, pipe.last_reply, pipe.last_rows = body, reply, found

    def _apply_goodbye(self, pipe: TrackedPipe, sender: str, this: OpenRound) -> None:
        for key, owner in pipe.rows.items():
            row = self._table.rows[key]
            if owner == sender and row.state is not State.DOWN:
                self._note_life(row, pipe, this)
                row.leaving = True
                if row.state is not State.DRAINING:
                    self._move(row, State.DRAINING, Reason.BYE, this.round.number)

    # Rows

    def _claim(self, pipe: TrackedPipe, record: Provider, sender: str, this: OpenRound) -> ProviderRow | None:
        """Attach `record` to `pipe`, creating its row if needed, and apply its fields. None if it is refused."""
        if self._admission is not None and not self._admission.admits(pipe.who, record):
            return None
        known = self._table.rows.get(record.key)
        if known is not None and not self._may_state(known, pipe, sender):
            self._counters["foreign records"] += 1
            self._foreign = record.name
            return None
        row = self._table.attach(record, pipe, sender)
        if row is None:
            self._counters["over cap"] += 1
            return None
        self._note_life(row, pipe, this)
        before, row.provider = row.provider, record
        row.leaving = row.leaving and record.draining
        if record.draining and row.state is not State.DRAINING:
            self._move(row, State.DRAINING, Reason.DRAINING, this.round.number)
        elif not record.draining and row.state is not State.UP:
            self._bring_up(row, this)
        elif before != record:
            self._move(row, row.state, Reason.CHANGED, this.round.number)
        elif before is not record:
            self._table.touch(row)  # the load
        return row

    def _may_relay(self, pipe: TrackedPipe) -> bool:
        return self._admission is None or self._admission.carries(pipe.who)

    def _may_state(self, row: ProviderRow, pipe: TrackedPipe, sender: str) -> bool:
        """Return False if the row is another process's, on another pipe. Its first sender takes it off such pipes."""
        others = [self._table.pipes[number] for number in row.pipes if number != pipe.number]
        foreign = [other for other in others if other.rows[row.key] != sender]
        if foreign and sender != row.sender:
            return False
        for other in foreign:
            self._table.detach(row, other)
            other.last_body = None  # it repeats what it no longer carries
        return True

    def _drop(self, row: ProviderRow, pipe: TrackedPipe, reason: Reason) -> None:
        """Detach `row` from `pipe`; without another pipe it is down."""
        self._table.detach(row, pipe)
        if not row.pipes and row.state is not State.DOWN:
            self._move(row, State.DOWN, reason, self._number)

    def _move(self, row: ProviderRow, new: State, reason: Reason, round: int) -> None:
        self._table.move(row, new, reason, self._now, round)

    def _bring_up(self, row: ProviderRow, this: OpenRound) -> None:
        self._move(row, State.UP, Reason.LATE if this.ended else Reason.ANSWERED, this.round.number)

    def _note_life(self, row: ProviderRow, pipe: TrackedPipe, this: OpenRound) -> None:
        """Record a sign of life."""
        row.heard = self._number
        row.misses = 0
        row.last_reply = self._now
        row.rtt = pipe.elapsed
        row.round = this.round.number
        if row.stale:
            row.stale = False
            self._table.mark(row)

    def _count_miss(self, row: ProviderRow) -> bool:
        """Count one miss; return True if the row is worth a re-ask."""
        row.misses += 1
        row.counted = self._number
        if row.stale:
            row.stale = False
            self._table.mark(row)
        if row.misses >= self._rules.down_after:
            self._move(row, State.DOWN, Reason.MISSED, self._number)
        elif row.misses >= self._rules.suspect_after and row.state is State.UP:
            self._move(row, State.SUSPECT, Reason.MISSED, self._number)
        return row.misses < self._rules.suspect_after

    def _pipes_all_down(self, died: list[ProviderRow]) -> tuple[int, ...]:
        """Return the pipes of the rows that just went down, if all they carry is down."""
        rows, pipes = self._table.rows, self._table.pipes
        numbers = {number for row in died for number in row.pipes}
        return tuple(sorted(n for n in numbers if all(rows[key].state is State.DOWN for key in pipes[n].rows)))


def _number(round: int | Round) -> int:
    return round if isinstance(round, int) else round.number
