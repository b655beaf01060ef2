"""The host's queue: order, credit, fences, tries, keys, backpressure, and what happens only after the commit."""

from __future__ import annotations

from random import Random

from nngkit.cluster.jobs.messages import (
    Accepted,
    Cancel,
    Demand,
    Failed,
    Finished,
    Grant,
    Holding,
    Lost,
    Message,
    Missing,
    Received,
    Ref,
    Refused,
    Results,
    Returned,
    Spec,
    Start,
    Starting,
    Stop,
    Submit,
    SubmitGroup,
    Taken,
    Waiting,
    Wanted,
)
from nngkit.cluster.jobs.queue import WorkHost
from nngkit.cluster.jobs.table import JobTable
from nngkit.cluster.jobs.values import WorkEffects, WorkLimits


class Bench:
    """A host with one child link, and a log that commits at once."""

    def __init__(
        self, *, limits: WorkLimits | None = None, table: JobTable | None = None, term: int = 7, wall: float = 1000.0
    ) -> None:
        self.now = 100.0
        self.host = WorkHost(
            "h", term=term, table=table or JobTable(), now=self.now, wall=wall, rng=Random(1), limits=limits
        )
        self.host.granting = True
        self.told: list[Message] = []
        self.down: list[Message] = []

    def turn(self, seconds: float = 0.0) -> WorkEffects:
        self.now += seconds
        if self.now >= self.host.wake_at:
            self.host.tick(self.now)
        effects = self.host.take(self.now)
        while effects.entries:
            self.host.committed(effects.entries, self.now)
            later = self.host.take(self.now)
            effects.entries = later.entries
            effects.unicasts += later.unicasts
            effects.down += later.down
            effects.ended += later.ended
        self.told += [message for _, message in effects.unicasts]
        self.down += [message for _, message in effects.down]
        return effects

    def submit(
        self, *numbers: int, payload: bytes = b"p", sender: str = "ada", key: bytes | None = None, **spec: object
    ) -> None:
        keys = None if key is None else [key] * len(numbers)
        group = SubmitGroup(Spec("work", **spec), list(numbers), [payload] * len(numbers), keys)  # type: ignore[arg-type]
        self.host.unicast(sender, Submit(1, 1, [group]), self.now)
        self.turn()

    def demand(self, jobs: int) -> list[tuple[int, int, int]]:
        """Give credit; return serial, fence and attempt of what is granted."""
        self.host.receive(3, Demand([Wanted(0, ["work"], jobs, 4)]), self.now)
        self.down.clear()
        self.turn()
        return self.granted()

    def granted(self) -> list[tuple[int, int, int]]:
        blocks = [block for message in self.down if isinstance(message, Grant) for block in message.blocks]
        return [row for block in blocks for row in zip(block.serials, block.fences, block.attempts, strict=True)]

    def result(self, serial: int, fence: int, *, term: int = 7, worker: str = "w") -> None:
        self.host.receive(3, Results(worker, term, [serial], [fence], [b"r"], [1], []), self.now)

    def started(self, serial: int, fence: int, term: int = 7) -> int | None:
        """Ask for the start of a job that was granted without one; return its number, or None."""
        self.down.clear()
        self.host.receive(3, Starting([Ref(serial, term, fence, 0)]), self.now)
        self.turn()
        starts = [ref for message in self.down if isinstance(message, Start) for ref in message.refs]
        assert all((ref.serial, ref.term, ref.fence) == (serial, term, fence) for ref in starts)
        return starts[0].attempt if starts else None

    def fail(self, serial: int, fence: int, *, retry: bool = True) -> None:
        row = Failed(serial, fence, retry, "ValueError", "why", 1)
        self.host.receive(3, Results("w", 7, [], [], [], [], [row]), self.now)

    def last(self, kind: type[Message]) -> Message:
        return [message for message in self.told if isinstance(message, kind)][-1]


def test_higher_priorities_first_and_first_in_first_out_within() -> None:
    bench = Bench()
    bench.submit(1, 2)
    bench.submit(3, priority=5)
    numbers = {serial: job.number for serial, job in bench.host.table.jobs.items()}
    assert [numbers[serial] for serial, _, _ in bench.demand(3)] == [3, 1, 2]


