"""The one thread that writes a store: what waits goes to the disk in one transaction, and who waits for it is woken.

::

    enqueue --> waiting jobs --> BEGIN, rows, heads, facts, COMMIT (fsync) --> mark --> durable --> the waiters' loops
                     ^                                                                        |
                     +---- while one commit is being synced, the next one gathers ------------+

So there is no timer: one writer alone pays one sync an edit, a thousand share it.

The first failure is the last: after an error of the disk nobody knows what is on it, so nothing more is taken or
acknowledged until the store is opened again and has been looked through. (After a failed fsync the kernel may forget
the pages and report success for the next one.)

Invariants (tests/documents/test_store.py)
 1. `durable` only grows, and only after COMMIT has returned and the mark is written.
 2. Each job is in `_waiting`, or in `_flying`, or durable, or the writer has failed.
 3. Each waiter is in `_sleepers` until its ticket is durable, it is cancelled, or the writer has failed or ended.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from nngkit.documents.store.database_file import LOG, Lock, in_words
from nngkit.documents.store.jobs import Compact, Job, cost
from nngkit.documents.store.row_format import FACTS, HEADS, Facts, Head, Table, encode_facts, encode_head, seal
from nngkit.errors import Broken, Closed, Full, NngkitError

if TYPE_CHECKING:
    import trio

__all__ = ["Waiter", "Writer"]

_BATCH: Final = (
    4 << 20
)  # bytes of one transaction: a disk's tenth of a second, so that nobody waits long behind a crowd
_MORE: Final = 1 << 20  # bytes by which the log's file may grow until it is written into the database
_SHRINK: Final = 8192  # pages given back at a time: 32 MiB, less than half a second of writing for those who wait


class Writer:
    """Owns the writing connection. `changed` guards what several threads see, and may be held to enqueue several.

    ``heads`` and ``facts`` are as committed, and belong to the thread.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: str, lock: Lock, facts: Facts, heads: dict[int, Head], cap: int
    ) -> None:
        self.changed = threading.Condition()
        self.durable = self.newest = facts.ticket
        self.failure: NngkitError | None = None
        self._path = path
        self._connection = connection
        self._lock = lock
        self._facts = facts
        self._heads = heads
        self._cap = cap
        self._waiting: list[Job] = []
        self._flying: list[Job] = []
        self._bytes = 0  # of both
        self._most = LOG + _MORE  # bytes of the log's file, before it is written into the database
        self._sleepers: dict[int, set[Waiter]] = {}  # by ticket
        self._for_room: set[Waiter] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="nngkit-store", daemon=True)
        self._thread.start()

    # Any thread, `changed` held

    def admit(self, size: int) -> None:
        """Raise Full, Broken or Closed unless `size` bytes may be enqueued. One job is always let in."""
        self.check()
        if not self.has_room(size):
            raise Full(f"{self._path}: {self._bytes} bytes wait to be written, over the cap of {self._cap} with these")

    def has_room(self, size: int) -> bool:
        return not self._bytes or self._bytes + cost(size) <= self._cap

    def check_failure(self) -> None:
        """Raise the writer's failure, each time as an error of its own."""
        if self.failure is not None:
            raise Broken(str(self.failure)) from self.failure

    def check(self) -> None:
        """Raise what stands against writing."""
        self.check_failure()
        if self._closing:
            raise Closed(f"{self._path} was closed")

    def enqueue(self, job: Job) -> int:
        """Take a job that was admitted; its ticket."""
        self.newest += 1
        job.ticket = self.newest
        self._bytes += job.size
        self._waiting.append(job)
        if len(self._waiting) == 1:
            self.changed.notify()
        return job.ticket

    def pending(self, document: int) -> list[Job]:
        """The jobs of a document that may not be in the database yet, in order."""
        return [job for jobs in (self._flying, self._waiting) for job in jobs if job.document == document]

    def sleep_until(self, ticket: int, sleeper: Waiter) -> None:
        self._sleepers.setdefault(ticket, set()).add(sleeper)

    def sleep_until_room(self, sleeper: Waiter) -> None:
        self._for_room.add(sleeper)

    def wake_no_more(self, sleeper: Waiter, ticket: int | None = None) -> None:
        """Its task has been woken or cancelled."""
        self._for_room.discard(sleeper)
        if ticket is not None and (others := self._sleepers.get(ticket)) is not None:
            others.discard(sleeper)
            if not others:
                del self._sleepers[ticket]

    # Any thread

    def close(self) -> None:
        """Write what waits, and end. Blocks until then. Raises Broken if something could not be written."""
        with self.changed:
            self._closing = True
            self.changed.notify()
        self._thread.join()
        if self.durable < self.newest:
            self.check_failure()

    # The thread

    def _run(self) -> None:
        try:
            while batch := self._next():
                self._commit(batch)
                self._acknowledge(batch)
                if any(isinstance(job, Compact) for job in batch):
                    self._shrink()
                self._mind_log()
            # now whoever copies the file alone has all of it
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except Exception as error:
            self._fail(in_words(error, self._path))
        finally:
            with suppress(sqlite3.Error):
                self._connection.close()

    def _next(self) -> list[Job]:
        """The next transaction's jobs; none when all is written and there will be no more."""
        with self.changed:
            while not self._waiting and not self._closing:
                self.changed.wait()
            size = count = 0
            for job in self._waiting:
                size += job.size
                if count and size > _BATCH:
                    break
                count += 1
            self._flying, self._waiting = self._waiting[:count], self._waiting[count:]
            return self._flying

    def _commit(self, batch: list[Job]) -> None:
        rows: dict[Table, list[tuple[int, bytes]]] = {}
        touched: dict[int, Head] = {}
        for job in batch:
            for table, key, body in job.puts:
                rows.setdefault(table, []).append((key, body))
            head = touched[job.document] = self._heads.setdefault(job.document, Head(""))
            job.change(head)
        facts = self._facts
        facts.documents, facts.ticket = len(self._heads), batch[-1].ticket
        rows[HEADS] = [(number, seal(HEADS, number, encode_head(head))) for number, head in touched.items()]
        rows[FACTS] = [(1, seal(FACTS, 1, encode_facts(facts)))]
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        for job in batch:
            for table, low, high in job.cuts:
                execute(f"DELETE FROM {table} WHERE key BETWEEN ? AND ?", (low, high))
        for table, these in rows.items():
            self._connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", these)
        execute("COMMIT")
        self._lock.mark(facts.file, facts.ticket)

    def _mind_log(self) -> None:
        """Write the log into the database once its file is too large. What was acknowledged needs it not.

        It is the file that counts: a commit of one letter writes whole pages, 8 KiB of them. After a checkpoint the
        next commit begins the log anew, and cuts the file to LOG. While a reader is in the way it does not, and the
        file may grow by _MORE until it is tried again.
        """
        size = os.stat(f"{self._path}-wal").st_size
        self._most = max(LOG + _MORE, min(self._most, size + _MORE))
        if size > self._most:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._most = size + _MORE

    def _shrink(self) -> None:
        """Give room back that compaction has freed, once it is more than a quarter of the file."""
        free = self._connection.execute("PRAGMA freelist_count").fetchone()[0]
        pages = self._connection.execute("PRAGMA page_count").fetchone()[0]
        if free > pages // 4:
            # not execute(): that takes one step of a statement that has no rows, which here is one page
            self._connection.executescript(f"PRAGMA incremental_vacuum({min(free, _SHRINK)})")

    def _acknowledge(self, batch: list[Job]) -> None:
        with self.changed:
            old, self.durable = self.durable, batch[-1].ticket
            self._bytes -= sum(job.size for job in batch)
            self._flying = []
            due = set(self._for_room)
            for ticket in range(old + 1, self.durable + 1):
                due.update(self._sleepers.pop(ticket, ()))
            self._for_room.clear()
        wake(due)

    def _fail(self, failure: NngkitError) -> None:
        with self.changed:
            self.failure = failure
            due = self._for_room.union(*self._sleepers.values())
            self._sleepers.clear()
            self._for_room.clear()
        wake(due)


class Waiter:
    """A task that waits for the thread: it awaits ``event``, which is set in its own loop."""

    __slots__ = ("event", "token")

    def __init__(self, token: trio.lowlevel.TrioToken, event: trio.Event) -> None:
        self.token = token
        self.event = event


def wake(sleepers: Iterable[Waiter]) -> None:
    """One call a loop, however many of its tasks are to be woken."""
    loops: dict[trio.lowlevel.TrioToken, list[trio.Event]] = {}
    for sleeper in sleepers:
        loops.setdefault(sleeper.token, []).append(sleeper.event)
    for token, events in loops.items():
        with suppress(RuntimeError):  # trio.RunFinishedError: that loop has ended, and all its tasks with it
            token.run_sync_soon(_set, events)


def _set(events: list[trio.Event]) -> None:
    for event in events:
        event.set()
