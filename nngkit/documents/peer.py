"""DocumentPeer: this process among those that edit the same documents. BUS for what is new, REQ/REP for what was lost.

::

    async with DocumentPeer(listen="tcp://127.0.0.1:4711", store="notes.sqlite") as peer:
        doc = peer.open("minutes")
        doc.text("body").insert(0, "hello")          # the others have it a moment later
        await doc.durable()                          # it is on my disk
        await doc.synced(2)                          # ... and on two others'
        async for change in doc.changes(): ...

    async with DocumentPeer(dial="tcp://127.0.0.1:4711") as other: ...

Here is what a program sees: documents, the disk, who is there. What is said and heard is in `exchange.py`, what is
decided in `replica.py`.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import Final, Self

import trio

from nngkit.background import Background, UnderTrio
from nngkit.documents.awareness import RENEW
from nngkit.documents.document import Document
from nngkit.documents.engine.interface import Engine, load_engine
from nngkit.documents.names import check_name
from nngkit.documents.records import Record, Saved
from nngkit.documents.storage_backend import DocumentLog, StorageBackend
from nngkit.documents.store.document_log import StoreDocumentLog
from nngkit.documents.store.sqlite import Store
from nngkit.documents.sync.discovery import DocumentDiscovery
from nngkit.documents.sync.exchange import Exchange
from nngkit.documents.sync.faults import NetworkFaults
from nngkit.documents.sync.local_copy import LocalCopy
from nngkit.documents.sync.messages import TEXT, Aware, Has, Have
from nngkit.documents.sync.replica import Replica, Settings
from nngkit.documents.sync.wire import encode
from nngkit.documents.versions import EPOCHS, ORIGIN, Edit, EditStream, Versions, covers
from nngkit.errors import AccessDenied, Closed, ConfigError, NngkitError, TimedOut
from nngkit.protocols import TLS, Pipe

__all__ = ["DocumentPeer", "PeerInfo", "PeerStats", "Refusal"]

log = logging.getLogger("nngkit.documents")

LEAVING: Final = 2.0  # seconds that leaving may take, with peers that do not read; the disk has all it needs
HAVE: Final = 15.0  # seconds that a peer is asked to wait for what it does not have yet; then it is asked again
REFUSALS: Final = 100  # kept for whoever looks


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """Another peer. `address`: where its connection comes from. `documents`: those it has, as far as it said so.

    `round_trip`: seconds that its answers take. `askable`: whether it can be asked for what was lost.
    """

    stream: EditStream
    name: str | None
    address: str | None
    documents: frozenset[str]
    round_trip: float
    askable: bool
    relay: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something of a peer's that was not taken: `when` is time.time()."""

    when: float
    peer: str
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class PeerStats:
    """What a peer has counted since it was opened; messages on the BUS, edits, questions, bytes of messages.

    `said`, `heard`: on the BUS, with `bytes_said` (times the peers connected) and `bytes_heard`. `edits`: our own.
    `delivered`, `duplicates`, `held`, `gaps`, `overflow`, `old`, `differed`: see replica.Counts. `asked`, `failed`:
    our questions; `answered`: those of others by kind; `bytes_asked`: of our questions and their answers. `early`:
    messages before the first beat. `elsewhere`: about documents that are not open here. `refused`: what, how often.
    """

    said: int
    heard: int
    bytes_said: int
    bytes_heard: int
    edits: int
    delivered: int
    duplicates: int
    held: int
    gaps: int
    overflow: int
    old: int
    differed: int
    asked: int
    failed: int
    bytes_asked: int
    answered: dict[str, int]
    early: int
    elsewhere: int
    refused: dict[str, int]


class _Held:
    """A document, its copy and its disk; `changed` is set, and made anew, whenever something happens to it."""

    __slots__ = ("changed", "copy", "disk", "document")

    def __init__(self, document: Document, copy: LocalCopy, disk: DocumentLog | None) -> None:
        self.document = document
        self.copy = copy
        self.disk = disk
        self.changed = trio.Event()