def test_nothing_is_granted_beyond_the_credit_or_without_the_lease() -> None:
    bench = Bench()
    bench.submit(1, 2, 3)
    bench.host.granting = False
    assert bench.demand(2) == []
    bench.host.granting = True
    bench.turn()
    assert len(bench.granted()) == 2


def test_the_group_with_an_idle_worker_gets_the_first_job() -> None:
    bench = Bench()
    bench.submit(1, 2)
    rows = [Wanted(0, ["work", "other"], 2, 4), Wanted(1, ["work"], 2, 1, 1)]
    bench.host.receive(3, Demand(rows), bench.now)
    bench.turn()
    (message,) = [each for each in bench.down if isinstance(each, Grant)]
    first, second = sorted(bench.host.table.jobs)
    assert [(block.group, block.serials) for block in message.blocks] == [(1, [first]), (0, [second])]


def test_an_end_is_told_only_after_the_commit() -> None:
    bench = Bench()
    bench.submit(1)
    ((serial, fence, _),) = bench.demand(1)
    bench.result(serial, fence)
    effects = bench.host.take(bench.now)
    assert effects.entries
    assert not effects.unicasts
    assert not effects.ended
    bench.host.committed(effects.entries, bench.now)
    after = bench.host.take(bench.now)
    assert ("w", Taken([serial], [])) in after.unicasts
    assert ("ada", Finished(1, [1], [b"r"], [])) in after.unicasts
    assert after.ended[0].outcome == "result"
    assert after.ended[0].payload == b"p"


def test_a_result_under_an_old_fence_is_refused_and_its_worker_told() -> None:
    bench = Bench()
    bench.submit(1, visibility=1.0)
    ((serial, _, _),) = bench.demand(2)
    bench.down.clear()
    bench.turn(1.1)
    ((_, fence, attempt),) = bench.granted()
    assert (fence, attempt) == (2, 0)
    assert Stop([Ref(serial, 7, 1, 1)]) in bench.down
    assert bench.started(serial, 2) == 2
    bench.result(serial, 1, worker="slow")
    bench.turn()
    assert bench.last(Taken) == Taken([], [serial])
    assert bench.host.stats.refused_results == 1
    bench.result(serial, 2)
    bench.turn()
    assert bench.host.stats.finished == 1


def test_failures_are_retried_with_pauses_until_the_tries_are_used_up() -> None:
    bench = Bench()
    bench.submit(1, tries=2)
    ((serial, fence, _),) = bench.demand(9)
    bench.fail(serial, fence)
    bench.down.clear()
    bench.turn()
    bench.turn(0.3)
    ((_, fence, attempt),) = bench.granted()
    assert attempt == 2
    bench.fail(serial, fence)
    effects = bench.turn()
    assert (effects.ended[0].outcome, effects.ended[0].error, effects.ended[0].tries) == (
        "dead",
        ("ValueError", "why"),
        2,
    )


def test_an_error_that_says_so_is_not_retried() -> None:
    bench = Bench()
    bench.submit(1)
    ((serial, fence, _),) = bench.demand(1)
    bench.fail(serial, fence, retry=False)
    assert bench.turn().ended[0].outcome == "failed"


def test_a_lost_job_waits_for_its_worker_and_goes_to_another_after_the_grace() -> None:
    bench = Bench()
    bench.submit(1)
    ((serial, fence, _),) = bench.demand(9)
    ref = Ref(serial, 7, fence, 1)
    bench.down.clear()
    bench.host.receive(3, Lost([ref]), bench.now)
    bench.turn(0.5)
    bench.host.receive(3, Holding([ref]), bench.now)
    bench.turn(5.0)
    assert not bench.granted()
    bench.host.receive(3, Lost([ref]), bench.now)
    bench.turn(0.1)
    bench.turn(1.1)
    assert [row[1:] for row in bench.granted()] == [(2, 0)]
    assert bench.started(serial, 2) == 2
    assert bench.started(serial, 2) == 2, "it may ask again, as the answer may be lost"
    assert bench.host.table.jobs[serial].tries == 2


