"""A voter's files after power failures and kills: no vote and no entry that was reported as stored is forgotten."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from nngkit.cluster.election.log import Snapshot
from nngkit.cluster.election.values import Persist, Restored, SaveEntries, SaveMeta, SaveSnapshot
from nngkit.cluster.shell.store import VoterStore
from nngkit.errors import ConfigError
from tests.cluster.election_network import Disk
from tests.cluster.power_failures import Killed, PowerFailures
from tests.cluster.voter_stores import reopened

OWNER = ("cluster", "a")
FOLDER = "cluster/voter"
STEPS: list[list[Persist]] = [
    [SaveMeta(1, 1, "a", (("a", 5), ("b", 6)))],
    [SaveEntries(2, 1, 1, (b"one", b"two", b"three"))],
    [SaveMeta(3, 2, None, ()), SaveEntries(4, 3, 2, (b"another three", b"four"))],
    [SaveSnapshot(5, Snapshot(2, 1, b"state"), True)],
    [SaveMeta(6, 3, "b", ())],
    [SaveEntries(7, 5, 3, (b"five",))],
]


@pytest.fixture
def new_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], PowerFailures]]:
    disks: list[PowerFailures] = []

    def make() -> PowerFailures:
        monkeypatch.undo()
        disks.append(PowerFailures(tmp_path / f"disk-{len(disks)}", monkeypatch))
        return disks[-1]

    yield make
    for disk in disks:
        disk.close()


def left_in(root: Path) -> Restored | None:
    return reopened(root / FOLDER, OWNER)


def states() -> list[Restored | None]:
    """Return the state before each of STEPS, and after the last."""
    disk = Disk()
    found = [disk.restored()]
    for steps in STEPS:
        for step in steps:
            disk.apply(step)
        found.append(disk.restored())
    return found


def test_what_is_reported_as_stored_outlives_a_power_failure(new_disk: Callable[[], PowerFailures]) -> None:
    disk, expected = new_disk(), states()
    store = VoterStore(disk.root / FOLDER, OWNER)
    assert store.open() is None
    for steps, after in zip(STEPS, expected[1:], strict=True):
        store.write(steps)
        for left in disk.all_that_may_be_left():
            assert left_in(left) == after
    store.close()


def test_a_power_failure_at_any_moment_leaves_the_state_before_a_write_or_after_it(
    new_disk: Callable[[], PowerFailures],
) -> None:
    disk, expected = new_disk(), states()
    allowed = expected[:1]

    def check() -> None:
        for left in disk.all_that_may_be_left():
            assert left_in(left) in allowed

    disk.before_each = check
    store = VoterStore(disk.root / FOLDER, OWNER)
    store.open()
    for number, steps in enumerate(STEPS):
        allowed[:] = expected[number : number + 2]
        store.write(steps)
    store.close()


def test_what_a_start_returns_after_a_kill_outlives_a_power_failure(new_disk: Callable[[], PowerFailures]) -> None:
    """A voter counts as stored all that its store returns, also what an earlier run has written and not synced."""
    expected = states()
    for call in itertools.count():
        disk, written, killed = new_disk(), 0, True
        store = VoterStore(disk.root / FOLDER, OWNER)
        store.open()
        disk.kill_after(call)
        try:
            for steps in STEPS:
                store.write(steps)
                written += 1
            killed = False
        except Killed:
            pass
        store.close()
        disk.before_each = lambda: None
        found = left_in(disk.root)
        assert found in expected[written : written + 2]
        assert left_in(disk.after_power_failure()) == found
        if not killed:
            break


def test_what_is_stored_after_a_kill_in_the_first_start_outlives_a_power_failure(
    new_disk: Callable[[], PowerFailures],
) -> None:
    """The killed run may have made folders and files whose names are not on disk."""
    for call in itertools.count():
        disk, killed = new_disk(), True
        store = VoterStore(disk.root / FOLDER, OWNER)
        disk.kill_after(call)
        try:
            store.open()
            killed = False
        except Killed:
            pass
        store.close()
        disk.before_each = lambda: None
        store = VoterStore(disk.root / FOLDER, OWNER)
        assert store.open() is None
        store.write(STEPS[0])
        store.close()
        assert left_in(disk.after_power_failure()) == states()[1]
        if not killed:
            break


def test_a_torn_end_that_was_removed_does_not_come_back(new_disk: Callable[[], PowerFailures]) -> None:
    """Not even if its removal and the next write are interrupted at any moment."""
    disk, expected = new_disk(), states()
    store = VoterStore(disk.root / FOLDER, OWNER)
    store.open()
    store.write(STEPS[0])
    store.close()
    name = disk.root / FOLDER / "voter.log"
    with name.open("ab") as file:
        file.write(Random(1).randbytes(100))

    def check() -> None:
        for left in disk.all_that_may_be_left():
            assert left_in(left) in expected[1:3]

    disk.before_each = check
    store = VoterStore(disk.root / FOLDER, OWNER)
    assert store.open() == expected[1]
    store.write(STEPS[1])
    store.close()
    disk.before_each = lambda: None
    for left in disk.all_that_may_be_left():
        assert left_in(left) == expected[2]


def test_the_owner_of_a_folder_is_on_disk_before_anything_is_stored(new_disk: Callable[[], PowerFailures]) -> None:
    disk = new_disk()
    store = VoterStore(disk.root / FOLDER, OWNER)
    store.open()
    store.close()
    for left in disk.all_that_may_be_left():
        with pytest.raises(ConfigError, match="is the store of 'a' of the cluster 'cluster', not of 'b' of 'cluster'"):
            reopened(left / FOLDER, ("cluster", "b"))
        assert left_in(left) is None
