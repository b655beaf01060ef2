"""Interface of a storage backend: what a peer needs in place of its SQLite store, for example a journal. Pure.

    async with DocumentPeer(storage=backend) as peer: ...

The backend receives edits in the order in which they were applied; they can be applied again in that order. Nothing
is reported as durable before `synced` has returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nngkit.documents.records import Loaded
from nngkit.documents.versions import EditLog, EditStream


class DocumentLog(EditLog, Protocol):
    """Log of one document on disk."""

    async def synced(self) -> None:
        """Wait until everything appended before is on disk. Raises the error if it could not be written."""

    async def flush(self) -> None:
        """Like `synced`, for a peer that leaves: logs an error instead of raising it."""


class StorageBackend(Protocol):
    """Storage for all documents of a peer."""

    def load(self, name: str) -> Loaded:
        """Return the stored content of a document; an empty Loaded if it is unknown."""

    def log(self, name: str, versions: Mapping[EditStream, int]) -> DocumentLog:
        """Return the log for new edits of a document that was loaded with `versions`."""

    async def room(self) -> None:
        """Wait until more can be appended; the peer neither reads nor asks meanwhile."""
