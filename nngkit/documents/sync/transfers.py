"""Transfers of large updates, in chunks with hashes. Pure: bytes in, messages out; `now` in seconds, `name` random.

Sender::

    body = transfers.offer(update, name=token_bytes(16), now=now)     bytes if small, else a Manifest
    transfers.chunks(pull, now)                                       the requested chunks

Receiver::

    assembly = Assembly(manifest, limit=256 << 20)                    raises TooLarge before anything is fetched
    for indexes in assembly.wanted(): ... assembly.take(chunks)       raises BadMessage for a chunk with a wrong hash
    assembly.whole()                                                  the update

An update that several peers request at once (a class opens the same document) is split and hashed once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from nngkit.documents.sync.messages import BUS_LIMIT, CHUNKS, MOST_CHUNKS, Chunk, Chunks, Manifest
from nngkit.errors import BadMessage, TooLarge

CHUNK: Final = BUS_LIMIT  # bytes: 8 of them in one reply keep a fast network busy, and a slow one not for seconds
KEPT: Final = 30.0  # seconds since the last use; a slow receiver asks more often
MOST_KEPT: Final = 16  # transfers
MOST_BYTES: Final = 256 << 20


class Transfers:
    """Transfers being sent. Each is kept for 30 s after its last use, unless newer ones need the room (16, 256 MiB)."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, tuple[Manifest, bytes, float]] = OrderedDict()

    def offer(self, update: bytes, *, name: bytes, now: float) -> bytes | Manifest:
        """Return the body of a Diff: `update` or a manifest. Raises TooLarge over 1 GiB."""
        self.expire(now)
        if len(update) <= CHUNK:
            return update
        if len(update) > CHUNK * MOST_CHUNKS:
            raise TooLarge(len(update), CHUNK * MOST_CHUNKS)
        whole = sha256(update).digest()
        for known, (manifest, _, _) in self._kept.items():
            if manifest.sha256 == whole:
                self._touch(known, now)
                return manifest
        view = memoryview(update)
        hashes = tuple(sha256(view[at : at + CHUNK]).digest() for at in range(0, len(update), CHUNK))
        manifest = Manifest(name, len(update), CHUNK, whole, hashes)
        self._kept[name] = manifest, update, now
        while len(self._kept) > MOST_KEPT or sum(len(data) for _, data, _ in self._kept.values()) > MOST_BYTES:
            if len(self._kept) == 1:
                break  # a single transfer may exceed the cap of all
            self._kept.popitem(last=False)
        return manifest

    def chunks(self, transfer: bytes, indexes: tuple[int, ...], now: float) -> tuple[Chunk, ...]:
        """Return the requested chunks; empty if the transfer is not kept. Raises BadMessage for an invalid index."""
        self.expire(now)
        kept = self._kept.get(transfer)
        if kept is None:
            return ()
        manifest, data, _ = kept
        self._touch(transfer, now)
        for index in indexes:
            if index >= len(manifest.chunks):
                raise BadMessage("request", f"the transfer has {len(manifest.chunks)} chunks, not {index + 1}")
        return tuple(Chunk(index, data[index * CHUNK : (index + 1) * CHUNK]) for index in indexes)

    def expire(self, now: float) -> None:
        """Drop transfers that were not used recently."""
        while self._kept:
            name, (_, _, used) = next(iter(self._kept.items()))
            if now - used < KEPT:
                return
            del self._kept[name]

    def _touch(self, name: bytes, now: float) -> None:
        manifest, data, _ = self._kept[name]
        self._kept[name] = manifest, data, now
        self._kept.move_to_end(name)


class Assembly:
    """An update received in chunks. Raises TooLarge if the manifest announces more than `limit` bytes."""

    def __init__(self, manifest: Manifest, *, limit: int, peer: str | None = None) -> None:
        if manifest.size > limit:
            raise TooLarge(manifest.size, limit, peer)
        self.manifest = manifest
        self._peer = peer
        self._chunks: list[bytes | None] = [None] * len(manifest.chunks)

    def wanted(self) -> Iterator[tuple[int, ...]]:
        """Yield the missing indexes, as many at a time as fit one reply."""
        missing = [index for index, chunk in enumerate(self._chunks) if chunk is None]
        for at in range(0, len(missing), CHUNKS):
            yield tuple(missing[at : at + CHUNKS])

    def take(self, chunks: Chunks) -> None:
        """Add chunks. Raises BadMessage, and takes none of them, if one does not match the manifest."""
        for each in chunks.chunks:
            if each.index >= len(self._chunks) or sha256(each.data).digest() != self.manifest.chunks[each.index]:
                raise BadMessage("chunk", f"chunk {each.index} has a wrong hash", self._peer)
        for each in chunks.chunks:
            self._chunks[each.index] = each.data

    def whole(self) -> bytes:
        """Return the update. Raises BadMessage if it is incomplete or does not match the manifest."""
        if any(chunk is None for chunk in self._chunks):
            raise BadMessage("transfer", "it is incomplete", self._peer)
        data = b"".join(chunk for chunk in self._chunks if chunk is not None)
        if len(data) != self.manifest.size or sha256(data).digest() != self.manifest.sha256:
            raise BadMessage("transfer", "it does not match the manifest", self._peer)
        return data
