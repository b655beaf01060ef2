"""Damaged files are refused and left unchanged; recovery copies what is intact."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from nngkit.documents.store import Loaded, Merge, Record, Store, page_scan
from nngkit.documents.store.recovery import Report, recover
from nngkit.documents.versions import EditStream
from nngkit.errors import ConfigError, NngkitError, StoreDamaged
from tests.documents.stores import ADA, BOB, Author, TextEngine, content, edit

NAMES = ("minutes", "table/one", "large", "plain")
VERSION = "the first"


@dataclass(frozen=True)
class Image:
    """A store's files and contents."""

    folder: Path
    documents: dict[str, Loaded]
    version: bytes

    def copy(self, to: Path) -> Path:
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.folder, to)
        return to / "docs.sqlite"


async def _fill(path: Path, crashed: Path) -> tuple[dict[str, Loaded], bytes]:
    """Write four documents, one compacted, one with large updates; `crashed`: the files as kill -9 leaves them."""
    chance, author = random.Random(4), Author()
    async with Store.open(path) as store:
        store.append_merge("minutes", author.type("begun;"), {BOB: 300})
        for seq in range(1, 301):
            store.append("minutes", edit(seq, update=author.type(f"{seq};"), deps={BOB: seq} if seq % 3 else None))
            if seq == 200:
                store.save_version("minutes", VERSION, author.whole(), {ADA: 200, BOB: 300})
                await store.compact("minutes", TextEngine(), recent=20)
            if seq % 10 == 0:
                store.append("large", edit(seq // 10, update=chance.randbytes(chance.choice((3_000, 20_000)))))
            if seq % 50 == 0:
                store.append_merge("table/one", chance.randbytes(50), {BOB: seq})
            store.append("table/one", edit(seq))
            store.append("plain", edit(seq, BOB, update=chance.randbytes(40)))
            if seq == 150:
                await store.synced(store.ticket())
        await store.synced(store.ticket())
        shutil.copytree(path.parent, crashed)
        return {name: store.load(name) for name in store.names()}, store.version("minutes", VERSION)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Image]:
    folder = tmp_path_factory.mktemp("images")
    closed, crashed = folder / "closed", folder / "crashed"
    closed.mkdir()
    documents, version = trio.run(_fill, closed / "docs.sqlite", crashed)
    assert set(documents) == set(NAMES)
    return {image.name: Image(image, documents, version) for image in (closed, crashed)}


@pytest.fixture
def path(images: dict[str, Image], tmp_path: Path) -> Path:
    return images["closed"].copy(tmp_path / "store")


def bytes_of(path: Path) -> dict[str, bytes]:
    """Return the files that may hold data: without the lock, and without what SQLite rebuilds from the log."""
    files = [path, Path(f"{path}-wal")]
    return {file.name: file.read_bytes() for file in files if file.exists() and file.stat().st_size}


def refused(path: Path, what: str) -> StoreDamaged:
    before = bytes_of(path)
    with pytest.raises(StoreDamaged, match=what) as caught:
        Store.open(path)
    assert caught.value.path == str(path)
    assert caught.value.what
    assert caught.value.where
    assert bytes_of(path) == before
    return caught.value


# ---- refused by open -------------------------------------------------------------------------------------------------


def overwritten(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("length", [0, 1, 99, 100, 4096, 40_000])
def test_truncated_file_is_refused(path: Path, length: int) -> None:
    with path.open("r+b") as file:
        file.truncate(length)
    refused(path, ".")


def test_foreign_file_is_refused(path: Path) -> None:
    path.write_text("Dear diary, " * 1000)
    assert "header: it is not an SQLite database" in str(refused(path, "."))


def test_foreign_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "docs.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE places (url)")
    refused(path, "it is not a store of documents")


def test_newer_store_version_is_refused(path: Path) -> None:
    overwritten(path, 60, (2).to_bytes(4, "big"))
    refused(path, "its version is 2; this nngkit supports 1")


def test_database_that_would_ignore_its_log_is_refused(path: Path) -> None:
    overwritten(path, 18, b"\1\1")
    refused(path, "its journal mode is not WAL")


def test_log_without_its_database_is_refused(images: dict[str, Image], tmp_path: Path) -> None:
    path = images["crashed"].copy(tmp_path / "store")
    path.unlink()
    refused(path, "it does not exist, but its log does")


@pytest.mark.parametrize("length", [0, 32, 32 + 4120 * 5, -4120, None])
def test_truncated_log_is_refused(images: dict[str, Image], tmp_path: Path, length: int | None) -> None:
    path = images["crashed"].copy(tmp_path / "store")
    log = Path(f"{path}-wal")
    if length is None:
        log.unlink()
    else:
        log.write_bytes(log.read_bytes()[:length])
    assert "was acknowledged" in refused(path, r"it ends at append \d+, but \d+ was acknowledged").what


def test_older_copy_is_refused_until_its_mark_is_deleted(path: Path, tmp_path: Path) -> None:
    shutil.copy(path, tmp_path / "older")
    with Store.open(path) as store:
        store.append("plain", edit(301, BOB))
    shutil.copy(tmp_path / "older", path)
    refused(path, "older copy")
    Path(f"{path}-lock").unlink()
    Store.open(path).close()


def test_torn_mark_is_ignored(path: Path) -> None:
    Path(f"{path}-lock").write_bytes(b"torn")
    Store.open(path).close()


def test_missing_head_is_reported(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM heads WHERE key = 2")
    refused(path, "has 3 documents instead of 4")


# ---- refused by load -------------------------------------------------------------------------------------------------

TAMPERED = {
    "a flipped bit": ("UPDATE records SET body = ? WHERE key = ?", True, "its checksum is wrong"),
    "a missing record": ("DELETE FROM records WHERE ? AND key = ?", False, "is missing"),
    "a renumbered record": ("UPDATE records SET key = key + 1000 WHERE ? AND key = ?", False, "is missing"),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_altered_record_is_reported_and_other_documents_load(path: Path, how: str) -> None:
    statement, flipped, what = TAMPERED[how]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        key, body = connection.execute("SELECT key, body FROM records ORDER BY key DESC LIMIT 1 OFFSET 10").fetchone()
        changed = bytes([*body[:20], body[20] ^ 4, *body[21:]]) if flipped else 1
        connection.execute(statement, (changed, key))
    with Store.open(path) as store:
        doc = [name for name in store.names() if damaged(store, name)]
        assert len(doc) == 1
        with pytest.raises(StoreDamaged, match=f"record {key & 0xFFFF} of '{doc[0]}': {what}"):
            store.load(doc[0])


def damaged(store: Store, doc: str) -> bool:
    try:
        store.load(doc)
    except StoreDamaged:
        return True
    return False


def test_unexpected_record_is_reported(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO records SELECT max(key) + 1, body FROM records")
    with Store.open(path) as store:
        assert sum(damaged(store, name) for name in store.names()) == 1


async def test_damaged_document_is_not_compacted(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM contents")
    async with Store.open(path) as store:
        with pytest.raises(StoreDamaged, match="snapshot of 'minutes': is missing"):
            await store.compact("minutes", TextEngine())
        with pytest.raises(StoreDamaged, match="version 'the first' of 'minutes': is missing"):
            store.version("minutes", VERSION)


# ---- recovery --------------------------------------------------------------------------------------------------------


def test_intact_store_is_recovered_completely(images: dict[str, Image], tmp_path: Path) -> None:
    for name, image in images.items():
        path = image.copy(tmp_path / name)
        before = bytes_of(path)
        report = recover(path, tmp_path / f"{name}.sqlite")
        assert report.whole, str(report)
        assert bytes_of(path) == before
        with Store.open(path) as old, Store.open(tmp_path / f"{name}.sqlite") as new:
            assert new.origin == old.origin
            assert new.epoch > old.epoch - (1 << 30)
            assert new.names() == old.names()
            for doc in old.names():
                one, other = old.load(doc), new.load(doc)
                assert (one.snapshot, one.records, one.versions) == (other.snapshot, other.records, other.versions)
                assert [entry.seq for entry in new.log(doc)][-100:] == [entry.seq for entry in old.log(doc)][-100:]
            assert new.version("minutes", VERSION) == old.version("minutes", VERSION)
            assert new.versions("minutes") == old.versions("minutes")


def recovered(path: Path) -> tuple[Report, dict[str, Loaded]]:
    to = path.with_name("recovered.sqlite")
    report = recover(path, to)
    with Store.open(to) as store:
        return report, {name: store.load(name) for name in store.names()}


def test_damaged_root_page_loses_no_record(images: dict[str, Image], path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'records'").fetchone()
    overwritten(path, (root - 1) * 4096, bytes(4096))
    refused(path, ".")
    report, documents = recovered(path)
    assert report.whole, str(report)
    assert {doc: loaded.records for doc, loaded in documents.items()} == {
        doc: loaded.records for doc, loaded in images["closed"].documents.items()
    }


def without(path: Path, *statements: str) -> None:
    """Overwrite the rows in each page that holds them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA secure_delete = ON")
        for statement in statements:
            assert connection.execute(statement).rowcount > 0


def key_of(path: Path, doc: str, number: int) -> int:
    with Store.open(path) as store:
        return store._documents[doc].number << 40 | number


def small(tmp_path: Path, records: list[Record | Merge]) -> Path:
    (tmp_path / "store").mkdir()
    path = tmp_path / "store" / "docs.sqlite"
    with Store.open(path) as store:
        for record in records:
            if isinstance(record, Merge):
                store.append_merge("doc", record.update, record.versions)
            else:
                store.append("doc", record)
    return path


def test_after_a_gap_only_independent_records_are_kept(tmp_path: Path) -> None:
    records: list[Record | Merge] = [
        edit(1),
        edit(1, BOB),
        edit(2),  # lost
        edit(2, BOB),  # continues
        edit(3),  # its stream has a gap now
        edit(3, BOB, deps={ADA: 2}),  # depends on a lost record
        edit(4, BOB),  # continues a record that is left out
        Merge(b"diff", {EditStream(b"stranger", 1): 5}),  # may depend on anything before it
        edit(1, EditStream(b"newcomer", 1), deps={BOB: 2}),
    ]
    path = small(tmp_path, records)
    without(path, "DELETE FROM records WHERE key & 255 = 3")
    report, documents = recovered(path)
    assert documents["doc"].records == (records[0], records[1], records[3], records[8])
    (told,) = report.documents
    assert (told.kept, told.lost, told.left_out) == (4, 1, 4)
    assert str(told) == "doc: 4 records kept, 1 lost, 4 left out"
    assert not report.whole


def test_merge_is_kept_if_its_dependencies_are(tmp_path: Path) -> None:
    records: list[Record | Merge] = [edit(1), Merge(b"lost", {}), Merge(b"kept", {BOB: 3}), edit(4, BOB), edit(2)]
    path = small(tmp_path, records)
    without(path, "DELETE FROM records WHERE key & 255 = 2")
    report, documents = recovered(path)
    assert documents["doc"].records == (records[0], *records[2:])
    assert (report.documents[0].lost, report.documents[0].left_out) == (1, 0)


def test_saved_version_replaces_a_lost_snapshot(images: dict[str, Image], path: Path) -> None:
    key = key_of(path, "minutes", 2)
    without(path, f"DELETE FROM contents WHERE key = {key}")
    report, documents = recovered(path)
    assert content(documents["minutes"]) == content(images["closed"].documents["minutes"])
    told = next(each for each in report.documents if each.name == "minutes")
    assert told.why == "its snapshot is lost"
    assert told.lost == 0


def test_without_any_beginning_nothing_is_recovered(path: Path) -> None:
    without(path, "DELETE FROM contents")
    report, documents = recovered(path)
    told = next(each for each in report.documents if each.name == "minutes")
    assert documents["minutes"] == Loaded(None, (), {})
    assert (told.kept, told.lost, told.left_out, told.saved_lost) == (0, 181, 120, 1)
    assert str(told) == ("minutes: 0 records kept, 181 lost, 120 left out, 1 saved versions lost; its snapshot is lost")


def test_documents_without_heads_keep_their_names(images: dict[str, Image], path: Path) -> None:
    without(path, "DELETE FROM heads")
    report, documents = recovered(path)
    assert set(documents) == set(NAMES)
    assert documents["plain"].records == images["closed"].documents["plain"].records
    assert content(documents["minutes"]) == content(images["closed"].documents["minutes"])
    assert all("its head is lost" in told.why for told in report.documents)


def test_documents_without_names_are_reported(path: Path) -> None:
    without(path, "DELETE FROM heads", "DELETE FROM names")
    report, documents = recovered(path)
    assert sorted(documents) == [f"recovered-{number}" for number in range(1, 5)]
    assert not report.whole


def test_store_without_an_origin_gets_a_new_one(path: Path) -> None:
    with Store.open(path) as store:
        origin = store.origin
    without(path, "DELETE FROM facts")
    report, _ = recovered(path)
    assert not report.same_origin
    assert report.unaccounted is None
    assert "the new one has another" in str(report)
    with Store.open(report.to) as store:
        assert store.origin != origin


def test_edits_of_a_truncated_log_are_counted(images: dict[str, Image], tmp_path: Path) -> None:
    path = images["crashed"].copy(tmp_path / "store")
    log = Path(f"{path}-wal")
    log.write_bytes(log.read_bytes()[: 32 + 4120 * 20])
    report, _ = recovered(path)
    assert report.unaccounted
    assert f"{report.unaccounted} more appends were acknowledged, of which no trace is found" in str(report)


def test_recovery_overwrites_nothing_and_needs_rows(path: Path, tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"")
    with pytest.raises(ConfigError, match="exists already"):
        recover(path, tmp_path / "there")
    with pytest.raises(ConfigError, match="does not exist"):
        recover(tmp_path / "nowhere", tmp_path / "new")
    with Store.open(path), pytest.raises(ConfigError, match="open already"):
        recover(path, tmp_path / "new")
    (tmp_path / "there").write_bytes(random.Random(1).randbytes(100_000))
    with pytest.raises(StoreDamaged, match="it contains no row of a store"):
        recover(tmp_path / "there", tmp_path / "new")
    assert not (tmp_path / "new").exists()


async def _twice(path: Path, crashed: Path) -> dict[str, Loaded]:
    """Write documents in two transactions; `crashed`: the files as kill -9 leaves them."""
    async with Store.open(path) as store:
        for seq in (1, 2):
            for name in ("one", "two", "three", "four"):
                store.append(name, edit(seq, update=b"x" * 100))
            await store.synced(store.ticket())
        shutil.copytree(path.parent, crashed)
        return {name: store.load(name) for name in store.names()}


def test_a_log_that_ends_in_a_page_of_heads_does_not_hide_the_loss(tmp_path: Path) -> None:
    """A document's newest head is cut off, and the one before it is there: it fits the records found."""
    (tmp_path / "closed").mkdir()
    documents = trio.run(_twice, tmp_path / "closed" / "docs.sqlite", tmp_path / "crashed")
    image = Image(tmp_path / "crashed", documents, b"")
    with closing(sqlite3.connect(image.copy(tmp_path / "other"))) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'heads'").fetchone()
    log = (image.folder / "docs.sqlite-wal").read_bytes()
    end = max(at for at in range(32, len(log), 24 + 4096) if log[at : at + 4] == root.to_bytes(4, "big")) + 24 + 4096
    hidden = 0
    for short in range(0, 300, 10):
        path = image.copy(tmp_path / "store")
        path.with_name("docs.sqlite-wal").write_bytes(log[: end - short])
        report, found = recovered(path)
        told = {document.name: document for document in report.documents}
        behind = [name for name, loaded in documents.items() if found[name].versions != loaded.versions]
        hidden += (untold := sum(told[name].whole for name in behind))
        assert untold in (0, report.unaccounted)
    assert hidden, "no cut has left an older head"


# ---- random damage ---------------------------------------------------------------------------------------------------


def flip(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def scribble(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    data[at : at + 30] = chance.randbytes(len(data[at : at + 30]))


def blank(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data)) // 4096 * 4096
    data[at : at + 4096] = bytes(len(data[at : at + 4096]))


def cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def cut_at_a_page(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) // 4096 * 4096 :]


def wound(path: Path, chance: random.Random) -> str:
    files = [path.with_name(name) for name in bytes_of(path)]
    (file,) = chance.choices(files, [file.stat().st_size for file in files])
    how: Callable[[bytearray, random.Random], None] = chance.choice((flip, flip, scribble, blank, cut, cut_at_a_page))
    data = bytearray(file.read_bytes())
    how(data, chance)
    file.write_bytes(data)
    return f"{how.__name__} of {file.name}"


def opened(path: Path, image: Image) -> bool:
    """Return True if the store is intact; readable parts must be as written, all else refused."""
    before = bytes_of(path)
    whole = True
    try:
        with Store.open(path) as store:
            for name, loaded in image.documents.items():
                try:
                    assert store.load(name) == loaded
                except StoreDamaged:
                    whole = False
            try:
                assert store.version("minutes", VERSION) == image.version
            except StoreDamaged:
                whole = False
    except StoreDamaged:
        assert bytes_of(path) == before
        return False
    return whole


def put_together(path: Path, image: Image) -> None:
    """Check that recovered documents are in order, and that the report names anything missing."""
    try:
        report, documents = recovered(path)
    except StoreDamaged:
        assert sum(map(len, bytes_of(path).values())) < 20_000  # truncated to almost nothing
        return
    told = {document.name: document for document in report.documents}
    nameless = "?" in told or report.unaccounted or report.unaccounted is None
    for name, loaded in image.documents.items():
        found = documents.get(name)
        if found is None or found.versions != loaded.versions:
            assert nameless or not told[name].whole, f"{name} is not whole, and nothing is told: {report}"
        if found is not None and name != "minutes":
            rest = iter(loaded.records)
            assert all(record in rest for record in found.records)
        elif found is not None:
            assert content(loaded).startswith(content(found))


def hurt(images: dict[str, Image], folder: Path, times: int, seed: int) -> Iterator[bool]:
    chance = random.Random(seed)
    for number in range(times):
        image = images[chance.choice(sorted(images))]
        path = image.copy(folder / "store")
        what = wound(path, chance)
        try:
            whole = opened(path, image)
            yield whole
            if not whole:
                put_together(path, image)
        except (AssertionError, NngkitError) as error:
            raise AssertionError(f"seed {seed}, number {number}, {what}: {error!r}") from error


@pytest.mark.slow
def test_any_damage_is_reported_or_harmless(images: dict[str, Image], tmp_path: Path) -> None:
    outcomes = list(hurt(images, tmp_path, 60, seed=1))
    assert 40 < outcomes.count(False) < 60


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_any_damage_is_reported_many_times(images: dict[str, Image], tmp_path: Path) -> None:
    times = int(os.environ.get("NNGKIT_DAMAGES", "250"))
    assert len(list(hurt(images, tmp_path, times, seed=2))) == times


# ---- varints ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**56 - 1))
def test_varints_round_trip(value: int) -> None:
    data = page_scan._varint_of(value)
    assert page_scan._varint(b"?" + data + b"?", 1) == (value, 1 + len(data))
