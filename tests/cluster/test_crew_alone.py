"""A job whose worker was lost runs alone; a node says what it has; what waits too long goes back: crew and host."""

from __future__ import annotations

from msgspec.structs import replace

from nngkit.cluster.jobs.crew import Crew
from nngkit.cluster.jobs.messages import (
    Demand,
    Grant,
    Holding,
    Lost,
    Parts,
    Progress,
    Ref,
    Results,
    Returned,
    Start,
    Starting,
    Stop,
    Wanted,
)
from nngkit.cluster.jobs.waiting import PATIENCE
from tests.cluster.test_crew import NOW, block, crew, grant, of
from tests.cluster.test_work import Bench

ALONE = Ref(9, 1, 2, 0)


def alone(fence: int = 2) -> Grant:
    return Grant(1, [replace(block(9, attempt=0), fences=[fence])])


def busy(running: int = 2, waiting: int = 0) -> Crew:
    """Return a crew of two slots whose jobs have been short, with some that run, and some that wait."""
    made = crew()
    made.from_parent(grant(100), NOW)
    made.done(made.take().start[0], b"", NOW + 0.0001)
    made.from_parent(grant(*range(1, running + waiting + 1)), NOW)
    assert len(made.take().start) == running
    return made


def test_a_job_that_runs_alone_waits_until_nothing_runs_and_sends_back_what_waits() -> None:
    made = busy(running=2, waiting=2)
    first, second = made._running.values()
    made.from_parent(alone(), NOW)
    effects = made.take()
    assert of(Returned, effects) == [Returned([Ref(3, 1, 1, 1), Ref(4, 1, 1, 1)])]
    assert of(Holding, effects) == [Holding([ALONE])]
    assert isinstance(effects.up[0], Demand), "the credit is withdrawn before jobs go back"
    made.done(first, b"", NOW)
    assert not of(Starting, made.take())
    made.from_parent(grant(5), NOW)  # it was on its way
    assert of(Returned, made.take()) == [Returned([Ref(5, 1, 1, 1)])]
    made.done(second, b"", NOW)
    effects = made.take()
    assert of(Starting, effects) == [Starting([ALONE])]
    assert not of(Demand, effects)
    made.from_parent(Start([Ref(9, 1, 2, 2)]), NOW)
    (job,) = made.take().start
    made.done(job, b"", NOW + 1)
    (demand,) = of(Demand, made.take())
    assert isinstance(demand, Demand)
    assert demand.rows[0].change > 0


def test_a_stopped_job_is_company_until_its_function_has_ended() -> None:
    made = busy(running=1)
    (job,) = made._running.values()
    made.from_parent(alone(), NOW)
    made.from_parent(Stop([job.ref]), NOW)
    assert not of(Starting, made.take())
    made.released(job, NOW)
    assert of(Starting, made.take()) == [Starting([ALONE])]


def test_a_node_that_does_not_become_idle_sends_the_job_back_and_waits_longer_the_next_time() -> None:
    for fence, seconds in ((1, 0.5), (2, 1.0), (3, 2.0), (8, 64.0), (99, 64.0)):
        made = busy(running=1)
        made.from_parent(alone(fence), NOW)
        made.take()
        assert made.wake_at <= NOW + seconds
        made.tick(NOW + seconds - 0.01)
        assert not of(Returned, made.take())
        made.tick(NOW + seconds)
        effects = made.take()
        assert of(Returned, effects) == [Returned([Ref(9, 1, fence, 0)])]
        made.from_parent(grant(7), NOW + seconds)
        assert len(made.take().start) == 1


def test_of_several_that_are_to_run_alone_a_node_takes_one() -> None:
    made = crew(4)
    made.from_parent(Grant(1, [block(7, 8, 9, attempt=0)]), NOW)
    effects = made.take()
    assert of(Starting, effects) == [Starting([Ref(7, 1, 1, 0)])]
    assert of(Returned, effects) == [Returned([Ref(8, 1, 1, 0), Ref(9, 1, 1, 0)])]


def test_an_earlier_grant_of_the_same_job_is_company_too() -> None:
    made = crew(2)
    made.from_parent(grant(9), NOW)
    (old,) = made.take().start
    made.from_parent(alone(), NOW)
    assert not of(Starting, made.take())
    made.tick(NOW + 10.0)
    made.take()
    made.from_parent(alone(3), NOW + 10.0)
    made.from_parent(Stop([old.ref]), NOW + 10.0)
    made.released(old, NOW + 10.0)
    assert of(Starting, made.take()) == [Starting([Ref(9, 1, 3, 0)])]


