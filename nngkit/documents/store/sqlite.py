"""Store: one SQLite file for all documents of a peer. An edit is acknowledged once it is synced.

::

    store = Store.open("docs.sqlite")               # a new epoch, on disk before this returns
    ticket = store.append("minutes", Record(EditStream(store.origin, store.epoch), 1, update, {}))     # never blocks
    await store.synced(ticket)                      # it is on disk, and survives kill -9
    store.load("minutes")                           # the snapshot, and the records after it
    await store.aclose()

docs/documents.md, "The store", describes when data is written, and what a crash can lose. ``row_format.py`` holds the
format, ``writer.py`` the writing thread. An altered file raises StoreDamaged; `recover` copies what is intact.

Knows neither peers nor sockets.
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
from nngkit.documents.store.database_file import Lock, translated
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
from nngkit.file_modes import checked_path

WAITING: Final = 64 << 20  # bytes: some seconds of a slow disk, and a bound for the memory
RECENT: Final = 1024  # records kept beside a new snapshot: peers ask for edits that are seconds old
_CLOCK: Final = 4096  # epochs per millisecond: the range of `chance`


def next_epoch(previous: int, milliseconds: int, chance: int) -> int:
    """Return an epoch above all earlier ones, also in an older copy of the file, thanks to the clock.

    `chance`, below 4096, separates two copies of a file opened in the same millisecond. The clock contributes until
    2039; then epochs count up by one. Raises ConfigError when no epoch below 2^53 is left.
    """
    clock = milliseconds * _CLOCK + chance
    epoch = max(previous + 1, clock if 0 <= clock <= EPOCHS else 0)
    if epoch > EPOCHS:
        raise ConfigError("store", "no epochs are left", previous)
    return epoch


@dataclass(slots=True)
class _Document:
    """State of a document including queued writes."""

    number: int
    last: int = 0
    contents: int = 0
    saved: int = 0
    have: Versions | None = None  # known from `load` on: what a merge may depend on


_stores: weakref.WeakSet[Store] = weakref.WeakSet()


class Store:
    """One SQLite file for all documents of a peer. Create it with `Store.open`, end it with `aclose` or `close`.

    Synchronous methods may be called from any thread, async ones from any trio loop. Each raises one of: Broken (a disk
    error, with the file; every later call raises it too, until the store is opened again), StoreDamaged, Closed,
    Forked.
    """

    def __init__(
        self,
        path: str,
        lock: Lock,
        facts: Facts,
        heads: dict[int, Head],
        damaged: dict[str, StoreDamaged],
        owners: dict[bytes, tuple[int, str]],
        waiting: int,
    ) -> None:
        self.path = path
        self._damaged = damaged
        self._owners = owners
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
        """Open the store at `path`; create it if it does not exist. `waiting`: cap on queued bytes.

        Blocks for the check, about 2 s per GB. Raises StoreDamaged, in which case nothing was written; ConfigError if
        the file cannot be opened or is open elsewhere; Broken.
        """
        name = os.path.realpath(checked_path("store", path))
        lock = Lock(name)
        try:
            return cls._open(name, lock, waiting)
        except BaseException as error:
            lock.close()
            if isinstance(error, sqlite3.Error | OSError):
                raise translated(error, name) from error
            raise

    @classmethod
    def _open(cls, path: str, lock: Lock, waiting: int) -> Store:
        chance = random.SystemRandom()
        if not any(Path(name).exists() for name in (path, f"{path}-wal")):
            database_file.create(path, Facts(chance.randbytes(ORIGIN), 0, chance.randbytes(8)))
        facts, heads, damaged = database_file.check(path, lock)
        facts.epoch = next_epoch(facts.epoch, time.time_ns() // 1_000_000, chance.randrange(_CLOCK))
        with closing(database_file.connect(path)) as connection:
            owners = database_file.owners(connection, path)
            connection.execute("BEGIN IMMEDIATE")
            body = seal(row_format.FACTS, 1, row_format.encode_facts(facts))
            connection.execute("UPDATE facts SET body = ? WHERE key = 1", (body,))
            connection.execute("COMMIT")
            # Checkpoint and sync the log: after a failed fsync it may look complete only while the kernel caches its
            # pages, and appends after the lost part would be lost with it.
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise ConfigError("store", f"{path}: another program has it open", path)
        lock.mark(facts.file, facts.ticket)
        return cls(path, lock, facts, heads, damaged, owners, waiting)

    # Owners of origins, under a trust

    @property
    def owners(self) -> dict[bytes, str]:
        """The name that each origin belongs to, oldest first."""
        return {origin: name for origin, (_, name) in self._owners.items()}

    def own(self, origin: bytes, name: str, instead: bytes | None = None) -> None:
        """Keep the owner of an origin, in place of that of ``instead``. It is on disk with the next append, or the end.

        Raises Broken, Closed.
        """
        self._check()
        freed = None if instead is None else self._owners.pop(instead, None)
        number = max((key for key, _ in self._owners.values()), default=1) + 1 if freed is None else freed[0]
        self._owners[origin] = number, name
        with self._writer.changed:
            body = seal(row_format.FACTS, number, row_format.encode_owner(origin, name))
            self._writer.owners.append((number, body))

    # Appending

    def append(self, doc: str, record: Record) -> int:
        """Queue an edit; return its ticket for `synced`. Never blocks. Raises Full: wait for `room`.

        Raises ConfigError for an invalid document name, TooLarge over 512 MiB.
        """
        content = row_format.encode_record(record, time.time_ns() // 1_000_000)
        return self._append(doc, content, {record.stream: record.seq})

    def append_merge(self, doc: str, update: bytes, versions: Mapping[EditStream, int]) -> int:
        """Queue an applied update, after which the document has all of `versions`. As `append`."""
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
        """Return the document of that name and, if it is new, the row with its name."""
        self._check_document(doc)
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
        """Return the ticket of the newest append; 0 in a new store."""
        return self._writer.newest

    @property
    def durable(self) -> int:
        """The newest ticket that is on disk; all earlier ones are too."""
        return self._writer.durable

    async def synced(self, ticket: int) -> None:
        """Wait until `ticket` and all earlier ones are on disk. Cancellation does not stop the write.

        Raises Broken, with the file, if it could not be written.
        """
        self._check_fork()
        demand_trio("Store.synced", blocking=False)
        if ticket > self._writer.newest:
            raise ConfigError("ticket", f"{ticket} does not exist yet", ticket)
        waiter = Waiter(trio.lowlevel.current_trio_token(), trio.Event())
        with self._writer.changed:
            if ticket <= self._writer.durable:
                waiter.event.set()
            else:
                self._writer.check_failure()
                self._writer.add_waiter(ticket, waiter)
        try:
            await waiter.event.wait()
        finally:
            with self._writer.changed:
                self._writer.remove_waiter(waiter, ticket)
        if ticket > self._writer.durable:
            self._writer.check_failure()

    async def room(self, size: int = 0) -> None:
        """Wait until an append of `size` bytes would not raise Full; another task may be faster. Raises as `append`."""
        self._check_fork()
        demand_trio("Store.room", blocking=False)
        while True:
            waiter = Waiter(trio.lowlevel.current_trio_token(), trio.Event())
            with self._writer.changed:
                self._writer.check()
                if self._writer.has_room(size):
                    break
                self._writer.add_room_waiter(waiter)
            try:
                await waiter.event.wait()
            finally:
                with self._writer.changed:
                    self._writer.remove_waiter(waiter)
        await trio.lowlevel.checkpoint()

    # Reading

    def names(self) -> list[str]:
        """Return the names of all documents, sorted."""
        self._check()
        with self._writer.changed:
            return sorted(self._documents)

    def load(self, doc: str) -> Loaded:
        """Return everything appended to a document, queued records included; empty for an unknown document.

        Reads about 100,000 records per second. Raises StoreDamaged if a part is missing or altered.
        """
        self._check()
        self._check_document(doc)
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
            if found.have is None and found.last == head.first + len(rows) - 1:  # no append in between
                found.have = dict(versions)
        return Loaded(
            read.snapshot, tuple(records[covered:]), versions, tuple(records[:covered]), log=log, size=head.size
        )

    def log(self, doc: str) -> Iterator[Entry]:
        """Iterate over the history, oldest first: author, size and time of each record.

        Records already in a snapshot: the last 102,400 at least. Only what is on disk. Raises NotFound, StoreDamaged.
        """
        number, jobs = self._found(doc)
        return iter(self._reader.history(number, doc, new=_is_new(jobs)))

    # Saved versions

    def save_version(self, doc: str, name: str, snapshot: bytes, versions: Mapping[EditStream, int]) -> int:
        """Save `snapshot`, which contains `versions`, under a name; return the ticket. Compaction keeps it.

        Raises ConfigError if the name exists already or is not printable text of 1 to 200 bytes; and as `append`.
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
                    continue  # another thread saved one meanwhile
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
        """Return the saved versions, oldest first. Raises NotFound, StoreDamaged."""
        return tuple(saved for saved, _ in self._saved(doc)[0])

    def version(self, doc: str, name: str) -> bytes:
        """Return the snapshot saved under `name`. Raises NotFound, StoreDamaged."""
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
        self._check_document(doc)
        with self._writer.changed:
            if (found := self._documents.get(doc)) is None:
                raise NotFound(f"there is no document {doc!r}")
            return found.number, self._writer.pending(found.number)

    # Compaction

    async def compact(self, doc: str, engine: Compactor, *, recent: int = RECENT) -> Compacted:
        """Replace a document's snapshot and records by a new snapshot; keep the last `recent` records beside it.

        A worker thread loads the document into `engine`, encodes it and verifies the content; one transaction replaces
        the old snapshot. Other tasks may append and read meanwhile, and see one state or the other. Cancellation leaves
        either. One document at a time.

        Raises NotFound, StoreDamaged (also if the engine rejects stored data), Broken, Full.
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

    # Closing

    async def aclose(self) -> None:
        """Write everything queued, then close; completes when cancelled.

        Raises Broken if something could not be written.
        """
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self.close)

    def close(self) -> None:
        """As `aclose`, blocking."""
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

    def _check_document(self, doc: str) -> None:
        """Raise StoreDamaged if its head is damaged: nothing is read of it, or added to it."""
        if (damage := self._damaged.get(doc)) is not None:
            raise damage.again()

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            raise Forked(f"{self.path} was opened before a fork, in the parent process")


def _is_new(jobs: Iterable[Job]) -> bool:
    return any(table is NAMES for job in jobs for table, _, _ in job.puts)


def _release_locks() -> None:
    """Release the locks in a forked child; otherwise they would last as long as the child."""
    for store in list(_stores):
        store._lock.close()


os.register_at_fork(after_in_child=_release_locks)
