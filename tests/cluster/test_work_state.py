"""The replicated table of jobs: numbers are accepted once, ends are final, keys share one job, snapshots are equal."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Final

import pytest

from nngkit.cluster.jobs.messages import Spec
from nngkit.cluster.jobs.operations import (
    cancel_op,
    end_op,
    entry,
    finish_op,
    forget_op,
    forgetting_ops,
    pause_op,
    received_op,
    sources_op,
    submit_op,
    tries_op,
)
from nngkit.cluster.jobs.table import JobTable, Source
from nngkit.cluster.jobs.values import WorkLimits
from nngkit.envelope import decode, encode
from nngkit.errors import BadMessage
from tests.seeds import seeds

WIRE: Final = json.loads((Path(__file__).parent / "jobs_wire_of_0_1.json").read_text())
ADA = Source("ada", 1)
BOB = Source("bob", 1)
SPEC = Spec("work")


def submit(
    numbers: list[int], *, source: Source = ADA, floor: int = 1, keys: list[bytes | None] | None = None
) -> bytes:
    return entry([submit_op(source, floor, 5.0, SPEC, numbers, [b"p%d" % number for number in numbers], keys)])


def test_the_log_of_version_0_1_gives_its_table_also_with_further_items() -> None:
    table, later = JobTable(), JobTable()
    for data in map(bytes.fromhex, WIRE["entries"]):
        table.apply(data)
        version, *operations = decode(data, what="entry")
        for operation in operations:
            if operation[0] in (3, 7, 8):
                operation[-1] = [[*row, "later"] for row in operation[-1]]
            if operation[0] == 1:
                operation[6] += [None] * (9 - len(operation[6])) + ["later"]
            if operation[0] != 4:  # its further item is of this version
                operation.append("later")
        later.apply(encode([version, *operations]))
    assert table.snapshot().hex() == later.snapshot().hex() == WIRE["snapshot"]
    again = JobTable()
    again.restore(bytes.fromhex(WIRE["snapshot"]))
    assert again.snapshot().hex() == WIRE["snapshot"]


def test_the_headers_of_a_job_are_kept_and_counted_until_it_is_forgotten() -> None:
    table, again = JobTable(), JobTable()
    spec, first = Spec("work", timeout=2.0, headers=b"\xa1aaab"), 5_000_000
    table.apply(entry([submit_op(ADA, 1, 5.0, spec, [1, 2], [b"p", b"pp"], None)]))
    assert table.bytes == 3 + 2 * 5
    table.apply(entry([finish_op(6.0, [first], [b"result"], [1])]))
    assert table.bytes == 6 + 2 + 2 * 5
    again.restore(table.snapshot())
    assert (again.bytes, again.jobs[first + 1].spec) == (table.bytes, spec)
    again.apply(entry([end_op(7.0, [(first + 1, 2, "", "why", 3, "w")]), received_op(ADA, 3, [1, 2])]))
    assert again.bytes == 0


def test_operations_are_written_as_by_version_0_1() -> None:
    spec, first = Spec("work", 3, 4, 20.0, 100.0, 1.5, True, 60.0), 5_000_000
    entries = [
        [
            submit_op(ADA, 1, 5.0, SPEC, [1, 2, 3], [b"a", b"b", b"c"], None),
            submit_op(ADA, 1, 5.0, spec, [4, 5], [b"d", b"e"], [b"k", None]),
        ],
        [tries_op([first + 1], [1]), pause_op([first + 2], [2], [7500])],
        [
            finish_op(6.0, [first], [b"result"], [1]),
            end_op(6.5, [(first + 1, 2, "ValueError", "why", 3, "w")]),
            end_op(7.0, []),
        ],
        [cancel_op(7.5, [("ada", 1, 4, 1, "w")]), received_op(ADA, 2, [2])],
        [forget_op([first + 3]), sources_op([Source("bob", 2)])],
    ]
    assert [entry(operations).hex() for operations in entries] == WIRE["entries"]


def test_a_number_is_accepted_once_even_after_its_result_is_forgotten() -> None:
    table = JobTable()
    (jobs,) = table.apply(submit([1, 2, 3])).accepted
    assert [job.number for job in jobs] == [1, 2, 3]
    assert not table.apply(submit([2, 3])).accepted
    table.apply(entry([finish_op(6.0, [jobs[1].serial], [b"r"], [1]), received_op(ADA, 1, [2])]))
    assert not table.apply(submit([2])).accepted
    assert len(table.jobs) == 2


def test_numbers_below_the_floor_are_not_new() -> None:
    table = JobTable()
    table.apply(submit([5], floor=5))
    assert not table.apply(submit([3])).accepted


def test_serials_begin_at_the_clock_so_that_none_is_used_again_by_a_new_table() -> None:
    table = JobTable()
    (jobs,) = table.apply(submit([1])).accepted
    assert jobs[0].serial == 5_000_000


def test_the_first_end_of_a_job_is_final() -> None:
    table = JobTable()
    ((job,),) = table.apply(submit([1])).accepted
    assert table.apply(entry([finish_op(6.0, [job.serial], [b"first"], [1])])).finished == [job]
    changes = table.apply(
        entry([finish_op(7.0, [job.serial], [b"second"], [1]), end_op(7.0, [(job.serial, 2, "x", "y", 3, "w")])])
    )
    assert not changes.finished
    assert job.result == b"first"


def test_a_key_has_one_job_whose_result_all_submitters_get() -> None:
    table = JobTable()
    ((job,),) = table.apply(submit([1], keys=[b"k"])).accepted
    changes = table.apply(submit([1], source=BOB, keys=[b"k"]))
    assert not changes.accepted
    ((source, number, same),) = changes.known
    assert (source.origin, number, same) == ("bob", 1, job)
    table.apply(entry([finish_op(6.0, [job.serial], [b"r"], [1]), received_op(ADA, 2, [1])]))
    ((_, _, later),) = table.apply(submit([2], source=ADA, floor=2, keys=[b"k"])).known
    assert later is job
    table.apply(entry([forget_op([job.serial])]))
    assert table.apply(submit([3], source=ADA, floor=2, keys=[b"k"])).accepted
    assert table.bytes == 2


def test_an_entry_of_a_newer_version_changes_nothing() -> None:
    table = JobTable()
    empty = table.snapshot()
    with pytest.raises(BadMessage):
        table.apply(encode([2, [1]]))
    unknowns: list[object] = [[99], [9], [0], [], 5, {}]
    for unknown in unknowns:
        with pytest.raises(BadMessage, match="an operation is unknown"):
            table.apply(encode([1, forget_op([1]), unknown]))
    assert table.snapshot() == empty


@pytest.mark.parametrize("seed", seeds(6, 20))
def test_tables_of_random_entries_are_equal_also_after_restores(seed: int) -> None:
    rng = Random(seed)
    one, other = JobTable(), JobTable()
    sources = [ADA, BOB]
    for _ in range(200):
        serials = sorted(one.jobs) or [1]
        some = rng.sample(serials, min(len(serials), 3))
        source = rng.choice(sources)
        numbers = sorted(rng.sample(range(1, 300), rng.randint(1, 4)))
        known = one.sources.get((source.origin, source.epoch))
        floor = max(1, (known.floor if known else 1) + rng.randint(-2, 3))
        keys = [rng.choice([None, b"a", b"b"]) for _ in numbers] if rng.random() < 0.3 else None
        operation = rng.choice(
            [
                submit_op(source, floor, 5.0, SPEC, numbers, [b"x" * number for number in numbers], keys),
                finish_op(6.0, some, [b"r" * 10 for _ in some], [1] * len(some)),
                end_op(6.0, [(serial, 1, "kind", "text", 2, "worker") for serial in some]),
                tries_op(some, [2] * len(some)),
                received_op(source, floor, numbers),
                forget_op(some),
                cancel_op(6.0, [(source.origin, source.epoch, number, 1, "w") for number in numbers]),
            ]
        )
        data = entry([operation])
        one.apply(data)
        other.apply(data)
        if rng.random() < 0.1:
            snapshot = other.snapshot()
            other = JobTable()
            other.restore(snapshot)
        assert one.snapshot() == other.snapshot()
        assert one.bytes == other.bytes
        assert one.unfinished == other.unfinished


def test_a_cancelled_job_frees_its_key_and_tables_agree_after_a_restore() -> None:
    table = JobTable()
    ((job,),) = table.apply(submit([1], keys=[b"k"])).accepted
    changes = table.apply(entry([cancel_op(6.0, [("ada", 1, 1, 0, "")])]))
    assert (changes.finished, job.outcome, job.error) == ([job], 3, ("cancelled", "by ada"))
    again = JobTable()
    again.restore(table.snapshot())
    for each in (table, again):
        ((new,),) = each.apply(submit([2], keys=[b"k"])).accepted
        assert new.serial != job.serial
        each.apply(
            entry([finish_op(7.0, [job.serial, new.serial], [b"late", b"r"], [1, 1]), received_op(ADA, 3, [1, 2])])
        )
        assert [*each.jobs] == [new.serial]  # nothing waits for the cancelled one; the other is kept for its key
        assert each.bytes == 1
    assert table.snapshot() == again.snapshot()


@pytest.mark.parametrize("first", ["ada", "bob"])
def test_a_job_with_a_key_ends_when_the_last_submitter_cancels_it(first: str) -> None:
    table = JobTable()
    ((job,),) = table.apply(submit([1], keys=[b"k"])).accepted
    table.apply(submit([1], source=BOB, keys=[b"k"]))
    changes = table.apply(entry([cancel_op(6.0, [(first, 1, 1, 0, "")])]))
    assert not changes.finished
    assert [(source.origin, number) for source, number, _ in changes.detached] == [(first, 1)]
    other = "bob" if first == "ada" else "ada"
    assert job.source.origin == other
    assert not table.apply(
        submit([1], source=ADA if first == "ada" else BOB, keys=[b"k"])
    ).known  # it is known, and gone
    again = JobTable()
    again.restore(table.snapshot())
    assert again.snapshot() == table.snapshot()
    assert table.apply(entry([cancel_op(6.0, [(first, 1, 1, 0, ""), (other, 1, 1, 0, "")])])).finished == [job]


@pytest.mark.parametrize("kept", [2, 4])
def test_a_key_is_forgotten_after_its_time_or_beyond_the_limit(kept: int) -> None:
    table = JobTable()
    keys = [b"%d" % number for number in range(1, 6)]
    table.apply(submit([1, 2, 3, 4, 5], keys=[*keys]))
    for wall, serial in enumerate(sorted(table.jobs), 10):
        table.apply(entry([finish_op(float(wall), [serial], [b"r"], [1])]))
    table.apply(entry([received_op(ADA, 6, [1, 2, 3, 4, 5])]))
    limits = WorkLimits(keys=kept, keep_keys=5.0)
    first = sorted(table.jobs)
    assert forgetting_ops(table, limits, 0.0, 11.0)[1] == [forget_op(first[: 5 - kept])]
    assert forgetting_ops(table, limits, 0.0, 11.0)[1] == [], "it is proposed once"
    later = first[5 - kept : 4]
    assert forgetting_ops(table, limits, 0.0, 18.0)[1] == ([forget_op(later)] if later else []), "kept for 5 s"
