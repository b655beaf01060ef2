"""Downloads of large documents over unicast, in chunks of 256 KiB. Pure: `now` in seconds, messages by `send`.

::

    downloads.start(node, manifest, done, now)     done(body, now) once it is whole; done(None, now) if it failed
    downloads.receive(node, chunk, now)
    downloads.tick(now)                            repeats requests whose chunk was lost, fails those without progress

`nngkit.documents.sync.transfers` has the other side, and the check of each chunk against its hash. A node requests four
chunks at a time: 1 MiB on the way keeps a network of 10 ms at 100 MB/s busy, and delays other messages of a slow link
(10 MB/s) by 0.1 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from nngkit.chance import Chance
from nngkit.cluster.content.messages import Chunk, ChunkRequest, Send
from nngkit.cluster.log_clock import NEVER
from nngkit.documents.sync.messages import Chunk as WireChunk
from nngkit.documents.sync.messages import Chunks, Manifest
from nngkit.documents.sync.transfers import Assembly, Transfers
from nngkit.documents.versions import EditStream
from nngkit.errors import BadMessage, TooLarge

WINDOW: Final = 4  # chunks requested at once
PATIENCE: Final = 1.0  # seconds until a chunk is requested again: ten times the delay of a slow link
GIVE_UP: Final = 10.0  # seconds without a chunk
MOST: Final = 16  # downloads at once, as a sender keeps 16 transfers
_ANY: Final = EditStream(bytes(8), 0)  # the sender of a chunk is known by its message

Done: TypeAlias = Callable[[bytes | None, float], None]


class _Download:
    __slots__ = ("assembly", "done", "left", "node", "progress", "requested")

    def __init__(self, node: str, assembly: Assembly, done: Done, now: float) -> None:
        self.node = node
        self.assembly = assembly
        self.done = done
        self.left = set(range(len(assembly.manifest.chunks)))
        self.requested: dict[int, float] = {}
        self.progress = now


class Downloads:
    """The running downloads of a node. `limit`: bytes of a whole document, else it is refused."""

    def __init__(self, send: Send, *, limit: int) -> None:
        self.wake_at = NEVER
        self.finished = self.failed = 0
        self._send = send
        self._limit = limit
        self._running: dict[bytes, _Download] = {}

    def start(self, node: str, manifest: Manifest, done: Done, now: float) -> None:
        """Begin to fetch a document from `node`. Raises TooLarge over the limit; BadMessage beyond 16 at once."""
        if manifest.transfer in self._running or len(self._running) >= MOST:
            raise BadMessage("transfer", f"{len(self._running)} downloads are running, the limit is {MOST}", node)
        assembly = Assembly(manifest, limit=self._limit, peer=node)
        self._running[manifest.transfer] = _Download(node, assembly, done, now)
        self._request(manifest.transfer, now)

    def receive(self, sender: str, chunk: Chunk, now: float) -> None:
        """Take a chunk. Raises BadMessage if it is not as its manifest says; the download then fails."""
        download = self._running.get(chunk.transfer)
        if download is None or download.node != sender or chunk.chunk not in download.left:
            return  # late, or repeated
        if not chunk.data:  # the sender has dropped the transfer
            self._end(chunk.transfer, None, now)
            return
        try:
            download.assembly.take(Chunks(_ANY, chunk.transfer, (WireChunk(chunk.chunk, chunk.data),)))
            download.left.discard(chunk.chunk)
            download.requested.pop(chunk.chunk, None)
            download.progress = now
            body = None if download.left else download.assembly.whole()
        except (BadMessage, TooLarge):
            self._end(chunk.transfer, None, now)
            raise
        if body is not None:
            self._end(chunk.transfer, body, now)
        else:
            self._request(chunk.transfer, now)

    def node_removed(self, node: str, now: float) -> None:
        """Fail the downloads from a node that has left."""
        for transfer in [name for name, one in self._running.items() if one.node == node]:
            self._end(transfer, None, now)

    def tick(self, now: float) -> None:
        """Do what is due; sets `wake_at`."""
        self.wake_at = NEVER
        for transfer, download in list(self._running.items()):
            if now >= download.progress + GIVE_UP:
                self._end(transfer, None, now)
                continue
            for index in [one for one, at in download.requested.items() if now >= at + PATIENCE]:
                del download.requested[index]
            self._request(transfer, now)

    def _request(self, transfer: bytes, now: float) -> None:
        download = self._running[transfer]
        for index in sorted(download.left - download.requested.keys())[: WINDOW - len(download.requested)]:
            download.requested[index] = now
            self._send(download.node, ChunkRequest(transfer, index))
        due = min(download.requested.values(), default=now) + PATIENCE
        self.wake_at = min(self.wake_at, due, download.progress + GIVE_UP)

    def _end(self, transfer: bytes, body: bytes | None, now: float) -> None:
        download = self._running.pop(transfer)
        if body is None:
            self.failed += 1
        else:
            self.finished += 1
        download.done(body, now)


class Means(NamedTuple):
    """Chance, sending and transfers of one node, for its copies of documents and its shared objects."""

    rng: Chance
    send: Send
    transfers: Transfers
    downloads: Downloads
