"""The sockets of a peer, and the task that does what the replicas decide.

One task receives from the BUS (`receiver.py`), one answers requests (`repair.py`), and one wakes up whenever something
happened: it steps the affected documents (`local_copy.py`), publishes their messages and sends their requests. It runs
after all other tasks of the turn, so that a burst of edits becomes one message.

A peer whose heartbeats stop is disconnected; its dialer, or ours, connects again (nngkit.redial). Pages are left alone:
browsers stop the timers of hidden ones, and a page redials by itself.

Knows neither the disk nor documents: those are behind `ExchangeHost`.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

import trio
from msgspec import structs

from nngkit.background import Background
from nngkit.documents.sync import addresses, messages
from nngkit.documents.sync.decisions import Ask, AskAll, Offer
from nngkit.documents.sync.faults import NetworkFaults
from nngkit.documents.sync.local_copy import LocalCopy, Step
from nngkit.documents.sync.members import Member, Members
from nngkit.documents.sync.proofs import Gate
from nngkit.documents.sync.receiver import BusReceiver
from nngkit.documents.sync.refused import RefusedEdit
from nngkit.documents.sync.repair import ExchangeHost, RepairClient, RepairServer, ask, is_guest
from nngkit.documents.sync.rights import BINDING, RIGHT, DocumentRights
from nngkit.documents.sync.timing import SELDOM, Pace, RoundTrips
from nngkit.documents.sync.wire import encode
from nngkit.documents.versions import EditStream
from nngkit.envelope import shown
from nngkit.errors import (
    AccessDenied,
    BadMessage,
    Closed,
    ConfigError,
    EditRefused,
    NngkitError,
    NotFound,
    TimedOut,
    TooLarge,
)
from nngkit.protocols import TLS, Bus, PeerEvent, Pipe, Rep, Req
from nngkit.redial import SilentPeers
from nngkit.trust import Choice
from nngkit.trust.guests import Guest, check_guest, is_for, signed
from nngkit.trust.names import ANYONE
from nngkit.trust.standing import told

log = logging.getLogger("nngkit.documents")

LINGER: Final = 0.5  # seconds to write the last messages
JOIN_RETRY: Final = 1.0  # seconds between two attempts to join
REJOIN: Final = 0.1  # seconds from the loss of a peer to the next attempt, as between those of a dialer
DENIED_RETRY: Final = 5.0  # seconds after a refused one
CONNECTING: Final = 10.0  # seconds for the BUS of a peer that was joined; then it is asked again
REPLY_TIMEOUT: Final = 5.0  # seconds for a small reply, and for a chunk: 256 KiB at 50 KB/s
QUEUE: Final = 4096  # messages queued for each peer; beyond, they are dropped, and repaired later


@dataclass(slots=True)
class _Joining:
    """An address that is joined until `scope` is cancelled. `origin`: of the peer that has answered there last."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    origin: bytes | None = None


