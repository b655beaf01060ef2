"""Files that rooms write are for their owner only, unless they are shared: 0600, folders 0700; paths that cannot be."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from nngkit.cluster import Host
from nngkit.cluster.shell.store import VoterStore
from nngkit.discovery.history import History
from nngkit.documents import DocumentPeer
from nngkit.documents.store import recover
from nngkit.errors import ConfigError
from nngkit.fanout import Consumer, ConsumerServer, Outbox
from nngkit.file_modes import VARIABLE
from nngkit.journal import Recorder
from nngkit.lakehouse import open_table
from nngkit.protocols import Pull, Push
from nngkit.trust import Folder, Trust
from nngkit.web.site import Site
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


@asynccontextmanager
async def called(function: Callable[[], object]) -> AsyncIterator[None]:
    function()
    yield


@asynccontextmanager
async def outbox() -> AsyncIterator[None]:
    with Push(dial="tcp://127.0.0.1:1") as push:
        Outbox(NUL, push)
        yield


NUL = "of a\0library"
DOORS: dict[str, Callable[[], AbstractAsyncContextManager[object]]] = {
    "listen": lambda: called(lambda: Pull(listen=f"ipc:///tmp/{NUL}")),
    "dial": lambda: called(lambda: Pull(dial=f"shm:///tmp/{NUL}")),
    "journal": lambda: Recorder(NUL),
    "spool": lambda: Recorder("file:///of/a/library", spool=NUL),
    "consumers": lambda: ConsumerServer(NUL, listen="tcp://127.0.0.1:0"),
    "outbox": outbox,
    "store": lambda: DocumentPeer(store=NUL),
    "recovered store": lambda: called(lambda: recover(NUL, "docs.sqlite")),
    "voter": lambda: Host("c", listen="tcp://127.0.0.1:0", id="a", store=NUL),
    "history": lambda: called(lambda: History(NUL)),
    "pass": lambda: called(lambda: Trust(NUL)),
    "realm": lambda: called(lambda: Folder.open(NUL)),
    "new realm": lambda: called(lambda: Folder.new(NUL, "farm")),
    "table": lambda: called(lambda: open_table(NUL)),
    "page": lambda: called(lambda: Site.load(Path(NUL))),
}


@pytest.mark.parametrize("door", DOORS)
async def test_a_path_or_address_with_a_nul_is_refused_in_words(door: str) -> None:
    with pytest.raises(ConfigError, match=r"of a\\x00library': an? (path|address) has no NUL"):
        async with DOORS[door]():
            pass
