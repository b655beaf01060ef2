"""Large updates in chunks, each with its hash. Pure: bytes in, messages out; `now` in seconds, `name` at random.

Who gives::

    body = transfers.offer(update, name=token_bytes(16), now=now)     bytes if small, else a Manifest
    transfers.chunks(pull, now)                                       what of it was asked for

Who takes::

    assembly = Assembly(manifest, limit=256 << 20)                    raises TooLarge before anything is fetched
    for indexes in assembly.wanted(): ... assembly.take(chunks)       raises BadMessage for a chunk with a wrong hash
    assembly.whole()                                                  the update

An update that is asked for by several (a room full of people opens the same document) is cut and hashed once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from nngkit.documents.sync.messages import BUS_LIMIT, CHUNKS, MOST_CHUNKS, Chunks, Manifest
from nngkit.errors import BadMessage, TooLarge

__all__ = ["CHUNK", "Assembly", "Transfers"]

CHUNK: Final = BUS_LIMIT  # bytes: 8 of them in one reply keep a fast network busy and a slow one not for seconds
KEPT: Final = 30.0  # seconds after its last use: who asks for a chunk a second is gone by then
MOST_KEPT: Final = 16  # transfers
MOST_BYTES: Final = 256 << 20


class Transfers:
    """What is being given, until nobody has asked for it for 30 s, or newer ones need the room (16, 256 MiB)."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, tuple[Manifest, bytes, float]] = OrderedDict()

    def offer(self, update: bytes, *, name: bytes, now: float) -> bytes | Manifest:
        """`update` as it stands in a Diff. Raises TooLarge over what a transfer can hold, 1 GiB."""
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
                break  # one alone may be larger than what several may be
            self._kept.popitem(last=False)
        return manifest

    def chunks(self, transfer: bytes, indexes: tuple[int, ...], now: float) -> tuple[tuple[int, bytes], ...]:
        """The chunks asked for; none if the transfer is not kept. Raises BadMessage for one that it cannot have."""
        self.expire(now)
        kept = self._kept.get(transfer)
        if kept is None:
            return ()
        manifest, data, _ = kept
        self._touch(transfer, now)
        for index in indexes:
            if index >= len(manifest.chunks):
                raise BadMessage("request", f"the transfer has {len(manifest.chunks)} chunks, not {index + 1}")
        return tuple((index, data[index * CHUNK : (index + 1) * CHUNK]) for index in indexes)

    def expire(self, now: float) -> None:
        """Let go of what nobody has asked for lately."""
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
    """An update that comes in chunks. Raises TooLarge at once if it claims more than `limit` bytes."""

    def __init__(self, manifest: Manifest, *, limit: int, peer: str | None = None) -> None:
        if manifest.size > limit:
            raise TooLarge(manifest.size, limit, peer)
        self.manifest = manifest
        self._peer = peer
        self._chunks: list[bytes | None] = [None] * len(manifest.chunks)

    def wanted(self) -> Iterator[tuple[int, ...]]:
        """The indexes that are still missing, as many at a time as one reply holds."""
        missing = [index for index, chunk in enumerate(self._chunks) if chunk is None]
        for at in range(0, len(missing), CHUNKS):
            yield tuple(missing[at : at + CHUNKS])

    def take(self, chunks: Chunks) -> None:
        """Some chunks. Raises BadMessage for one that is not what the manifest says, and takes none of them."""
        for index, data in chunks.chunks:
            if index >= len(self._chunks) or sha256(data).digest() != self.manifest.chunks[index]:
                raise BadMessage("chunk", f"chunk {index} has a wrong hash", self._peer)
        for index, data in chunks.chunks:
            self._chunks[index] = data

    def whole(self) -> bytes:
        """All of it. Raises BadMessage if a chunk is missing, or if it is not what was announced."""
        if any(chunk is None for chunk in self._chunks):
            raise BadMessage("transfer", "it is not complete", self._peer)
        data = b"".join(chunk for chunk in self._chunks if chunk is not None)
        if len(data) != self.manifest.size or sha256(data).digest() != self.manifest.sha256:
            raise BadMessage("transfer", "it is not what was announced", self._peer)
        return data
