"""A storage backend in place of the store: receives edits in order, returns them, and may fail."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from nngkit.documents import DocumentPeer, EditStream
from nngkit.documents.records import Loaded, Merge, Record
from nngkit.documents.storage_backend import DocumentLog
from nngkit.documents.versions import Edit, Versions, merge
from nngkit.errors import Broken, ConfigError, TimedOut
from nngkit.testing import aeventually
from tests.documents.test_peer import HERE, PATIENCE


class MemoryBackend:
    """Keeps documents in memory; fails on demand."""

    def __init__(self) -> None:
        self.records: dict[str, list[Record | Merge]] = {}
        self.broken = False

    def load(self, name: str) -> Loaded:
        versions: Versions = {}
        for record in self.records.get(name, ()):
            versions = merge(versions, record.versions if isinstance(record, Merge) else {record.stream: record.seq})
        return Loaded(None, tuple(self.records.get(name, ())), versions)

    def log(self, name: str, versions: Mapping[EditStream, int]) -> DocumentLog:
        assert versions == self.load(name).versions
        return MemoryLog(self, self.records.setdefault(name, []))

    async def room(self) -> None:
        self.check()
        await trio.lowlevel.checkpoint()

    def check(self) -> None:
        if self.broken:
            raise Broken("simulated disk failure")


class MemoryLog:
    def __init__(self, backend: MemoryBackend, records: list[Record | Merge]) -> None:
        self._backend = backend
        self._records = records

    def append(self, stream: EditStream, seq: int, edit: Edit) -> None:
        self._records.append(Record(stream, seq, edit.payload, edit.deps))

    def append_merge(self, update: bytes, versions: Versions) -> None:
        self._records.append(Merge(update, versions))

    async def synced(self) -> None:
        self._backend.check()
        await trio.lowlevel.checkpoint()

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_backend_stores_every_edit_and_loads_it() -> None:
    backend = MemoryBackend()
    async with DocumentPeer(listen=HERE) as ada:
        theirs = ada.open("minutes")
        async with DocumentPeer(dial=ada.address, storage=backend) as peer:
            ours = peer.open("minutes")
            theirs.text("body").insert(0, "hello")
            await aeventually(lambda: str(ours.text("body")) == "hello")
            ours.text("body").insert(5, " you")
            await ours.durable()
            await aeventually(lambda: theirs.digest() == ours.digest())
            versions = peer.versions("minutes")
    assert {one.stream for one in backend.records["minutes"] if isinstance(one, Record)} >= {peer.me}
    assert backend.load("minutes").versions == versions
    async with DocumentPeer(storage=backend) as again:
        assert str(again.open("minutes").text("body")) == "hello you"


async def test_failing_backend_is_not_counted_as_durable_and_editing_continues() -> None:
    backend = MemoryBackend()
    async with (
        DocumentPeer(listen=HERE) as ada,
        DocumentPeer(listen=HERE, dial=ada.address, storage=backend) as peer,
    ):
        theirs, ours = ada.open("minutes"), peer.open("minutes")
        theirs.text("body").insert(0, "0")
        await theirs.synced(1, PATIENCE)
        backend.broken = True
        for number in range(200):  # more than are received before backpressure is checked
            theirs.text("body").insert(0, f"{number}")
            await trio.lowlevel.checkpoint()
        await aeventually(lambda: ours.digest() == theirs.digest())
        with pytest.raises(TimedOut, match="on the disks of 0 of 1"):
            await theirs.synced(1, 0.5)
        with pytest.raises(Broken, match="simulated disk failure"):
            await ours.durable()
        backend.broken = False
        await theirs.synced(1, PATIENCE)


def test_store_and_storage_are_exclusive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="combined with store="):
        DocumentPeer(store=tmp_path / "s.sqlite", storage=MemoryBackend())
