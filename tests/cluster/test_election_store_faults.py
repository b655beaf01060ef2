"""A voter's store whose disk fails or is full: nothing goes on after an error, and what was stored is there again."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from nngkit.cluster.election.log import Snapshot
from nngkit.cluster.election.values import Persist, Restored, SaveEntries, SaveMeta, SaveSnapshot
from nngkit.cluster.shell.store import VoterStore
from nngkit.errors import Closed, Damaged
from tests.cluster.voter_stores import STEPS, descriptors, reopened, stored


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync nothing: test_election_store_power.py is about what a sync saves."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    monkeypatch.setattr(os, "fdatasync", lambda file: None)


def fail(patch: pytest.MonkeyPatch, failing: str) -> list[int]:
    """Have a function of `os` fail as on a full disk; return the descriptors of the failed calls."""
    calls: list[int] = []
    real, sync = os.write, os.fsync
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(file: int, data: bytes) -> int:
        if calls or len(data) < 2:
            raise full
        calls.append(file)
        return real(file, data[: len(data) // 2])

    def written(file: int, data: bytes) -> int:
        calls.append(file)
        real(file, data)
        raise full

    def none(*arguments: int) -> None:
        calls.append(arguments[0])
        raise full

    def file_or_folder(file: int) -> None:
        folder = stat.S_ISDIR(os.fstat(file).st_mode)
        if folder == (failing == "sync_folder"):
            none(file)
        sync(file)

    functions = {"write": write, "written": written, "fsync": file_or_folder, "sync_folder": file_or_folder}
    name = {"written": "write", "sync_folder": "fsync"}.get(failing, failing)
    patch.setattr(os, name, functions.get(failing, none))
    return calls


def test_a_folder_may_be_in_one_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names cannot be synced then, and another user has made it."""
    real = os.open

    def refuse(path: Path, *flags: int) -> int:
        if path == tmp_path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, *flags)

    (tmp_path / "voter").mkdir()
    monkeypatch.setattr(os, "open", refuse)
    assert stored(tmp_path / "voter", STEPS[:1]) == Restored(1, "a", (("a", 5), ("b", 6)))
    with pytest.raises(PermissionError):
        reopened(tmp_path / "new")


def test_two_voters_may_make_their_folders_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that has both is made by the other between the question for it and its making."""
    real = os.mkdir

    def make(path: Path, mode: int) -> None:
        real(path, mode)
        real(path, mode)  # raises FileExistsError

    monkeypatch.setattr(os, "mkdir", make)
    assert stored(tmp_path / "cluster" / "voter", STEPS[:1]) == Restored(1, "a", (("a", 5), ("b", 6)))


def test_a_file_that_the_disk_does_not_give_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored(tmp_path, STEPS)
    real = os.stat

    def fail(path: str | Path, **options: bool) -> os.stat_result:
        if Path(path).name == "voter.log":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", fail)
        with suppress(OSError):  # a store that does not ask for it opens
            reopened(tmp_path)
    assert reopened(tmp_path) == before
    (tmp_path / "voter.log").unlink()
    (tmp_path / "voter.log").symlink_to("voter.log")  # reading it is an error other than that it is missing
    with pytest.raises(OSError, match="symbolic links"):
        reopened(tmp_path)


def test_all_descriptors_are_closed(tmp_path: Path) -> None:
    before = descriptors()
    stored(tmp_path, [*STEPS, [SaveSnapshot(6, Snapshot(4, 2, b""), True)]])
    assert descriptors() == before
    (tmp_path / "voter.log").write_bytes(b"")
    store = VoterStore(tmp_path)
    with pytest.raises(Damaged):
        store.open()
    assert descriptors() == before


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[: max(len(data) // 3, 1)]))
    more: list[list[Persist]] = [[SaveSnapshot(6, Snapshot(4, 2, b"state"), True)], [SaveMeta(7, 3, "b", ())]]
    assert stored(tmp_path, STEPS + more) == Restored(3, "b", (), Snapshot(4, 2, b"state"), ((2, b"x" * 100_000),))


@pytest.mark.parametrize("last", [SaveEntries(5, 3, 2, (b"3",)), SaveSnapshot(5, Snapshot(1, 1, b""), True)])
@pytest.mark.parametrize("failing", ["write", "written", "fdatasync", "fsync", "rename", "sync_folder"])
def test_a_failed_write_closes_the_store_and_leaves_the_state_before_it_or_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, last: Persist
) -> None:
    """A full disk takes half of a record, and `written` is an error after all of it."""
    groups: list[list[Persist]] = [STEPS[0], [SaveEntries(2, 1, 1, (b"1", b"2"))]]
    failed: list[Persist] = [last]
    states = [stored(tmp_path / "before", groups), stored(tmp_path / "after", [*groups, failed])]
    store, before = VoterStore(tmp_path / "voter"), descriptors()
    store.open()
    for steps in groups:
        store.write(steps)
    with monkeypatch.context() as patched:
        calls = fail(patched, failing)
        if isinstance(last, SaveEntries) and failing in ("fsync", "rename", "sync_folder"):
            assert store.write(failed) == 5  # only a new file needs these
            assert not calls
        elif isinstance(last, SaveSnapshot) and failing == "fdatasync":
            assert store.write(failed) == 5
            assert not calls
        else:
            with pytest.raises(OSError, match="No space left"):
                store.write(failed)
            assert calls
            assert descriptors() == before
            with pytest.raises(Closed):
                store.write([SaveMeta(6, 2, None, ())])
    store.close()
    found = reopened(tmp_path / "voter")
    assert found in states
    again = stored(tmp_path / "voter", [[SaveMeta(6, 2, None, ())]])
    assert found is not None
    assert again == found._replace(term=2, vote=None, epochs=())


@pytest.mark.parametrize("first", [0, 2, 5])
def test_entries_that_do_not_follow_are_refused_and_nothing_is_written(tmp_path: Path, first: int) -> None:
    before = stored(tmp_path, [*STEPS[:2], [SaveSnapshot(3, Snapshot(2, 1, b""), True)]])
    data = (tmp_path / "voter.log").read_bytes()
    store = VoterStore(tmp_path)
    store.open()
    with pytest.raises(ValueError, match=f"entry {first} does not follow 3"):
        store.write([SaveMeta(4, 7, "b", ()), SaveEntries(5, first, 7, (b"new",))])
    with pytest.raises(Closed):
        store.write([SaveMeta(6, 7, None, ())])
    assert (tmp_path / "voter.log").read_bytes() == data
    assert reopened(tmp_path) == before


def test_a_store_that_is_opened_again_returns_what_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write has left its steps in memory."""
    store = VoterStore(tmp_path)
    store.open()
    store.write(STEPS[0])
    for steps in (STEPS[1], [SaveMeta(2, 9, "b", ())], [SaveSnapshot(2, Snapshot(3, 1, b"state"), False)]):
        with monkeypatch.context() as patched:
            fail(patched, "write")
            with pytest.raises(OSError, match="No space left"):
                store.write(steps)
        assert store.open() == Restored(1, "a", (("a", 5), ("b", 6)))
    store.write(STEPS[1])
    store.close()
    found = reopened(tmp_path)
    assert found is not None
    assert found.entries == ((1, b""), (1, b"two"), (1, b"three"))
