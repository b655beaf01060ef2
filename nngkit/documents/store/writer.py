"""The thread that writes a store. It commits everything queued in one transaction, then wakes the waiters.

::

    enqueue --> waiting jobs --> BEGIN, rows, heads, facts, COMMIT (fsync) --> mark --> durable --> the waiters' loops
                     ^                                                                        |
                     +---- jobs collect while the previous commit is being synced ------------+

Group commit without a timer: a single writer pays one sync per edit, a thousand share one.

The first failure is final: after a disk error the state on disk is unknown, so nothing more is accepted or acknowledged
until the store is opened again, and checked. (After a failed fsync the kernel may drop the pages and report success for
the next one.)

Invariants (tests/documents/test_store.py)
 1. `durable` only grows, and only after COMMIT has returned and the mark is written.
 2. Each job is in `_waiting`, or in `_in_flight`, or durable, or the writer has failed.
 3. Each waiter is in `_waiters` until its ticket is durable, it is cancelled, or the writer has failed or ended.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from nngkit.documents.store.database_file import LOG, Lock, translated
from nngkit.documents.store.jobs import Compact, Job, cost
from nngkit.documents.store.row_format import FACTS, HEADS, Facts, Head, Table, encode_facts, encode_head, seal
from nngkit.errors import Broken, Closed, Full, NngkitError

if TYPE_CHECKING:
    import trio

_BATCH: Final = 4 << 20  # bytes of one transaction: 0.1 s of a disk, which bounds the delay behind a burst
_MORE: Final = 1 << 20  # bytes by which the log file may grow before it is checkpointed
_SHRINK: Final = 8192  # pages freed at a time: 32 MiB, less than 0.5 s of writing for waiters


class Writer:
    """Owns the writing connection. `changed` guards the shared state; hold it to enqueue.

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
        self._in_flight: list[Job] = []
        self._bytes = 0  # of both
        self._most = LOG + _MORE  # bytes of the log file before a checkpoint
        self._waiters: dict[int, set[Waiter]] = {}  # by ticket
        self._room_waiters: set[Waiter] = set()
        self.owners: list[tuple[int, bytes]] = []  # rows of owners, which go with the next commit, or with the end
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="nngkit-store", daemon=True)
        self._thread.start()

    # From any thread, with `changed` held

    def admit(self, size: int) -> None:
        """Raise Full, Broken or Closed unless `size` bytes may be enqueued. An empty queue takes a job of any size."""
        self.check()
        if not self.has_room(size):
            raise Full(f"{self._path}: {self._bytes} bytes are queued; this job would exceed the cap of {self._cap}")

    def has_room(self, size: int) -> bool:
        return not self._bytes or self._bytes + cost(size) <= self._cap

    def check_failure(self) -> None:
        """Raise the writer's failure, each time as a new exception."""
        if self.failure is not None:
            raise Broken(str(self.failure)) from self.failure

    def check(self) -> None:
        """Raise if nothing can be written: the writer has failed or is closed."""
        self.check_failure()
        if self._closing:
            raise Closed(f"{self._path} was closed")

    def enqueue(self, job: Job) -> int:
        """Queue an admitted job; return its ticket."""
        self.newest += 1
        job.ticket = self.newest
        self._bytes += job.size
        self._waiting.append(job)
        if len(self._waiting) == 1:
            self.changed.notify()
        return job.ticket

    def pending(self, document: int) -> list[Job]:
        """Return the jobs of a document that may not be committed yet, in order."""
        return [job for jobs in (self._in_flight, self._waiting) for job in jobs if job.document == document]

    def add_waiter(self, ticket: int, waiter: Waiter) -> None:
        self._waiters.setdefault(ticket, set()).add(waiter)

    def add_room_waiter(self, waiter: Waiter) -> None:
        self._room_waiters.add(waiter)

    def remove_waiter(self, waiter: Waiter, ticket: int | None = None) -> None:
        """Remove a waiter whose task was woken or cancelled."""
        self._room_waiters.discard(waiter)
        if ticket is not None and (others := self._waiters.get(ticket)) is not None:
            others.discard(waiter)
            if not others:
                del self._waiters[ticket]

    # From any thread

    def close(self) -> None:
        """Write everything queued, then end the thread. Blocks. Raises Broken if something could not be written."""
        with self.changed:
            self._closing = True
            self.changed.notify()
        self._thread.join()
        if self.durable < self.newest:
            self.check_failure()

    # In the thread

    def _run(self) -> None:
        try:
            while batch := self._next():
                self._commit(batch)
                self._acknowledge(batch)
                if any(isinstance(job, Compact) for job in batch):
                    self._shrink()
                self._checkpoint()
            if self.owners:
                self._connection.execute("BEGIN IMMEDIATE")
                self._execute_many(FACTS, self.owners)
                self._connection.execute("COMMIT")
            # afterwards a copy of the database file alone is complete
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except Exception as error:
            self._fail(translated(error, self._path))
        finally:
            with suppress(sqlite3.Error):
                self._connection.close()

    def _next(self) -> list[Job]:
        """Return the jobs of the next transaction; empty when everything is written and the store is closing."""
        with self.changed:
            while not self._waiting and not self._closing:
                self.changed.wait()
            size = count = 0
            for job in self._waiting:
                size += job.size
                if count and size > _BATCH:
                    break
                count += 1
            self._in_flight, self._waiting = self._waiting[:count], self._waiting[count:]
            return self._in_flight

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
        with self.changed:
            owners, self.owners = self.owners, []
        rows[FACTS] = [(1, seal(FACTS, 1, encode_facts(facts))), *owners]
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        for job in batch:
            for table, low, high in job.cuts:
                execute(f"DELETE FROM {table} WHERE key BETWEEN ? AND ?", (low, high))
        for table, these in rows.items():
            self._execute_many(table, these)
        execute("COMMIT")
        self._lock.mark(facts.file, facts.ticket)

    def _execute_many(self, table: Table, rows: list[tuple[int, bytes]]) -> None:
        self._connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", rows)

    def _checkpoint(self) -> None:
        """Checkpoint the log once its file is too large; acknowledged edits do not depend on it.

        The file's size counts, not its content: a commit of one letter writes whole pages, 8 KiB of them. After a
        checkpoint the next commit restarts the log and truncates the file to LOG. A concurrent reader prevents that;
        then the file may grow by _MORE before the next try.
        """
        size = os.stat(f"{self._path}-wal").st_size
        self._most = max(LOG + _MORE, min(self._most, size + _MORE))
        if size > self._most:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._most = size + _MORE

    def _shrink(self) -> None:
        """Return free pages to the file system once they are more than a quarter of the file."""
        free = self._connection.execute("PRAGMA freelist_count").fetchone()[0]
        pages = self._connection.execute("PRAGMA page_count").fetchone()[0]
        if free > pages // 4:
            # not execute(): that runs one step of the statement, which frees one page
            self._connection.executescript(f"PRAGMA incremental_vacuum({min(free, _SHRINK)})")

    def _acknowledge(self, batch: list[Job]) -> None:
        with self.changed:
            old, self.durable = self.durable, batch[-1].ticket
            self._bytes -= sum(job.size for job in batch)
            self._in_flight = []
            due = set(self._room_waiters)
            for ticket in range(old + 1, self.durable + 1):
                due.update(self._waiters.pop(ticket, ()))
            self._room_waiters.clear()
        wake(due)

    def _fail(self, failure: NngkitError) -> None:
        with self.changed:
            self.failure = failure
            due = self._room_waiters.union(*self._waiters.values())
            self._waiters.clear()
            self._room_waiters.clear()
        wake(due)


class Waiter:
    """A task that waits for the thread: it awaits ``event``, which is set in its own loop."""

    __slots__ = ("event", "token")

    def __init__(self, token: trio.lowlevel.TrioToken, event: trio.Event) -> None:
        self.token = token
        self.event = event


def wake(waiters: Iterable[Waiter]) -> None:
    """Wake waiters, with one call per loop."""
    loops: dict[trio.lowlevel.TrioToken, list[trio.Event]] = {}
    for waiter in waiters:
        loops.setdefault(waiter.token, []).append(waiter.event)
    for token, events in loops.items():
        with suppress(RuntimeError):  # trio.RunFinishedError: the loop has ended with all its tasks
            token.run_sync_soon(_set, events)


def _set(events: list[trio.Event]) -> None:
    for event in events:
        event.set()
