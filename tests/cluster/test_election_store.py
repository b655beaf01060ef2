"""A voter's files: all that was synced comes back, a torn end goes, damage is reported."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from nngkit.cluster.election.log import Snapshot
from nngkit.cluster.election.values import Persist, Restored, SaveEntries, SaveMeta, SaveSnapshot
from nngkit.cluster.shell.store import VoterStore
from nngkit.errors import Closed, ConfigError, Damaged
from tests.cluster.election_network import Disk
from tests.cluster.voter_stores import STEPS, descriptors, reopened, stored


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync nothing: test_election_store_power.py is about what a sync saves."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(os, "fdatasync", lambda file: None)


def test_a_new_store_is_that_of_a_new_voter(tmp_path: Path) -> None:
    assert stored(tmp_path / "voter", []) is None


def test_a_new_folder_and_its_parents_are_on_disk_before_anything_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))

    monkeypatch.setattr("os.fsync", sync)
    folder = tmp_path / "cluster" / "voter"
    assert reopened(folder) is None
    made = [str(tmp_path.parent), str(tmp_path), f"{tmp_path}/cluster"]  # each with the name of the next
    log = f"{folder}/voter.new"  # renamed after its sync
    assert synced == [*made, log, str(folder)]
    synced.clear()
    reopened(folder)
    assert synced == [f"{tmp_path}/cluster", f"{folder}/voter.log", str(folder)]


def test_all_that_was_written_comes_back(tmp_path: Path) -> None:
    assert stored(tmp_path, STEPS) == Restored(
        2, None, (), None, ((1, b""), (1, b"two"), (2, b"another three"), (2, b"four"), (2, b"x" * 100_000))
    )


def test_a_snapshot_replaces_the_entries_before_it(tmp_path: Path) -> None:
    snapshot = SaveSnapshot(6, Snapshot(4, 2, b"state"), True)
    found = stored(tmp_path, [*STEPS, [snapshot], [SaveEntries(7, 6, 2, (b"six",))]])
    assert found == Restored(2, None, (), snapshot.snapshot, ((2, b"x" * 100_000), (2, b"six")))
    data = (tmp_path / "voter.log").read_bytes()
    assert b"three" not in data
    assert data.count(b"x" * 100_000) == 1


def test_a_snapshot_among_other_steps_makes_a_new_file(tmp_path: Path) -> None:
    snapshot = SaveSnapshot(7, Snapshot(3, 2, b"state"), True)
    for place in range(3):
        others: list[Persist] = [SaveMeta(6, 4, "b", ()), SaveEntries(8, 6, 4, (b"six",))]
        others.insert(place, snapshot)
        found = stored(tmp_path / str(place), [*STEPS, others])
        entries = ((2, b"four"), (2, b"x" * 100_000), (4, b"six"))
        assert found == Restored(4, "b", (), snapshot.snapshot, entries)
        assert b"another three" not in (tmp_path / str(place) / "voter.log").read_bytes()


def test_an_empty_snapshot_removes_the_log_and_keeps_term_and_vote(tmp_path: Path) -> None:
    """A voter whose log is not that of its host begins anew, and must not vote twice."""
    found = stored(
        tmp_path, [*STEPS, [SaveMeta(6, 3, "a", (("a", 5),))], [SaveSnapshot(7, Snapshot(0, 0, b""), False)]]
    )
    assert found == Restored(3, "a", (("a", 5),))
    assert stored(tmp_path, [[SaveEntries(8, 1, 3, (b"one",))]]) == Restored(3, "a", (("a", 5),), None, ((3, b"one"),))


@pytest.mark.parametrize(("term", "keep"), [(2, False), (9, True)])
def test_entries_after_a_snapshot_go_unless_they_are_kept_and_of_its_log(tmp_path: Path, term: int, keep: bool) -> None:
    snapshot = Snapshot(4, term, b"state")
    assert stored(tmp_path, [*STEPS, [SaveSnapshot(6, snapshot, keep)]]) == Restored(2, None, (), snapshot, ())


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


def test_the_steps_of_one_write_come_back_all_or_not_at_all(tmp_path: Path) -> None:
    before = stored(tmp_path, STEPS[:2])
    name = tmp_path / "voter.log"
    whole = name.read_bytes()
    after = stored(tmp_path, STEPS[2:3])
    data = name.read_bytes()
    for end in range(len(whole), len(data) + 1):
        name.write_bytes(data[:end])
        assert reopened(tmp_path) == (before if end < len(data) else after)


def test_a_last_record_of_which_only_the_length_is_on_disk_is_removed(tmp_path: Path) -> None:
    before = stored(tmp_path, STEPS[:2])
    name = tmp_path / "voter.log"
    whole = name.read_bytes()
    stored(tmp_path, STEPS[2:3])
    data = name.read_bytes()
    for end in range(len(whole), len(data)):
        name.write_bytes(data[:end] + bytes(len(data) - end))
        assert reopened(tmp_path) == before
        assert name.read_bytes() == whole


def test_an_entry_that_looks_like_a_record_is_none(tmp_path: Path) -> None:
    """A torn record with an intact one in it would be damage: each file has a mark of its own."""
    stored(tmp_path / "other", STEPS[:2])
    record = (tmp_path / "other" / "voter.log").read_bytes()[24:]
    before = stored(tmp_path / "voter", STEPS[:1])
    stored(tmp_path / "voter", [[SaveEntries(2, 1, 1, (record, b"end"))]])
    name = tmp_path / "voter" / "voter.log"
    os.truncate(name, name.stat().st_size - 1)
    assert reopened(tmp_path / "voter") == before


def test_each_file_has_another_mark(tmp_path: Path) -> None:
    """Also the next one of a voter: what follows a torn end may be old content of the disk."""
    stored(tmp_path, STEPS)
    old = (tmp_path / "voter.log").read_bytes()[16:24]
    stored(tmp_path, [[SaveSnapshot(6, Snapshot(4, 2, b""), True)]])
    new = (tmp_path / "voter.log").read_bytes()
    assert new[16:24] != old
    assert old not in new


def test_a_new_file_that_was_not_finished_is_removed(tmp_path: Path) -> None:
    before = stored(tmp_path, STEPS)
    (tmp_path / "voter.new").write_bytes(b"x" * 500_000)
    assert reopened(tmp_path) == before
    assert not (tmp_path / "voter.new").exists()
    (tmp_path / "voter.log").rename(tmp_path / "voter.new")  # of the very first start
    assert reopened(tmp_path) is None


def test_damage_of_the_only_record_is_no_torn_end(tmp_path: Path) -> None:
    """It came with its file, by a rename after its sync."""
    stored(tmp_path, [])
    name = tmp_path / "voter.log"
    data = name.read_bytes()
    for end in range(len(data)):
        name.write_bytes(data[:end])
        with pytest.raises(Damaged, match="incomplete" if end < 24 else "a record is not as written|header"):
            reopened(tmp_path)
        assert name.read_bytes() == data[:end]
    name.write_bytes(data[:-1] + b"?")
    with pytest.raises(Damaged, match="a record is not as written"):
        reopened(tmp_path)


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
    stored(tmp_path, STEPS[:1])
    store = VoterStore(tmp_path)
    store.open()
    held = descriptors()
    with pytest.raises(ConfigError, match="another process"):
        VoterStore(tmp_path, ("c", "a")).open()
    assert descriptors() == held
    assert not (tmp_path / "owner").exists()  # only the user notes whose folder it is
    store.close()
    store.close()
    with pytest.raises(Closed):
        store.write(STEPS[0])
    reopened(tmp_path)


def test_only_the_user_of_a_voter_may_read_its_files(tmp_path: Path) -> None:
    stored(tmp_path, [])
    assert (tmp_path / "voter.log").stat().st_mode & 0o777 == 0o600


def test_no_steps_are_stored_at_once(tmp_path: Path) -> None:
    store = VoterStore(tmp_path)
    store.open()
    syncs, size = store.syncs, store.size
    assert store.write([]) == 0
    assert (store.syncs, store.size) == (syncs, size)
    store.close()


def test_size_is_that_of_the_file_and_syncs_are_counted(tmp_path: Path) -> None:
    store, name = VoterStore(tmp_path), tmp_path / "voter.log"
    store.open()
    groups: list[list[Persist]] = [*STEPS, [SaveSnapshot(6, Snapshot(4, 2, b""), True)]]
    for number, steps in enumerate(groups, 2):  # a new file is synced as well
        store.write(steps)
        assert (store.syncs, store.size) == (number, name.stat().st_size)
    store.close()
    store = VoterStore(tmp_path)
    store.open()
    assert store.size == name.stat().st_size
    store.close()


@pytest.mark.parametrize("owner", [("c", "b"), ("d", "a"), ("c", ""), ("c", "aa"), ("", "c\na")])
def test_the_folder_of_another_voter_is_refused_and_stays_as_it_is(tmp_path: Path, owner: tuple[str, str]) -> None:
    store = VoterStore(tmp_path, ("c", "a"))
    store.open()
    store.write(STEPS[0])
    store.close()
    before = descriptors()
    with pytest.raises(ConfigError, match="is the store of 'a' of the cluster 'c', not of"):
        VoterStore(tmp_path, owner).open()
    assert descriptors() == before
    assert (tmp_path / "owner").read_bytes() == b"c\na\n"
    for same in (("c", "a"), None):  # None: not checked
        store = VoterStore(tmp_path, same)
        assert store.open() == Restored(1, "a", (("a", 5), ("b", 6)))
        store.close()


def test_a_folder_without_an_owner_becomes_that_of_its_next_voter(tmp_path: Path) -> None:
    stored(tmp_path, STEPS[:1])
    assert not (tmp_path / "owner").exists()
    (tmp_path / "owner").write_bytes(b"")
    store = VoterStore(tmp_path, ("c", "ä"))
    assert store.open() is not None
    store.close()
    assert (tmp_path / "owner").read_bytes() == "c\nä\n".encode()


def test_an_owner_that_is_not_text_is_another(tmp_path: Path) -> None:
    (tmp_path / "owner").write_bytes(b"c\na\xff\n")
    with pytest.raises(ConfigError, match="is the store of 'a\N{REPLACEMENT CHARACTER}'"):
        VoterStore(tmp_path, ("c", "a")).open()