class DocumentPeer(UnderTrio):
    """One peer; use it with `async with`, under trio. All arguments are keywords. For threads: nngkit.blocking.

    listen, dial   addresses of the BUS: our own, and others'. Each peer has to reach each other one, or a relay
    join           addresses of others' REP: they are asked where their BUS is
    repair         where our REP listens; left out: beside the BUS (tcp: any free port of that host; ipc: the path with
                   ".repair"; ws: the path with "/repair"). Who only dials, and not on this host, has none: it cannot be
                   asked, and gives what others lack
    store          path of the file that keeps everything; without it, documents live as long as the process
    keeper         whoever keeps it instead of such a file: see keeper.StorageBackend
    token          who does not say it is told nothing; the BUS is then on ws or wss only, at a path made from it
    relay          pass on what one peer says to the others: for trees and rings of peers that do not all meet
    discovery      survey addresses of discovery daemons: peers that have a document open find each other by its name
    accept         called with the name of a document that a peer speaks of and that is not open: True opens it
    engine         the CRDT; all peers of a document need the same
    beat           seconds: from an edit to the beat that tells of it, and between beats while nothing happens
    max_document   bytes that a peer may send as one document
    tls, admit     as for sockets: for both of them
    settings       see replica.Settings
    faults        a bad network, to try things on

    Entering raises ConfigError (a setting, a store that another process has), Unreachable (an address), StoreDamaged.
    Leaving says good-bye and writes everything to the disk; cancelled it does that too, bounded in time.
    """

    def __init__(
        self,
        *,
        listen: str | Iterable[str] | None = None,
        dial: str | Iterable[str] | None = None,
        join: str | Iterable[str] | None = None,
        repair: str | Iterable[str] | None = None,
        store: str | PathLike[str] | None = None,
        keeper: StorageBackend | None = None,
        token: str | None = None,
        relay: bool = False,
        discovery: str | Iterable[str] | None = None,
        accept: Callable[[str], bool] | None = None,
        engine: str = "yjs",
        beat: tuple[float, float] = (0.02, 0.2),
        max_document: int = 256 << 20,
        tls: TLS | None = None,
        admit: Callable[[Pipe], bool] | None = None,
        name: str | None = None,
        settings: Settings | None = None,
        faults: NetworkFaults | None = None,
    ) -> None:
        self.name = name
        self._listen, self._dial, self._join = _several(listen), _several(dial), _several(join)
        self._repair = None if repair is None else _several(repair)
        self._path = store
        self._keeper = keeper
        self._token = token
        self._relay = relay
        self._discovery = _several(discovery)
        self._accept = accept
        self._engine_name = engine
        self._beat = beat
        self._limit = max_document
        self._tls = tls
        self._admit = admit
        self._settings = settings or Settings()
        self._faults = faults
        if not 0 < beat[0] <= beat[1]:
            raise ConfigError("beat", f"{beat!r} is not two numbers of seconds, the first one the smaller", beat)
        for what, text in (("name", name), ("token", token)):
            if text is not None and len(text.encode(errors="replace")) > TEXT:
                raise ConfigError(what, f"is longer than {TEXT} bytes", text)
            if text is not None and any("\ud800" <= letter <= "\udfff" for letter in text):
                raise ConfigError(what, f"{text!a}: half a surrogate pair, which is no character", text)
        if store is not None and keeper is not None:
            raise ConfigError("keeper", "there is a store already, and one of them keeps the documents", store)
        for address in self._listen:
            if token is not None and not address.startswith("ws"):
                why = "everybody who can connect hears a BUS; with a token it has to be on ws:// or wss://, at a path"
                raise ConfigError("listen", f"{address}: {why} that only those know who have the token", address)
        self._rng = random.Random(secrets.randbits(64))
        self._held: dict[str, _Held] = {}
        self._edits = 0
        self._refused = Counter[str]()
        self._refusals: deque[Refusal] = deque(maxlen=REFUSALS)
        self._store: Store | None = None
        self._finding: DocumentDiscovery | None = None
        self._background = Background()
        self._left = False

    async def __aenter__(self) -> Self:
        self._entering()
        self._engine: Engine = load_engine(self._engine_name)
        if self._path is None:
            now = time.time_ns() // 1_000_000 * 4096 + secrets.randbits(12)
            self._me = EditStream(secrets.token_bytes(ORIGIN), min(now, EPOCHS))
        else:
            self._store = await trio.to_thread.run_sync(Store.open, self._path)
            self._me = EditStream(self._store.origin, self._store.epoch)
        try:
            self._exchange = Exchange(
                self.me,
                self,
                rng=self._rng,
                beat=self._beat,
                limit=self._limit,
                relay=self._relay,
                token=self._token,
                name=self.name,
                tls=self._tls,
                admit=self._admit,
                faults=self._faults,
            )
            try:
                self._exchange.open(self._listen, self._dial, self._join, self._repair)
                if self._discovery:
                    self._finding = DocumentDiscovery(
                        self._discovery, self.addresses, dial=self._exchange.dial, tls=self._tls
                    )
                await self._background.open()
            except BaseException:
                self._exchange.bus.close(0.0)
                self._exchange.rep.close(0.0)
                raise
        except BaseException:
            if self._store is not None:
                self._store.close()
            raise
        self._exchange.start(self._background, self._join)
        self._background.start(self._mind_awareness)
        if self._finding is not None:
            self._background.start(self._finding.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        finally:
            await self._background.close(kind, value, traceback)

    async def aclose(self) -> None:
        """Say good-bye, write everything, and disconnect, before the block ends; also when cancelled."""
        if not self._left:
            with trio.CancelScope(shield=True):
                for held in self._held.values():
                    held.document.awareness.local = None  # those behind a relay do not hear our good-bye
                with trio.move_on_after(LEAVING):
                    await self._exchange.close()
                self._left = True
                self._background.end()
                for held in self._held.values():
                    if held.disk is not None:
                        await held.disk.flush()
                    held.document.close()
                if self._store is not None:
                    await self._store.aclose()
        await trio.lowlevel.checkpoint()

    # ------------------------------------------------------------------ documents

    def open(self, name: str) -> Document:
        """The document `name`, the same object each time; what the store has of it is read now.

        Peers that have it are met by and by: `await doc.joined()` waits for them. Raises ConfigError for a name that
        cannot be one, StoreDamaged, Closed.
        """
        check_name(name)
        if self._left:
            raise Closed("the peer is closed")
        if (held := self._held.get(name)) is not None:
            return held.document
        document = Document(name, engine=self._engine, home=self)
        versions: Versions = {}
        kept: list[tuple[EditStream, int, Edit]] = []
        disk: DocumentLog | None = None
        keeping = self._keeper or self._store
        if keeping is not None:
            loaded = keeping.load(name)
            updates = [record.update for record in loaded.records]
            for update in updates if loaded.snapshot is None else [loaded.snapshot, *updates]:
                if update:  # an edit that could not be applied is kept as nothing
                    document.merge(update, None)
            versions = loaded.versions
            kept = [
                (record.stream, record.seq, Edit(record.update, record.deps))
                for record in (*loaded.recent, *loaded.records)
                if isinstance(record, Record)
            ]
            if self._keeper is not None:
                disk = self._keeper.disk(name, versions)
            elif self._store is not None:
                disk = StoreDocumentLog(
                    self._store, name, self._engine, self._background, log=loaded.log, size=loaded.size
                )
        replica = Replica(
            name,
            self.me,
            rng=self._rng,
            settings=self._settings,
            versions=versions,
            log=kept,
            askable=bool(self.repair_addresses),
            round_trips=self._exchange.trips,
        )
        copy = LocalCopy(
            replica,
            _Content(document, self._engine),
            disk=disk,
            token=self._token,
            relay=self._relay,
            refused=lambda peer, why: self.refused(str(peer), f"document {name}", why),
        )
        self._held[name] = _Held(document, copy, disk)
        self._exchange.add(copy, document.engine.client_id)
        if self._finding is not None:
            self._finding.offer(name)
        return document

    async def _mind_awareness(self) -> None:
        while True:
            await trio.sleep(RENEW)
            for held in self._held.values():
                held.document.awareness.renew()
                held.document.awareness.expire()

    def close_document(self, name: str) -> None:
        """Take part in it no more; what the store has of it stays. Raises KeyError if it is not open."""
        held = self._held.pop(name)
        self._exchange.remove(name)
        if self._finding is not None:
            self._finding.withdraw(name)
        held.document.close()

    @property
    def documents(self) -> dict[str, Document]:
        """Those that are open."""
        return {name: held.document for name, held in self._held.items()}

    def versions(self, name: str) -> Versions:
        """How much of whose edits is here of a document that is open: to compare peers. Raises KeyError."""
        return dict(self._held[name].copy.replica.versions)

    # ------------------------------------------------------------------ what a Document asks of us (document.DocumentHost)

    def edited(self, document: Document, update: bytes) -> None:
        """A local transaction has ended."""
        self._held[document.name].copy.edited(update, trio.current_time())
        self._edits += 1
        self._exchange.poke(document.name)

    def aware(self, document: Document, state: bytes | None) -> None:
        """Who is at work here, and where, has changed."""
        self._exchange.publish(encode(Aware(self.me, document.name, document.awareness.clock, state)))

    async def durable(self, document: Document) -> None:
        """All of it that is here is on our disk."""
        disk = self._held[document.name].disk
        if disk is None:
            raise ConfigError("store", "this peer has none: nothing of it outlives the process")
        await disk.synced()

    async def synced(self, document: Document, peers: int, timeout: float | None) -> None:
        """All of it that is here now is on the disks of `peers` others. Raises TimedOut."""
        versions = dict(self._held[document.name].copy.replica.versions)
        request = Have(self.me, self._token, document.name, versions, True, HAVE)
        done: set[EditStream] = set()
        asked: set[EditStream] = set()
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            async with trio.open_nursery() as nursery:

                async def have(peer: EditStream) -> None:
                    try:
                        reply = await self._exchange.ask(peer, request, HAVE + 5.0)
                        if isinstance(reply, Has) and reply.yes:
                            done.add(peer)
                            return
                    except NngkitError as error:
                        log.debug("%s does not say whether it has %s: %s", peer, document.name, error)
                    finally:
                        self._exchange.poke()
                    await trio.sleep(self._beat[1])
                    asked.discard(peer)

                while len(done) < peers:
                    told = self._exchange.told
                    for member in self._exchange.members.present():
                        if member.repair and member.stream not in asked:
                            asked.add(member.stream)
                            nursery.start_soon(have, member.stream)
                    await told.wait()
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        if len(done) < peers:
            raise TimedOut(f"{document.name}: on the disks of {len(done)} of {peers} others in {timeout} s", timeout)

    async def joined(self, document: Document, timeout: float | None) -> None:
        """All that any peer that can be reached had at the call is here. Raises TimedOut, AccessDenied."""
        held = self._held[document.name]
        replica = held.copy.replica
        since = replica.catch_up(trio.current_time())
        try:
            self._exchange.poke(document.name)
            with trio.move_on_after(float("inf") if timeout is None else timeout):
                while True:
                    standing = replica.standing(since, trio.current_time())
                    if True in standing and None not in standing:
                        return
                    self._check_denied()
                    await held.changed.wait()
            standing = replica.standing(since, trio.current_time())
        finally:
            replica.catch_up_ended(since)
        if not standing:
            why = "no peer was reached"
        elif None not in standing:
            why = f"none of the {len(standing)} peers that were reached has it"
        else:
            why = f"{standing.count(None)} of {len(standing)} peers have not given all they have"
        raise TimedOut(f"{document.name}: {why} in {timeout} s", timeout)

    async def save_version(self, document: Document, name: str) -> Saved:
        """Keep the content as it is now under `name`; on the disk when this returns. Raises ConfigError, Broken."""
        store = self._demand_store()
        held = self._held[document.name]
        versions = dict(held.copy.replica.versions)
        ticket = store.save_version(document.name, name, document.engine.changes_since(None), versions)
        await store.synced(ticket)
        return next(saved for saved in store.versions(document.name) if saved.name == name)

    def saved(self, document: Document) -> tuple[Saved, ...]:
        """The versions that were saved of it."""
        return self._demand_store().versions(document.name)

    def at(self, document: Document, name: str) -> Document:
        """A saved version, to be read. Raises NotFound."""
        old = Document(document.name, engine=self._engine, read_only=True)
        old.merge(self._demand_store().version(document.name, name), None)
        return old

    def _demand_store(self) -> Store:
        if self._store is None:
            raise ConfigError("store", "this peer has none: nothing of it outlives the process")
        return self._store

    # ------------------------------------------------------------------ what people see

    @property
    def me(self) -> EditStream:
        """The stream of the edits that are made here: the store's origin, and a fresh epoch."""
        return self._me

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the BUS listens."""
        return tuple(self._exchange.bus.addresses)

    @property
    def address(self) -> str:
        """The first of them. Raises ConfigError if it does not listen."""
        if not self.addresses:
            raise ConfigError("listen", "this peer does not listen")
        return self.addresses[0]

    @property
    def repair_addresses(self) -> tuple[str, ...]:
        """Where others ask, and `join`."""
        return tuple(self._exchange.rep.addresses)

    @property
    def peers(self) -> tuple[PeerInfo, ...]:
        """Those who were heard within the last three seconds."""
        return tuple(
            PeerInfo(
                member.stream,
                member.name,
                member.address,
                frozenset(member.docs),
                self._exchange.trips.usual(member.stream),
                bool(member.repair),
                member.relay,
            )
            for member in self._exchange.members.present()
        )

    def name_of(self, peer: EditStream) -> str | None:
        """What a peer calls itself; None if it has not said so, or has gone."""
        member = self._exchange.members.known.get(peer)
        return None if member is None else member.name

    async def wait_for_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until `n` peers have said that they are there. Raises TimedOut, AccessDenied (a join was refused)."""
        exchange = self._exchange
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            while len(exchange.members.present()) < n:
                self._check_denied()
                await exchange.told.wait()
                await trio.lowlevel.checkpoint()
            return
        there = len(exchange.members.present())
        raise TimedOut(f"{there} of {n} peers are there after {timeout} s", timeout)

    def dial(self, address: str) -> None:
        """One more BUS to dial. Raises ConfigError."""
        self._exchange.dial(address)

    def _check_denied(self) -> None:
        if self._exchange.denied is not None:
            raise AccessDenied(str(self._exchange.denied))

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The last 100 things that were not taken."""
        return tuple(self._refusals)

    @property
    def stats(self) -> PeerStats:
        """The counters."""
        exchange = self._exchange
        counts = [held.copy.replica.counts for held in self._held.values()]
        of_replicas = ("delivered", "duplicates", "held", "gaps", "overflow", "old", "differed")
        of_exchange = ("said", "heard", "bytes_said", "bytes_heard", "asked", "failed", "bytes_asked", "elsewhere")
        return PeerStats(
            edits=self._edits,
            answered=dict(exchange.answering.answered),
            early=exchange.members.early,
            refused=dict(self._refused),
            **{name: sum(getattr(one, name) for one in counts) for name in of_replicas},
            **{name: exchange.counts[name] for name in of_exchange},
        )

    # ------------------------------------------------------------------ what the exchange tells us (exchange.ExchangeHost)

    def wants(self, doc: str) -> bool:
        """Open a document that somebody speaks of, if `accept` says so."""
        if self._accept is None or self._left or not self._accept(doc):
            return False
        self.open(doc)
        return True

    def changed(self, copy: LocalCopy, *, content: bool) -> None:
        """Something happened to a document."""
        held = self._held[copy.name]
        held.changed.set()
        held.changed = trio.Event()

    def heard_aware(self, message: Aware) -> bool:
        """Somebody is at work in a document. Whether it is to be passed on: said again is news for who would forget."""
        awareness = self._held[message.doc].document.awareness
        before = awareness.clock_of(message.sender)
        awareness.receive(message.sender, message.clock, message.state, peer=str(message.sender))
        return awareness.clock_of(message.sender) > before

    def gone(self, peer: EditStream) -> None:
        """A peer has gone."""
        for name, held in self._held.items():
            clock = held.document.awareness.bye(peer)
            if clock is not None and self._relay:  # those behind us hear neither its good-bye nor its end
                self._exchange.publish(encode(Aware(peer, name, clock, None)))

    def came(self, peer: EditStream, docs: set[str]) -> None:
        """A peer has these documents open, and has not heard who is at work in them."""
        for name in docs & self._held.keys():
            awareness = self._held[name].document.awareness
            awareness.renew()
            if self._relay:
                for source, clock, state in awareness.known():
                    if isinstance(source, EditStream) and source != peer:
                        self._exchange.publish(encode(Aware(source, name, clock, state)))

    def refused(self, peer: str, what: str, why: str) -> None:
        """Something was not taken."""
        self._refused[what] += 1
        self._refusals.append(Refusal(time.time(), peer, what, why))
        log.warning("refused: %s from %s: %s", what, peer, why)

    async def has(self, copy: LocalCopy, versions: Versions, durable: bool, wait: float) -> bool:
        """Wait until it has `versions`; on the disk, if `durable`."""
        held = self._held.get(copy.name)
        if held is None or (durable and held.disk is None):
            return False
        with trio.move_on_after(wait):
            while not covers(copy.replica.versions, versions):
                await held.changed.wait()
            if durable and held.disk is not None:
                try:
                    await held.disk.synced()
                except NngkitError as error:  # who asked counts us not, and asks again
                    log.info("%s: not said to be on the disk: %s", copy.name, error)
                    return False
            return True
        return False

    async def room(self) -> None:
        """Wait until the disk takes more: those who send faster than it writes are read no faster."""
        if (keeping := self._keeper or self._store) is not None:
            with suppress(NngkitError):  # it takes nothing any more, and has said so: editing goes on
                await keeping.room()


class _Content:
    """A Document as its LocalCopy sees it."""

    __slots__ = ("_changed", "_document", "_engine")

    def __init__(self, document: Document, engine: Engine) -> None:
        self._document = document
        self._engine = engine
        self._changed = False
        document.engine.observe(self._observed)

    def _observed(self, update: bytes, origin: object) -> None:
        self._changed = True

    def apply(self, update: bytes, origin: object = None) -> bool:
        self._changed = False
        self._document.merge(update, None if origin is None else str(origin))
        return self._changed

    def changes_since(self, state: bytes | None = None) -> bytes:
        return self._document.engine.changes_since(state)

    def merge(self, updates: Sequence[bytes]) -> bytes:
        return self._engine.merge(updates)

    def state(self) -> bytes:
        return self._document.engine.state()

    def digest(self) -> bytes:
        return self._document.engine.digest()


def _several(given: str | Iterable[str] | None) -> tuple[str, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)