def test_a_job_that_only_waited_at_lost_workers_loses_one_try() -> None:
    bench = Bench()
    bench.submit(1, tries=3)
    ((serial, fence, attempt),) = bench.demand(9)
    for _ in range(5):
        bench.host.receive(3, Lost([Ref(serial, 7, fence, attempt)]), bench.now)
        bench.down.clear()
        bench.turn(0.1)
        bench.turn(1.1)
        ((_, fence, attempt),) = bench.granted()
        assert attempt == 0
    assert bench.started(serial, fence) == 2
    bench.host.receive(3, Lost([Ref(serial, 7, fence, 2)]), bench.now)
    bench.down.clear()
    bench.turn(0.1)
    bench.turn(1.1)
    ((_, fence, _),) = bench.granted()
    assert bench.started(serial, fence) == 3
    bench.host.receive(3, Lost([Ref(serial, 7, fence, 3)]), bench.now)
    bench.turn(0.1)
    (ended,) = bench.turn(1.1).ended
    assert (ended.outcome, ended.tries) == ("dead", 3)


def test_a_void_grant_may_not_start() -> None:
    bench = Bench()
    bench.submit(1)
    ((serial, _, _),) = bench.demand(9)
    bench.host.receive(3, Lost([Ref(serial, 7, 1, 1)]), bench.now)
    bench.turn(0.1)
    bench.turn(1.1)
    bench.host.unicast("ada", Cancel(1, [1]), bench.now)
    assert bench.started(serial, 2) is None
    assert Stop([Ref(serial, 7, 2, 0)]) in bench.down


def test_a_returned_job_costs_no_try() -> None:
    bench = Bench()
    bench.submit(1, tries=1)
    ((serial, fence, _),) = bench.demand(9)
    bench.down.clear()
    bench.host.receive(3, Returned([Ref(serial, 7, fence, 1)]), bench.now)
    bench.turn()
    assert bench.granted() == [(serial, 2, 1)]


def test_the_next_host_takes_the_result_of_a_worker_of_the_old_term() -> None:
    bench = Bench()
    bench.submit(1, 2)
    ((one, fence, _), _) = bench.demand(2)
    later = Bench(table=bench.host.table, term=8)
    later.result(one, fence)
    assert later.turn().ended[0].id == one
    later.demand(9)
    later.down.clear()
    later.turn(1.1)
    ((serial, _, attempt),) = later.granted()
    assert attempt == 1  # its start in the old term was not recorded
    assert later.host.table.jobs[serial].tries == 1  # this one is, before it is granted


def test_the_next_host_records_the_start_of_a_job_that_asks_for_it_before_it_allows_it() -> None:
    bench = Bench()
    bench.submit(1)
    ((serial, fence, _),) = bench.demand(1)
    later = Bench(table=bench.host.table, term=8)
    later.host.receive(3, Starting([Ref(serial, 7, fence, 0)]), later.now)
    effects = later.host.take(later.now)
    assert not [message for _, message in effects.down if isinstance(message, Start)]
    later.host.committed(effects.entries, later.now)
    assert [message for _, message in later.host.take(later.now).down] == [Start([Ref(serial, 7, fence, 1)])]


def test_cancelling_stops_the_worker() -> None:
    bench = Bench()
    bench.submit(1, 2)
    ((serial, fence, _),) = bench.demand(1)
    bench.host.unicast("ada", Cancel(1, [1, 2]), bench.now)
    bench.turn()
    assert Stop([Ref(serial, 7, fence, 1)]) in bench.down
    assert [row.outcome for row in bench.last(Finished).others] == [3, 3]  # type: ignore[attr-defined]
    assert bench.demand(5) == []


def test_a_job_that_was_joined_while_its_cancellation_was_on_its_way_goes_on() -> None:
    bench = Bench()
    bench.submit(1, key=b"k")
    ((serial, fence, _),) = bench.demand(1)
    bench.host.unicast("ada", Cancel(1, [1]), bench.now)
    bench.host.unicast("bob", Submit(1, 1, [SubmitGroup(Spec("work"), [1], [b"p"], [b"k"])]), bench.now)
    effects = bench.turn()  # the cancellation comes first: it ends the job, and bob has a new one
    assert Stop([Ref(serial, 7, fence, 1)]) in bench.down
    assert [(to, message.others[0].outcome) for to, message in effects.unicasts if isinstance(message, Finished)] == [
        ("ada", 3)
    ]
    ((serial, fence, _),) = bench.demand(1)
    bench.submit(2, key=b"k")
    bench.host.unicast("bob", Cancel(1, [1]), bench.now)
    effects = bench.turn()
    assert [(to, message.others[0].outcome) for to, message in effects.unicasts if isinstance(message, Finished)] == [
        ("bob", 3)
    ]
    bench.result(serial, fence)
    effects = bench.turn()
    assert [to for to, message in effects.unicasts if isinstance(message, Finished)] == ["ada"]


