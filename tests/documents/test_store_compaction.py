"""A compacted document keeps its text, versions and history; other tasks continue meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from nngkit.documents.records import compaction_due
from nngkit.documents.store import Entry, Loaded, Record, Store
from nngkit.errors import NotFound, StoreDamaged
from tests.documents.stores import ADA, BOB, WAIT, Author, TextDocument, TextEngine, content, edit


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "docs.sqlite"


def write(store: Store, author: Author, seqs: range, doc: str = "doc") -> int:
    for seq in seqs:
        store.append(doc, edit(seq, update=author.type(f"{seq};")))
    return store.ticket()


def seqs_of(loaded: Loaded) -> tuple[list[int], list[int]]:
    """Return the sequence numbers of the recent records, and of those after the snapshot."""
    recent, after = (
        [record.seq for record in records if isinstance(record, Record)] for records in (loaded.recent, loaded.records)
    )
    return recent, after


async def test_compacted_document_is_equal_and_keeps_recent_records(path: Path) -> None:
    author = Author()
    async with Store.open(path) as store:
        write(store, author, range(1, 501))
        store.append_merge("doc", author.type("merged;"), {ADA: 500, BOB: 4})
        before = store.load("doc")
        done = await store.compact("doc", TextEngine(), recent=11)
        assert done.records == 501
        assert done.before == before.log > 5 * done.after
        after = store.load("doc")
        assert content(after) == content(before) == str(author.text)
        assert after.versions == before.versions == {ADA: 500, BOB: 4}
        assert after.records == ()
        assert after.recent == before.records[-11:]
        assert (after.log, after.size) == (0, done.after)
        write(store, author, range(501, 601))
        assert content(store.load("doc")) == str(author.text)
    async with Store.open(path) as store:
        assert content(store.load("doc")) == str(author.text)
        assert seqs_of(store.load("doc")) == ([*range(491, 501)], [*range(501, 601)])
        await store.compact("doc", TextEngine(), recent=0)
        assert seqs_of(store.load("doc")) == ([], [])
        assert content(store.load("doc")) == str(author.text)


async def test_second_compaction_does_nothing(path: Path) -> None:
    async with Store.open(path) as store:
        write(store, Author(), range(1, 10))
        await store.compact("doc", TextEngine())
        ticket = store.ticket()
        done = await store.compact("doc", TextEngine())
        assert (done.records, done.before) == (0, done.after)
        assert store.ticket() == ticket
        with pytest.raises(NotFound):
            await store.compact("other", TextEngine())


@pytest.mark.slow
async def test_appends_saves_and_reads_continue_during_compaction(path: Path) -> None:
    author = Author()
    acknowledged = 0
    compacted: list[int] = []

    async def go_on() -> None:
        nonlocal acknowledged
        for seq in range(1, 801):
            await store.synced(store.append("doc", edit(seq, update=author.type(f"{seq};"))))
            acknowledged = seq
            if seq % 100 == 0:
                store.save_version("doc", f"{seq}", author.whole(), {ADA: seq})
        scope.cancel()

    async def look() -> None:
        while True:
            loaded = store.load("doc")
            assert loaded.versions.get(ADA, 0) >= acknowledged
            assert len(content(loaded).split(";")) == loaded.versions.get(ADA, 0) + 1
            await trio.sleep(0.002)

    async def compact() -> None:
        while True:
            done = await store.compact("doc", TextEngine(), recent=7)
            compacted.append(done.records)

    with trio.fail_after(WAIT * 2):
        async with Store.open(path) as store:
            store.append_merge("doc", author.whole(), {BOB: 1})
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    for task in (go_on, look, compact, compact):
                        nursery.start_soon(task)
            assert sum(map(bool, compacted)) > 5
            for number in range(100, 801, 100):
                assert str(Author(store.version("doc", f"{number}")).text).endswith(f";{number};")
            assert [entry.seq for entry in store.log("doc")][1:] == [*range(1, 801)]


async def test_cancelled_compaction_is_atomic(path: Path) -> None:
    author = Author()
    async with Store.open(path) as store:
        write(store, author, range(1, 1001))
        for wait in (0, 0.001, 0.01, 0.05, 0.2):
            with trio.move_on_after(wait):
                await store.compact("doc", TextEngine(), recent=5)
            assert content(store.load("doc")) == str(author.text)
        with trio.fail_after(WAIT):
            await store.compact("doc", TextEngine(), recent=5)


class Forgetful(TextDocument):
    """Encodes less than it holds."""

    def changes_since(self, state: bytes | None = None) -> bytes:
        return Author().whole()


class ForgetfulEngine:
    def new(self, client_id: int | None = None) -> TextDocument:
        return Forgetful()


async def test_lossy_engine_replaces_nothing(path: Path) -> None:
    author = Author()
    async with Store.open(path) as store:
        write(store, author, range(1, 10))
        with pytest.raises(StoreDamaged, match="the encoded snapshot has other content"):
            await store.compact("doc", ForgetfulEngine())
        assert content(store.load("doc")) == str(author.text)
        assert store.load("doc").snapshot is None


async def test_rejected_updates_replace_nothing(path: Path) -> None:
    async with Store.open(path) as store:
        store.append("doc", edit(1, update=b"no update"))
        with pytest.raises(StoreDamaged, match=r"docs\.sqlite: records of 'doc'"):
            await store.compact("doc", TextEngine())
        assert store.load("doc").records == (edit(1, update=b"no update"),)


async def test_history_survives_compaction_up_to_its_cap(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nngkit.documents.store.compaction._PAST_KEPT", 2)
    author, seq = Author(), 0
    entries: list[Entry] = []
    async with Store.open(path) as store:
        for count in (10, 1000, 14, 1, 1500, 700, 400):
            write(store, author, range(seq + 1, seq + count + 1))
            seq += count
            await store.compact("doc", TextEngine(), recent=6)
            entries = list(store.log("doc"))
            expected = [*range(1, seq + 1)][-len(entries) :]
            assert [entry.seq for entry in entries] == expected
            assert len(entries) == seq or len(entries) > 1024
            assert len(entries) <= 2 * 1024 + 6
            assert all(entry.stream == ADA and entry.size > 10 for entry in entries)
            assert [entry.time for entry in entries] == sorted(entry.time for entry in entries)
        store.append_merge("doc", b"12345", {BOB: 3})
    async with Store.open(path) as store:
        again = list(store.log("doc"))
        assert again[:-1] == entries
        assert (again[-1].stream, again[-1].seq, again[-1].size) == (None, 0, 5)


@pytest.mark.slow
async def test_compaction_shrinks_the_file(path: Path) -> None:
    author = Author()
    async with Store.open(path) as store:
        ticket = write(store, author, range(1, 20_001))
        await store.synced(ticket)
        loaded = store.load("doc")
        assert compaction_due(log=loaded.log, snapshot=loaded.size)
        await store.compact("doc", TextEngine())
        loaded = store.load("doc")
        assert not compaction_due(log=loaded.log, snapshot=loaded.size)
    assert (await trio.Path(path).stat()).st_size < 400_000  # from over 2 MB
