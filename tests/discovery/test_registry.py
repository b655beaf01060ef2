"""Behaviour of the registry. Its invariants are in test_registry_invariants.py."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import cbor2
import pytest

from nngkit.discovery.lanes import Lane, Preference
from nngkit.discovery.messages import SurveyReply, TextReply
from nngkit.discovery.provider import Event, Provider, Reason, State, Status
from nngkit.discovery.registry.liveness import LivenessRules, RegistryLimits, Round, RoundResult, is_mass_loss
from nngkit.discovery.registry.registry import COUNTERS, Registry
from nngkit.discovery.registry.table import PREFERENCES
from nngkit.errors import ServiceNotFound

UP, SUSPECT, DRAINING, DOWN, JOINING = State.UP, State.SUSPECT, State.DRAINING, State.DOWN, State.JOINING


def provider(n: int = 1, name: str = "answer", **changes: object) -> Provider:
    return replace(Provider(name, f"tcp://10.0.0.{n}:9000", f"id{n}", 1), **changes)  # type: ignore[arg-type]


def says(*records: Provider, sender: str = "s", relay: bool = False) -> bytes:
    return SurveyReply(sender, records, relay=relay).encode()


class World:
    """A registry, a clock, and scripted pipes: ``world.voice[3] = says(...)``, or None for silence."""

    def __init__(self, rules: LivenessRules | None = None, limits: RegistryLimits | None = None) -> None:
        self.registry = Registry(rules=rules, limits=limits)
        self.now = 100.0
        self.voice: dict[int, bytes | None] = {}
        self.events: list[Event] = []

    def join(self, pipe: int, voice: bytes | None = None) -> None:
        self.voice[pipe] = voice
        self.events += self.registry.pipe_joined(pipe, self.now)

    def leave(self, pipe: int) -> None:
        del self.voice[pipe]
        self.events += self.registry.pipe_left(pipe, self.now)

    def say(self, pipe: int, this: Round | int, body: bytes) -> tuple[Event, ...]:
        events = self.registry.reply(pipe, this, body, self.now)
        self.events += events
        return events

    def round(self, reask: bool = False) -> RoundResult:
        """Run a survey: pipes with a voice answer after 0.1 s, and it ends after 0.5 s. No re-ask follows."""
        this = self.registry.start_round(self.now, reask=reask)
        self.now += 0.1
        for pipe, voice in self.voice.items():
            if voice is not None:
                self.say(pipe, this, voice)
        self.now += 0.4
        end = self.registry.end_round(this, self.now)
        self.events += end.events
        return end

    def full_round(self) -> RoundResult:
        """Run a survey, and its re-ask if there is one."""
        end = self.round()
        if end.ask_again:
            end = self.round(reask=True)
        self.now += 2.0
        return end

    def status(self, which: Provider | int = 1) -> Status:
        key = (which if isinstance(which, Provider) else provider(which)).key
        return next(row for row in self.registry.view(self.now) if row.provider.key == key)

    def states(self) -> dict[str, State]:
        return {row.provider.id: row.state for row in self.registry.view(self.now)}

    def found(self, name: str = "answer") -> set[str]:
        return {p.id for p in self.registry.snapshot(self.now).get(name, ())}


def crowd(count: int, **more: object) -> World:
    """Return a world of `n` providers that are up, each on its own pipe."""
    world = World(**more)  # type: ignore[arg-type]
    for n in range(1, count + 1):
        world.join(n, says(provider(n), sender=f"s{n}"))
    world.round()
    world.events.clear()
    return world


class Script:
    """Scripted RandomSource."""

    def __init__(self, *numbers: float) -> None:
        self.numbers: Iterator[float] = iter(numbers)

    def random(self) -> float:
        return next(self.numbers)


# Joining


def test_provider_is_up_with_its_first_reply() -> None:
    world = World()
    world.join(1, says(provider()))
    assert list(world.registry.joining) == [1]
    world.round()
    assert world.events == [Event("answer", provider(), JOINING, UP, Reason.ANSWERED, 100.1, 1)]
    assert not world.registry.joining
    status = world.status()
    assert (status.state, status.since, status.last_reply, status.pipes) == (UP, 100.1, 100.1, (1,))
    assert status.rtt == pytest.approx(0.1)


def test_one_pipe_may_carry_several_services_of_one_process() -> None:
    world = World()
    world.join(1, says(provider(1, "answer"), provider(2, "question"), provider(3, "answer")))
    world.round()
    assert world.found("answer") == {"id1", "id3"}
    assert world.found("question") == {"id2"}
    world.leave(1)
    assert world.registry.snapshot(world.now) == {}


def test_reply_before_the_join_of_its_pipe_counts_as_the_join() -> None:
    world = World()
    this = world.registry.start_round(world.now)
    world.say(7, this, says(provider()))
    assert world.found() == {"id1"}
    assert world.registry.unasked == 0


def test_unasked_pipe_is_a_reason_for_a_round() -> None:
    world = World()
    assert world.registry.unasked == 0
    world.join(1)
    world.join(2)
    assert world.registry.unasked == 2
    world.round()
    assert world.registry.unasked == 0


def test_changed_record_is_an_event_and_a_changed_load_is_not() -> None:
    world = crowd(1)
    assert [p.load for p in world.registry.snapshot(world.now)["answer"]] == [0.0]
    world.voice[1] = says(provider(load=3.0), sender="s1")
    world.round()
    assert world.events == []
    assert [p.load for p in world.registry.snapshot(world.now)["answer"]] == [3.0]
    world.voice[1] = says(provider(weight=7, load=4.0), sender="s1")
    world.round()
    assert [(e.old, e.new, e.reason, e.provider.weight) for e in world.events] == [(UP, UP, Reason.CHANGED, 7)]


def test_latest_record_wins_on_two_pipes_with_one_provider() -> None:
    world = crowd(1)
    this = world.registry.start_round(world.now)
    for pipe, weight in ((2, 7), (1, 100), (2, 7)):
        world.say(pipe, this, says(provider(weight=weight), sender="s1"))
        assert world.status().provider.weight == weight


# Silence


def test_one_miss_changes_no_state_and_is_reasked_at_once() -> None:
    world = crowd(3)
    world.voice[1] = None
    end = world.round()
    assert (end.ask_again, end.events, end.figures.missed) == (True, (), 1)
    assert world.found() == {"id1", "id2", "id3"}
    assert world.status().misses == 1


def test_reply_to_the_reask_clears_the_miss() -> None:
    world = crowd(3)
    voice, world.voice[1] = world.voice[1], None
    world.round()
    world.voice[1] = voice
    end = world.round(reask=True)
    assert not end.ask_again
    assert world.events == []
    assert world.status().misses == 0


def test_two_misses_make_suspect_and_skipped_while_others_are_up() -> None:
    world = crowd(3)
    world.voice[1] = None
    world.full_round()
    assert [(e.provider.id, e.old, e.new, e.reason) for e in world.events] == [("id1", UP, SUSPECT, Reason.MISSED)]
    assert world.found() == {"id2", "id3"}
    rng = random.Random(1)
    assert {world.registry.resolve("answer", rng).id for _ in range(100)} == {"id2", "id3"}


def test_suspects_are_resolved_if_none_is_up() -> None:
    world = crowd(2)
    world.voice[1] = world.voice[2] = None
    world.full_round()
    assert world.states() == {"id1": SUSPECT, "id2": SUSPECT}
    assert world.found() == {"id1", "id2"}
    assert world.registry.resolve("answer", random.Random(1)).id in {"id1", "id2"}


def test_eighth_miss_is_down_and_its_pipe_may_be_disconnected() -> None:
    world = crowd(3)
    world.voice[1] = None
    ends = [world.full_round() for _ in range(7)]
    assert [(e.new, e.reason) for e in world.events] == [(SUSPECT, Reason.MISSED), (DOWN, Reason.MISSED)]
    assert [end.silent_pipes for end in ends] == [()] * 6 + [(1,)]
    assert world.status().misses == 8
    assert world.full_round().silent_pipes == ()


def test_reask_counts_misses_of_its_targets_only() -> None:
    world = crowd(3)
    world.voice[1] = None
    world.round()
    world.voice[2] = None
    end = world.round(reask=True)
    assert world.states() == {"id1": SUSPECT, "id2": UP, "id3": UP}
    assert world.status(2).misses == 0
    assert (end.figures.due, end.figures.missed) == (1, 1)


def test_any_reply_makes_a_suspect_up_again() -> None:
    world = crowd(2)
    voice, world.voice[1] = world.voice[1], None
    world.full_round()
    world.voice[1] = voice
    world.full_round()
    assert [(e.old, e.new, e.reason) for e in world.events[1:]] == [(SUSPECT, UP, Reason.ANSWERED)]


def test_late_reply_is_a_sign_of_life_with_that_reason() -> None:
    world = crowd(2)
    voice, world.voice[1] = world.voice[1], None
    late = world.registry.start_round(world.now)
    world.registry.end_round(late, world.now)
    world.full_round()
    assert world.status().state is SUSPECT
    assert voice is not None
    world.say(1, late, voice)
    assert [(e.new, e.reason, e.round) for e in world.events[1:]] == [(UP, Reason.LATE, late.number)]
    assert world.registry.counters["late"] == 1


def test_provider_that_always_answers_late_is_never_suspect() -> None:
    world = crowd(2)
    voice, world.voice[1] = world.voice[1], None
    assert voice is not None
    before = world.registry.start_round(world.now)
    world.registry.end_round(before, world.now)
    for _ in range(50):
        this = world.registry.start_round(world.now)
        world.now += 1
        world.say(1, before, voice)
        world.registry.end_round(this, world.now)
        before = this
    assert world.status().state is UP


def test_silence_in_overlapping_rounds_is_counted_once() -> None:
    world = crowd(1)
    rounds = [world.registry.start_round(world.now) for _ in range(10)]
    for this in rounds:
        world.registry.end_round(this, world.now + 1)
    assert world.status().misses == 1


def test_pipe_that_joined_after_the_start_misses_nothing() -> None:
    world = crowd(1)
    world.voice[1] = None
    this = world.registry.start_round(world.now)
    world.join(9)
    other = world.registry.start_round(world.now)
    world.say(9, other, says(provider(9), sender="s9"))
    end = world.registry.end_round(this, world.now)
    assert (end.figures.asked, end.figures.due, end.figures.missed) == (1, 1, 1)


def test_ending_a_round_twice_or_an_unknown_round_does_nothing() -> None:
    world = crowd(2)
    world.voice[1] = None
    first = world.round()
    again = world.registry.end_round(first.figures.number, world.now)
    assert again == RoundResult(first.figures)
    assert world.registry.end_round(12345, world.now).figures.asked == 0
    assert world.status().misses == 1


def test_reply_to_an_expired_round_is_counted_and_no_sign_of_life() -> None:
    world = crowd(1)
    voice, world.voice[1] = world.voice[1], None
    assert voice is not None
    for _ in range(20):
        world.round()
    assert world.say(1, 1, voice) == ()
    assert world.registry.counters["unknown round"] == 1


# Pipes


def test_lost_pipe_takes_its_provider_down_at_once() -> None:
    world = crowd(2)
    world.leave(1)
    assert [(e.old, e.new, e.reason) for e in world.events] == [(UP, DOWN, Reason.PIPE_LOST)]
    assert world.found() == {"id2"}


def test_reply_after_the_loss_of_its_pipe_brings_nothing_up() -> None:
    world = crowd(1)
    this = world.registry.start_round(world.now)
    voice = world.voice[1]
    assert voice is not None
    world.leave(1)
    assert world.say(1, this, voice) == ()
    world.registry.pipe_joined(1, world.now)
    assert world.say(1, this, voice) == ()
    assert world.states() == {"id1": DOWN}
    assert world.registry.counters["after leaving"] == 2


def test_reconnected_process_gets_its_row_back() -> None:
    world = crowd(1)
    voice = world.voice[1]
    world.leave(1)
    world.join(2, voice)
    world.round()
    assert len(world.registry.view(world.now)) == 1
    assert [(e.old, e.new) for e in world.events] == [(UP, DOWN), (DOWN, UP)]


def test_restarted_process_is_another_provider() -> None:
    world = crowd(1)
    world.join(2, says(provider(epoch=2), sender="s1b"))
    world.round()
    assert world.found() == {"id1"}
    assert len(world.registry.view(world.now)) == 2
    rng = random.Random(1)
    # an address is one candidate, with its newest epoch
    assert {world.registry.resolve("answer", rng).epoch for _ in range(20)} == {2}
    world.leave(1)
    assert {row.provider.epoch: row.state for row in world.registry.view(world.now)} == {1: DOWN, 2: UP}


def test_two_processes_with_one_id_are_both_visible() -> None:
    world = World()
    world.join(1, says(provider(1, id="copied", epoch=1), sender="a"))
    world.join(2, says(provider(2, id="copied", epoch=2), sender="b"))
    world.round()
    addresses = {p.address for p in world.registry.snapshot(0)["answer"]}
    assert addresses == {"tcp://10.0.0.1:9000", "tcp://10.0.0.2:9000"}


def test_provider_on_two_pipes_lives_as_long_as_one_of_them() -> None:
    world = World()
    world.join(1, says(provider()))
    world.join(2, says(provider()))
    world.round()
    assert len(world.events) == 1
    assert world.status().pipes == (1, 2)
    world.leave(1)
    assert world.status().state is UP
    world.voice[2] = None
    world.round()
    assert world.status().misses == 1
    world.leave(2)
    assert world.status().state is DOWN


def test_address_of_two_providers_is_one_candidate() -> None:
    world = World()
    world.join(1, says(provider(1), sender="a"))
    world.join(2, says(provider(1, id="other"), sender="b"))
    world.join(3, says(provider(3), sender="c"))
    world.round()
    assert world.found() == {"id1", "other", "id3"}
    rng = random.Random(1)
    chosen = Counter(world.registry.resolve("answer", rng).address for _ in range(2000))
    assert 800 < chosen["tcp://10.0.0.1:9000"] < 1200
    world.leave(2)
    assert world.found() == {"id1", "id3"}


# Goodbyes and draining


def test_goodbye_leaves_resolve_at_once_and_is_the_reason_of_the_loss() -> None:
    world = crowd(2)
    this = world.registry.start_round(world.now)
    voice = world.voice[1]
    assert voice is not None
    world.say(1, this, voice)
    world.say(1, this, SurveyReply("s1", bye=True).encode())
    assert world.found() == {"id2"}
    assert world.status().state is DRAINING
    world.leave(1)
    assert [(e.new, e.reason) for e in world.events] == [(DRAINING, Reason.BYE), (DOWN, Reason.BYE)]
    assert world.registry.counters["duplicate"] == 0


def test_goodbye_behind_a_relay_affects_one_process_only() -> None:
    world = World()
    this = world.registry.start_round(world.now)
    world.say(1, this, says(provider(1), sender="a"))
    world.say(1, this, says(provider(2), sender="b"))
    world.say(1, this, SurveyReply("a", bye=True).encode())
    assert world.states() == {"id1": DRAINING, "id2": UP}


STRANGERS = {
    "drains it": says(provider(1, draining=True), sender="other"),
    "changes it": says(provider(1, weight=0, zone="mars"), sender="other"),
    "drains it behind a relay": says(provider(1, draining=True), sender="other", relay=True),
}


@pytest.mark.parametrize("body", STRANGERS.values(), ids=STRANGERS)
def test_a_record_that_another_connection_states_is_refused(body: bytes) -> None:
    world = crowd(1)
    before = world.status()
    world.join(9)
    this = world.registry.start_round(world.now)
    for after in (body, says(sender="other"), SurveyReply("other", bye=True).encode()):  # ... withdraws it, leaves
        world.say(9, this, after)
    world.leave(9)
    assert world.status() == before
    assert world.events == []
    assert world.registry.foreign == (1, "answer")
    assert world.registry.counters["foreign records"] == 1


def test_the_other_records_of_such_a_reply_count() -> None:
    world = crowd(1)
    world.join(9, says(provider(1, draining=True), provider(9), sender="other"))
    for _ in range(3):
        world.round()
    assert world.found() == {"id1", "id9"}
    assert world.registry.foreign == (3, "answer")


@pytest.mark.parametrize("relay", [False, True])
def test_one_process_may_state_its_record_on_several_connections(relay: bool) -> None:
    world = crowd(1)
    world.join(2, says(provider(1, weight=7), sender="s1", relay=relay))
    world.round()
    assert world.status().pipes == (1, 2)
    world.leave(1)
    assert world.found() == {"id1"}
    assert world.registry.foreign[0] == 0


def test_the_first_sender_gets_its_record_back_from_one_that_took_it_while_it_was_away() -> None:
    world = crowd(1)
    world.leave(1)
    world.join(9, says(provider(1, draining=True), provider(9), sender="other"))
    world.round()
    assert world.states() == {"id1": DRAINING, "id9": UP}
    world.join(2, says(provider(1), sender="s1"))
    world.round()
    world.round()
    assert world.states() == {"id1": UP, "id9": UP}
    assert world.status().pipes == (2,)
    world.leave(9)
    assert world.found() == {"id1"}


def test_reply_after_a_goodbye_brings_the_provider_up_again() -> None:
    world = crowd(1)
    world.say(1, world.registry.start_round(world.now), SurveyReply("s1", bye=True).encode())
    world.round()
    assert world.found() == {"id1"}
    world.leave(1)
    assert [(e.new, e.reason) for e in world.events[1:]] == [(UP, Reason.ANSWERED), (DOWN, Reason.PIPE_LOST)]


def test_draining_replies_may_follow_a_goodbye() -> None:
    world = crowd(1)
    this = world.registry.start_round(world.now)
    world.say(1, this, SurveyReply("s1", bye=True).encode())
    world.say(1, this, says(provider(draining=True), sender="s1"))
    world.leave(1)
    assert (world.status().state, world.status().reason) == (DOWN, Reason.BYE)


def test_text_does_not_bring_back_a_provider_after_its_goodbye() -> None:
    world = crowd(1)
    this = world.registry.start_round(world.now)
    world.say(1, this, SurveyReply("s1", bye=True).encode())
    world.say(1, this, text())
    assert world.status().state is DRAINING


def test_goodbye_of_a_provider_that_is_down_is_ignored() -> None:
    world = crowd(2)
    world.voice[1] = None
    for _ in range(7):
        world.full_round()
    world.voice[1] = SurveyReply("s1", bye=True).encode()
    world.round()
    assert world.status().state is DOWN


def test_goodbye_of_an_unknown_provider_makes_no_row() -> None:
    world = World()
    this = world.registry.start_round(world.now)
    world.say(1, this, SurveyReply("s", (provider(),), bye=True).encode())
    assert world.registry.view(world.now) == ()


def test_draining_provider_is_never_resolved() -> None:
    world = World()
    world.join(1, says(provider(draining=True)))
    world.round()
    assert world.status().state is DRAINING
    with pytest.raises(ServiceNotFound):
        world.registry.resolve("answer", random.Random(1))
    world.voice[1] = says(provider())
    world.round()
    assert world.registry.resolve("answer", random.Random(1)) == provider()


def test_silent_draining_provider_drains_until_it_is_down_and_text_does_not_bring_it_back() -> None:
    world = World()
    world.join(1, says(provider(draining=True)))
    world.round()
    world.voice[1] = None
    for _ in range(6):
        world.full_round()
        assert world.status().state is DRAINING
    world.full_round()
    assert (world.status().state, world.status().reason) == (DOWN, Reason.MISSED)
    world.say(1, world.registry.start_round(world.now), text())
    assert (world.status().state, world.status().misses) == (DOWN, 8)


def test_provider_that_its_process_no_longer_lists_is_withdrawn() -> None:
    world = World()
    world.join(1, says(provider(1), provider(2)))
    world.round()
    world.voice[1] = says(provider(2))
    world.round()
    assert [(e.provider.id, e.new, e.reason) for e in world.events[2:]] == [("id1", DOWN, Reason.WITHDRAWN)]


def test_two_processes_behind_one_pipe_do_not_withdraw_each_other() -> None:
    world = World()
    for _ in range(3):
        this = world.registry.start_round(world.now)
        world.say(1, this, says(provider(1), sender="a"))
        world.say(1, this, says(provider(2), sender="b"))
        world.registry.end_round(this, world.now)
    assert world.states() == {"id1": UP, "id2": UP}


# The text form


def text(n: int = 1) -> bytes:
    return TextReply("answer", f"tcp://10.0.0.{n}:9000").encode()


def test_text_provider_is_found_missed_and_lost_like_any_other() -> None:
    world = World()
    world.join(1, text())
    world.join(2, text(2))
    world.round()
    assert world.registry.snapshot(0) == {"answer": {text_provider(1), text_provider(2)}}
    world.voice[1] = None
    world.full_round()
    assert world.status(text_provider(1)).state is SUSPECT
    world.leave(2)
    assert world.status(text_provider(2)).state is DOWN
    assert world.registry.resolve("answer", random.Random(1)) == text_provider(1)


def text_provider(n: int) -> Provider:
    return Provider("answer", f"tcp://10.0.0.{n}:9000")


@pytest.mark.parametrize("text_first", [True, False])
def test_cbor_reply_of_a_pipe_overrides_its_text_in_any_order(text_first: bool) -> None:
    world = World()
    this = world.registry.start_round(world.now)
    for body in (text(), says(provider())) if text_first else (says(provider()), text()):
        world.say(1, this, body)
    assert world.registry.snapshot(0) == {"answer": {provider()}}
    assert world.registry.counters["text beaten"] == (0 if text_first else 1)


def test_replaced_text_row_goes_down_before_its_successor_comes_up() -> None:
    world = World()
    this = world.registry.start_round(world.now)
    world.say(1, this, text())
    events = world.say(1, this, says(provider()))
    assert [(e.provider.id, e.new, e.reason) for e in events] == [
        ("", DOWN, Reason.REPLACED),
        ("id1", UP, Reason.ANSWERED),
    ]


def test_text_on_a_cbor_pipe_is_a_sign_of_life() -> None:
    world = crowd(2)
    world.voice[1] = text()
    for _ in range(10):
        world.full_round()
    assert world.states() == {"id1": UP, "id2": UP}


def test_text_behind_a_relay_belongs_to_another_process() -> None:
    world = World()
    this = world.registry.start_round(world.now)
    world.say(1, this, says(provider(1), sender="a", relay=True))
    world.say(1, this, text(1))
    world.say(1, this, text(2))
    world.say(1, this, says(provider(3), sender="b"))
    assert world.registry.snapshot(0) == {"answer": {provider(1), text_provider(2), provider(3)}}


def test_text_behind_a_relay_is_replaced_by_cbor_at_the_same_address() -> None:
    world = World()
    this = world.registry.start_round(world.now)
    world.say(1, this, text(1))
    world.say(1, this, text(2))
    world.say(1, this, says(provider(1), sender="a", relay=True))
    assert world.registry.snapshot(0) == {"answer": {provider(1), text_provider(2)}}


def test_text_at_a_withdrawn_address_brings_nothing_back() -> None:
    world = World()
    this = world.registry.start_round(world.now)
    world.say(1, this, says(provider(1), provider(2)))
    world.say(1, this, says(provider(2)))
    world.say(1, this, text(1))
    assert world.states() == {"id1": DOWN, "id2": UP}


# Mass loss


def test_mass_loss_is_held_back_and_labelled_stale() -> None:
    world = crowd(20)
    for n in range(1, 12):
        world.voice[n] = None
    for _ in range(30):
        end = world.full_round()
        assert (end.figures.held, end.events) == (11, ())
    assert world.events == []
    assert len(world.found()) == 20
    assert [row.stale for row in world.registry.view(0)].count(True) == 11
    assert {row.misses for row in world.registry.view(0)} == {0}


def test_providers_that_answered_are_chosen_before_stale_ones() -> None:
    world = crowd(20)
    for n in range(1, 12):
        world.voice[n] = None
    world.round()
    rng = random.Random(1)
    chosen = {world.registry.resolve("answer", rng).id for _ in range(500)}
    assert chosen == {f"id{n}" for n in range(12, 21)}
    for n in range(1, 21):
        world.voice[n] = None
    world.round()
    chosen = {world.registry.resolve("answer", rng).id for _ in range(500)}
    assert len(chosen) == 20


@pytest.mark.parametrize(("of", "silent"), [(9, 9), (20, 10), (40, 20)])
def test_fewer_than_ten_or_at_most_half_is_no_mass_loss(of: int, silent: int) -> None:
    world = crowd(of)
    for n in range(1, silent + 1):
        world.voice[n] = None
    end = world.full_round()
    assert end.figures.held == 0
    assert list(world.states().values()).count(SUSPECT) == silent


def test_after_a_mass_loss_replies_clear_stale_and_the_rest_is_judged() -> None:
    world = crowd(20)
    voices = dict(world.voice)
    for n in range(1, 21):
        world.voice[n] = None
    world.full_round()
    assert all(row.stale for row in world.registry.view(0))
    world.voice.update(voices)
    world.voice[1] = None
    world.full_round()
    assert [row.provider.id for row in world.registry.view(0) if row.state is not UP or row.stale] == ["id1"]
    assert [(e.provider.id, e.new) for e in world.events] == [("id1", SUSPECT)]


def test_after_a_mass_loss_the_reask_counts_for_silent_providers() -> None:
    world = crowd(20)
    voices = dict(world.voice)
    world.voice = dict.fromkeys(voices)
    assert world.round().ask_again
    world.voice.update(voices)
    world.voice[1] = None
    end = world.round(reask=True)
    assert (end.figures.due, end.figures.missed, end.ask_again) == (20, 1, False)
    assert (world.status().misses, world.status().stale, world.status().state) == (1, False, UP)


def test_stale_provider_with_a_lost_pipe_is_down_and_not_stale() -> None:
    world = crowd(20)
    world.voice = dict.fromkeys(world.voice)
    world.round()
    world.leave(1)
    assert (world.status().state, world.status().stale) == (DOWN, False)


def test_lost_pipes_are_not_a_mass_loss() -> None:
    world = crowd(20)
    for n in range(1, 21):
        world.leave(n)
    assert set(world.states().values()) == {DOWN}


def test_suspects_do_not_count_for_a_mass_loss() -> None:
    world = crowd(40)
    for n in range(1, 19):
        world.voice[n] = None
    world.full_round()
    world.voice[19] = None
    assert world.full_round().figures.held == 0
    assert list(world.states().values()).count(SUSPECT) == 19
    for n in range(20, 35):
        world.voice[n] = None  # 15 of the remaining 21
    assert world.round().figures.held == 34


@pytest.mark.parametrize(
    ("silent", "of", "is_mass"), [(9, 9, False), (10, 10, True), (10, 19, True), (10, 20, False), (201, 400, True)]
)
def test_mass_loss_thresholds(silent: int, of: int, is_mass: bool) -> None:
    assert is_mass_loss(silent, of, LivenessRules()) is is_mass


# Bad replies

GARBAGE = {
    "empty": b"",
    "bad cbor": b"\xa1\x01",
    "bad text": b"answer at port 5",
    "newer version": cbor2.dumps({"v": 3, "type": "reply"}),
    "too large": b"\xa0" + b"\0" * 70_000,
}


@pytest.mark.parametrize(("kind", "body"), GARBAGE.items(), ids=GARBAGE)
def test_bad_reply_is_counted_and_takes_nothing_down(kind: str, body: bytes) -> None:
    world = crowd(2)
    before = world.registry.view(0)
    this = world.registry.start_round(world.now)
    assert world.say(1, this, body) == ()
    assert world.registry.view(0) == before
    assert world.registry.counters[kind] == 1
    assert world.registry.counters["replies"] == 3
    voice = world.voice[1]
    assert voice is not None
    world.say(1, this, voice)
    assert world.status().state is UP


def test_bad_reply_does_not_affect_other_peers() -> None:
    world = crowd(3)
    world.voice[1] = b"\xa1\x01"
    for _ in range(20):
        world.full_round()
    assert world.states() == {"id1": DOWN, "id2": UP, "id3": UP}


def test_second_reply_to_a_round_is_counted_and_accepted() -> None:
    world = World()
    this = world.registry.start_round(world.now)
    world.say(1, this, says(provider()))
    world.say(1, this, says(provider()))
    world.say(2, this, text(2))
    world.say(2, this, text(2))
    assert world.registry.counters["duplicate"] == 2
    assert len(world.events) == 2


def test_counters_have_every_kind_and_are_a_copy() -> None:
    registry = Registry()
    counts = registry.counters
    assert tuple(counts) == COUNTERS
    registry.reply(1, 1, b"", 0.0)
    assert counts["replies"] == 0
    assert registry.counters["unknown round"] == 1


# Caps


def test_over_the_cap_known_rows_stay_and_new_ones_are_refused_and_counted() -> None:
    world = crowd(5, limits=RegistryLimits(providers=5))
    world.join(9, says(provider(9), sender="s9"))
    world.round()
    assert len(world.found()) == 5
    assert world.registry.counters["over cap"] == 1
    world.leave(1)  # down rows give way
    world.round()
    assert world.found() == {"id2", "id3", "id4", "id5", "id9"}


def test_rows_of_a_pipe_are_capped() -> None:
    world = World(limits=RegistryLimits(per_pipe=3))
    this = world.registry.start_round(world.now)
    for n in range(1, 6):
        world.say(1, this, says(provider(n), sender=f"s{n}"))
    assert world.found() == {"id1", "id2", "id3"}
    assert world.registry.counters["over cap"] == 2


def test_names_are_capped() -> None:
    world = World(limits=RegistryLimits(names=2))
    world.join(1, says(*(provider(n, f"name{n}") for n in range(1, 6))))
    world.round()
    assert set(world.registry.snapshot(0)) == {"name1", "name2"}


def test_pipes_are_capped() -> None:
    world = crowd(2, limits=RegistryLimits(pipes=2))
    world.join(3, says(provider(3), sender="s3"))
    world.round()
    assert world.found() == {"id1", "id2"}
    assert world.registry.counters["over cap"] == 1
    world.leave(1)
    world.round()
    assert world.found() == {"id2", "id3"}


def test_flooding_pipe_is_not_read_until_the_next_round() -> None:
    world = crowd(2)
    this = world.registry.start_round(world.now)
    started = time.process_time()
    for n in range(20_000):
        world.say(1, this, says(provider(), sender=f"s{n % 7}") if n % 2 else b"\xa1" + bytes([n % 256]))
    assert time.process_time() - started < 3 or sys.gettrace() is not None  # coverage slows it down
    assert world.registry.counters["flood"] > 10_000
    voice = world.voice[2]
    assert voice is not None
    world.say(2, this, voice)
    world.registry.end_round(this, world.now)
    refused = world.registry.counters["flood"]
    world.round()
    assert world.registry.counters["flood"] == refused
    assert world.states() == {"id1": UP, "id2": UP}


def test_down_rows_are_kept_for_a_time_and_capped() -> None:
    world = crowd(6, limits=RegistryLimits(keep_down=10.0, max_down=3))
    for n in range(1, 5):
        world.leave(n)
        world.now += 1
    assert [i for i, state in world.states().items() if state is DOWN] == ["id2", "id3", "id4"]
    world.now += 7.5
    assert [i for i, state in world.states().items() if state is DOWN] == ["id3", "id4"]
    world.now += 100
    assert world.states() == {"id5": UP, "id6": UP}


def test_forgetting_the_down_rows_of_a_name_frees_the_name() -> None:
    world = crowd(1, limits=RegistryLimits(names=1, keep_down=10.0))
    world.leave(1)
    world.now += 20
    assert world.registry.view(world.now) == ()
    world.join(2, says(provider(2, "question"), sender="s2"))
    world.round()
    assert set(world.registry.snapshot(0)) == {"question"}


def test_a_provider_down_by_silence_returns_with_a_reply_and_is_not_forgotten() -> None:
    world = crowd(2)
    voice, world.voice[1] = world.voice[1], None
    for _ in range(7):
        world.full_round()
    world.voice[1] = voice
    world.full_round()
    assert (world.events[-1].old, world.events[-1].new) == (DOWN, UP)
    world.now += 10_000
    assert world.states() == {"id1": UP, "id2": UP}


def test_loss_of_a_pipe_whose_rows_are_down_is_no_event() -> None:
    world = crowd(2)
    world.voice[1] = None
    for _ in range(7):
        world.full_round()
    world.events.clear()
    world.leave(1)
    assert world.events == []
    assert (world.status().reason, world.status().pipes) == (Reason.MISSED, ())


def test_forgotten_provider_is_found_again() -> None:
    world = crowd(2)
    voice, world.voice[1] = world.voice[1], None
    for _ in range(7):
        world.full_round()
    world.now += 1000
    assert world.states() == {"id2": UP}
    world.voice[1] = voice
    world.full_round()
    assert world.events[-1].old is JOINING
    assert world.found() == {"id1", "id2"}


# Queries


def test_unknown_name_raises_not_found_and_adds_nothing() -> None:
    world = crowd(1)
    for n in range(100):
        with pytest.raises(ServiceNotFound) as caught:
            world.registry.resolve(f"name{n}", random.Random(1))
        assert caught.value.name == f"name{n}"
    assert set(world.registry.snapshot(0)) == {"answer"}


def test_equal_candidates_are_chosen_at_random() -> None:
    world = crowd(4)
    rng = random.Random(7)
    chosen = Counter(world.registry.resolve("answer", rng).id for _ in range(4000))
    assert set(chosen) == {"id1", "id2", "id3", "id4"}
    assert all(850 < times < 1150 for times in chosen.values())


def chosen(world: World, zone: str = "") -> Counter[str]:
    rng = random.Random(7)
    return Counter(world.registry.resolve("answer", rng, Preference((zone,))).id for _ in range(4000))


def test_selection_is_by_zone_then_priority_then_weight() -> None:
    world = World()
    records = [
        provider(1, priority=1, zone="eu", weight=10),
        provider(2, priority=1, zone="eu", weight=30),
        provider(3, priority=2, zone="eu"),
        provider(4, priority=16, zone="us"),
        provider(5, priority=1),
    ]
    world.join(1, says(*records))
    world.round()
    eu = chosen(world, "eu")
    assert set(eu) == {"id1", "id2"}
    assert 2800 < eu["id2"] < 3200
    assert set(chosen(world, "us")) == {"id4"}
    assert set(chosen(world, "asia")) == set(chosen(world)) == {"id1", "id2", "id5"}


def test_zone_is_preferred_while_any_of_its_providers_is_up() -> None:
    world = World()
    world.join(1, says(provider(1, zone="ny", priority=16), sender="a"))
    world.join(2, says(provider(2, zone="ny", priority=15), sender="b"))
    world.join(3, says(provider(3, zone="london", priority=1), sender="c"))
    world.round()
    assert set(chosen(world, "ny")) == {"id2"}
    world.leave(2)
    assert set(chosen(world, "ny")) == {"id1"}
    world.leave(1)
    assert set(chosen(world, "ny")) == {"id3"}


def test_stale_providers_of_the_own_zone_precede_other_zones() -> None:
    world = World()
    for n in range(1, 13):
        world.join(n, says(provider(n, zone="ny" if n > 1 else "london"), sender=f"s{n}"))
    world.full_round()
    for n in range(2, 13):
        world.voice[n] = None
    world.full_round()
    assert [row.stale for row in world.registry.view(world.now)].count(True) == 11
    assert "id1" not in chosen(world, "ny")
    assert set(chosen(world)) == set(chosen(world, "london")) == {"id1"}


def test_priority_1_is_tried_before_2_and_8_is_the_default() -> None:
    world = World()
    for n, record in enumerate(
        (provider(1, priority=1), provider(2, priority=2), provider(3), provider(4, priority=9)), 1
    ):
        world.join(n, says(record, sender=f"s{n}"))
    world.round()
    assert provider(3).priority == 8
    for n in (1, 2, 3, 4):
        assert set(chosen(world)) == {f"id{n}"}
        world.leave(n)


def test_version_1_reply_gets_priority_8_and_is_counted() -> None:
    world = World()
    world.join(1, SurveyReply("a", (provider(1, priority=9),)).encode())
    old = cbor2.dumps(
        {"v": 1, "type": "reply", "sender": "b", "providers": [provider(2).as_map() | {"priority": 3000}]}
    )
    world.join(2, old)
    world.round()
    assert set(chosen(world)) == {"id2"}
    world.full_round()
    assert world.registry.counters["older version"] == world.registry.older == 2


@pytest.mark.parametrize(
    ("weights", "number", "chosen"),
    [
        ((1, 1), 0.0, "id1"),
        ((1, 1), 0.5, "id2"),
        ((0, 1), 0.0, "id2"),
        ((1, 0), 0.99, "id1"),
        ((0, 0), 0.0, "id1"),
        ((0, 0), 0.99, "id2"),
        ((1, 3), 0.26, "id2"),
        ((1, 3), 0.24, "id1"),
    ],
)
def test_weight_is_a_share_of_choices(weights: tuple[int, int], number: float, chosen: str) -> None:
    candidates = [provider(n, weight=weight) for n, weight in enumerate(weights, 1)]
    assert Lane((0, 0, 0, 8), candidates).choose(Script(number)).id == chosen


def test_snapshot_is_immutable() -> None:
    world = crowd(2)
    before = world.registry.snapshot(0)
    assert world.registry.snapshot(0) is before
    world.leave(1)
    assert len(before["answer"]) == 2
    assert len(world.registry.snapshot(0)["answer"]) == 1
    with pytest.raises(TypeError):
        before["x"] = frozenset()  # type: ignore[index]


def test_round_is_complete_when_every_remaining_pipe_has_answered() -> None:
    world = World()
    assert world.registry.complete(world.registry.start_round(world.now))
    for n in (1, 2, 3):
        world.join(n)
    this = world.registry.start_round(world.now)
    world.join(4)  # not asked
    world.say(1, this, says(provider(1), sender="a"))
    world.say(2, this, b"garbage")
    assert not world.registry.complete(this)
    world.say(2, this, text(2))
    world.leave(3)
    assert world.registry.complete(this)


def test_round_with_a_relay_is_complete_only_at_its_deadline() -> None:
    world = World()
    world.join(1)
    this = world.registry.start_round(world.now)
    world.say(1, this, says(provider(1), relay=True))
    assert not world.registry.complete(this)
    world.leave(1)
    assert world.registry.complete(this)


def test_figures_of_the_last_64_rounds_are_kept() -> None:
    world = crowd(3)
    for _ in range(70):
        world.full_round()
    assert [f.number for f in world.registry.figures] == list(range(8, 72))
    assert {(f.asked, f.answered, f.due, f.missed, f.held) for f in world.registry.figures} == {(3, 3, 3, 0, 0)}


@pytest.mark.parametrize("bad", [{"suspect_after": 0}, {"down_after": 1}, {"mass_count": 0}, {"mass_share": 2.0}])
def test_contradictory_rules_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="is"):
        LivenessRules(**bad)


def test_time_that_goes_backwards_stands_still() -> None:
    world = crowd(1)
    since = world.status().since
    world.registry.pipe_left(1, 0.0)
    assert world.status().since >= since


def test_text_of_a_process_that_speaks_cbor_brings_its_suspect_up() -> None:
    world = World()
    world.join(1, says(provider(1)))
    world.round()
    world.voice[1] = None
    world.full_round()
    assert world.states() == {"id1": SUSPECT}
    this = world.registry.start_round(world.now)
    [event] = world.say(1, this, TextReply("answer", "tcp://10.0.0.1:9000").encode())
    assert (event.new, event.reason, world.states()) == (UP, Reason.ANSWERED, {"id1": UP})


def test_lanes_are_kept_for_a_limited_number_of_preferences() -> None:
    world = crowd(2)
    for number in range(3 * PREFERENCES):
        assert world.registry.resolve("answer", random.Random(1), Preference((f"zone{number}",))).id in ("id1", "id2")
        assert len(world.registry._table._lanes["answer"]) <= PREFERENCES


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        ({"suspect_after": 1}, {"suspect_after": 0}),
        ({"suspect_after": 8}, {"suspect_after": 9}),
        ({"mass_count": 1}, {"mass_count": 0}),
        ({"mass_share": 0.0}, {"mass_share": -0.1}),
        ({"mass_share": 1.0}, {"mass_share": 1.1}),
    ],
)
def test_the_bounds_of_rules_are_within_them(within: dict[str, float], beyond: dict[str, float]) -> None:
    LivenessRules(**within)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"suspect_after|mass_"):
        LivenessRules(**beyond)  # type: ignore[arg-type]
