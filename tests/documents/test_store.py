"""The store returns what was appended, completely and in order, and wakes its waiters."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from nngkit.documents.records import compaction_due
from nngkit.documents.store import Loaded, Merge, Record, Store
from nngkit.documents.store.sqlite import next_epoch
from nngkit.documents.versions import EPOCHS, STREAMS, EditStream, covers
from nngkit.errors import Broken, Closed, ConfigError, Full, NotFound, TooLarge
from tests.documents.stores import ADA, BOB, WAIT, append_all, edit, mine, standing_still

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "docs.sqlite"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    async with Store.open(path) as opened:
        yield opened


def some_records(count: int) -> list[Record | Merge]:
    """Return edits of two authors and merges, with and without deps, small ones and some of many pages."""
    chance = random.Random(count)
    seqs = {ADA: 0, BOB: 0}
    records: list[Record | Merge] = []
    for number in range(1, count + 1):
        update = chance.randbytes(chance.choice((0, 1, 30, 30, 30, 700, 5_000, 90_000)))
        if chance.random() < 0.1:
            records.append(Merge(update, {EditStream(b"stranger", number): number, BOB: seqs[BOB] + 1}))
            seqs[BOB] += 1
            continue
        stream, other = chance.sample((ADA, BOB), 2)
        seqs[stream] += 1
        deps = {other: seqs[other]} if seqs[other] and chance.random() < 0.5 else {}
        records.append(Record(stream, seqs[stream], update, deps))
    return records


# ---- appending and loading -------------------------------------------------------------------------------------------


async def test_records_are_loaded_in_order_before_and_after_a_restart(path: Path, store: Store) -> None:
    records = some_records(300)
    await store.synced(append_all(store, "minutes", records))
    store.append("other", edit(1))
    loaded = store.load("minutes")
    assert loaded.records == tuple(records)
    assert loaded.snapshot is None
    await store.aclose()
    with Store.open(path) as again:
        assert again.load("minutes") == loaded
        assert again.names() == ["minutes", "other"]
        assert again.load("other").records == (edit(1),)


def test_versions_hold_the_highest_number_of_each_stream(path: Path) -> None:
    with Store.open(path) as store:
        append_all(store, "doc", [edit(1), edit(2), Merge(b"", {ADA: 1, BOB: 7}), edit(8, BOB)])
        assert store.load("doc").versions == {ADA: 2, BOB: 8}


def test_unknown_document_is_empty_and_not_listed(path: Path) -> None:
    with Store.open(path) as store:
        assert store.load("minutes") == Loaded(None, (), {})
        assert store.names() == []
        assert store.ticket() == store.durable == 0


def test_queued_records_are_loaded(path: Path) -> None:
    with Store.open(path) as store:
        append_all(store, "old", some_records(20))
        while store.durable < 20:
            time.sleep(0.001)
        with standing_still(path):
            append_all(store, "old", [edit(1000), Merge(b"m", {BOB: 1000})])
            append_all(store, "new", [edit(1), edit(2)])
            assert store.durable == 20
            assert store.load("old").records == (*some_records(20), edit(1000), Merge(b"m", {BOB: 1000}))
            assert store.load("new").records == (edit(1), edit(2))
            assert store.names() == ["new", "old"]
            size = store.load("old").log
        store.close()
        with Store.open(path) as again:
            assert again.load("old").log == size


def test_appends_of_many_threads_keep_their_order(path: Path) -> None:
    def append(store: Store, stream: EditStream) -> None:
        append_all(store, "doc", [edit(seq, stream) for seq in range(1, 301)])

    with Store.open(path) as store:
        streams = [EditStream(b"thread%02d" % number, 1) for number in range(8)]
        threads = [threading.Thread(target=append, args=(store, stream)) for stream in streams]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        loaded = store.load("doc")
        assert loaded.versions == dict.fromkeys(streams, 300)
        for stream in streams:
            seqs = [record.seq for record in loaded.records if isinstance(record, Record) and record.stream == stream]
            assert seqs == list(range(1, 301))


def test_document_may_have_more_streams_than_a_message(path: Path) -> None:
    versions = {EditStream(b"origin__", epoch): 1 for epoch in range(3 * STREAMS)}
    with Store.open(path) as store:
        store.append_merge("doc", b"", versions)
        store.append_merge("doc", b"", {ADA: 1})
    with Store.open(path) as store:
        assert store.load("doc").versions == {**versions, ADA: 1}


@pytest.mark.parametrize("name", ["", "a//b", "../a", "x" * 201, "tab\t"])
def test_invalid_names_are_rejected(path: Path, name: str) -> None:
    with Store.open(path) as store:
        with pytest.raises(ConfigError, match="document name"):
            store.append(name, edit(1))
        assert store.names() == []


def test_too_large_update_is_rejected(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nngkit.documents.store.row_format.LARGEST", 1000)
    with Store.open(path) as store:
        with pytest.raises(TooLarge):
            store.append("doc", edit(1, update=b"x" * 1000))
        assert store.names() == []


# ---- the log on the disk ---------------------------------------------------------------------------------------------


LOG = 5.5 * 2**20  # bytes: cap of the log, plus the newest transactions


def size_of_log(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


async def largest_log(path: Path, store: Store, letters: int) -> int:
    """Return the largest size of the log in bytes, while single letters are appended and synced."""
    largest = 0
    for seq in range(1, letters + 1):
        await store.synced(store.append("doc", edit(seq, update=b"a typed letter, 26 bytes..")))
        largest = max(largest, size_of_log(path))
    return largest


@pytest.mark.slow
async def test_log_stays_small_under_steady_edits(path: Path, store: Store) -> None:
    # each letter is a commit of two pages; by the bytes of the letters alone, it would be 9.7 MB
    assert await largest_log(path, store, 1200) < LOG
    assert store.load("doc").versions == {ADA: 1200}


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_log_stays_small_for_ten_thousand_edits(path: Path, store: Store) -> None:
    assert await largest_log(path, store, 10_000) < LOG


async def test_log_shrinks_after_large_edits_and_a_slow_reader(path: Path, store: Store) -> None:
    await store.synced(store.append("doc", edit(1)))
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM records").fetchone()  # from here on the log cannot restart
        for seq in range(2, 5):
            await store.synced(store.append("doc", edit(seq, update=bytes(4 << 20))))
        assert size_of_log(path) > 12 << 20
    for seq in range(5, 400):
        await store.synced(store.append("doc", edit(seq)))
        if size_of_log(path) <= LOG:
            break
    assert size_of_log(path) <= LOG


# ---- waiting ---------------------------------------------------------------------------------------------------------


async def test_synced_waits_for_the_disk_and_can_be_cancelled(path: Path, store: Store) -> None:
    with standing_still(path):
        ticket = store.append("doc", edit(1))
        with trio.move_on_after(0.05) as scope:
            await store.synced(ticket)
        assert scope.cancelled_caught
        assert store.durable < ticket
    with trio.fail_after(WAIT):
        await store.synced(ticket)
    assert store.durable == ticket
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM records").fetchone() == (1,)
    connection.close()


@pytest.mark.slow
async def test_thousands_of_waiters_are_woken_by_their_tickets(path: Path, store: Store) -> None:
    woken: list[int] = []
    given_up: list[int] = []

    async def write(seq: int) -> None:
        ticket = store.append("doc", edit(seq))
        with trio.CancelScope() as scope:
            if seq % 5 == 0:
                scope.deadline = trio.current_time() + 0.01
            await store.synced(ticket)
            assert store.durable >= ticket
            woken.append(ticket)
        if scope.cancelled_caught:
            given_up.append(ticket)

    with trio.fail_after(WAIT):
        async with trio.open_nursery() as nursery:
            with standing_still(path):
                for seq in range(1, 5001):
                    nursery.start_soon(write, seq)
                await trio.sleep(0.1)
                assert not woken
    assert len(given_up) == 1000
    assert len(woken) == 4000
    assert not store._writer._waiters


async def test_unknown_ticket_is_rejected(store: Store) -> None:
    with pytest.raises(ConfigError, match="ticket"):
        await store.synced(1)


async def test_full_queue_raises_and_room_waits(path: Path) -> None:
    async with Store.open(path, waiting=10_000) as store:
        with standing_still(path):
            store.append("doc", edit(1, update=b"x" * 20_000))  # an empty queue takes a record of any size
            with pytest.raises(Full, match=r"docs\.sqlite"):
                store.append("doc", edit(2))
            assert store.load("doc").versions == {ADA: 1}
            with trio.move_on_after(0.05) as scope:
                await store.room()
            assert scope.cancelled_caught
            assert not store._writer._room_waiters
        with trio.fail_after(WAIT):
            await store.room(9_000)
        await store.synced(store.append("doc", edit(2)))
        assert store.load("doc").versions == {ADA: 2}


async def test_empty_updates_fill_the_queue(path: Path) -> None:
    async with Store.open(path, waiting=100_000) as store:
        with standing_still(path), pytest.raises(Full):
            append_all(store, "doc", [edit(seq, update=b"") for seq in range(1, 10_000)])


async def test_loops_in_other_threads_can_wait(path: Path, store: Store) -> None:
    async def elsewhere() -> int:
        ticket = store.append("doc", edit(1))
        await store.synced(ticket)
        return ticket

    with trio.fail_after(WAIT):
        ticket = await trio.to_thread.run_sync(trio.run, elsewhere)
        assert store.durable >= ticket


async def test_waiter_of_an_ended_loop_is_ignored(path: Path, store: Store) -> None:
    async def give_up() -> None:
        with trio.move_on_after(0.01):
            await store.synced(store.append("doc", edit(1)))

    with standing_still(path):
        await trio.to_thread.run_sync(trio.run, give_up)
    with trio.fail_after(WAIT):
        await store.synced(store.append("doc", edit(2)))


@pytest.mark.slow
async def test_lock_of_another_program_is_waited_for_then_reported(path: Path, store: Store) -> None:
    with standing_still(path), trio.fail_after(WAIT), pytest.raises(Broken, match="database is locked"):
        await store.synced(store.append("doc", edit(1)))
    with pytest.raises(Broken):
        await store.aclose()


# ---- epochs and locks ------------------------------------------------------------------------------------------------


def test_each_start_has_a_new_epoch_and_the_same_origin(path: Path) -> None:
    streams = []
    for _ in range(5):
        with Store.open(path) as store:
            streams.append(mine(store))
            connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            (facts,) = connection.execute("SELECT body FROM facts").fetchone()
            connection.close()
            assert store.epoch.to_bytes(8, "big") in facts
    assert streams == sorted(set(streams))
    assert len({stream.origin for stream in streams}) == 1


def test_two_stores_have_two_origins(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a") as a, Store.open(tmp_path / "b") as b:
        assert a.origin != b.origin
        assert len(a.origin) == 8


def test_copies_of_a_file_get_different_epochs(tmp_path: Path) -> None:
    Store.open(tmp_path / "a").close()
    (tmp_path / "b").write_bytes((tmp_path / "a").read_bytes())
    with Store.open(tmp_path / "a") as a, Store.open(tmp_path / "b") as b:
        assert a.origin == b.origin
        assert a.epoch != b.epoch


@given(st.integers(0, EPOCHS - 1), st.integers(-(2**40), 2**45), st.integers(0, 4095))
def test_epoch_is_above_the_last_and_below_2_53(previous: int, milliseconds: int, chance: int) -> None:
    assert previous < next_epoch(previous, milliseconds, chance) <= EPOCHS


def test_epoch_follows_the_clock_unless_it_was_set_back() -> None:
    assert next_epoch(5, 1_700_000_000_000, 7) == 1_700_000_000_000 * 4096 + 7
    assert next_epoch(EPOCHS - 1, 1_700_000_000_000, 7) == EPOCHS
    assert next_epoch(5, 2**42, 7) == 6  # after 2039
    with pytest.raises(ConfigError):
        next_epoch(EPOCHS, 0, 0)


def test_store_can_be_open_once(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    with Store.open(path):
        for name in (path, tmp_path / "link"):
            with pytest.raises(ConfigError, match=r"docs\.sqlite is open already"):
                Store.open(name)
        opening = f"from nngkit.documents.store import Store; Store.open({str(path)!r})"
        other = subprocess.run([sys.executable, "-c", opening], capture_output=True, text=True, timeout=WAIT)
        assert "ConfigError: store: " in other.stderr
        assert "open already" in other.stderr
    Store.open(tmp_path / "link").close()


def test_invalid_path_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory"):
        Store.open(tmp_path / "missing" / "docs.sqlite")
    with pytest.raises(ConfigError, match="Is a directory"):
        Store.open(tmp_path)


def test_leftovers_of_an_interrupted_creation_are_ignored(path: Path) -> None:
    Path(f"{path}-new").write_bytes(b"half a store")
    Path(f"{path}-new-wal").write_bytes(b"half a log")
    Store.open(path).close()
    assert not Path(f"{path}-new").exists()


FORKED = """
import os, sys, trio
from nngkit.documents.store import Store
from nngkit.errors import ConfigError, Forked
from tests.documents.stores import edit

