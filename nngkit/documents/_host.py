"""The open documents of one peer, between the public interface and the network.

A `PeerHost` implements two internal interfaces, so that DocumentPeer shows only what belongs to its users:

- `document.DocumentHost`: a Document reports local edits and asks for durability, synchronization, saved versions.
- `repair.ExchangeHost`: the exchange reports what arrived, and asks which documents to open.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Final

import trio

from nngkit.background import Background, WakeUp
from nngkit.documents.awareness import RENEW
from nngkit.documents.document import Document, DocumentContent
from nngkit.documents.engine.interface import Engine
from nngkit.documents.names import check_name
from nngkit.documents.peer_info import Refusal
from nngkit.documents.records import Record, Saved
from nngkit.documents.storage_backend import DocumentLog, StorageBackend
from nngkit.documents.store.document_log import StoreDocumentLog
from nngkit.documents.store.sqlite import Store
from nngkit.documents.sync.discovery import DocumentDiscovery
from nngkit.documents.sync.exchange import Exchange
from nngkit.documents.sync.local_copy import LocalCopy
from nngkit.documents.sync.messages import Aware, Has, Have
from nngkit.documents.sync.replica import Replica, Settings
from nngkit.documents.sync.wire import encode
from nngkit.documents.versions import Edit, EditStream, Versions, covers
from nngkit.errors import Closed, ConfigError, EditRefused, NngkitError, StoreDamaged, TimedOut

log = logging.getLogger("nngkit.documents")

HAVE: Final = 15.0  # seconds a peer may wait before it answers a Have with "no"; then it is asked again
REFUSALS: Final = 100  # kept for `DocumentPeer.refusals`


@dataclass(frozen=True, slots=True)
class HostOptions:
    """Options of DocumentPeer that apply to each of its documents. `retry`: seconds between two Have requests."""

    token: str | None
    relay: bool
    accept: Callable[[str], bool] | None
    settings: Settings
    retry: float


class _OpenDocument:
    """A document, its local copy and its log. `changed` wakes the waiters for a change of it."""

    __slots__ = ("changed", "copy", "document", "log")

    def __init__(self, document: Document, copy: LocalCopy, log: DocumentLog | None) -> None:
        self.document = document
        self.copy = copy
        self.log = log
        self.changed = WakeUp()


@dataclass(eq=False, repr=False)
class PeerHost:
    """Open documents. `exchange` and `discovery` are set by the peer before the first document is opened."""

    me: EditStream
    engine: Engine
    options: HostOptions
    _: KW_ONLY
    background: Background
    rng: random.Random
    store: Store | None
    storage: StorageBackend | None
    exchange: Exchange = field(init=False)

    def __post_init__(self) -> None:
        self.open_documents: dict[str, _OpenDocument] = {}
        self.damaged: dict[str, StoreDamaged] = {}  # documents that cannot be loaded, until they are opened again
        self._behind: dict[str, StoreDocumentLog] = {}  # logs of closed documents with edits that wait for the disk
        self.edits = 0
        self.refused = Counter[str]()
        self.closed_counts = Counter[str]()  # those of documents that are open no more
        self.refusals: deque[Refusal] = deque(maxlen=REFUSALS)
        self.discovery: DocumentDiscovery | None = None
        self.closed = False
        self._has_failed = False  # the store: no document can be opened

    # ------------------------------------------------------------------ opening and closing

    def open(self, name: str) -> Document:
        """Return the document `name`; load it from storage on the first call."""
        check_name(name)
        if self.closed:
            raise Closed("the peer is closed")
        if (known := self.open_documents.get(name)) is not None:
            return known.document
        document = Document(name, engine=self.engine, host=self)
        try:
            versions, recent, document_log = self._load(document)
        except StoreDamaged as damage:
            self.damaged[name] = damage
            raise
        self.damaged.pop(name, None)
        replica = Replica(
            name,
            self.me,
            rng=self.rng,
            settings=self.options.settings,
            versions=versions,
            log=recent,
            askable=bool(self.exchange.repair_addresses),
            round_trips=self.exchange.round_trips,
        )
        copy = LocalCopy(
            replica,
            DocumentContent(document, self.engine),
            log=document_log,
            relay=self.options.relay,
            refused=lambda peer, why: self.record_refusal(str(peer), f"document {name}", why),
            cut=self.exchange.cut,
        )
        self.open_documents[name] = _OpenDocument(document, copy, document_log)
        self.exchange.add(copy, document.engine.client_id)
        if self.discovery is not None:
            self.discovery.offer(name)
        return document

    def _load(self, document: Document) -> tuple[Versions, list[tuple[EditStream, int, Edit]], DocumentLog | None]:
        """Apply the stored content. Returns its versions, the edits kept for other peers, and the log for new ones."""
        backend = self.storage or self.store
        if backend is None:
            return {}, [], None
        loaded = backend.load(document.name)
        document_log: DocumentLog | None = None
        if (behind := self._behind.get(document.name)) is not None:
            document_log, loaded = behind, behind.completed(loaded)
        updates = [record.update for record in loaded.records]
        try:
            for update in updates if loaded.snapshot is None else [loaded.snapshot, *updates]:
                if update:  # earlier versions stored an edit that could not be applied as empty
                    document.merge(update, None)
        except ValueError as error:
            where = "storage" if self.store is None else self.store.path
            raise StoreDamaged(where, str(error), f"records of {document.name!r}") from error
        recent = [
            (record.stream, record.seq, Edit(record.update, record.deps))
            for record in (*loaded.recent, *loaded.records)
            if isinstance(record, Record)
        ]
        if self.storage is not None:
            document_log = self.storage.log(document.name, loaded.versions)
        elif self.store is not None and document_log is None:
            document_log = StoreDocumentLog(
                self.store, document.name, self.engine, self.background, log=loaded.log, size=loaded.size
            )
        self._behind.pop(document.name, None)
        return loaded.versions, recent, document_log

    def close_document(self, name: str) -> None:
        """Publish what is pending of a document, and stop synchronizing it. Raises KeyError."""
        known = self.open_documents[name]
        known.document.awareness.local = None
        self.exchange.remove(name)
        del self.open_documents[name]
        self.closed_counts.update(asdict(known.copy.replica.counts))
        if self.discovery is not None:
            self.discovery.withdraw(name)
        known.document.close()
        known.changed.wake()
        self._behind = {each: log for each, log in self._behind.items() if log.is_behind}
        if isinstance(known.log, StoreDocumentLog) and known.log.is_behind:
            self._behind[name] = known.log

    async def close(self) -> None:
        """Write everything to storage, then close the documents."""
        self.closed = True
        for known in self.open_documents.values():
            if known.log is not None:
                await known.log.flush()
            known.document.close()
            known.changed.wake()
        for behind in self._behind.values():
            await behind.flush()
        self.exchange.wake()
        if self.store is not None:
            await self.store.aclose()

    async def maintain_awareness(self) -> None:
        """Renew our awareness states, and expire those of silent peers, until cancelled."""
        while True:
            await trio.sleep(RENEW)
            for known in self.open_documents.values():
                known.document.awareness.renew()
                known.document.awareness.expire()

    def check_open(self) -> None:
        """Raise what has ended the peer, if it has ended."""
        if self.closed:
            raise self.background.ended("the peer is closed")

    def check_denied(self) -> None:
        """Raise AccessDenied if a `join` was refused."""
        for denied in self.exchange.denied.values():
            raise denied.again() from denied

    # ------------------------------------------------------------------ document.DocumentHost

    def edited(self, document: Document, update: bytes) -> None:
        """Record a local transaction, and schedule its publication."""
        self.open_documents[document.name].copy.edited(update, trio.current_time())
        self.edits += 1
        self.exchange.wake(document.name)

    def aware(self, document: Document, state: bytes | None) -> None:
        """Publish the local awareness state."""
        message = Aware(self.me, document.name, document.awareness.clock, state)
        self.exchange.publish(encode(message), document.name)

    async def durable(self, document: Document) -> None:
        """Wait until the whole local content is on our disk."""
        document_log = self.open_documents[document.name].log
        if document_log is None:
            raise _no_store()
        await document_log.synced()

    async def synced(self, document: Document, peers: int, timeout: float | None) -> None:
        """Wait until `peers` peers have the current content on disk. Raises TimedOut, EditRefused, AccessDenied."""
        versions = dict(self.open_documents[document.name].copy.replica.versions)
        refused: dict[EditStream, EditRefused] = {}
        request = Have(self.me, None, document.name, versions, True, HAVE)
        done: set[EditStream] = set()
        asked: set[EditStream] = set()
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            async with trio.open_nursery() as nursery:

                async def have(peer: EditStream) -> None:
                    try:
                        reply = await self.exchange.ask(peer, request, HAVE + 5.0)
                        if isinstance(reply, Has) and reply.yes:
                            done.add(peer)
                            return
                    except EditRefused as error:  # further local edits cannot change that
                        refused[peer] = EditRefused(self.exchange.shown(peer), error.why)
                        return
                    except NngkitError as error:
                        log.debug("%s did not confirm %s: %s", peer, document.name, error)
                    finally:
                        self.exchange.wake()
                    await trio.sleep(self.options.retry)
                    asked.discard(peer)

                while len(done) < peers and not self.closed:
                    activity = self.exchange.activity
                    present = self.exchange.members.present()
                    refusing = [member.stream for member in present if member.stream in refused]
                    if refusing and sum(member.repair != () for member in present) - len(refusing) < peers:
                        break
                    if self.exchange.denied and not any(member.repair for member in present):
                        break
                    for member in present:
                        if member.repair and member.stream not in asked:
                            asked.add(member.stream)
                            nursery.start_soon(have, member.stream)
                    await activity.wait()
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        if len(done) < peers:
            self.check_open()
            if refused:
                raise next(iter(refused.values()))
            if not any(member.repair for member in self.exchange.members.present()):
                self.check_denied()
            raise TimedOut(f"{document.name}: on the disks of {len(done)} of {peers} peers after {timeout} s", timeout)

    async def joined(self, document: Document, timeout: float | None) -> None:
        """Wait until this peer has all edits that a reachable peer had at the call. Raises TimedOut, AccessDenied."""
        known = self.open_documents[document.name]
        replica = known.copy.replica
        since = replica.catch_up(trio.current_time())
        self.exchange.ask_anew(document.name)
        try:
            self.exchange.wake(document.name)
            with trio.move_on_after(float("inf") if timeout is None else timeout):
                while True:
                    status = replica.catch_up_status(since, trio.current_time())
                    if True in status and None not in status:
                        return
                    self.check_open()
                    if self.open_documents.get(document.name) is not known:
                        raise Closed(f"document {document.name!r} was closed")
                    if not status:
                        self.check_denied()
                    if True not in status and (denied := self.exchange.refusal_of(document.name)) is not None:
                        raise denied.again()
                    await known.changed.wait()
            status = replica.catch_up_status(since, trio.current_time())
        finally:
            replica.catch_up_ended(since)
        if not status:
            why = "no peer was reached"
        elif None not in status:
            why = f"none of the {len(status)} reachable peers has the document"
        else:
            why = f"{status.count(None)} of {len(status)} reachable peers have not sent everything"
        raise TimedOut(f"{document.name}: {why} after {timeout} s{self.exchange.refusals()}", timeout)

    async def save_version(self, document: Document, name: str) -> Saved:
        """Store the current content under `name`; on disk when this returns. Raises ConfigError, Broken."""
        store = self._demand_store()
        versions = dict(self.open_documents[document.name].copy.replica.versions)
        ticket = store.save_version(document.name, name, document.engine.changes_since(None), versions)
        await store.synced(ticket)
        return next(saved for saved in store.versions(document.name) if saved.name == name)

    def saved(self, document: Document) -> tuple[Saved, ...]:
        """Return the saved versions."""
        return self._demand_store().versions(document.name)

    def at(self, document: Document, name: str) -> Document:
        """Return a saved version as a read-only document. Raises NotFound."""
        old = Document(document.name, engine=self.engine, read_only=True)
        old.merge(self._demand_store().version(document.name, name), None)
        return old

    def _demand_store(self) -> Store:
        if self.store is None:
            raise _no_store()
        return self.store

    # ------------------------------------------------------------------ repair.ExchangeHost

    def accepts(self, doc: str) -> bool:
        """Open an unknown document announced by a peer, if `accept` agrees."""
        if self.options.accept is None or self.closed or doc in self.damaged or not self.options.accept(doc):
            return False
        try:
            self.open(doc)
        except StoreDamaged as damage:  # the other documents go on
            log.error("not opened: %s", damage)
            return False
        except NngkitError as error:  # a failed disk: what is open goes on, and nothing more is opened
            log.log(logging.DEBUG if self._has_failed else logging.ERROR, "not opened: %s", error)
            self._has_failed = True
            return False
        return True

    def why_closed(self, doc: str) -> str:
        """Return why a document is not open here."""
        if doc in self.damaged:
            return f"document {doc} is damaged in the store here; `nngkit doc recover` copies what is intact"
        return f"document {doc} is not open here"

    def document_changed(self, copy: LocalCopy, *, content: bool) -> None:
        """Wake the waiters for a change of the document."""
        known = self.open_documents[copy.name]
        known.changed.wake()

    def receive_awareness(self, message: Aware) -> bool:
        """Take an awareness message. Returns True if it should be relayed; renewals count."""
        awareness = self.open_documents[message.doc].document.awareness
        before = awareness.clock_of(message.sender)
        awareness.receive(message.sender, message.clock, message.state, peer=str(message.sender))
        return awareness.clock_of(message.sender) > before

    def peer_left(self, peer: EditStream) -> None:
        """Remove the awareness states of a peer that has left."""
        for name, known in self.open_documents.items():
            clock = known.document.awareness.bye(peer)
            if clock is not None and self.options.relay:  # peers behind us hear neither its bye nor its disconnect
                self.exchange.publish(encode(Aware(peer, name, clock, None)), name)

    def edit_refused(self, copy: LocalCopy, peer: EditStream, why: str) -> None:
        """Record that a peer refuses a local edit, and wake the waiters."""
        shown = self.exchange.shown(peer)
        self.record_refusal(shown, f"our edit of {copy.name}", f"{shown} refuses {why}")
        if (known := self.open_documents.get(copy.name)) is not None:
            known.changed.wake()

    def refusals_of(self, document: Document) -> tuple[EditRefused, ...]:
        """Return the refusals of local edits by present peers."""
        known = self.open_documents[document.name].copy.replica.refusals
        shown = self.exchange.shown
        return tuple(EditRefused(shown(peer), f"edit {one.seq}: {one.why}") for peer, one in known.items())

    def peer_opened(self, peer: EditStream, docs: set[str]) -> None:
        """Publish the known awareness states for a peer that has just opened `docs`."""
        for name in docs & self.open_documents.keys():
            awareness = self.open_documents[name].document.awareness
            awareness.renew()
            if self.options.relay:
                for source, clock, state in awareness.known():
                    if isinstance(source, EditStream) and source != peer:
                        self.exchange.publish(encode(Aware(source, name, clock, state)), name)

    def record_refusal(self, peer: str, what: str, why: str, *, level: int = logging.WARNING) -> None:
        """Count, keep and log a refusal."""
        self.refused[what] += 1
        self.refusals.append(Refusal(time.time(), peer, what, why))
        log.log(level, "refused: %s from %s: %s", what, peer, why)

    async def wait_for_versions(self, copy: LocalCopy, versions: Versions, durable: bool, wait: float) -> bool:
        """Wait up to `wait` seconds until the document has `versions`, with `durable` on disk."""
        known = self.open_documents.get(copy.name)
        if known is None or (durable and known.log is None):
            return False
        with trio.move_on_after(wait):
            while not covers(copy.replica.versions, versions):
                if copy.refusal(versions) is not None:
                    return False
                await known.changed.wait()
            if durable and known.log is not None:
                try:
                    await known.log.synced()
                except NngkitError as error:  # the asking peer does not count us, and asks again
                    log.info("%s: not confirmed as durable: %s", copy.name, error)
                    return False
            return True
        return False

    async def room(self) -> None:
        """Wait until storage takes more: backpressure for peers that send faster than the disk writes."""
        if (backend := self.storage or self.store) is not None:
            with suppress(NngkitError):  # storage has failed and reported it; editing goes on
                await backend.room()


def _no_store() -> ConfigError:
    return ConfigError("store", "this peer has none: its documents end with the process")
