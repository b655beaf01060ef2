"""Histories of the pure modules of discovery, for test_decisions.py.

Times are multiples of 1/8 s: many meet a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any, Final

from nngkit.discovery.lanes import Candidate, Preference, explain, find_lane, lanes
from nngkit.discovery.messages import SurveyReply, TextReply
from nngkit.discovery.provider import Event, Provider, Reason, State, Status
from nngkit.discovery.questions.messages import AskQuery, SurveyAnswer
from nngkit.discovery.questions.round import OutcomeMerger, QuestionRound
from nngkit.discovery.questions.values import Outcome, bids, deadline, first, make_result
from nngkit.discovery.registry.liveness import LivenessRules, RegistryLimits, Round
from nngkit.discovery.registry.merged_view import MergedView
from nngkit.discovery.registry.registry import Registry
from nngkit.errors import ServiceNotFound

ZONES: Final = ("ny", "london", "")
PREFERENCES: Final = (
    Preference(),
    Preference(("ny", "london")),
    Preference(("london",), suspects="near"),
    Preference(tags=frozenset(("gpu",))),
    Preference(("ny",), version="2"),
)


def provider(rng: Random, number: int) -> Provider:
    """Return a provider that differs from one moment to the next."""
    return Provider(
        ("answer", "answer", "price")[number % 3],
        f"tcp://10.0.0.{number % 5}:1",
        f"id{number}",
        rng.choice((1, 1, 1, 2)),
        version=rng.choice(("", "2", "2.1", "20")),
        zone=ZONES[number % 3],
        priority=rng.choice((8, 8, 8, 7)),
        weight=rng.choice((100, 100, 1, 0)),
        tags=frozenset(rng.sample(("gpu", "ssd"), rng.randrange(3))),
        load=rng.choice((0.0, 0.5)),
        draining=rng.random() < 0.1,
    )


def key_of(one: Provider) -> Any:
    """Return what tells providers of these histories apart, in short."""
    return one.name[0], one.address[11:], one.id, one.epoch, one.weight


def status_of(row: Status) -> Any:
    """Return a row as plain values."""
    told = row.state.value, row.reason.value, row.since, row.misses, row.last_reply, row.rtt, row.stale, row.pipes
    return *key_of(row.provider), row.provider.load, *told, row.round


def events_of(events: Iterable[Event]) -> Any:
    """Return events as plain values."""
    return [
        (each.name, key_of(each.provider), each.old.value, each.new.value, each.reason.value, each.time, each.round)
        for each in events
    ]


def registry(seed: int) -> Iterator[Any]:
    """Play pipes, rounds and replies in any order, with small caps."""
    rng = Random(seed)
    made = Registry(
        rules=LivenessRules(2, 5, mass_count=(3, 4, 100)[seed], mass_share=0.5),
        limits=RegistryLimits(
            providers=12, names=3, per_pipe=4, pipes=9, work_per_round=(4096, 20, 60)[seed], keep_down=30.0, max_down=3
        ),
        domain="" if seed < 2 else "lab",
    )
    now, pipes, number, rounds = 0.0, list[int](), 0, list[Round]()
    voices: dict[int, bytes] = {}
    for step in range(350):
        said: Any = None
        match rng.choices(("join", "leave", "start", "reply", "end", "voice"), (2, 0.6, 3, 10, 3, 2))[0]:
            case "join":
                number += 1
                pipes.append(number)
                said = events_of(made.pipe_joined(number, now))
            case "leave" if pipes:
                pipe = rng.choice(pipes)
                said = events_of(made.pipe_left(pipe, now))
            case "start":
                rounds.append(made.start_round(now, reask=rng.random() < 0.3, new=rng.random() < 0.1))
                said = rounds[-1].number, sorted(rounds[-1].asked)
            case "reply" if rounds and pipes:
                some = pipes if rng.random() < 0.2 else rng.sample(pipes, 1)
                this = rng.choice(rounds[-3:])
                said = []
                for pipe in some:
                    body = voices.setdefault(pipe, voice(rng, pipe)) if rng.random() < 0.9 else voice(rng, pipe)
                    elapsed = rng.choice((None, 0.25))
                    said.append(events_of(made.reply(pipe, rng.choice((this, this.number)), body, now, elapsed)))
            case "end" if rounds:
                result = made.end_round(rng.choice(rounds[-2:]), now)
                said = result.figures, events_of(result.events), result.ask_again, result.silent_pipes
            case "voice" if pipes:
                voices[rng.choice(pipes)] = voice(rng, 1 + step % max(pipes))
        since = rng.randrange(made.version + 1)
        changes = made.changes(since, rng.choice((1, 3, 100)))
        yield (
            said,
            [status_of(row) for row in made.view(now)],
            changes and (changes[0], [status_of(row) for row in changes[1]], changes[2]),
            {name: sorted(map(key_of, found)) for name, found in sorted(made.snapshot(now).items())},
            [resolved(made, name, rng, preference) for name in ("answer", "price") for preference in PREFERENCES],
            [(made.complete(each), sorted(made.text_pipes(each))) for each in rounds[-2:]],
            (made.unasked, made.joining, made.older, made.version, made.over(pipes)),
            (sorted(made.pipes_of("answer")), sorted(map(status_of, made.named("price")), key=repr)),
        )
        now += rng.choice((-1.0, 0.0, 0.0, 0.125, 0.5, 2.0, 10.0))
    yield sorted(made.counters.items()), made.figures


def voice(rng: Random, pipe: int) -> bytes:
    """Return the reply of a process that is on a pipe: mostly in CBOR, of one or a few providers."""
    some = [provider(rng, pipe)]
    while rng.random() < 0.25:
        some.append(provider(rng, rng.randrange(12)))
    some = list({each.key: each for each in some}.values())
    match rng.randrange(14):
        case 0:
            return TextReply(some[0].name, some[0].address).encode()
        case 1:
            return SurveyReply(f"s{pipe}", bye=True).encode()
        case 2:
            return SurveyReply(f"s{pipe}", tuple(some), relay=True).encode()
        case 3:
            return rng.choice((b"", b"\xa0", b"?", b"\xbf" + bytes(70_000)))
        case 4:
            return SurveyReply(f"s{pipe}", tuple(some), domain="lab").encode()
        case 5:
            return SurveyReply(f"s{pipe}", tuple(some), version=1).encode()
        case 6:
            return SurveyReply(f"s{pipe % 2}", tuple(some)).encode()
    return SurveyReply(f"s{pipe}", tuple(some), domain=rng.choice(("", "", "lab"))).encode()


def resolved(view: Registry | MergedView, name: str, rng: Random, preference: Preference) -> Any:
    """Return the provider that is chosen, or the reason why none is."""
    try:
        return key_of(view.resolve(name, rng, preference))
    except ServiceNotFound as error:
        return str(error)


def status(rng: Random, number: int, *pipes: int, now: float = 0.0) -> Status:
    """Return a row in any state."""
    one = provider(rng, number)
    state, reason = rng.choice((State.UP, State.UP, *State)), rng.choice(tuple(Reason))
    heard = rng.choice((None, now))
    return Status(one, state, reason, now, rng.randrange(3), heard, 0.5, rng.random() < 0.2, pipes, rng.randrange(9))


def merged(seed: int) -> Iterator[Any]:
    """Play the reports of daemons that disagree, fall silent and are restarted."""
    rng, now = Random(seed), 0.0
    addresses = ["a", "b", "c"][: seed + 1]
    made = MergedView(addresses)
    starts = dict.fromkeys(addresses, 0)
    for _ in range(200):
        address = rng.choice(addresses)
        match rng.choices(("saw", "changed", "confirmed", "silent", "expire"), (2, 6, 1, 1, 2))[0]:
            case "saw":
                starts[address] += rng.random() < 0.4
                rows = [status(rng, number, now=now) for number in rng.sample(range(7), rng.randrange(5))]
                made.saw(address, f"{address}{starts[address]}", rows, now)
            case "changed":
                rows = [status(rng, number, now=now) for number in rng.sample(range(7), rng.randrange(1, 3))]
                gone = [provider(rng, rng.randrange(7)).key for _ in range(rng.randrange(2))]
                made.changed(address, rows, gone, now)
            case "confirmed":
                made.confirmed(address, now)
            case "silent":
                made.silent(address, now)
        until = made.expire(now)
        found = list[Any]()
        for preference in PREFERENCES:
            try:
                one = made.resolution("answer", rng, preference, now=now)
                found.append((key_of(one.provider), one.age, one.reason, one.daemons, one.fresh))
            except ServiceNotFound as error:
                found.append(str(error))
        yield (
            (
                sorted(events_of(made.take_events()), key=repr),
                until,
                made.fresh,
                [made.answers(each) for each in addresses],
            ),
            {name: sorted(map(key_of, some)) for name, some in sorted(made.snapshot().items())},
            [status_of(row) for _, row in sorted(made.merged.items())],
            (found, resolved(made, "price", rng, PREFERENCES[1])),
        )
        now += rng.choice((0.0, 0.5, 1.0, 2.0, 3.0))


def question(seed: int) -> Iterator[Any]:
    """Play questions: their providers come and go, and answer in any order."""
    rng = Random(seed)
    for count in (None, 1, 2, None):
        kind = rng.choice(("ask", "stats"))
        ask = AskQuery("q1", kind=kind, name=rng.choice((None, "answer")), count=count)
        pipes = range(rng.randrange(1, 6))
        made = QuestionRound(ask, pipes, limit=20)
        known = [replace(provider(rng, number), weight=1) for number in range(6)]
        known.append(Provider("answer", "tcp://10.0.0.9:1"))  # in text form
        for _ in range(40):
            if rng.random() < 0.3:
                rows = [
                    Status(
                        one, rng.choice((State.UP, *State)), Reason.ANSWERED, 0.0, pipes=tuple(rng.sample(range(6), 2))
                    )
                    for one in rng.sample(known, rng.randrange(5))
                ]
                made.see(rows, rng.sample(range(6), rng.randrange(3)))
            else:
                answer = SurveyAnswer(rng.choice(known[:6]).key, **rng.choice(ANSWERS))
                body = b"?" if rng.random() < 0.1 else answer.encode()
                made.receive(rng.randrange(6), body, 0.125)
            yield made.complete(), made.complete(joining=False), sorted(made.counters.items())
        outcomes = made.end()
        yield [outcome_of(each) for each in outcomes], sorted(made.counters.items())
        merger = OutcomeMerger(count)
        for _ in range(3):
            merger.add(replace(each, kind=rng.choice(KINDS)) for each in rng.sample(outcomes, len(outcomes)))
            yield merger.enough, [outcome_of(each) for each in merger.outcomes()]
        for until in (deadline(1.0), first(2), bids(2)):
            result = make_result(merger.outcomes(), until, 0.5)
            yield [(key_of(each.provider), each.body, each.bid) for each in result.answers], result.best is None, [
                len(each) for each in (result.expected, result.answered, result.declined, result.failed, result.missing)
            ], [key_of(each) for each in result.expected]  # fmt: skip


ANSWERS: Final[tuple[dict[str, Any], ...]] = (
    {"body": b"1234567", "price": 2.0},
    {"body": b"123456", "price": 1.0},
    {"body": b"1234567"},
    {"declined": True},
    {"failed": "ValueError: x"},
)
KINDS: Final = ("answered", "failed", "declined", "missing")


def outcome_of(one: Outcome) -> Any:
    """Return an outcome as plain values."""
    return key_of(one.provider), one.kind, one.body, one.price, one.rtt, one.message


def chosen(seed: int) -> Iterator[Any]:
    """Choose among rows, by each preference."""
    rng = Random(seed)
    for _ in range(150):
        rows: list[Candidate] = [status(rng, number) for number in range(rng.randrange(8))]
        for preference in PREFERENCES:
            found = lanes(rows, preference)
            best = find_lane(rows, preference)
            assert (best and best.providers) == (found[0].providers if found else None)
            picks = [key_of(best.choose(rng)) for _ in range(4)] if best else str(explain("answer", rows, preference))
            yield [(tuple(map(int, lane.rank)), [key_of(one) for one in lane.providers]) for lane in found], picks