def test_what_is_proposed_after_a_cancellation_under_a_key_leaves_nothing_behind() -> None:
    bench = Bench()
    bench.submit(1, 2, key=b"k")
    ((serial, fence, _),) = bench.demand(1)
    bench.host.unicast("ada", Cancel(1, [2, 1]), bench.now)
    bench.result(serial, fence)  # before the commit, after the cancellation
    bench.turn()
    assert bench.host.table.jobs[serial].outcome == 3
    assert bench.last(Taken) == Taken([serial], [])
    assert not bench.host._finishing
    assert not bench.host._jobs.running[30.0]


def test_a_submitter_beyond_its_window_waits() -> None:
    bench = Bench(limits=WorkLimits(window=2))
    bench.submit(1, 2, 3, 4)
    bench.submit(5)
    assert bench.host.stats.held_back == 1
    assert bench.last(Accepted) == Accepted(1, 7, [], [], 2, WorkLimits().window_bytes)


def test_too_large_payloads_are_refused_and_unknown_numbers_are_missing() -> None:
    bench = Bench(limits=WorkLimits(payload_bytes=10))
    bench.submit(1, payload=b"x" * 11)
    assert isinstance(bench.last(Refused), Refused)
    bench.host.unicast("ada", Waiting(1, 1, [9]), bench.now)
    bench.turn()
    assert bench.last(Missing) == Missing(1, 7, [9])


def test_results_that_are_not_fetched_are_forgotten_after_their_time() -> None:
    bench = Bench(limits=WorkLimits(keep_results=10.0))
    bench.submit(1)
    ((serial, fence, _),) = bench.demand(1)
    bench.result(serial, fence)
    bench.turn()
    bench.turn(5.0)
    assert bench.host.table.jobs
    bench.turn(6.0)
    assert not bench.host.table.jobs
    assert bench.host.stats.overdue == 1


def test_a_deadline_ends_a_job_that_waits() -> None:
    bench = Bench()
    bench.submit(1, deadline=2.0)
    bench.turn(1.0)
    assert bench.turn(1.5).ended[0].error[0] == "deadline"


def test_beyond_the_limit_the_longest_idle_submitter_is_forgotten() -> None:
    bench = Bench(limits=WorkLimits(sources=3))

    def remembered() -> list[str]:
        return sorted(origin for origin, _ in bench.host.table.sources)

    for sender in ("a", "b", "c"):
        bench.submit(1, sender=sender)
        bench.turn(1.0)
    for serial, fence, _ in bench.demand(3)[1:]:
        bench.result(serial, fence)
    bench.turn()
    for sender in ("c", "b"):
        bench.host.unicast(sender, Received(1, 2, [1]), bench.now)
        bench.turn(1.0)
    bench.submit(1, sender="d")  # `a` has a job, and the others are not idle for long enough
    assert remembered() == ["a", "b", "c"]
    assert bench.host.stats.held_back == 1
    bench.turn(2.0)
    bench.submit(1, sender="d")
    assert remembered() == ["a", "b", "d"]
    bench.turn(4.0)
    bench.submit(1, 2, sender="e")
    assert remembered() == ["a", "d", "e"]
    bench.submit(2, sender="b")  # it has been forgotten, and all others have jobs
    assert remembered() == ["a", "d", "e"]


def test_a_submitter_that_is_displaced_may_come_back() -> None:
    bench = Bench(limits=WorkLimits(sources=1))
    bench.submit(1, sender="a")
    ((serial, fence, _),) = bench.demand(5)
    bench.result(serial, fence)
    bench.turn()
    bench.host.unicast("a", Received(1, 2, [1]), bench.now)
    bench.turn(5.0)
    bench.host.unicast("b", Submit(1, 1, [SubmitGroup(Spec("work"), [1], [b"p"], None)]), bench.now)
    bench.host.unicast(
        "a", Submit(1, 2, [SubmitGroup(Spec("work"), [2], [b"p"], None)]), bench.now
    )  # before the commit
    bench.turn()
    assert sorted((job.source.origin, job.number) for job in bench.host.table.jobs.values()) == [("a", 2), ("b", 1)]
    assert not bench.host._intake._displaced
    assert not bench.host._intake._new
