"""A voter's files: all that was synced comes back, a torn end goes, damage is reported."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from nngkit.cluster.election_limits import Persist, Restored, SaveEntries, SaveMeta, SaveSnapshot
from nngkit.cluster.election_log import Snapshot
from nngkit.cluster.election_store import VoterStore
from nngkit.errors import Closed, ConfigError, Damaged
from tests.cluster.election_network import Disk

STEPS: list[list[Persist]] = [
    [SaveMeta(1, 1, "a", (("a", 5), ("b", 6)))],
    [SaveEntries(2, 1, 1, (b"", b"two", b"three"))],
    [SaveMeta(3, 2, None, ()), SaveEntries(4, 3, 2, (b"another three", b"four"))],
    [SaveEntries(5, 5, 2, (b"x" * 100_000,))],
]


def stored(path: Path, groups: list[list[Persist]]) -> Restored | None:
    store = VoterStore(path)
    store.open()
    for steps in groups:
        assert store.write(steps) == steps[-1].token
    store.close()
    return reopened(path)


def reopened(path: Path) -> Restored | None:
    store = VoterStore(path)
    try:
        return store.open()
    finally:
        store.close()


def test_a_new_store_is_that_of_a_new_voter(tmp_path: Path) -> None:
    assert stored(tmp_path / "voter", []) is None


def test_a_new_folder_and_its_parents_are_on_disk_before_anything_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))

    monkeypatch.setattr("os.fsync", sync)
    assert stored(tmp_path / "cluster" / "voter", []) is None
    log = f"{tmp_path}/cluster/voter/voter.new"  # renamed after its sync
    assert synced == [str(tmp_path), f"{tmp_path}/cluster", log, f"{tmp_path}/cluster/voter"]
    synced.clear()
    reopened(tmp_path / "cluster" / "voter")
    assert synced == []


def test_all_that_was_written_comes_back(tmp_path: Path) -> None:
    assert stored(tmp_path, STEPS) == Restored(
        2, None, (), None, ((1, b""), (1, b"two"), (2, b"another three"), (2, b"four"), (2, b"x" * 100_000))
    )


def test_a_snapshot_replaces_the_entries_before_it(tmp_path: Path) -> None:
    snapshot = SaveSnapshot(6, Snapshot(4, 2, b"state"), True)
    found = stored(tmp_path, [*STEPS, [snapshot], [SaveEntries(7, 6, 2, (b"six",))]])
    assert found == Restored(2, None, (), snapshot.snapshot, ((2, b"x" * 100_000), (2, b"six")))
    assert (tmp_path / "voter.log").stat().st_size < 101_000


def test_a_snapshot_of_another_log_replaces_all(tmp_path: Path) -> None:
    snapshot = Snapshot(4, 9, b"")
    assert stored(tmp_path, [*STEPS, [SaveSnapshot(6, snapshot, False)]]) == Restored(2, None, (), snapshot, ())


def test_random_steps_come_back_as_a_simulated_disk_keeps_them(tmp_path: Path) -> None:
    rng = Random(4)
    for number in range(4):
        disk, store = Disk(), VoterStore(tmp_path / str(number))
        store.open()
        for token in range(1, 30):
            log, choice = disk.log, rng.random()
            step: Persist = SaveMeta(token, disk.term + 1, rng.choice(("a", None)), (("a", token),))
            if choice < 0.7:
                entries = tuple(rng.randbytes(rng.randrange(50)) for _ in range(rng.randrange(1, 5)))
                step = SaveEntries(token, rng.randint(log.base + 1, log.last + 1), disk.term, entries)
            elif choice < 0.8 and log.last > log.base:
                index = rng.randint(log.base + 1, log.last)
                step = SaveSnapshot(token, Snapshot(index, log.term_at(index) or 0, b"state"), True)
            disk.apply(step)
            store.write([step])
        store.close()
        assert reopened(tmp_path / str(number)) == disk.restored()


def test_a_torn_end_is_removed_wherever_it_tears(tmp_path: Path) -> None:
    stored(tmp_path, STEPS[:2])
    name = tmp_path / "voter.log"
    whole = name.read_bytes()
    before = reopened(tmp_path)
    with_more = stored(tmp_path, [[SaveEntries(9, 4, 1, (b"four",))]])
    data = name.read_bytes()
    assert with_more != before
    for end in range(len(whole), len(data), 3):
        name.write_bytes(data[:end])
        assert reopened(tmp_path) == before
        assert name.stat().st_size == len(whole)
    name.write_bytes(whole + bytes(5000))
    assert reopened(tmp_path) == before


def test_damage_before_the_end_is_reported_and_nothing_is_changed(tmp_path: Path) -> None:
    stored(tmp_path, STEPS[:3])
    name = tmp_path / "voter.log"
    data = name.read_bytes()
    last = data.rfind(data[16:24])  # the mark of the last record
    for at in range(0, last, 3):
        if at in (10, 11):  # reserved
            continue
        broken = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        name.write_bytes(broken)
        with pytest.raises(Damaged):
            reopened(tmp_path)
        assert name.read_bytes() == broken


def test_a_folder_has_one_user(tmp_path: Path) -> None:
    store = VoterStore(tmp_path)
    store.open()
    with pytest.raises(ConfigError, match="another process"):
        VoterStore(tmp_path).open()
    store.close()
    store.close()
    with pytest.raises(Closed):
        store.write(STEPS[0])
    reopened(tmp_path)


def test_a_failed_write_closes_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = VoterStore(tmp_path)
    store.open()
    store.write(STEPS[0])

    def fail(file: int) -> None:
        raise OSError("disk")

    with monkeypatch.context() as patched:
        patched.setattr("os.fdatasync", fail)
        with pytest.raises(OSError, match="disk"):
            store.write(STEPS[1])
    with pytest.raises(Closed):
        store.write(STEPS[1])
    assert reopened(tmp_path) is not None