path = sys.argv[1]
store = Store.open(path)
for seq in range(1, 101):
    store.append("doc", edit(seq))

child = os.fork()
if child == 0:
    async def synced():
        await store.synced(1)
    appending, loading = lambda: store.append("doc", edit(101)), lambda: store.load("doc")
    for what in (appending, loading, lambda: trio.run(synced), store.close):
        try:
            what()
        except Forked as error:
            print(error)
    try:
        Store.open(path)
    except ConfigError as error:
        print("open already" in str(error))
    sys.exit(0)  # through all that an interpreter does at its end
os.waitpid(child, 0)
lasting = os.fork()
if lasting == 0:
    os.read(0, 1)
    os._exit(0)
store.append("doc", edit(101))
store.close()
with Store.open(path) as again:  # though the second child lives
    print(len(again.load("doc").records))
os.kill(lasting, 9)
os.waitpid(lasting, 0)
"""


def test_forked_child_gets_an_error_and_the_parent_is_unharmed(path: Path) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, stdin=subprocess.PIPE, capture_output=True, text=True, timeout=WAIT, env=environment)
    assert done.stderr == ""
    forked = f"{path} was opened before a fork, in the parent process"
    assert done.stdout.splitlines() == [*[forked] * 4, "True", "101"]


# ---- the end ---------------------------------------------------------------------------------------------------------


async def test_close_writes_the_queue_and_rejects_further_calls(path: Path) -> None:
    store = Store.open(path)
    with standing_still(path):
        append_all(store, "doc", some_records(50))
    with trio.fail_after(WAIT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.synced, store.ticket())
            await store.aclose()
    await store.aclose()
    for what in (lambda: store.append("doc", edit(1)), lambda: store.load("doc"), store.names):
        with pytest.raises(Closed, match=r"docs\.sqlite"):
            what()
    with pytest.raises(Closed):
        await store.room()
    assert sorted(os.listdir(path.parent)) == ["docs.sqlite", "docs.sqlite-lock"]
    with Store.open(path) as again:
        assert again.load("doc").records == tuple(some_records(50))


async def test_cancelled_close_completes(path: Path) -> None:
    store = Store.open(path)
    store.append("doc", edit(1))
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.aclose()
    with Store.open(path) as again:
        assert again.load("doc").versions == {ADA: 1}


# ---- saved versions --------------------------------------------------------------------------------------------------


def test_versions_are_saved_by_name_and_listed_in_order(path: Path) -> None:
    before = time.time()
    with Store.open(path) as store:
        store.append("doc", edit(1))
        store.save_version("doc", "first", b"one" * 10_000, {ADA: 1})
        with standing_still(path):
            store.save_version("doc", "zweite Fassung", b"two", {ADA: 1, BOB: 2})
            assert [saved.name for saved in store.versions("doc")] == ["first", "zweite Fassung"]
            assert store.version("doc", "zweite Fassung") == b"two"
        saved = store.versions("doc")
    with Store.open(path) as store:
        assert store.versions("doc") == saved
        assert [(each.name, each.size, each.versions) for each in saved] == [
            ("first", 30_000, {ADA: 1}),
            ("zweite Fassung", 3, {ADA: 1, BOB: 2}),
        ]
        assert before - 1 < saved[0].time <= saved[1].time < time.time() + 1
        assert store.version("doc", "first") == b"one" * 10_000
        assert store.load("doc").versions == {ADA: 1}


def test_version_name_is_valid_and_unique(path: Path) -> None:
    with Store.open(path) as store:
        store.save_version("doc", "first", b"one", {})
        for name in ("first", "", "a\nb", "x" * 201):
            with pytest.raises(ConfigError, match="version name"):
                store.save_version("doc", name, b"two", {})
        assert store.version("doc", "first") == b"one"
        for doc, name in (("doc", "second"), ("other", "first")):
            with pytest.raises(NotFound):
                store.version(doc, name)
        with pytest.raises(NotFound):
            store.versions("other")


def test_concurrent_saves_of_one_name_do_not_overwrite(path: Path) -> None:
    taken = []

    def save(store: Store) -> None:
        try:
            store.save_version("doc", "the", b"x", {})
        except ConfigError:
            taken.append(1)

    with Store.open(path) as store:
        threads = [threading.Thread(target=save, args=(store,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 7
        assert len(store.versions("doc")) == 1


# ---- when to compact -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "snapshot", "due"),
    [(0, 0, False), (1 << 20, 0, False), ((1 << 20) + 1, 0, True), (3 << 20, 2 << 20, False), (5 << 20, 2 << 20, True)],
)
def test_compaction_is_due_when_the_log_outgrows_the_snapshot(log: int, snapshot: int, due: bool) -> None:
    assert compaction_due(log=log, snapshot=snapshot) is due


def test_versions_grow_with_every_record(path: Path) -> None:
    with Store.open(path) as store:
        before = store.load("doc").versions
        for record in some_records(50):
            append_all(store, "doc", [record])
            after = store.load("doc").versions
            assert covers(after, before)
            before = after
