"""Histories of the pure modules of calls, for test_decisions.py. Times are multiples of 1/8 s: many meet a bound."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Final, get_args

from nngkit.calls.budget import Balance, RetryBudget
from nngkit.calls.health import Ejection
from nngkit.calls.pool import Member, Outcome, Policy, Pool
from nngkit.discovery.lanes import Preference
from nngkit.discovery.provider import Provider, State

STATES: Final = (State.UP, State.UP, State.UP, State.SUSPECT, State.DRAINING, State.DOWN)


def pool(seed: int) -> Iterator[Any]:
    """Play providers that come, fail and go, under each policy in turn."""
    for policy in get_args(Policy):
        rng = Random(seed)
        made = Pool(
            preference=Preference(("ny", "london"), tags=frozenset(("x",) if seed == 2 else ())),
            policy=policy,
            ejection=Ejection(failures=2, shortest=1.0, longest=4.0, ramp=4.0 if seed else 0.0, most=0.5),
            failback=2.0,
            most=4,
            salt=bytes([seed]),
            rng=Random(seed + 1),
        )
        now, calls = 0.0, list[Member]()
        for _ in range(250):
            yield pool_step(made, rng, now, calls)
            now += rng.choice((0.0, 0.0, 0.125, 0.5, 1.0, 2.0))


def pool_step(made: Pool, rng: Random, now: float, calls: list[Member]) -> Any:
    """Make one step, and return all that can be seen after it."""
    said: Any = None
    members = list(made.members.values())
    match rng.choices(("news", "socket", "call", "end", "forget"), (2, 2, 5, 4, 0.3))[0]:
        case "news":
            number = rng.randrange(6)
            one = Provider(
                "answer",
                f"tcp://10.0.0.{number}:1",
                f"id{number}",
                rng.choice((1, 1, 1, 2, 3)),
                zone=("ny", "london", "", "ny", "london", "paris")[number],
                priority=rng.choice((1, 1, 2)),
                weight=(1, 3, 2, 0, 1, 1)[number],
                tags=frozenset(("x",) if rng.random() < 0.8 else ()),
            )
            member = made.apply(one, rng.choice(STATES))
            said = member and (member.place, member.state.value, member.leaving, member.beside is not None)
        case "socket" if members:
            made.connected(rng.choice(members), rng.random() < 0.7)
        case "call":
            chosen = made.choose(now, rng.sample(members, min(len(members), rng.randrange(3))))
            if chosen is not None:
                made.begin(chosen)
                calls.append(chosen)
            said = chosen and chosen.place
        case "end" if calls:
            member = calls.pop(rng.randrange(len(calls)))
            outcome = rng.choices(get_args(Outcome), (6, 2, 1, 4, 4, 1, 1))[0]
            said = outcome, made.end(member, outcome, rng.choice((0.001, 0.01, 0.5)), now)
        case "forget" if members:
            made.forget(rng.choice(members))
    wanted = [member.place[1] for member in made.wanted()]
    return said, made.usable(now), made.lane, made.failovers, made.failbacks, wanted, str(made.missing("answer")), [
        (
            each.place[1],
            each.provider.epoch,
            each.connected,
            (each.requests, each.replies, each.outstanding, each.times.count),
            round(each.latency, 6),
            (each.health.until, each.health.returned, each.health.failures, each.health.ejections),
            round(each.health.share(now), 6),
        )
        for each in made.members.values()
    ]  # fmt: skip


def balance(seed: int) -> Iterator[Any]:
    """Play calls, retries, and retries that were given back."""
    rng, now = Random(seed), 0.0
    made = Balance(RetryBudget(share=(0.25, 0.5, 1.0)[seed], per_second=(2, 0, 0.5)[seed]), now)
    for _ in range(300):
        match rng.choice(("call", "call", "take", "take", "back")):
            case "call":
                made.call(now)
            case "take":
                yield now, [made.take(now) for _ in range(rng.randrange(1, 4))]
            case _:
                made.put_back(now, rng.choice((1.0, 0.5)))
        now += rng.choice((0.0, 0.125, 0.5, 1.0, 1.0, 9.0, 10.0, 11.0) if rng.random() < 0.3 else (0.0, 0.125))
