"""Documents on the disk: one SQLite file for all documents of a peer. Acknowledged means synced.

::

    store = Store.open("docs.sqlite")               # a fresh epoch, on the disk before this returns
    ticket = store.append("minutes", Record(EditStream(store.origin, store.epoch), 1, update, {}))     # never blocks
    await store.synced(ticket)                      # it is on the disk, and survives kill -9
    store.load("minutes")                           # the snapshot, and what was appended since
    await store.aclose()

What is written when, and what a crash can lose: docs/documents.md, "The store". What lies in the file: ``_rows.py``.
The thread that writes it: ``_writer.py``. A file that is not as it was written is refused with StoreDamaged;
`recover` copies what is good of it into a new one.

May not know: peers, sockets, how documents are kept in step.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from nngkit.background import demand_trio
from nngkit.documents.names import LONGEST, check_name
from nngkit.documents.records import Compacted, Entry, Loaded, Merge, Record, Saved
from nngkit.documents.store import database_file, row_format
from nngkit.documents.store.compaction import Compactor, add, compaction, seal_snapshot
from nngkit.documents.store.database_file import Lock, in_words
from nngkit.documents.store.jobs import Append, Job, Save
from nngkit.documents.store.reader import StoreReader
from nngkit.documents.store.row_format import (
    CONTENTS,
    NAMES,
    RECORDS,
    SAVED,
    Facts,
    Head,
    Unsound,
    decode_record,
    key,
    seal,
    unseal,
)
from nngkit.documents.store.writer import Waiter, Writer
from nngkit.documents.versions import EPOCHS, ORIGIN, EditStream, Versions
from nngkit.errors import Closed, ConfigError, Forked, NotFound, StoreDamaged, TooLarge

__all__ = ["Store", "next_epoch"]

WAITING: Final = 64 << 20  # bytes: some seconds of a slow disk, and no more of the memory
RECENT: Final = 1024  # records kept beside a new snapshot: what peers ask for again is some seconds old
_CLOCK: Final = 4096  # epochs a millisecond: what chance may choose of


def next_epoch(previous: int, milliseconds: int, chance: int) -> int:
    """Higher than all epochs before, also where the file is an older copy: then the clock is ahead of them.

    `chance`, below 4096, tells two copies of a file apart that are opened in one millisecond. Raises ConfigError when
    there are no more epochs below 2^53. The clock has its part in them until 2039; after that they count on by one.
    """
    clock = milliseconds * _CLOCK + chance
    epoch = max(previous + 1, clock if 0 <= clock <= EPOCHS else 0)
    if epoch > EPOCHS:
        raise ConfigError("store", "it has no epochs left", previous)
    return epoch


@dataclass(slots=True)
class _Document:
    """A document as appended, some of it perhaps not written yet."""

    number: int
    last: int = 0
    contents: int = 0
    saved: int = 0
    have: Versions | None = None  # known from `load` on: what a diff may build on


_stores: weakref.WeakSet[Store] = weakref.WeakSet()


class Store:
    """One SQLite file for all documents of a peer. Made by `Store.open`, ended by `aclose` or `close`.

    `append`, `append_merge`, `save_version`, `load`, `versions`, `version`, `log`, `names` and `ticket` may be called
    from any thread; what is awaited, from any trio loop. Whatever fails raises one of: Broken (the disk; names the
    file; from then on all raise it until the store is opened again), StoreDamaged, Closed, Forked.
    """

    def __init__(self, path: str, lock: Lock, facts: Facts, heads: dict[int, Head], waiting: int) -> None:
        self.path = path
        self.origin = facts.origin
        self.epoch = facts.epoch
        self._pid = os.getpid()
        self._lock = lock
        self._documents = {
            head.name: _Document(number, head.last, head.contents, head.saved) for number, head in heads.items()
        }
        self._compacting = trio.Lock()
        self._ending = threading.Lock()
        self._closed = False
        self._reader = StoreReader(path)
        try:
            self._writer = Writer(database_file.connect(path), path, lock, facts, heads, waiting)
        except BaseException:
            self._reader.close()
            raise
        _stores.add(self)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, waiting: int = WAITING) -> Store:
        """The store at `path`, which is made if there is none. `waiting`: bytes that may wait to be written.

        Blocks while it is looked through, some 2 s for each GB. Raises StoreDamaged, and has then written nothing;
        ConfigError if it cannot be opened or is open elsewhere; Broken.
        """
        name = os.path.realpath(path)
        lock = Lock(name)
        try:
            return cls._open(name, lock, waiting)
        except BaseException as error:
            lock.close()
            if isinstance(error, sqlite3.Error | OSError):
                raise in_words(error, name) from error
            raise

    @classmethod
    def _open(cls, path: str, lock: Lock, waiting: int) -> Store:
        chance = random.SystemRandom()
        if not any(Path(name).exists() for name in (path, f"{path}-wal")):
            database_file.create(path, Facts(chance.randbytes(ORIGIN), 0, chance.randbytes(8)))
        facts, heads = database_file.check(path, lock)
        facts.epoch = next_epoch(facts.epoch, time.time_ns() // 1_000_000, chance.randrange(_CLOCK))
        with closing(database_file.connect(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            body = seal(row_format.FACTS, 1, row_format.encode_facts(facts))
            connection.execute("UPDATE facts SET body = ? WHERE key = 1", (body,))
            connection.execute("COMMIT")
            # All that was in the log is written and synced anew: a log from before a failed fsync may look whole only
            # as long as the kernel has its pages in memory, and what is appended behind it would be lost with it.
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise ConfigError("store", f"{path}: another program is reading it", path)
        lock.mark(facts.file, facts.ticket)
        return cls(path, lock, facts, heads, waiting)

    # Appending

    def append(self, doc: str, record: Record) -> int:
        """Have an edit written; its ticket, for `synced`. Never blocks. Full: wait for `room`.

        Raises ConfigError for a name that no document may have, TooLarge over 512 MiB.
        """
        content = row_format.encode_record(record, time.time_ns() // 1_000_000)
        return self._append(doc, content, {record.stream: record.seq})

    def append_merge(self, doc: str, update: bytes, versions: Mapping[EditStream, int]) -> int:
        """Have a diff written that was applied, and after which the document has all of `versions`. As `append`."""
        self._check()
        found = self._documents.get(doc)
        base = found.have if found is not None else {}
        body = row_format.encode_merge(Merge(update, dict(versions)), base, time.time_ns() // 1_000_000)
        return self._append(doc, body, versions)

    def _append(self, doc: str, content: bytes, versions: Mapping[EditStream, int]) -> int:
        self._check()
        with self._writer.changed:
            self._admit(content)
            document, new = self._document(doc)
            document.last += 1
            row = key(document.number, document.last)
            put = (RECORDS, row, seal(RECORDS, row, content))
            job = Append(document.number, doc, (*new, put), number=document.last)
            if document.have is not None:
                for stream, seq in versions.items():
                    if seq > document.have.get(stream, 0):
                        document.have[stream] = seq
            return self._writer.enqueue(job)

    def _admit(self, content: bytes) -> None:
        if len(content) > row_format.LARGEST:
            raise TooLarge(len(content), row_format.LARGEST)
        self._writer.admit(len(content))

    def _document(self, doc: str) -> tuple[_Document, tuple[tuple[row_format.Table, int, bytes], ...]]:
        """The document of that name; and if it is new, the row with its name."""
        if (document := self._documents.get(doc)) is not None:
            return document, ()
        check_name(doc)
        number = len(self._documents) + 1
        if number >= row_format.DOCUMENTS:
            raise ConfigError(
                "document name", f"the store has {row_format.DOCUMENTS} documents, and no room for more", doc
            )
        document = self._documents[doc] = _Document(number, have={})
        return document, ((NAMES, number, seal(NAMES, number, doc.encode())),)

    # Waiting

    def ticket(self) -> int:
        """Of the newest append, 0 in a new store."""
        return self._writer.newest

    @property
    def durable(self) -> int:
        """The newest ticket that is on the disk, with all before it."""
        return self._writer.durable

    async def synced(self, ticket: int) -> None:
        """Return when what has `ticket`, and all before it, is on the disk. Cancelled, it is written all the same.

        Raises Broken, naming the file, if it could not be written.
        """
        self._check_fork()
        demand_trio("Store.synced", blocking=False)
        if ticket > self._writer.newest:
            raise ConfigError("ticket", f"{ticket} was not given out yet", ticket)
        sleeper = Waiter(trio.lowlevel.current_trio_token(), trio.Event())
        with self._writer.changed:
            if ticket <= self._writer.durable:
                sleeper.event.set()
            else:
                self._writer.check_failure()
                self._writer.sleep_until(ticket, sleeper)
        try:
            await sleeper.event.wait()
        finally:
            with self._writer.changed:
                self._writer.wake_no_more(sleeper, ticket)
        if ticket > self._writer.durable:
            self._writer.check_failure()

    async def room(self, size: int = 0) -> None:
        """Return when an append of `size` bytes would not raise Full; others may be faster. Raises as `append`."""
        self._check_fork()
        demand_trio("Store.room", blocking=False)
        while True:
            sleeper = Waiter(trio.lowlevel.current_trio_token(), trio.Event())
            with self._writer.changed:
                self._writer.check()
                if self._writer.has_room(size):
                    break
                self._writer.sleep_until_room(sleeper)
            try:
                await sleeper.event.wait()
            finally:
                with self._writer.changed:
                    self._writer.wake_no_more(sleeper)
        await trio.lowlevel.checkpoint()

    # Reading

    def names(self) -> list[str]:
        """Of all documents, in order."""
        self._check()
        with self._writer.changed:
            return sorted(self._documents)

    def load(self, doc: str) -> Loaded:
        """All that was appended to a document, what is not on the disk yet too; nothing, if there is no such document.

        Reads from the disk, about 100,000 records a second. Raises StoreDamaged where anything of it is missing or not
        as it was written.
        """
        self._check()
        with self._writer.changed:
            found = self._documents.get(doc)
            if found is None:
                return Loaded(None, (), {})
            jobs = self._writer.pending(found.number)
        read = self._reader.document(found.number, doc, new=_is_new(jobs))
        rows = [*read.rows]
        head, log = read.head, read.head.log
        for job in jobs:
            if isinstance(job, Append) and job.number > head.last:
                rows.append(unseal(*job.puts[-1]))
                log += len(job.body)
        try:
            records = [decode_record(content) for content in rows]
        except Unsound as error:
            raise StoreDamaged(self.path, str(error), f"records of {doc!r}") from error
        covered = head.through - head.first + 1
        versions = dict(read.versions)
        for record in records[covered:]:
            add(versions, record)
        with self._writer.changed:
            if found.have is None and found.last == head.first + len(rows) - 1:  # nobody appended in between
                found.have = dict(versions)
        return Loaded(
            read.snapshot, tuple(records[covered:]), versions, tuple(records[:covered]), log=log, size=head.size
        )

    def log(self, doc: str) -> Iterator[Entry]:
        """Who appended how much and when, oldest first; of what is in the snapshot, the last 102,400 records at least.

        Only what is on the disk. Raises NotFound, StoreDamaged.
        """
        number, jobs = self._found(doc)
        return iter(self._reader.history(number, doc, new=_is_new(jobs)))

    # Versions by name

    def save_version(self, doc: str, name: str, snapshot: bytes, versions: Mapping[EditStream, int]) -> int:
        """Keep `snapshot`, in which `versions` are, under a name; the ticket, for `synced`. Compaction leaves it.

        Raises ConfigError where the document has a version of that name already, or the name is not printable text of
        1 to 200 bytes; and as `append`.
        """
        if not (name.isprintable() and 0 < len(name.encode()) <= LONGEST):
            raise ConfigError("version name", f"{name[:LONGEST]!a} is not printable text of 1 to {LONGEST} bytes", name)
        known = doc in self._documents
        saved = Saved(name, time.time_ns() // 1_000_000 / 1000, len(snapshot), dict(versions))
        content = row_format.encode_content(snapshot, versions)
        while True:
            taken = {each.name for each in self.versions(doc)} if known else set()
            with self._writer.changed:
                self._admit(content)
                document, new = self._document(doc)
                if document.saved != len(taken):
                    known = True
                    continue  # another thread has saved one
                if name in taken:
                    raise ConfigError("version name", f"{doc!r} has a version {name!r} already", name)
                document.saved += 1
                document.contents += 1
                at, row = key(document.number, document.contents), key(document.number, document.saved)
                puts = (
                    *new,
                    (SAVED, row, seal(SAVED, row, row_format.encode_saved(saved, document.contents))),
                    (CONTENTS, at, seal(CONTENTS, at, content)),
                )
                job = Save(document.number, doc, puts, saved=document.saved, contents=document.contents)
                return self._writer.enqueue(job)

    def versions(self, doc: str) -> tuple[Saved, ...]:
        """The saved versions, oldest first. Raises NotFound, StoreDamaged."""
        return tuple(saved for saved, _ in self._saved(doc)[0])

    def version(self, doc: str, name: str) -> bytes:
        """The snapshot that was saved under `name`. Raises NotFound, StoreDamaged."""
        found, jobs = self._saved(doc)
        for saved, contents in found:
            if saved.name == name:
                for job in jobs:
                    if isinstance(job, Save) and job.contents == contents:
                        return row_format.decode_content(unseal(*job.puts[-1]))[0]
                return self._reader.content(self._documents[doc].number, contents, f"version {name!r} of {doc!r}")
        raise NotFound(f"{doc!r} has no version {name!r}")

    def _saved(self, doc: str) -> tuple[list[tuple[Saved, int]], list[Job]]:
        number, jobs = self._found(doc)
        found = self._reader.saved(number, doc, new=_is_new(jobs))
        for job in jobs:
            if isinstance(job, Save) and job.saved > len(found):
                found.append(row_format.decode_saved(unseal(*job.puts[-2])))
        return found, jobs

    def _found(self, doc: str) -> tuple[int, list[Job]]:
        self._check()
        with self._writer.changed:
            if (found := self._documents.get(doc)) is None:
                raise NotFound(f"there is no document {doc!r}")
            return found.number, self._writer.pending(found.number)

    # Compaction

    async def compact(self, doc: str, engine: Compactor, *, recent: int = RECENT) -> Compacted:
        """Put what is on the disk of a document into one new snapshot, and keep the last `recent` records beside it.

        The document is loaded into a fresh one of `engine` in a worker thread, and the new snapshot replaces the old
        one and the log in one transaction, after it was found to have the same content. Others may append and read
        meanwhile, and see the one or the other. Cancelled, it is done or not done. One document at a time.

        Raises NotFound, StoreDamaged (also where the engine refuses what was stored), Broken, Full.
        """
        async with self._compacting:
            number, _ = self._found(doc)
            await self.synced(self.ticket())
            job, done = await trio.to_thread.run_sync(compaction, self._reader, self.path, number, doc, engine, recent)
            if job is not None:
                with self._writer.changed:
                    self._writer.admit(job.size)
                    document = self._documents[doc]
                    document.contents += 1
                    ticket = self._writer.enqueue(seal_snapshot(job, document.contents))
                await self.synced(ticket)
            return done

    # The end

    async def aclose(self) -> None:
        """Write what waits, then let go of the file; cancelled or not. Raises Broken if not all could be written."""
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self.close)

    def close(self) -> None:
        """`aclose` for those who may block."""
        self._check_fork()
        with self._ending:
            if self._closed:
                return
            self._closed = True
            self._reader.close()
            try:
                self._writer.close()
            finally:
                self._lock.close()

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        self._check_fork()
        if self._closed:
            raise Closed(f"{self.path} was closed")
        self._writer.check_failure()

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            raise Forked(f"{self.path} is open in the process that this one was forked from")


def _is_new(jobs: Iterable[Job]) -> bool:
    return any(table is NAMES for job in jobs for table, _, _ in job.puts)


def _let_go() -> None:
    """In a forked child: or the lock would last as long as the child does."""
    for store in list(_stores):
        store._lock.close()


os.register_at_fork(after_in_child=_let_go)