def test_jobs_of_a_lost_worker_are_placed_one_after_the_other_and_let_others_pass() -> None:
    bench = Bench()
    bench.submit(1, 2, 3)
    refs = [Ref(serial, 7, fence, attempt) for serial, fence, attempt in bench.demand(3)]
    bench.host.receive(3, Lost(refs), bench.now)
    bench.turn(0.1)
    bench.turn(1.1)
    bench.submit(4)
    (one, other) = bench.demand(9)
    assert one[2] == 0
    assert other[2] == 1
    bench.down.clear()
    bench.host.receive(3, Holding([Ref(one[0], 7, one[1], 0)]), bench.now)
    bench.turn()
    ((second, fence, attempt),) = bench.granted()
    assert attempt == 0
    bench.down.clear()
    bench.host.receive(3, Returned([Ref(second, 7, fence, 0)]), bench.now)
    bench.turn()
    assert [row[2] for row in bench.granted()] == [0]
    bench.down.clear()
    bench.turn(1.1)  # an earlier version says nothing before it has a slot
    assert [row[2] for row in bench.granted()] == [0]


def test_a_node_says_each_third_of_the_visibility_that_it_has_a_job() -> None:
    made = crew()
    made.from_parent(grant(1), NOW)
    (job,) = made.take().start
    assert made.wake_at == NOW + 10.0
    for number in range(1, 6):
        made.tick(NOW + 10.0 * number)
        assert of(Holding, made.take()) == [Holding([job.ref])]
    made.progress(job, 0.5, NOW + 55.0)
    assert of(Progress, made.take())
    made.tick(NOW + 60.0)
    assert not of(Holding, made.take())
    made.part(job, b"part", NOW + 64.0)
    assert of(Parts, made.take())
    made.tick(NOW + 74.0)
    assert of(Holding, made.take()) == [Holding([job.ref])]
    made.detached(NOW + 75.0)
    made.tick(NOW + 90.0)
    assert made.wake_at == float("inf")
    made.attached(10, 2, NOW + 100.0)
    assert of(Holding, made.take()) == [Holding([job.ref])]


def test_signs_of_several_jobs_go_together() -> None:
    made = crew()
    made.from_parent(grant(1), NOW)
    made.from_parent(grant(2), NOW + 4.0)
    made.take()
    made.tick(NOW + 10.0)
    assert of(Holding, made.take()) == [Holding([Ref(1, 1, 1, 1), Ref(2, 1, 1, 1)])]


def test_a_job_is_given_to_another_only_if_its_node_is_silent() -> None:
    bench = Bench()
    bench.submit(1)
    ((serial, fence, attempt),) = bench.demand(9)
    bench.down.clear()
    for _ in range(10):
        bench.turn(20.0)
        bench.host.receive(3, Holding([Ref(serial, 7, fence, attempt)]), bench.now)
    assert not bench.granted()
    bench.turn(31.0)
    assert [row[1:] for row in bench.granted()] == [(2, 0)]
    assert Stop([Ref(serial, 7, 1, 1)]) in bench.down


def test_what_waits_behind_a_longer_job_goes_back() -> None:
    made = busy(running=2, waiting=3)
    made.tick(NOW + PATIENCE)
    effects = made.take()
    assert of(Returned, effects) == [Returned([Ref(serial, 1, 1, 1) for serial in (3, 4, 5)])]
    assert made._waiting.stalled
    made.done(next(iter(made._running.values())), b"", NOW + 1.0)
    assert not made._waiting.stalled


def test_a_node_whose_jobs_flow_keeps_as_many_as_it_has_started() -> None:
    made = busy(running=2, waiting=5)
    for job in list(made._running.values()):
        made.done(job, b"", NOW + PATIENCE / 2)
    made.tick(NOW + PATIENCE)
    assert of(Returned, made.take()) == [Returned([Ref(7, 1, 1, 1)])]
    assert [job.serial for job in made._waiting] == [5, 6]


def test_a_look_that_comes_late_sends_nothing_back_once() -> None:
    made = busy(running=2, waiting=1)
    made.tick(NOW + 1.0)
    assert not of(Returned, made.take())
    made.tick(NOW + 2.0)
    assert of(Returned, made.take())


def test_a_full_node_without_an_end_asks_for_nothing_ahead() -> None:
    made = busy(running=2)
    asked = sum(told.jobs for told in made._asked._told.values())
    assert asked > 0
    made.tick(NOW + PATIENCE)
    made.take()
    assert sum(told.jobs for told in made._asked._told.values()) == 0


def test_a_node_that_leaves_fails_what_runs_and_returns_what_waits() -> None:
    made = busy(running=2, waiting=1)
    made.leave(NOW + 1)
    effects = made.take()
    assert of(Returned, effects) == [Returned([Ref(3, 1, 1, 1)])]
    (results,) = of(Results, effects)
    assert isinstance(results, Results)
    assert [(row.serial, row.retry, row.error) for row in results.failures] == [(1, True, "lost"), (2, True, "lost")]
    assert not effects.start


def test_returned_jobs_come_again_in_their_order() -> None:
    bench = Bench()
    bench.submit(1, 2, 3)
    refs = [Ref(serial, 7, fence, attempt) for serial, fence, attempt in bench.demand(3)]
    bench.down.clear()
    bench.host.receive(3, Returned(refs), bench.now)
    bench.host.receive(3, Demand([Wanted(0, None, 3, 4)]), bench.now)
    bench.turn()
    assert [row[0] for row in bench.granted()] == [ref.serial for ref in refs]
