"""Log of one document in a store, for a disk that is slower than its writers, or has failed.

Edits cannot be delayed or rejected: they are applied and published already. So edits for which the store has no room
are queued, in order, and `synced` waits for them too. After a failure of the store every `synced` raises; editing
continues.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace

import trio

from nngkit.background import Background
from nngkit.documents.records import Loaded, Merge, Record, compaction_due
from nngkit.documents.store.compaction import Compactor, add
from nngkit.documents.store.sqlite import Store
from nngkit.documents.versions import Edit, EditStream, Versions
from nngkit.errors import Full, NngkitError

log = logging.getLogger("nngkit.documents")


class StoreDocumentLog:
    """A storage_backend.DocumentLog in a Store. `log`, `size`: bytes of the records and of the snapshot, as loaded.

    Compacts the document when that is due.
    """

    def __init__(
        self, store: Store, doc: str, engine: Compactor, background: Background, *, log: int, size: int
    ) -> None:
        self._store = store
        self._doc = doc
        self._engine = engine
        self._background = background
        self._log = log
        self._size = size
        self._compacting = False
        self._late: deque[Record | Merge] = deque()
        self._caught_up = trio.Event()
        self._failure: NngkitError | None = None

    def append(self, stream: EditStream, seq: int, edit: Edit) -> None:
        """Append an edit."""
        self._keep(Record(stream, seq, edit.payload, edit.deps))

    def append_merge(self, update: bytes, versions: Versions) -> None:
        """Append an update after which the document has all of `versions`."""
        self._keep(Merge(update, versions))

    @property
    def is_behind(self) -> bool:
        """True while the store has not been given everything."""
        return bool(self._late)

    def completed(self, loaded: Loaded) -> Loaded:
        """Return what the store has of the document, and what it has not been given yet."""
        versions = dict(loaded.versions)
        for record in self._late:
            add(versions, record)
        return replace(loaded, records=(*loaded.records, *self._late), versions=versions)

    async def synced(self) -> None:
        """Wait until everything appended before is on disk. Raises the error if it could not be written."""
        while self._late and self._failure is None:
            await self._caught_up.wait()
        if self._failure is not None:
            raise self._failure.again() from self._failure
        await self._store.synced(self._store.ticket())

    async def flush(self) -> None:
        """Like `synced`, for a peer that leaves: logs an error instead of raising it."""
        try:
            while self._late and self._failure is None:
                await self._store.room()
                self._write_late()
            await self._store.synced(self._store.ticket())
        except NngkitError as error:
            log.error("%s: not completely written: %s", self._doc, error)

    def _keep(self, record: Record | Merge) -> None:
        if self._failure is not None:
            return
        if self._late:
            self._late.append(record)
            return
        try:
            self._append(record)
        except Full:
            self._late.append(record)
            self._caught_up = trio.Event()
            self._background.start(self._catch_up)
        except NngkitError as error:
            self._fail(error)

    def _append(self, record: Record | Merge) -> None:
        if isinstance(record, Record):
            self._store.append(self._doc, record)
        else:
            self._store.append_merge(self._doc, record.update, record.versions)
        self._log += len(record.update)
        if not self._compacting and compaction_due(log=self._log, snapshot=self._size):
            self._compacting = True
            self._background.start(self._compact)

    async def _catch_up(self) -> None:
        try:
            while self._late:
                await self._store.room()
                self._write_late()
        except NngkitError as error:
            self._fail(error)
        finally:
            self._caught_up.set()

    def _write_late(self) -> None:
        while self._late:
            try:
                self._append(self._late[0])
            except Full:
                return
            self._late.popleft()

    def _fail(self, error: NngkitError) -> None:
        log.error("%s: no further edits are written: %s", self._doc, error)
        self._failure = error
        self._late.clear()

    async def _compact(self) -> None:
        try:
            done = await self._store.compact(self._doc, self._engine)
            self._log, self._size = 0, done.after
        except NngkitError as error:  # the log stays; the next edit tries again
            log.warning("%s was not compacted: %s", self._doc, error)
        finally:
            self._compacting = False