class Exchange:
    """The sockets of one peer: `open` listens and dials, `start` runs the tasks, `close` ends both."""

    def __init__(
        self,
        me: EditStream,
        host: ExchangeHost,
        *,
        rng: random.Random,
        heartbeat: tuple[float, float],
        limit: int,
        relay: bool,
        token: str | None,
        name: str | None,
        tls: TLS | None,
        trust: Choice | None,
        admit: Callable[[Pipe], bool] | None,
        faults: NetworkFaults | None,
        rights: DocumentRights | None = None,
    ) -> None:
        self.me = me
        self._rights = rights if rights is not None and rights.trust is not None else None
        self.members = Members(me)
        self.round_trips = RoundTrips()
        self.counts = Counter[str]()
        self.denied: dict[str, AccessDenied] = {}  # by the address that refused to be joined
        self._refusing: dict[tuple[EditStream, str], AccessDenied] = {}  # requests for a document, by present peer
        self.activity = trio.Event()  # set and replaced whenever something happened
        self._host = host
        self._rng = rng
        self._pace = Pace(*heartbeat)
        self._relay = relay
        self._token = token
        self._gate = None if token is None and self._rights is None else Gate(token)
        self._guests: list[str] = []  # BUS and REP addresses where no pass is asked for
        self._guests_tls: TLS | None = None  # their certificate, in place of that of the trust
        self._name = name
        self._tls = tls
        self._trust = trust
        self._faults = faults
        self._copies: dict[str, LocalCopy] = {}
        self._clients: dict[str, int] = {}
        self._wakes: dict[str, float] = {}
        self._dirty: set[str] = set()
        self._dialed: set[str] = set()
        self._joined: dict[str, _Joining] = {}
        self._loop = trio.lowlevel.current_trio_token()
        # The queues bound a burst: BUS drops what is beyond, and it has to be repaired.
        self.bus = Bus(
            name="documents",
            recv_max_size=messages.BUS_LIMIT,
            recv_buffer=QUEUE,
            send_buffer=QUEUE,
            tls=tls,
            trust=trust,
            admit=admit if self._gate is None else partial(self._admits, self._gate, admit),
            linger=LINGER,
        )
        try:
            self.rep = Rep(
                name="document repair", recv_max_size=messages.REQUEST_LIMIT, tls=tls, trust=trust, linger=0.2
            )
        except BaseException:
            self.bus.close(0.0)
            raise
        self.repair_server = RepairServer(
            self.rep,
            host,
            self.members,
            gate=self._gate,
            welcome=self._welcome,
            find_copy=self._find_copy,
            step=self.wake,
            refusal=None if self._rights is None else self._rights.refusal,
            guest=None if self._rights is None else self._guest,
        )
        self._repair_client = RepairClient(
            me,
            limit=limit,
            tls=tls,
            trust=trust,
            token=token,
            count_bytes=self._count_bytes,
            owned=None if self._rights is None else self._demand_owner,
        )
        self.receiver = BusReceiver(
            self.bus,
            self.members,
            handle=self._handle,
            refused=self._refused,
            room=host.room,
            counts=self.counts,
            rng=rng,
            faults=faults,
            objection=None if self._rights is None else self._objection,
            who=self._who,
        )
        self._beating = SilentPeers(self.bus, "document peer")
        self._expected: set[int] = set()  # pipes with heartbeats
        self._interval = max(SELDOM, heartbeat[1])  # that of the others: peers of a document have the same settings
        self.bus.on_peer(self._peer_event)

    def open(
        self,
        listen: Iterable[str],
        dial: Iterable[str],
        join: Iterable[str],
        repair: Iterable[str] | None,
        guests: Iterable[str] = (),
        guests_tls: TLS | None = None,
    ) -> None:
        """Listen and dial. Raises ConfigError, Unreachable."""
        dial, join = list(dial), list(join)
        beside = [addresses.repair_beside(self.bus.listen(url)) for url in listen]
        self._guests_tls = guests_tls
        for url in guests:
            shown = guests_tls or (None if self._rights is None else self._rights.trust)
            self._guests.append(self.bus.listen(url, guests=shown))
            self._guests.append(self.rep.listen(addresses.repair_beside(self._guests[-1]), guests=shown))
        if not beside:
            found = (addresses.repair_for_dialer(url, self.me.origin.hex()) for url in (*dial, *join))
            beside = sorted({url for url in found if url is not None})
        for url in beside if repair is None else repair:
            self.rep.listen(url)
        for url in dial:
            self.dial(url)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The BUS addresses at which other peers connect."""
        return tuple(url for url in self.bus.addresses if url not in self._guests)

    @property
    def repair_addresses(self) -> tuple[str, ...]:
        """The REP addresses at which other peers connect."""
        return tuple(url for url in self.rep.addresses if url not in self._guests)

    @property
    def page_addresses(self) -> tuple[str, ...]:
        """The REP addresses at which pages connect: those of guests, if there are any."""
        guests = tuple(url for url in self.rep.addresses if url in self._guests)
        kinds = ("ws://", "wss://") if self._rights is None else ("ws://",)  # by wss a trust asks for a certificate
        return guests or tuple(url for url in self.rep.addresses if url.startswith(kinds))

    @staticmethod
    def _admits(gate: Gate, admit: Callable[[Pipe], bool] | None, pipe: Pipe) -> bool:
        # called on any thread
        if admit is not None and not admit(pipe):
            return False
        if pipe.dialed or (gate.token is None and not is_guest(pipe)):
            return True
        return gate.enter((pipe.path or "").partition("?")[2], pipe.id, time.monotonic())

    def _who(self, pipe: Pipe) -> str | None:
        guest = None if self._gate is None else self._gate.names.get(pipe.id)
        return pipe.who if guest is None else guest.name

    def _guest(self, proof: messages.Proof, pipe: Pipe, now: float) -> Guest:
        """Return the name that a page proves on its connection. Raises AccessDenied."""
        assert self._gate is not None
        assert self._rights is not None
        assert self._rights.trust is not None
        if self._gate.answered(proof.nonce, now) != pipe.id:
            raise AccessDenied("binding: the number that is signed was not asked for, or too long ago")
        if pipe.address.startswith("wss"):  # the peer says the host: a relay would say the one that the page has dialed
            tls = self._guests_tls if pipe.who == ANYONE else None
            try:
                own = is_for(self._rights.trust.own.chain if tls is None else tls.chain(), pipe.host or "")
            except ConfigError as wrong:
                raise AccessDenied("binding: the certificate of this peer cannot be read now") from wrong
            if not own:
                raise AccessDenied(f"binding: the certificate of this peer is not for {pipe.host}")
        message = signed(proof.nonce, pipe.host or "", (pipe.path or "").partition("?")[0])
        guest = check_guest(self._rights.trust, proof.certificate, proof.proof, message)
        self._gate.name(pipe.id, guest)
        return guest

    def _end_guests(self) -> None:
        """Disconnect pages whose pass has ended or was revoked."""
        assert self._gate is not None
        assert self._rights is not None
        assert self._rights.trust is not None
        policy, now = self._rights.trust.policy, time.time()
        for socket in (self.bus, self.rep):
            for pipe in socket.pipes:
                guest = self._gate.names.get(pipe.id)
                if guest is not None and (now >= guest.until or policy.is_revoked(guest.name, guest.serial)):
                    socket.disconnect(pipe)

    def start(self, background: Background, join: Iterable[str]) -> None:
        """Start the tasks."""
        self._background = background
        background.start(self.receiver.run, background)
        background.start(self._work)
        background.start(self._beating.run)
        background.start(self.repair_server.serve)
        for address in join:
            self.join(address)

    async def close(self) -> None:
        """Publish what is pending and a bye, then close the sockets."""
        self._step()
        self.publish(encode(messages.Bye(self.me)))
        await self.bus.aclose()
        await self.rep.aclose()
        self._repair_client.close()

    def dial(self, address: str) -> bool:
        """Dial a BUS address; return False if it is dialed already, or ours. Raises ConfigError, Closed."""
        if self._token is not None:
            raise ConfigError("dial", f"{address}: a token is proven where a peer is joined: join its REP address")
        if address in self._dialed or address in self.bus.addresses:
            return False
        self.bus.dial(address)
        self._dialed.add(address)
        return True

    def part(self, address: str) -> bool:
        """Dial or join an address no more; while its peer is connected, do nothing and return False. Raises Closed."""
        joining = self._joined.get(address)
        if joining is None:
            if any(pipe.dialed and pipe.address == address for pipe in self.bus.pipes):
                return False
            self.bus.undial(address)
            self._dialed.discard(address)
        elif joining.origin is not None and self._is_present(joining.origin):
            return False
        else:
            joining.scope.cancel()
            del self._joined[address]
            self.denied.pop(address, None)
        return True

    def shown(self, peer: EditStream) -> str:
        """Return the name of a peer under a trust; its stream if that is not known."""
        return (None if self._rights is None else self._rights.owner(peer.origin)) or str(peer)

    def ask_anew(self, doc: str) -> None:
        """Forget who refuses a document: it is asked for again."""
        self._refusing = {each: why for each, why in self._refusing.items() if each[1] != doc}

    def refusal_of(self, doc: str) -> AccessDenied | None:
        """Return why a document is refused if all present peers that can be asked refuse it to this one."""
        asked = [member.stream for member in self.members.present() if member.repair]
        found = [self._refusing[peer, doc] for peer in asked if (peer, doc) in self._refusing]
        return found[0] if found and len(found) == len(asked) else None

    def refusals(self) -> str:
        """Return what an error adds if addresses that are dialed or joined refuse this process, or it them."""
        return told(self._dialed | self._joined.keys())

    # ------------------------------------------------------------------ documents

    def add(self, copy: LocalCopy, client: int) -> None:
        """Synchronize a document; `client`: our client id in its engine."""
        self._copies[copy.name] = copy
        self._clients[copy.name] = client
        for member in self.members.present():
            if not self._meet(copy, member, bool(member.repair)):
                continue
            if (last := member.docs.get(copy.name)) is not None:  # its next heartbeat may be a while
                copy.heard(last, member.stream, trio.current_time())
        self._pace.hurry(trio.current_time())
        self.wake(copy.name)

    def remove(self, doc: str) -> None:
        """Publish what is pending of `doc`, and stop synchronizing it."""
        copy = self._copies.pop(doc, None)
        if copy is not None and doc in self._dirty:
            for message in copy.step(trio.current_time()).publish:
                self.publish(encode(message), doc)
        self._clients.pop(doc, None)
        self._wakes.pop(doc, None)

    def wake(self, doc: str | None = None) -> None:
        """Wake the working task, and all waiters of `activity`; have `doc` stepped."""
        if doc is not None:
            self._dirty.add(doc)
        self.activity.set()

    def publish(self, data: bytes, doc: str | None = None) -> None:
        """Send on the BUS, to all peers or to those that may have `doc`; after the close, do nothing."""
        if doc is None or self._rights is None or self._rights.all_see:
            self._send(data, None)
        else:
            sees = self._rights.sees
            self._send(data, [pipe for pipe in self.bus.pipes if sees(self._who(pipe), doc)])

    def _send(self, data: bytes, pipes: list[Pipe] | None) -> None:
        try:
            if pipes is None:
                self.bus.send(data)
            else:
                self.bus.send_to_some(pipes, data)
        except Closed:
            return
        self.counts["sent"] += 1
        self.counts["bytes_sent"] += len(data) * len(self.bus.pipes if pipes is None else pipes)

    def _count_bytes(self, size: int) -> None:
        self.counts["request_bytes"] += size

    async def ask(self, peer: EditStream, request: messages.SyncRequest, timeout: float) -> messages.SyncReply:
        """Send a request to a peer; see `repair.RepairClient.ask`."""
        if self._faults is None:
            return await self._repair_client.ask(peer, request, timeout)
        if peer.origin in self._faults.cut:
            await trio.sleep(timeout)
            raise TimedOut(f"{peer} is cut off", timeout)
        await trio.sleep(self._faults.delay)
        reply = await self._repair_client.ask(peer, request, timeout)
        await trio.sleep(self._faults.delay)
        return reply

    # ------------------------------------------------------------------ events

    def _peer_event(self, event: PeerEvent) -> None:
        # called on any thread
        try:
            self._loop.run_sync_soon(self._connected if event.kind == "joined" else self._disconnected, event.pipe.id)
        except trio.RunFinishedError:
            log.debug("a peer %s after the end of the loop", event.kind)

    def _connected(self, pipe: int) -> None:
        self._pace.hurry(trio.current_time())
        self.wake()

    def _disconnected(self, pipe: int) -> None:
        self.receiver.forget(pipe)
        self._expected.discard(pipe)
        member = self.members.left(pipe)
        if member is not None:
            self._forget(member)

    def _forget(self, member: Member) -> None:
        self._repair_client.remove_peer(member.stream)
        self._refusing = {each: why for each, why in self._refusing.items() if each[0] != member.stream}
        self.round_trips.forget(member.stream)
        for name, copy in self._copies.items():
            copy.replica.left(member.stream)
            self.wake(name)
        self._host.peer_left(member.stream)

    def _handle(self, message: messages.BusMessage, member: Member, now: float) -> None:
        match message:
            case messages.Heartbeat():
                self._handle_heartbeat(message, member, now)
            case messages.Updates():
                self._handle_document(message.doc, message, member, now)
            case messages.Aware():
                self._handle_awareness(message)
            case messages.Bye():
                member.present = False
                self._forget(member)

    def _handle_heartbeat(self, heartbeat: messages.Heartbeat, member: Member, now: float) -> None:
        if not member.pipes <= self._expected:
            self._expect_heartbeats(member)
        if member.new:
            member.new = False
            self._send_heartbeat(now)  # messages before our first heartbeat are ignored there
        if member.opened:
            self._host.peer_opened(member.stream, member.opened)
        askable = bool(member.repair)
        if askable:
            self._repair_client.add_peer(member.stream, member.repair)
        for copy in self._copies.values():
            if self._meet(copy, member, askable) and copy.replica.catches_up:
                self.wake(copy.name)  # a peer whose heartbeats do not name the document is asked too
        refused = {
            one.doc: RefusedEdit(EditStream(one.origin, one.epoch), one.seq, shown(one.why))
            for one in reversed(heartbeat.about.refused)
            if one.origin == self.me.origin
        }
        for one in heartbeat.docs:
            if self._rights is not None and not self._rights.sees(member.who, one.doc):
                continue
            if one.doc in self._copies:
                self._refused_by(self._copies[one.doc], member.stream, refused.get(one.doc))
            if self._find_copy(one.doc, member.who) is not None:
                self._handle_document(one.doc, one, member, now)
            else:
                self.counts["not_open"] += 1
        self.activity.set()

    def _meet(self, copy: LocalCopy, member: Member, askable: bool) -> bool:
        """Tell a replica of a present peer; return False if that may not have the document."""
        rights = self._rights
        if rights is None:
            copy.replica.joined(member.stream, askable)
        elif rights.sees(member.who, copy.name):
            gives = rights.writes(member.who, copy.name)
            copy.replica.joined(member.stream, askable, gives=gives, carries=rights.carries(member.who))
        else:
            copy.replica.left(member.stream)
            return False
        return True

    def _objection(self, message: messages.BusMessage, who: str | None) -> str | None:
        assert self._rights is not None
        why = self._rights.objection(message, who)
        if why is not None and why.startswith(RIGHT) and isinstance(message, messages.Updates):
            copy = self._copies.get(message.doc)
            if copy is not None:
                copy.deny(message, why)
                self.wake(message.doc)
        return why

    def _refused(self, peer: str, what: str, why: str) -> None:
        counted = what in (RIGHT, BINDING)  # and logged, with the missing line of the policy
        self._host.record_refusal(peer, what, why, level=logging.DEBUG if counted else logging.WARNING)

    def _demand_owner(self, peer: EditStream, who: str | None) -> None:
        # called on any thread
        assert self._rights is not None
        if not self._rights.speaks(who, peer.origin):
            raise AccessDenied(f"binding: the stream {peer} is not of {who}")

    def _policy_changed(self, now: float) -> None:
        for name, copy in self._copies.items():
            copy.replica.forgive(RIGHT)
            for member in self.members.present():
                self._meet(copy, member, bool(member.repair))
            self.wake(name)
        self._pace.hurry(now)

    def _expect_heartbeats(self, member: Member) -> None:
        for pipe in self.bus.pipes:
            if pipe.id in member.pipes and pipe.id not in self._expected:
                self._expected.add(pipe.id)
                if pipe.origin is None:
                    self._beating.expect(self._interval, pipe)

    def _refused_by(self, copy: LocalCopy, peer: EditStream, refused: RefusedEdit | None) -> None:
        if copy.replica.refused_by(peer, refused) and refused is not None:
            self._host.edit_refused(copy, peer, f"edit {refused.seq}: {refused.why}")

    def _handle_document(
        self, doc: str, message: messages.Updates | messages.DocumentHeartbeat, member: Member, now: float
    ) -> None:
        copy = self._copies.get(doc)
        if copy is None:
            self.counts["not_open"] += 1
            return
        copy.heard(message, member.stream, now)
        self.wake(doc)

    def _handle_awareness(self, message: messages.Aware) -> None:
        if message.doc not in self._copies:
            self.counts["not_open"] += 1
            return
        if message.sender == self.me:
            return  # our own message, back through a relay
        try:
            news = self._host.receive_awareness(message)
        except (BadMessage, TooLarge) as error:
            self._host.record_refusal(str(message.sender), "awareness", str(error))
            return
        if news and self._relay:
            self.publish(encode(message), message.doc)

    # ------------------------------------------------------------------ work

    async def _work(self) -> None:
        wake = trio.current_time()
        while True:
            with trio.move_on_at(wake):
                await self.activity.wait()
            await trio.lowlevel.checkpoint()  # other tasks add their edits in this turn
            activity, self.activity = self.activity, trio.Event()
            activity.set()  # a timer may have fired instead: waiters look again in either case
            wake = self._step()

    def _step(self) -> float:
        now = trio.current_time()
        if self._rights is not None and self._rights.changed():
            self._policy_changed(now)
        if self._rights is not None and self._gate is not None and self._gate.names:
            self._end_guests()
        for member in self.members.silent(now):
            log.info("%s has not been heard for a while", member)
            self._forget(member)
        dirty, self._dirty = self._dirty, set()
        for name, copy in list(self._copies.items()):
            if name in dirty or self._wakes.get(name, now) <= now:
                self._do(copy, copy.step(now), now)
        if self._pace.due <= now:
            self._send_heartbeat(now)
        return min((self._pace.due, *self._wakes.values()))

    def _do(self, copy: LocalCopy, step: Step, now: float) -> None:
        self._wakes[copy.name] = step.wake
        for message in step.publish:
            self.publish(encode(message), copy.name)
        for question, request in step.ask:
            self._background.start(self._ask_for, copy, question, request)
        if step.edited:  # for edits of others the regular heartbeat is enough: sixteen peers at once would be a storm
            self._pace.company(len(self.members.present()), self.members.editing(now))
            self._pace.changed(now, self._rng.uniform(0.5, 1.0))
        if step.refused:
            self._pace.hurry(now)
        self._host.document_changed(copy, content=step.changed)

    def _send_heartbeat(self, now: float) -> None:
        """Publish a heartbeat: documents being edited first, the others in turn."""
        names = sorted(self._copies, key=lambda name: self._copies[name].replica.is_quiet(now))[: messages.DOCUMENTS]
        docs: list[messages.DocumentHeartbeat] = []
        size = 0
        for name in names:
            docs.append(self._copies[name].replica.make_heartbeat(now))
            self._copies[name] = self._copies.pop(name)  # next time, other documents come first
            size += 40 + len(name) + 32 * len(docs[-1].heads)
            if size > messages.BUS_LIMIT // 4:
                break
        clients = tuple(messages.Client(one.doc, self._clients[one.doc]) for one in docs)
        repair = tuple(addresses.advertised(url) for url in self.repair_addresses)
        refused = self._refusals([one.doc for one in docs])
        about = messages.About(messages.VERSION, self._name, repair, self._relay, clients, refused)
        self._publish_heartbeat(messages.Heartbeat(self.me, about, tuple(docs)))
        self._pace.company(len(self.members.present()), self.members.editing(now))
        self._pace.sent(now, self._rng.uniform(0.7, 1.0))

    def _publish_heartbeat(self, whole: messages.Heartbeat) -> None:
        """Send each peer what it may have of a heartbeat: one encoding for all with equal rights."""
        rights = self._rights
        if rights is None or rights.all_see:
            self._send(encode(whole), None)
            return
        docs = tuple(one.doc for one in whole.docs)
        alike: dict[tuple[str, ...], list[Pipe]] = {}
        names: dict[str | None, list[Pipe]] = {}
        for pipe in self.bus.pipes:
            names.setdefault(self._who(pipe), []).append(pipe)
        for who, pipes in names.items():
            alike.setdefault(rights.visible(who, docs), []).extend(pipes)
        for seen, pipes in alike.items():
            part = whole
            if seen != docs:
                about = structs.replace(
                    whole.about,
                    clients=tuple(one for one in whole.about.clients if one.doc in seen),
                    refused=tuple(one for one in whole.about.refused if one.doc in seen),
                )
                part = messages.Heartbeat(self.me, about, tuple(one for one in whole.docs if one.doc in seen))
            self._send(encode(part), pipes)

    def _refusals(self, docs: Iterable[str]) -> tuple[messages.Refusal, ...]:
        """Return the refused edits of present peers, and of their earlier streams."""
        origins = {member.stream.origin for member in self.members.present()}
        found = (
            messages.Refusal(doc, *one.stream, one.seq, one.why)
            for doc in docs
            for one in self._copies[doc].replica.history.refused
            if one.stream.origin in origins
        )
        return tuple(islice(found, messages.DOCUMENTS))

    async def _ask_for(self, copy: LocalCopy, question: Ask, request: messages.SyncRequest) -> None:
        await self._host.room()  # a reply may be large
        self.counts["requests"] += 1
        body = None
        try:
            reply = await self.ask(question.peer, request, REPLY_TIMEOUT)
            if isinstance(question, AskAll) and isinstance(reply, messages.Diff):
                body = await self._repair_client.body(question.peer, reply, REPLY_TIMEOUT)
        except EditRefused as error:
            copy.failed(question, trio.current_time())
            if isinstance(question, Offer):
                offered = RefusedEdit(self.me, copy.replica.versions.get(self.me, 1), error.why)
                self._refused_by(copy, question.peer, offered)
        except NotFound:
            copy.unknown_document(question, trio.current_time())
        except NngkitError as error:
            self.counts["failed"] += 1
            peer, why = str(question.peer), str(error)
            if isinstance(error, AccessDenied):
                why = why.removeprefix(f"{peer}: ")
                peer = self.shown(question.peer)
                self._refusing[question.peer, copy.name] = AccessDenied(f"{peer} refuses {copy.name}: {why}")
            if isinstance(error, BadMessage | TooLarge | AccessDenied):
                self._host.record_refusal(peer, "answer", why)
            else:
                log.debug("no answer from %s: %s", question.peer, error)
            copy.failed(question, trio.current_time())
        else:
            self._refusing.pop((question.peer, copy.name), None)
            denied = self._denied(copy, question, reply)
            for updates, why in denied:
                self._refused(str(question.peer), why.partition(":")[0], why)
                if updates is not None and why.startswith(RIGHT):
                    copy.deny(updates, why)
            if denied:
                copy.failed(question, trio.current_time())
            else:
                copy.replied(question, reply, trio.current_time(), body=body)
        self.wake(copy.name)

    def _denied(self, copy: LocalCopy, question: Ask, reply: object) -> list[tuple[messages.Updates | None, str]]:
        """Return what is refused of a reply, and why: rights may have changed meanwhile, and streams be forged."""
        rights = self._rights
        if rights is None or isinstance(question, Offer) or (who := rights.owner(question.peer.origin)) is None:
            return []  # without an owner only a peer that may carry has been asked
        if isinstance(reply, messages.Resent):
            found = ((one, rights.objection(one, who)) for one in reply.updates)
            return [(one, why) for one, why in found if why is not None]
        return [] if rights.writes(who, copy.name) else [(None, f"{RIGHT}: {who} may not edit {copy.name}")]

    # ------------------------------------------------------------------ for requests of others

    def _welcome(self, who: str | None, pipe: Pipe | None) -> messages.Welcome:
        gate, urls = self._gate, self.addresses
        guest = None if gate is None or pipe is None else gate.names.get(pipe.id)
        if pipe is not None and guest is not None:  # of the same kind as the one where it has asked
            kind = pipe.address.partition("://")[0]
            near = self.bus.addresses if pipe.who != ANYONE else self._guests
            urls = tuple(url for url in near if url in self.bus.addresses and url.partition("://")[0] == kind)
        bus = tuple(map(addresses.advertised, urls))
        if gate is not None and (guest is not None or gate.token is not None):
            now = time.monotonic()
            bus = tuple(f"{url}?{gate.session(secrets.token_bytes(16), now, guest)}" for url in bus)
        names = self._copies if self._rights is None else self._rights.visible(who, self._copies)
        docs = tuple(sorted(names))[: messages.MANY_DOCUMENTS]
        invitation = messages.Invitation(messages.REQUEST_LIMIT, messages.VERSION, bus, docs, self._name)
        return messages.Welcome(self.me, invitation)

    def _find_copy(self, doc: str, who: str | None) -> LocalCopy | None:
        if doc not in self._copies:
            if self._rights is not None and not self._rights.writes(who, doc):
                return None  # a viewer opens no new document
            if not self._host.accepts(doc):
                return None
        return self._copies.get(doc)

    def cut(self, peer: EditStream) -> None:
        """Cut off a peer: end its connections, and ignore it from now on."""
        self.counts["cut"] += 1
        pipes = self.members.cut(peer)
        for pipe in self.bus.pipes:
            if pipe.id in pipes:
                self.bus.disconnect(pipe)

    # ------------------------------------------------------------------ joining

    def join(self, address: str) -> bool:
        """Join the peer at a REP address; return False if it is joined already, or ours."""
        if address in self._joined or address in self.rep.addresses:
            return False
        self._joined[address] = joining = _Joining()
        self._background.start(self._join, address, joining)
        return True

    async def _join(self, address: str, joining: _Joining) -> None:
        with joining.scope:
            await self._stay_joined(address, joining)

    async def _stay_joined(self, address: str, joining: _Joining) -> None:
        """Ask a REP address for its BUS addresses and dial them; again whenever its peer is lost.

        The peer may return with other addresses or another token: a refusal is reported then as at first contact. With
        a token each address is good for one connection.
        """
        pause = JOIN_RETRY
        level = logging.INFO  # at first contact the caller that waits for peers is told
        while True:
            try:
                with Req(
                    dial=address, resend=None, tls=self._tls, trust=self._trust, linger=0.0, name="document join"
                ) as req:
                    about = messages.Introduction(messages.VERSION, self._name, tuple(self._copies))
                    reply = await ask(req, messages.Hello(self.me, None, about), REPLY_TIMEOUT, token=self._token)
                if not isinstance(reply, messages.Welcome):
                    raise BadMessage("reply", "not a welcome", address)
                self.denied.pop(address, None)
                pause, level = REJOIN, logging.WARNING
                found = [bus for url in reply.about.bus if (bus := addresses.resolved(url, address)) is not None]
                if not found:
                    return
                origin = joining.origin = reply.sender.origin
                if self._token is None:
                    for bus in found:
                        self.dial(bus)
                    await self._present(origin)
                elif not self._is_present(origin):
                    self._replace(origin)
                    with self._dialing(found):
                        await self._present(origin)
                await self._lost(origin)
            except AccessDenied as denied:
                if address not in self.denied:
                    self._host.record_refusal(address, "join", f"AccessDenied: {denied}", level=level)
                self.denied[address] = denied
                pause = DENIED_RETRY  # a token has to be changed first
                for name in self._copies:
                    self.wake(name)
                self.wake()
            except ConfigError as error:  # the welcome holds an invalid address
                self._host.record_refusal(address, "welcome", str(error))
                return
            except NngkitError as error:
                pause = JOIN_RETRY
                log.debug("cannot join at %s: %s", address, error)
            await trio.sleep(pause)

    @contextmanager
    def _dialing(self, sessions: Iterable[str]) -> Iterator[None]:
        """Dial BUS addresses until the end of the block: they are used then, or too old."""
        dialed = []
        try:
            for url in sessions:
                self.bus.dial(url)
                dialed.append(url)
            yield
        finally:
            with suppress(Closed):
                for url in dialed:
                    self.bus.undial(url)

    def _replace(self, origin: bytes) -> None:
        """End connections on which a peer is silent, before another is made."""
        old = {
            pipe for stream, member in self.members.known.items() if stream.origin == origin for pipe in member.pipes
        }
        for pipe in self.bus.pipes:
            if pipe.dialed and pipe.id in old:
                self.bus.disconnect(pipe)

    def _is_present(self, origin: bytes) -> bool:
        return any(member.stream.origin == origin for member in self.members.present())

    async def _present(self, origin: bytes) -> None:
        """Wait until a connected peer has `origin`, for `CONNECTING` seconds at most."""
        with trio.move_on_after(CONNECTING):
            while not self._is_present(origin):
                await self.activity.wait()
                await trio.lowlevel.checkpoint()

    async def _lost(self, origin: bytes) -> None:
        """Wait until no connected peer has `origin`."""
        while self._is_present(origin):
            await self.activity.wait()
            await trio.lowlevel.checkpoint()
