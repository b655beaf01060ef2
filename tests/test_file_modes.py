"""Files that rooms write are for their owner only, unless they are shared: 0600, folders 0700."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nngkit.cluster.shell.store import VoterStore
from nngkit.documents import DocumentPeer
from nngkit.fanout import Consumer, ConsumerServer, Outbox
from nngkit.file_modes import VARIABLE
from nngkit.journal import Recorder
from nngkit.protocols import Push
from nngkit.trust import Folder
from tests.cli.commands import nngkit


@pytest.fixture(autouse=True)
def usual_umask(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(VARIABLE, raising=False)
    before = os.umask(0o022)
    yield
    os.umask(before)


async def write_everything(folder: Path, expected: set[int]) -> None:
    journal = folder / "made" / "journal"
    async with (
        Recorder(journal) as recorder,
        Push(dial="tcp://127.0.0.1:1") as push,
        Outbox(folder / "outbox", push) as outbox,
        DocumentPeer(store=folder / "docs.sqlite") as peer,
    ):
        await recorder.store([b"1"], topic="orders", protocol="put")
        async with (
            ConsumerServer(journal, listen="tcp://127.0.0.1:0") as server,
            Consumer("billing", server.address) as consumer,
        ):
            await (await consumer.receive(5)).ack()
        await outbox.put(b"x")
        peer.open("minutes").text("body").insert(0, "hello")
        assert set(written(folder).values()) <= expected  # also of what is removed at the end
    voter = VoterStore(folder / "above" / "voter", ("farm", "a"))
    voter.open()
    voter.close()
    Folder.new(folder / "realm", "farm")
    assert len(written(folder)) > 15


def written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mode & 0o777 for path in folder.rglob("*")}


async def test_files_and_folders_are_for_their_owner_only(tmp_path: Path) -> None:
    await write_everything(tmp_path, {0o600, 0o700})
    found = {str(path): oct(mode) for path, mode in written(tmp_path).items() if mode & 0o077}
    assert found == {}


async def test_shared_files_have_what_the_umask_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    await write_everything(tmp_path, {0o644, 0o755})
    for path, mode in written(tmp_path).items():
        if "realm" not in path.parts:  # secrets are never shared
            assert mode == (0o755 if path.is_dir() else 0o644), path


@pytest.mark.parametrize(("shared", "mode"), [(False, 0o600), (True, 0o644)])
def test_a_command_shares_files_if_told_so(shared: bool, mode: int, tmp_path: Path) -> None:
    lease = tmp_path / "lease"
    lease.touch()
    os.utime(lease, (0, 0))  # so that it ends at once
    words = ["record", str(tmp_path / "j"), "--stream", "orders=pull listen=tcp://127.0.0.1:0", "--lease", str(lease)]
    done = nngkit(*words, *(["--shared-files"] if shared else []))
    assert (tmp_path / "j").is_dir(), done.stderr
    assert (tmp_path / "j" / "journal.json").stat().st_mode & 0o777 == mode
