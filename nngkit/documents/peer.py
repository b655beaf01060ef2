"""DocumentPeer: one process among those that edit the same documents. BUS for new edits, REQ/REP for repair.

::

    async with DocumentPeer(listen="tcp://127.0.0.1:4711", store="notes.sqlite") as peer:
        doc = peer.open("minutes")
        doc.text("body").insert(0, "hello")          # other peers have it a moment later
        await doc.durable()                          # it is on our disk
        await doc.synced(2)                          # ... and on the disks of two other peers
        async for change in doc.changes(): ...

    async with DocumentPeer(dial="tcp://127.0.0.1:4711") as other: ...

This file is the public interface. `_host.py` holds the open documents, `sync/exchange.py` the sockets,
`sync/replica.py` the decisions.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Final, Self

import trio

from nngkit.background import Background, UnderTrio
from nngkit.documents._host import HostOptions, PeerHost
from nngkit.documents.document import Document
from nngkit.documents.engine.interface import load_engine
from nngkit.documents.peer_info import PeerInfo, PeerStats, Refusal
from nngkit.documents.storage_backend import StorageBackend
from nngkit.documents.store.sqlite import Store
from nngkit.documents.sync.discovery import DocumentDiscovery
from nngkit.documents.sync.exchange import Exchange
from nngkit.documents.sync.faults import NetworkFaults
from nngkit.documents.sync.messages import TEXT
from nngkit.documents.sync.replica import Settings
from nngkit.documents.sync.rights import DocumentRights
from nngkit.documents.versions import EPOCHS, ORIGIN, EditStream, Versions
from nngkit.errors import ConfigError, StoreDamaged, TimedOut
from nngkit.protocols import TLS, Pipe
from nngkit.protocols.own_host import check_guarded
from nngkit.trust import OPEN, Choice, Trust, chosen

LEAVING: Final = 2.0  # seconds for the last messages to peers that do not read; the disk is not bounded by it


class DocumentPeer(UnderTrio):
    """A peer; use it with `async with`, under trio. All arguments are keywords. For threads: nngkit.blocking.

    listen, dial   BUS addresses, own and of other peers. Any two peers need a connection, or a relay between them
    join           REP addresses of other peers, which are asked for their BUS addresses
    repair         own REP addresses; default: beside the BUS (tcp: a free port of that host; ipc: the path with
                   ".repair"; ws: the path with "/repair"). A peer that only dials other hosts has no REP:
                   it pushes its edits instead
    store          path of the SQLite file; without it, documents end with the process
    storage        a StorageBackend in place of that file
    token          shared secret, proven on every connection; the BUS is then on ws or wss, and others `join`
    relay          forward the messages of each peer to the others: for trees and rings without a full mesh
    discovery      survey addresses of discovery daemons: peers find each other by the names of their open documents
    accept         called with the name of an unknown document that a peer announces; True opens it
    engine         the CRDT; all peers of a document need the same one
    heartbeat      seconds: from an edit to the heartbeat that reports it, and between heartbeats at rest
    max_document   bytes that a peer may send as one document
    tls, admit     as for sockets; they apply to BUS and REP
    trust          for all connections: a Trust, or OPEN; default: NNGKIT_TRUST. With a Trust there is no token, and
                   the policy says who may edit and view which documents (docs/trust.md)
    guests         addresses for pages, wss://host:port, where no pass is asked for: guests prove theirs in the page
    guests_tls     the certificate there, which browsers accept; default: that of the trust's pass
    settings       see replica.Settings
    faults         simulated loss, delay and partitions, for tests

    Entering raises ConfigError (a setting; a store that another process has open), Unreachable (an address),
    StoreDamaged. Leaving sends a bye and writes all edits to disk, also when cancelled, in bounded time.
    """

    def __init__(
        self,
        *,
        listen: str | Iterable[str] | None = None,
        dial: str | Iterable[str] | None = None,
        join: str | Iterable[str] | None = None,
        repair: str | Iterable[str] | None = None,
        store: str | PathLike[str] | None = None,
        storage: StorageBackend | None = None,
        token: str | None = None,
        relay: bool = False,
        discovery: str | Iterable[str] | None = None,
        accept: Callable[[str], bool] | None = None,
        engine: str = "yjs",
        heartbeat: tuple[float, float] = (0.02, 0.2),
        max_document: int = 256 << 20,
        tls: TLS | None = None,
        trust: Choice | None = None,
        guests: str | Iterable[str] | None = None,
        guests_tls: TLS | None = None,
        admit: Callable[[Pipe], bool] | None = None,
        name: str | None = None,
        settings: Settings | None = None,
        faults: NetworkFaults | None = None,
    ) -> None:
        self.name = name
        self._listen, self._dial, self._join = _several(listen), _several(dial), _several(join)
        self._repair = None if repair is None else _several(repair)
        self._path = store
        self._storage = storage
        self._discovery = _several(discovery)
        self._engine_name = engine
        self._heartbeat = heartbeat
        self._limit = max_document
        self._tls = tls
        self._trust = chosen(trust, tls)
        if isinstance(self._trust, Trust) and token is not None:
            raise ConfigError("token", "a trust proves who connects: it takes the place of a token")
        if self._trust is None and (token is not None or admit is not None):
            self._trust = OPEN
        self._guests, self._guests_tls = _several(guests), guests_tls
        if self._guests and not isinstance(self._trust, Trust):
            raise ConfigError("guests", "they prove passes of a realm: set trust=", guests)
        for address in self._guests:
            if not address.startswith("wss"):
                raise ConfigError("guests", f"{address}: browsers keep keys for https and wss:// only", address)
        check_guarded(self._listen, self._trust, tls)
        self._admit = admit
        self._faults = faults
        if not 0 < heartbeat[0] <= heartbeat[1]:
            raise ConfigError("heartbeat", f"{heartbeat!r} is not two numbers of seconds in ascending order", heartbeat)
        for what, text in (("name", name), ("token", token)):
            if text is not None and len(text.encode(errors="replace")) > TEXT:
                raise ConfigError(what, f"is longer than {TEXT} bytes", text)
            if text is not None and any("\ud800" <= letter <= "\udfff" for letter in text):
                raise ConfigError(what, f"{text!a}: a lone surrogate is not a character", text)
        if store is not None and storage is not None:
            raise ConfigError("storage", "cannot be combined with store=", store)
        for address in self._listen:
            if token is not None and not address.startswith("ws"):
                why = "every peer that can connect receives a BUS; with a token it has to be on ws:// or wss://"
                raise ConfigError("listen", f"{address}: {why}", address)
        self._options = HostOptions(token, relay, accept, settings or Settings(), heartbeat[1])
        self._background = Background()
        self._left = False

    async def __aenter__(self) -> Self:
        self._entering()
        engine = load_engine(self._engine_name)
        rng = random.Random(secrets.randbits(64))
        token = self._options.token
        store: Store | None = None
        if self._path is None:
            now = time.time_ns() // 1_000_000 * 4096 + secrets.randbits(12)
            me = EditStream(secrets.token_bytes(ORIGIN), min(now, EPOCHS))
        else:
            store = await trio.to_thread.run_sync(Store.open, self._path)
            me = EditStream(store.origin, store.epoch)
        try:
            self._host = PeerHost(
                me,
                engine,
                self._options,
                background=self._background,
                rng=rng,
                store=store,
                storage=self._storage,
            )
            self._exchange = self._host.exchange = Exchange(
                me,
                self._host,
                rng=rng,
                heartbeat=self._heartbeat,
                limit=self._limit,
                relay=self._options.relay,
                token=token,
                name=self.name,
                tls=self._tls,
                trust=self._trust,
                admit=self._admit,
                faults=self._faults,
                rights=DocumentRights(
                    self._trust,
                    me,
                    None if store is None else store.owners,
                    None if store is None else store.own,
                ),
            )
            try:
                self._exchange.open(self._listen, self._dial, self._join, self._repair, self._guests, self._guests_tls)
                if self._discovery:
                    self._host.discovery = DocumentDiscovery(
                        self._discovery,
                        self.addresses if token is None else self.repair_addresses,
                        meet=self._exchange.dial if token is None else self._exchange.join,
                        part=self._exchange.part,
                        tls=self._tls,
                        trust=self._trust,
                        token=token,
                    )
                await self._background.open()
            except BaseException:
                self._exchange.bus.close(0.0)
                self._exchange.rep.close(0.0)
                raise
        except BaseException:
            if store is not None:
                store.close()
            raise
        self._exchange.start(self._background, self._join)
        self._background.start(self._host.maintain_awareness)
        if self._host.discovery is not None:
            self._background.start(self._host.discovery.run)
        return self

    async def _before_end(self) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Send a bye, write all edits to disk, and disconnect before the block ends; also when cancelled."""
        if not self._left:
            with trio.CancelScope(shield=True):
                for document in self.documents.values():
                    document.awareness.local = None  # peers behind a relay do not receive our bye
                with trio.move_on_after(LEAVING):
                    await self._exchange.close()
                self._left = True
                self._background.end()
                await self._host.close()
        await trio.lowlevel.checkpoint()

    # ------------------------------------------------------------------ documents

    def open(self, name: str) -> Document:
        """Return the document `name`, the same object each time; load it from the store on the first call.

        Does not wait for other peers: `await doc.joined()` does. Raises ConfigError for an invalid name, StoreDamaged,
        Closed.
        """
        return self._host.open(name)

    def close_document(self, name: str) -> None:
        """Stop synchronizing a document; the store keeps its content. Raises KeyError if it is not open.

        What was edited before is published. Waiters for it raise Closed.
        """
        self._host.close_document(name)

    @property
    def documents(self) -> dict[str, Document]:
        """The open documents, by name."""
        return {name: known.document for name, known in self._host.open_documents.items()}

    @property
    def damaged(self) -> dict[str, StoreDamaged]:
        """Documents that could not be loaded, by name; the others are not affected. Empty: none was found so far."""
        return dict(self._host.damaged)

    def versions(self, name: str) -> Versions:
        """Return the version vector of an open document, to compare peers. Raises KeyError."""
        return dict(self._host.open_documents[name].copy.replica.versions)

    # ------------------------------------------------------------------ addresses and peers

    @property
    def me(self) -> EditStream:
        """The stream of local edits: the store's origin, and a new epoch at each start."""
        return self._host.me

    @property
    def addresses(self) -> tuple[str, ...]:
        """The BUS addresses that this peer listens on."""
        return self._exchange.addresses

    @property
    def address(self) -> str:
        """The first of `addresses`. Raises ConfigError if the peer does not listen."""
        if not self.addresses:
            raise ConfigError("listen", "this peer does not listen")
        return self.addresses[0]

    @property
    def repair_addresses(self) -> tuple[str, ...]:
        """The REP addresses that this peer listens on, for requests and for `join`."""
        return self._exchange.repair_addresses

    @property
    def page_addresses(self) -> tuple[str, ...]:
        """The REP addresses for pages: at `guests`, if there are any, else those on ws, and on wss without a trust."""
        return self._exchange.page_addresses

    @property
    def peers(self) -> tuple[PeerInfo, ...]:
        """Peers from which a message was received within the last three seconds."""
        return tuple(
            PeerInfo(
                member.stream,
                member.name,
                member.address,
                frozenset(member.docs),
                self._exchange.round_trips.usual(member.stream),
                bool(member.repair),
                member.relay,
            )
            for member in self._exchange.members.present()
        )

    def name_of(self, peer: EditStream) -> str | None:
        """Return the name of a connected peer; None if it is unnamed or has left."""
        member = self._exchange.members.known.get(peer)
        return None if member is None else member.name

    async def wait_for_peers(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until `n` peers are present. Raises TimedOut after `timeout` seconds, AccessDenied (refused join)."""
        exchange = self._exchange
        with trio.move_on_after(float("inf") if timeout is None else timeout):
            while len(exchange.members.present()) < n:
                self._host.check_open()
                self._host.check_denied()
                await exchange.activity.wait()
                await trio.lowlevel.checkpoint()
            return
        there = len(exchange.members.present())
        raise TimedOut(f"{there} of {n} peers are present after {timeout} s{exchange.refusals()}", timeout)

    def dial(self, address: str) -> None:
        """Dial another BUS address; it is reconnected when lost. Raises ConfigError, also with a token: `join` then."""
        self._exchange.dial(address)

    # ------------------------------------------------------------------ counters

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The last 100 rejected inputs."""
        return tuple(self._host.refusals)

    @property
    def stats(self) -> PeerStats:
        """The counters since the peer was opened."""
        exchange, host = self._exchange, self._host
        counts = [known.copy.replica.counts for known in host.open_documents.values()]
        of_replicas = ("delivered", "duplicates", "held", "gaps", "overflow", "old", "differed")
        of_exchange = (
            "sent",
            "received",
            "bytes_sent",
            "bytes_received",
            "requests",
            "failed",
            "request_bytes",
            "not_open",
        )
        return PeerStats(
            edits=host.edits,
            answered=dict(exchange.repair_server.answered),
            early=exchange.members.early,
            refused=dict(host.refused),
            **{name: sum((getattr(one, name) for one in counts), host.closed_counts[name]) for name in of_replicas},
            **{name: exchange.counts[name] for name in of_exchange},
        )


def _several(given: str | Iterable[str] | None) -> tuple[str, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)
