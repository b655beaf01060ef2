"""DocumentRecorder: a document peer that stores each edit as a record, and edits nothing.

::

    async with Recorder("journal") as recorder:
        async with DocumentRecorder(recorder, "notes", only="minutes/*", dial="tcp://host:4711") as documents:
            ...
            documents.stats

It is a full peer: it receives edits, finds gaps, requests missing edits, compares digests, serves others, and counts
towards their `synced(n)` once the journal's group sync has stored an edit. At start it restores its documents from its
partition of the journal; peers supply edits made meanwhile. Does not know: how a command prints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import TracebackType
from typing import Final, Self

import trio

from nngkit.background import UnderTrio
from nngkit.documents.engine.interface import load_engine
from nngkit.documents.peer import DocumentPeer
from nngkit.documents.peer_info import PeerInfo, PeerStats, Refusal
from nngkit.documents.records import Loaded
from nngkit.documents.sync.faults import NetworkFaults
from nngkit.documents.sync.replica import Settings
from nngkit.documents.versions import Edit, EditStream, Versions, prune
from nngkit.errors import ConfigError, NngkitError
from nngkit.instruments import Gauge, Total
from nngkit.journal.recorder import Recorder
from nngkit.protocols import TLS, Pipe
from nngkit.recording.edits import Headers, History, advanced, edit_headers, merge_headers, restored
from nngkit.trust import Choice

log = logging.getLogger("nngkit.recording")

PROTOCOL: Final = "documents"
MOST: Final = 4096  # documents: each costs some 20 KB beside its content, and a line in heartbeats to all peers
NAMES: Final = 4096  # cached names of authors, also of those that have left


@dataclass(frozen=True, slots=True)
class DocumentRecorderStats:
    """Counters since it was opened. `peer`: those of the peer."""

    documents: Gauge
    """Open documents."""
    edits: Total
    """Edits recorded one by one."""
    merges: Total
    """Merges of many edits recorded as one."""
    refused: Total
    """Documents not opened because of `most`."""
    restored: Total
    """Documents restored from the journal at the start."""
    left: Total
    """Records in the journal whose dependencies are missing."""
    bad: Total
    """Records in the journal that belong to no document."""
    peer: PeerStats


class DocumentRecorder(UnderTrio):
    """Record documents into the partition of `recorder` under `topic`; use it with `async with`, inside the recorder's.

    only     patterns (`minutes/*`) of the documents to record; default: all
    most     maximum of open documents; further ones are refused, and counted
    others   as for DocumentPeer. With a token it cannot listen on tcp or ipc, but can `join`

    Memory: the content of the documents, and the recorder's buffer. While the disk is behind and the buffer is full, it
    receives and requests nothing. Other peers are not delayed, and it reports nothing as durable.

    Entering reads the topic's records of that partition, in a thread. Raises ConfigError, Unreachable, Damaged.
    Leaving says good-bye and waits until all received edits are on disk.
    """

    def __init__(
        self,
        recorder: Recorder,
        topic: str = "documents",
        *,
        only: str | Iterable[str] | None = None,
        most: int = MOST,
        listen: str | Iterable[str] | None = None,
        dial: str | Iterable[str] | None = None,
        join: str | Iterable[str] | None = None,
        repair: str | Iterable[str] | None = None,
        token: str | None = None,
        discovery: str | Iterable[str] | None = None,
        max_document: int = 256 << 20,
        tls: TLS | None = None,
        trust: Choice | None = None,
        admit: Callable[[Pipe], bool] | None = None,
        name: str | None = "recorder",
        settings: Settings | None = None,
        faults: NetworkFaults | None = None,
    ) -> None:
        if most < 1:
            raise ConfigError("most", "at least one document", most)
        self.topic = topic
        self._recorder = recorder
        self._only = (only,) if isinstance(only, str) else tuple(only or ())
        self._most = most
        self._kept = _JournalStorage(recorder, topic, self._author)
        self._restored = self._left = self._bad = self._refused = 0
        self._warned = False
        self._peer = DocumentPeer(
            listen=listen,
            dial=dial,
            join=join,
            repair=repair,
            storage=self._kept,
            token=token,
            discovery=discovery,
            accept=self._accept,
            max_document=max_document,
            tls=tls,
            trust=trust,
            admit=admit,
            name=name,
            settings=settings,
            faults=faults,
        )
        self._names: dict[EditStream, str] = {}

    async def __aenter__(self) -> Self:
        self._entering()
        self._kept.histories, self._bad = await trio.to_thread.run_sync(self._restore)
        self._restored = len(self._kept.histories)
        self._left = sum(history.left for history in self._kept.histories.values())
        await self._peer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._peer.__aexit__(kind, value, traceback)

    def _restore(self) -> tuple[dict[str, History], int]:
        return restored(self._recorder.recorded(self.topic), load_engine())

    def _accept(self, name: str) -> bool:
        if self._only and not any(fnmatchcase(name, pattern) for pattern in self._only):
            return False
        if name in self._kept.histories or len(self._kept.histories) + len(self._peer.documents) < self._most:
            return True
        self._refused += 1
        if not self._warned:
            self._warned = True
            log.warning("%s: not recorded: the limit of %d documents is reached", name, self._most)
        return False

    def _author(self, stream: EditStream) -> str:
        """Return the author's name, or its origin. Cached, as edits of a peer that has left may still arrive."""
        if (name := self._peer.name_of(stream)) is not None:
            self._names.pop(stream, None)
            self._names[stream] = name
            if len(self._names) > NAMES:
                del self._names[next(iter(self._names))]
        return self._names.get(stream, stream.origin.hex())

    @property
    def stats(self) -> DocumentRecorderStats:
        """Current counters."""
        return DocumentRecorderStats(
            len(self._peer.documents),
            self._kept.edits,
            self._kept.merges,
            self._refused,
            self._restored,
            self._left,
            self._bad,
            self._peer.stats,
        )

    @property
    def digests(self) -> dict[str, bytes]:
        """Digest of each open document, to compare with `doc.digest()`."""
        return {name: document.digest() for name, document in self._peer.documents.items()}

    def versions(self, name: str) -> Versions:
        """Return the versions of an open document: edits by stream. Raises KeyError."""
        return self._peer.versions(name)

    async def synced(self) -> None:
        """Wait until all received edits are on disk. Raises NotStored."""
        await self._kept.synced()

    # Delegated to the peer

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of the BUS."""
        return self._peer.addresses

    @property
    def repair_addresses(self) -> tuple[str, ...]:
        """Addresses for repair requests and `join`."""
        return self._peer.repair_addresses

    @property
    def peers(self) -> tuple[PeerInfo, ...]:
        """Peers from which a message was received within the last three seconds."""
        return self._peer.peers

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The last 100 rejected messages of peers."""
        return self._peer.refusals

    async def wait_for_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait for `n` peers; None: for ever. Raises TimedOut, AccessDenied (a join was refused)."""
        await self._peer.wait_for_peers(n, timeout)


class _JournalStorage:
    """Storage backend of a DocumentPeer: the journal."""

    def __init__(self, recorder: Recorder, topic: str, author: Callable[[EditStream], str]) -> None:
        self.histories: dict[str, History] = {}  # restored documents that no peer has opened yet
        self.edits = self.merges = 0
        self.author = author
        self._recorder = recorder
        self._topic = topic
        self._failure: NngkitError | None = None

    def load(self, name: str) -> Loaded:
        history = self.histories.pop(name, None)
        return Loaded(None, (), {}) if history is None else history.loaded(load_engine())

    def log(self, name: str, versions: Mapping[EditStream, int]) -> _DocumentLog:
        return _DocumentLog(self, name, versions)

    async def room(self) -> None:
        await self._recorder.wait_for_room()

    def put(self, doc: str, update: bytes, headers: Headers) -> None:
        """Record an update. After a failure nothing is recorded, as later records may depend on the missing one."""
        if self._failure is not None:
            return
        key = doc.encode()
        try:
            self._recorder.put(update, topic=self._topic, protocol=PROTOCOL, key=key, headers=headers, force=True)
        except NngkitError as error:  # the recorder was closed
            log.error("%s: recording has stopped: %s", self._topic, error)
            self._failure = error

    async def synced(self) -> None:
        """Wait until all records are on disk. Raises the first failure."""
        if self._failure is not None:
            raise self._failure.again() from self._failure
        await self._recorder.flush()


class _DocumentLog:
    """Writes one document's records."""

    def __init__(self, home: _JournalStorage, name: str, versions: Mapping[EditStream, int]) -> None:
        self._home = home
        self._name = name
        self._versions = dict(versions)

    def append(self, stream: EditStream, seq: int, edit: Edit) -> None:
        headers = edit_headers(self._name, stream, seq, edit, self._home.author(stream))
        self._home.put(self._name, edit.payload, headers)
        self._home.edits += 1
        advanced(self._versions, stream, seq)

    def append_merge(self, update: bytes, versions: Versions) -> None:
        after = dict(versions)
        prune(after)
        self._home.put(self._name, update, merge_headers(self._name, update, self._versions, after))
        self._home.merges += 1
        self._versions = after

    async def synced(self) -> None:
        await self._home.synced()

    async def flush(self) -> None:
        try:
            await self._home.synced()
        except NngkitError as error:
            log.error("%s: not all edits are on disk: %s", self._name, error)
