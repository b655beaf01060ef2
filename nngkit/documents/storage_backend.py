"""StorageBackend: whoever keeps a peer's documents, where that is not a store of ours: a journal, say. Pure: what it has to do.

    async with DocumentPeer(storage=keeper) as peer: ...

It is told of each edit in the order in which they were applied, which is one that they can be applied in again, and
gives back what it was told. Nothing is said to be durable before `synced` has returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nngkit.documents.records import Loaded
from nngkit.documents.sync.local_copy import Disk
from nngkit.documents.versions import EditStream

__all__ = ["DocumentLog", "StorageBackend"]


class DocumentLog(Disk, Protocol):
    """One document's way to the disk. `append` and `append_merge` never wait, and never fail."""

    async def synced(self) -> None:
        """All that was appended before is on the disk. Raises what went wrong with it."""

    async def flush(self) -> None:
        """The same for who leaves; what went wrong is in the log."""


class StorageBackend(Protocol):
    """All documents of a peer."""

    def load(self, name: str) -> Loaded:
        """What is kept of a document that is being opened; of one that is not known, an empty Loaded."""

    def disk(self, name: str, versions: Mapping[EditStream, int]) -> DocumentLog:
        """Where its edits go from now on; `versions`: what was loaded."""

    async def room(self) -> None:
        """Wait until the disk takes more: nothing is heard and nothing asked for meanwhile."""
