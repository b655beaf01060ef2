"""A crew: credit, starting, passing down, results that are kept, losses that are reported once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nngkit.cluster.jobs.crew import Crew
from nngkit.cluster.jobs.messages import (
    Block,
    Demand,
    Failed,
    Grant,
    Holding,
    Lost,
    Message,
    Part,
    Parts,
    Ref,
    Results,
    Returned,
    Start,
    Starting,
    Stop,
    Taken,
    Wanted,
)
from nngkit.cluster.jobs.sharing import Offer, evenly
from nngkit.cluster.jobs.values import CrewEffects, CrewLimits

NOW = 10.0


def block(*serials: int, group: int = 0, kind: str = "work", attempt: int = 1) -> Block:
    count = len(serials)
    return Block(group, kind, 30.0, False, list(serials), [1] * count, [attempt] * count, [b"p"] * count)


def grant(*serials: int, term: int = 1, kind: str = "work", attempt: int = 1) -> Grant:
    return Grant(term, [block(*serials, kind=kind, attempt=attempt)])


def crew(slots: int = 2, *, children: dict[int, int] | None = None) -> Crew:
    made = Crew("b", kinds={"work"}, slots=slots)
    for link, jobs in (children or {}).items():
        made.child_up(link)
        made.from_child(link, Demand([Wanted(0, ["work"], jobs, jobs, jobs)]), NOW)
    made.attached(9, 1, NOW)
    made.take()
    return made


def of(kind: type[Message], effects: CrewEffects) -> list[Message]:
    return [message for message in effects.up if isinstance(message, kind)]


def test_credit_is_for_free_slots_of_the_node_and_what_its_children_ask_for() -> None:
    made = Crew("b", kinds={"work"}, slots=2)
    made.child_up(5)
    made.from_child(5, Demand([Wanted(0, ["work"], 3, 3, 1), Wanted(1, ["other"], 1, 1)]), NOW)
    made.attached(9, 1, NOW)
    assert of(Demand, made.take()) == [Demand([Wanted(0, ["work"], 5, 5, 3), Wanted(1, ["other"], 1, 1)])]
    made.child_down(5, NOW)
    assert of(Demand, made.take()) == [Demand([Wanted(0, None, -3, 2, -1), Wanted(1, None, -1, 0)])]


def test_jobs_start_in_free_slots_and_the_next_when_one_is_done() -> None:
    made = crew()
    made.from_parent(grant(1, 2, 3), NOW)
    jobs = made.take().start
    assert [job.serial for job in jobs] == [1, 2]
    made.done(jobs[0], b"r", NOW + 1)
    effects = made.take()
    assert [job.serial for job in effects.start] == [3]
    assert of(Results, effects) == [Results("b", 1, [1], [1], [b"r"], [1000], [])]


def test_a_job_without_a_start_waits_for_a_slot_and_asks() -> None:
    made = crew(1)
    made.from_parent(grant(1), NOW)
    (first,) = made.take().start
    made.from_parent(grant(2, attempt=0), NOW)
    assert not of(Starting, made.take())
    made.done(first, b"r", NOW)
    effects = made.take()
    assert (effects.start, of(Starting, effects)) == ([], [Starting([Ref(2, 1, 1, 0)])])
    made.tick(NOW + 5)
    assert of(Starting, made.take()) == [Starting([Ref(2, 1, 1, 0)])], "the answer may be lost"
    made.from_parent(Start([Ref(2, 1, 1, 3)]), NOW + 5)
    made.from_parent(Start([Ref(2, 1, 1, 3)]), NOW + 5)
    (job,) = made.take().start
    assert (job.serial, job.attempt, job.started) == (2, 3, NOW + 5)
    made.tick(NOW + 9)
    assert not of(Starting, made.take())


def test_a_job_that_has_asked_may_be_stopped_given_up_and_returned() -> None:
    for end in ("stop", "drain"):
        made = crew(1)
        made.from_parent(grant(2, attempt=0), NOW)
        made.take()
        if end == "stop":
            made.from_parent(Stop([Ref(2, 1, 1, 0)]), NOW)
        else:
            made.drain(NOW)
        effects = made.take()
        assert (effects.stop, effects.start) == ([], [])
        assert of(Returned, effects) == ([] if end == "stop" else [Returned([Ref(2, 1, 1, 0)])])
        made.from_parent(Start([Ref(2, 1, 1, 1)]), NOW)
        assert made.take().start == []


def test_an_answer_to_a_child_that_has_asked_is_passed_on() -> None:
    made = crew(0, children={5: 4})
    made.from_parent(grant(2, attempt=0), NOW)
    made.take()
    asked = Starting([Ref(2, 1, 1, 0)])
    made.from_child(5, asked, NOW)
    assert of(Starting, made.take()) == [asked]
    allowed = Start([Ref(2, 1, 1, 2)])
    made.from_parent(allowed, NOW)
    assert made.take().down == [(5, allowed)]
    made.child_down(5, NOW)
    assert of(Lost, made.take()) == [Lost([Ref(2, 1, 1, 2)])]


def test_jobs_go_where_most_credit_is() -> None:
    made = crew(children={5: 4})
    made.from_parent(grant(1, 2, 3), NOW)
    effects = made.take()
    assert len(effects.start) == 1
    assert effects.down == [(5, Grant(1, [Block(0, "work", 30.0, False, [2, 3], [1, 1], [1, 1], [b"p", b"p"])]))]


def test_a_job_goes_to_an_idle_child_before_one_that_takes_jobs_ahead() -> None:
    made = Crew("b")
    for link, idle in ((5, 0), (6, 1)):
        made.child_up(link)
        made.from_child(link, Demand([Wanted(0, ["work"], 2, 2 * link, idle)]), NOW)
    made.attached(9, 1, NOW)
    assert of(Demand, made.take()) == [Demand([Wanted(0, ["work"], 4, 22, 1)])]
    made.from_parent(grant(1), NOW)
    made.from_parent(grant(2), NOW)
    effects = made.take()
    assert [(link, each.blocks[0].serials) for link, each in effects.down if isinstance(each, Grant)] == [
        (6, [1]),
        (5, [2]),
    ]
    assert not of(Demand, effects)


def test_a_slot_that_becomes_idle_is_told_although_the_rise_of_the_credit_is_small() -> None:
    made = crew(slots=1)
    made.from_parent(grant(1), NOW)
    (job,) = made.take().start
    made.done(job, b"", NOW + 0.0001)
    assert of(Demand, made.take()) == [Demand([Wanted(0, None, 201, 1, 1)])]
    made.from_parent(grant(2), NOW + 1)
    (job,) = made.take().start
    made.done(job, b"", NOW + 1.0001)
    assert of(Demand, made.take()) == [Demand([Wanted(0, None, 1, 1, 1)])]


@given(
    st.integers(0, 40),
    st.lists(st.builds(Offer, st.none(), st.integers(1, 9), st.integers(0, 4), st.integers(-3, 4)), min_size=1),
)
def test_jobs_are_divided_among_idle_slots_first(count: int, offers: list[Offer]) -> None:
    shares = evenly("work", count, offers)
    idle = [max(0, min(offer.credit, offer.idle)) for offer in offers]
    assert sum(shares) == min(count, sum(offer.credit for offer in offers))
    assert all(0 <= share <= offer.credit for share, offer in zip(shares, offers, strict=True))
    if sum(idle) >= count:
        assert all(share <= most for share, most in zip(shares, idle, strict=True))
    else:
        assert all(share >= least for share, least in zip(shares, idle, strict=True))


def test_a_result_is_kept_until_it_is_taken() -> None:
    made = crew()
    made.from_parent(grant(1), NOW)
    (job,) = made.take().start
    made.done(job, b"r", NOW)
    assert of(Results, made.take())
    made.tick(NOW + 1.0)
    assert not of(Results, made.take())
    made.tick(NOW + 2.0)
    assert of(Results, made.take())
    made.attached(10, 2, NOW + 3.0)
    assert of(Results, made.take())
    made.from_host(Taken([1], []))
    made.attached(11, 3, NOW + 9.0)
    assert not of(Results, made.take())
    assert made.busy == 0


def test_a_node_that_attaches_reports_what_it_and_its_children_have() -> None:
    made = crew(slots=1, children={5: 1})
    made.from_parent(grant(1, 2, 3), NOW)
    made.take()
    made.attached(10, 2, NOW)
    (holding,) = of(Holding, made.take())
    assert isinstance(holding, Holding)
    assert {ref.serial: ref for ref in holding.refs} == {serial: Ref(serial, 1, 1, 1) for serial in (1, 2, 3)}


def test_a_child_that_has_moved_is_not_reported_as_lost() -> None:
    made = crew(slots=0, children={5: 1, 6: 0})
    made.from_parent(grant(1), NOW)
    made.from_child(6, Holding([Ref(1, 1, 1, 1)]), NOW)
    made.take()
    made.child_down(5, NOW)
    assert not of(Lost, made.take())
    made.child_down(6, NOW)
    assert of(Lost, made.take()) == [Lost([Ref(1, 1, 1, 1)])]


def test_an_old_parent_that_reports_the_jobs_of_this_node_is_not_believed() -> None:
    made = crew(children={5: 0})
    made.from_parent(grant(1), NOW)
    made.take()
    made.from_child(5, Holding([Ref(1, 1, 1, 1)]), NOW)
    assert not of(Holding, made.take())
    assert made.passed == 0


def test_a_stop_goes_to_the_child_with_that_grant_although_a_later_one_was_passed_to_another() -> None:
    made = crew(slots=0, children={5: 1, 6: 0})
    made.from_parent(grant(1), NOW)
    made.take()
    made.from_child(6, Demand([Wanted(0, ["work"], 1, 1)]), NOW)
    made.attached(9, 2, NOW)
    made.from_parent(grant(1, term=2), NOW)
    assert [link for link, _ in made.take().down] == [6]
    assert made.passed == 2
    old, new = Ref(1, 1, 1, 1), Ref(1, 2, 1, 1)
    made.from_parent(Stop([old]), NOW)
    assert made.take().down == [(5, Stop([old]))]
    made.from_child(5, Lost([old]), NOW)
    assert not of(Lost, made.take())
    made.child_down(6, NOW)
    assert of(Lost, made.take()) == [Lost([new])]
    assert made.passed == 0


def test_a_late_report_of_an_earlier_grant_hides_no_later_one() -> None:
    made = crew(slots=0, children={5: 1, 6: 0})
    made.from_parent(grant(1, 2, term=2, attempt=0), NOW)
    made.take()
    old, new = Ref(1, 1, 1, 1), Ref(1, 2, 1, 0)
    made.from_child(6, Holding([old]), NOW)
    assert of(Holding, made.take()) == [Holding([old])]
    made.from_parent(Start([new]), NOW)
    assert made.take().down == [(5, Start([new]))]
    for message in (
        Results("c", 1, [1], [1], [b"r"], [0], []),
        Results("c", 1, [], [], [], [], [Failed(1, 1, True, "", "", 0)]),
    ):
        made.from_child(6, Holding([old]), NOW)
        assert made.passed == 2
        made.from_child(6, message, NOW)
        assert made.passed == 1
    made.from_child(5, Results("d", 2, [1], [1], [b"r"], [0], []), NOW)
    assert made.passed == 0


def test_a_stop_is_answered_as_a_report_of_the_child_may_have_crossed_it() -> None:
    ref = Ref(1, 1, 1, 1)
    parent, child = crew(slots=0, children={5: 1}), crew(1)
    parent.from_parent(grant(1), NOW)
    ((_, granted),) = parent.take().down
    child.from_parent(granted, NOW)
    child.attached(9, 2, NOW)
    crossing = of(Holding, child.take())
    parent.from_parent(Stop([ref]), NOW)
    ((_, stop),) = parent.take().down
    for message in crossing:
        parent.from_child(5, message, NOW)
    assert parent.passed == 1
    child.from_parent(stop, NOW)
    for message in child.take().up:
        parent.from_child(5, message, NOW)
    assert parent.passed == 0
    assert of(Lost, parent.take()) == [Lost([ref])]


def test_grants_that_children_report_are_listed_up_to_a_limit() -> None:
    made = Crew("b", limits=CrewLimits(passed=2))
    made.child_up(5)
    made.attached(9, 1, NOW)
    made.from_child(5, Holding([Ref(1, 1, fence, 1) for fence in (1, 2, 3)]), NOW)
    assert (made.passed, made.stats.bad) == (2, 1)
    made.from_child(5, Holding([Ref(1, 1, 1, 1)]), NOW)
    assert (made.passed, made.stats.bad) == (2, 1)
    made.attached(9, 2, NOW)
    held = [ref for message in of(Holding, made.take()) for ref in message.refs]  # type: ignore[attr-defined]
    assert {ref.fence for ref in held} == {1, 2, 3}


def test_grants_of_a_deposed_host_are_dropped() -> None:
    made = crew()
    made.attached(9, 2, NOW)
    made.from_parent(grant(1, term=1), NOW)
    assert not made.take().start
    assert made.stats.stale == 1


def test_what_the_node_cannot_do_is_returned() -> None:
    made = crew()
    made.from_parent(grant(1, kind="unknown"), NOW)
    assert of(Returned, made.take()) == [Returned([Ref(1, 1, 1, 1)])]
    made.from_parent(grant(2, 3, 4), NOW)
    made.take()
    made.drain(NOW)
    assert of(Returned, made.take()) == [Returned([Ref(4, 1, 1, 1)])]


def test_a_stopped_job_keeps_its_slot_until_it_is_released() -> None:
    made = crew(slots=1)
    made.from_parent(grant(1, 2), NOW)
    (job,) = made.take().start
    made.from_parent(Stop([Ref(1, 1, 1, 1)]), NOW)
    effects = made.take()
    assert effects.stop == [job]
    assert not effects.start
    assert not made.done(job, b"late", NOW)
    effects = made.take()
    assert [job.serial for job in effects.start] == [2]
    assert not of(Results, effects)


def test_a_job_is_stopped_at_its_timeout_whatever_it_reports() -> None:
    made = crew(slots=1)
    made.from_parent(Grant(1, [replace(block(1), timeout=40.0)]), NOW)
    (job,) = made.take().start
    made.progress(job, 0.5, NOW + 20.0)
    made.tick(NOW + 39.0)
    assert not made.take().stop
    made.tick(NOW + 40.0)
    effects = made.take()
    assert effects.stop == [job]
    (results,) = of(Results, effects)
    assert results.failures[0].error == "timeout"  # type: ignore[attr-defined]


def test_short_jobs_are_fetched_ahead_and_long_ones_are_not() -> None:
    for seconds, slots in ((0.0001, 258), (0.02, 4), (1.0, 2)):
        made = Crew("w", kinds={"work"}, slots=2)
        made.attached(10, 1, NOW)
        told = of(Demand, made.take())
        made.from_parent(grant(1), NOW)
        (job,) = made.take().start
        made.done(job, b"", NOW + seconds)
        told += of(Demand, made.take())
        told.append(Demand([Wanted(0, None, -1, 2)]))  # the job
        assert sum(row.change for message in told if isinstance(message, Demand) for row in message.rows) == slots


def test_parts_are_sent_again_after_an_attachment_until_the_result_is_taken() -> None:
    made = crew()
    made.from_parent(grant(1), NOW)
    (job,) = made.take().start
    made.part(job, b"one", NOW)
    sent = Parts([Part(1, 1, 1, 0, b"one")])
    assert of(Parts, made.take()) == [sent]
    made.attached(10, 2, NOW)
    assert of(Parts, made.take()) == [sent]
    made.done(job, b"r", NOW)
    made.from_host(Taken([1], []))
    made.attached(11, 3, NOW)
    assert not of(Parts, made.take())


def test_a_kind_takes_no_more_than_its_concurrency() -> None:
    made = Crew("w", kinds={"work": 1, "other": 4}, slots=4)
    made.attached(9, 1, NOW)
    assert of(Demand, made.take()) == [Demand([Wanted(0, ["work"], 1, 1, 1), Wanted(1, ["other"], 4, 4, 4)])]
    made.from_parent(Grant(1, [block(1, 2), block(3, 4, 5, 6, group=1, kind="other")]), NOW)
    effects = made.take()
    assert [job.serial for job in effects.start] == [1, 3, 4, 5]
    assert of(Returned, effects) == [Returned([Ref(2, 1, 1, 1), Ref(6, 1, 1, 1)])]
    made.done(effects.start[0], b"", NOW + 1)
    assert of(Demand, made.take()) == [Demand([Wanted(0, None, 1, 1, 1), Wanted(1, None, 1, 4, 1)])]


def test_a_job_that_waits_for_a_place_of_its_kind_is_not_started_and_lets_others_pass() -> None:
    made = Crew("w", kinds={"work"}, slots=3)
    made.attached(9, 1, NOW)
    made.from_parent(grant(1, 2, 3), NOW)
    first, second, third = made.take().start
    made.from_parent(grant(4, 5), NOW)  # more than it has slots
    made.set_work({"work": 1, "other": 2}, 3, NOW)
    for job in (first, second):
        made.done(job, b"", NOW + 1)
    assert made.take().start == []
    made.from_parent(Grant(1, [block(6, group=1, kind="other")]), NOW + 1)
    assert [job.serial for job in made.take().start] == [6]
    made.done(third, b"", NOW + 2)
    assert [job.serial for job in made.take().start] == [4]
    made.tick(NOW + 1.05)
    made.tick(NOW + 2.1)
    assert of(Returned, made.take()) == [Returned([Ref(5, 1, 1, 1)])]
    made.from_parent(Stop([Ref(4, 1, 1, 1)]), NOW + 16)  # it keeps its place until it is released
    stopped = made.take().stop
    assert [job.serial for job in stopped] == [4]


def test_many_kinds_have_one_group() -> None:
    made = Crew("w", kinds={f"k{number:02}": 1 for number in range(17)}, slots=17)
    made.attached(9, 1, NOW)
    assert of(Demand, made.take()) == [Demand([Wanted(0, [f"k{number:02}" for number in range(17)], 17, 17, 17)])]
