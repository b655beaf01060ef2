"""What a peer says and hears: its two sockets, who is there, and the task that does what follows from what happened.

One task takes what comes by the BUS, one answers questions (`repair.py`), and one is woken by whatever happened, steps
the documents concerned (`local.py`), says what they have to say and asks what they have to ask. What is typed in one
go is said in one message, as that task runs when everybody else has.

May not know: the disk, what people hold of a document. It is told of those by `ExchangeHost`.
"""

from __future__ import annotations

import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import trio

from nngkit.background import Background
from nngkit.documents.sync import addresses as places
from nngkit.documents.sync.faults import NetworkFaults
from nngkit.documents.sync.local_copy import LocalCopy, Step
from nngkit.documents.sync.members import Member, Members
from nngkit.documents.sync.messages import (
    BUS_LIMIT,
    DOCUMENTS,
    MANY_DOCUMENTS,
    REQUEST_LIMIT,
    Aware,
    BusMessage,
    Bye,
    Diff,
    DocumentHeartbeat,
    Heartbeat,
    Hello,
    SyncReply,
    SyncRequest,
    Updates,
    Welcome,
)
from nngkit.documents.sync.repair import RepairClient, RepairServer, ask
from nngkit.documents.sync.replica import Ask, AskAll
from nngkit.documents.sync.timing import Pace, RoundTrips
from nngkit.documents.sync.wire import decode_bus, encode
from nngkit.documents.versions import EditStream, Versions
from nngkit.errors import AccessDenied, BadMessage, Closed, ConfigError, NngkitError, NotFound, TimedOut, TooLarge
from nngkit.protocols import TLS, Bus, PeerEvent, Pipe, Rep, Req

__all__ = ["Exchange", "ExchangeHost"]

log = logging.getLogger("nngkit.documents")

GOOD_BYE: Final = 0.5  # seconds that writing the last words may take
AGAIN: Final = 1.0  # seconds between two tries to join somebody who is not there
ASKED: Final = 5.0  # seconds that a small answer may take, and a chunk: 256 KiB at 50 KB/s
MANY_BUFFERED: Final = 4096  # messages queued for each peer: what is beyond is dropped, and asked for again
REPEATED: Final = 4096  # bytes of a beat that is kept, to know it when it comes again
GRAIN: Final = 0.002  # seconds that faults may delay a message beyond what it says
TURN: Final = 64  # messages heard before others may run, and the disk may say that it is full


class ExchangeHost(Protocol):
    """Who has the documents."""

    def wants(self, doc: str) -> bool:
        """Somebody speaks of a document that is not here: open it (True), or let it be."""

    def changed(self, copy: LocalCopy, *, content: bool) -> None:
        """Something happened to it; `content`: that is another now."""

    def heard_aware(self, message: Aware) -> bool:
        """Somebody is at work in it. Whether that is news. Raises BadMessage."""

    def came(self, peer: EditStream, docs: set[str]) -> None:
        """A peer has these documents open, and has not heard who is at work in them."""

    def gone(self, peer: EditStream) -> None:
        """A peer has gone."""

    def refused(self, peer: str, what: str, why: str) -> None:
        """Something was not taken."""

    async def has(self, copy: LocalCopy, versions: Versions, durable: bool, wait: float) -> bool:
        """Wait for it."""

    async def room(self) -> None:
        """Wait until the disk takes more."""


class Exchange:
    """The sockets of one peer. Opened by `open`, closed by `close`; in between `start` runs its tasks."""

    def __init__(
        self,
        me: EditStream,
        owner: ExchangeHost,
        *,
        rng: random.Random,
        beat: tuple[float, float],
        limit: int,
        relay: bool,
        token: str | None,
        name: str | None,
        tls: TLS | None,
        admit: Callable[[Pipe], bool] | None,
        faults: NetworkFaults | None,
    ) -> None:
        self.me = me
        self.members = Members(me)
        self.trips = RoundTrips()
        self.counts = Counter[str]()
        self.denied: AccessDenied | None = None
        self.told = trio.Event()  # something happened; a new one each time
        self._owner = owner
        self._rng = rng
        self._pace = Pace(*beat)
        self._relay = relay
        self._token = token
        self._name = name
        self._tls = tls
        self._faults = faults
        self._later: deque[tuple[float, bytes, int, str]] = deque()
        self._beats: dict[int, tuple[bytes, Heartbeat]] = {}
        self._copies: dict[str, LocalCopy] = {}
        self._clients: dict[str, int] = {}
        self._wakes: dict[str, float] = {}
        self._dirty: set[str] = set()
        self._dialled: set[str] = set()
        self._loop = trio.lowlevel.current_trio_token()
        # What the queues hold is what a burst may be: BUS drops the rest, which then has to be asked for.
        self.bus = Bus(
            name="documents",
            recv_max_size=BUS_LIMIT,
            recv_buffer=MANY_BUFFERED,
            send_buffer=MANY_BUFFERED,
            tls=tls,
            admit=admit,
            linger=GOOD_BYE,
        )
        try:
            self.rep = Rep(name="document repair", recv_max_size=REQUEST_LIMIT, tls=tls, linger=0.2)
        except BaseException:
            self.bus.close(0.0)
            raise
        self._asking = RepairClient(me, limit=limit, tls=tls, token=token, weigh=self._weigh)
        self.answering = RepairServer(self.rep, self, token=token, refused=owner.refused)
        self.bus.on_peer(self._peer_event)

    def open(
        self, listen: Iterable[str], dial: Iterable[str], join: Iterable[str], repair: Iterable[str] | None
    ) -> None:
        """Listen and dial. Raises ConfigError, Unreachable."""
        dial, join = list(dial), list(join)
        beside = []
        for url in listen:
            bound = self.bus.listen(url if self._token is None else places.hidden(url, self._token))
            beside.append(places.beside(bound if self._token is None else bound.rpartition("/")[0]))
        if not beside:
            found = (places.beside_dialled(url, self.me.origin.hex()) for url in (*dial, *join))
            beside = sorted({url for url in found if url is not None})
        for url in beside if repair is None else repair:
            self.rep.listen(url)
        for url in dial:
            self.dial(url)

    def start(self, background: Background, join: Iterable[str]) -> None:
        """Begin to talk."""
        self._background = background
        for task in (self._receive, self._work, self.answering.serve):
            background.start(task)
        for address in join:
            background.start(self._join, address)

    async def close(self) -> None:
        """Say what is left to say, and good-bye."""
        self._step()
        self.publish(encode(Bye(self.me)))
        await self.bus.aclose()
        await self.rep.aclose()
        self._asking.close()

    def dial(self, address: str) -> None:
        """Dial a BUS, once."""
        if address not in self._dialled and address not in self.bus.addresses:
            self._dialled.add(address)
            self.bus.dial(address)

    # ------------------------------------------------------------------ documents

    def add(self, copy: LocalCopy, client: int) -> None:
        """Take part in a document; `client`: the engine's id of us in it."""
        self._copies[copy.name] = copy
        self._clients[copy.name] = client
        for member in self.members.present():
            copy.replica.joined(member.stream, bool(member.repair))
            if (said := member.docs.get(copy.name)) is not None:  # its next beat may be a while
                copy.heard(said, member.stream, trio.current_time())
        self._pace.hurry(trio.current_time())
        self.poke(copy.name)

    def remove(self, doc: str) -> None:
        """... and no more."""
        self._copies.pop(doc, None)
        self._clients.pop(doc, None)
        self._wakes.pop(doc, None)

    def poke(self, doc: str | None = None) -> None:
        """There is something to do."""
        if doc is not None:
            self._dirty.add(doc)
        self.told.set()

    def publish(self, data: bytes) -> None:
        """Say it on the BUS."""
        try:
            self.bus.send(data)
        except Closed:
            return
        self.counts["said"] += 1
        self.counts["bytes_said"] += len(data) * len(self.bus.pipes)

    def _weigh(self, size: int) -> None:
        self.counts["bytes_asked"] += size

    async def ask(self, peer: EditStream, request: SyncRequest, timeout: float) -> SyncReply:
        """Ask a peer; see `repair.RepairClient.ask`."""
        if self._faults is None:
            return await self._asking.ask(peer, request, timeout)
        if peer.origin in self._faults.cut:
            await trio.sleep(timeout)
            raise TimedOut(f"{peer} is cut off", timeout)
        await trio.sleep(self._faults.delay)
        reply = await self._asking.ask(peer, request, timeout)
        await trio.sleep(self._faults.delay)
        return reply

    # ------------------------------------------------------------------ what others say

    def _peer_event(self, event: PeerEvent) -> None:
        # on any thread: the loop is told
        try:
            self._loop.run_sync_soon(self._met if event.kind == "joined" else self._parted, event.pipe.id)
        except trio.RunFinishedError:
            log.debug("a peer that %s is told of after the loop's end", event.kind)

    def _met(self, pipe: int) -> None:
        self._pace.hurry(trio.current_time())
        self.poke()

    def _parted(self, pipe: int) -> None:
        self._beats.pop(pipe, None)
        member = self.members.left(pipe)
        if member is not None:
            self._forget(member)

    def _forget(self, member: Member) -> None:
        self._asking.part(member.stream)
        self.trips.forget(member.stream)
        for name, copy in self._copies.items():
            copy.replica.left(member.stream)
            self.poke(name)
        self._owner.gone(member.stream)

    async def _receive(self) -> None:
        heard = 0
        while True:
            try:
                messages = await self.bus.arecv_msgs(TURN)
            except Closed:
                return
            for message in messages:
                if message.pipe is None:
                    continue  # it went before its last words were read
                if self._faults is None or not self._faults.delay:
                    self.hear(message, message.pipe.id, message.pipe.address)
                else:
                    at = trio.current_time() + self._faults.delay
                    self._later.append((at, message, message.pipe.id, message.pipe.address))
                    if len(self._later) == 1:
                        self._background.start(self._hear_later)
            heard += len(messages)
            if heard >= TURN:
                heard = 0
                await self._owner.room()

    async def _hear_later(self) -> None:
        while self._later:
            # not for each by itself: sixteen peers on two cores would do little else than wake up
            await trio.sleep_until(max(self._later[0][0], trio.current_time() + GRAIN))
            now = trio.current_time()
            for _ in range(TURN):  # what is due goes in one turn, as what is read does
                _, data, pipe, address = self._later[0]
                self.hear(data, pipe, address)
                del self._later[0]  # now: who looks meanwhile sees that we are at it
                if not self._later or self._later[0][0] > now:
                    break

    def hear(self, data: bytes, pipe: int, address: str) -> None:
        """A message of the BUS, by a connection of that number and address."""
        self.counts["heard"] += 1
        self.counts["bytes_heard"] += len(data)
        if self._faults is not None and self._faults.loses(self._rng):
            return
        message: BusMessage | None = self._last_beat(data, pipe)
        if message is None:
            try:
                message = decode_bus(data, peer=address)
            except (BadMessage, TooLarge) as error:
                self._owner.refused(address, "BUS message", str(error))
                return
        if self._faults is not None and self._faults.cuts(sender(message)):
            return
        now = trio.current_time()
        member = self.members.heard(message, pipe, address, now)
        if isinstance(member, str):
            self._owner.refused(address, type(message).__name__, member)
        elif member is not None:
            match message:
                case Heartbeat():
                    if len(data) <= REPEATED:
                        self._beats[pipe] = data, message
                    self._hear_beat(message, member, now)
                case Updates():
                    self._hear_about(message.doc, message, member, now)
                case Aware():
                    self._hear_aware(message)
                case Bye():
                    member.present = False
                    self._forget(member)

    def _last_beat(self, data: bytes, pipe: int) -> Heartbeat | None:
        """What it says, if that is word for word what the last beat by that connection said: at rest, nearly all."""
        said = self._beats.get(pipe)
        return said[1] if said is not None and said[0] == data else None

    def _hear_beat(self, beat: Heartbeat, member: Member, now: float) -> None:
        if member.new:
            member.new = False
            self._beat(now)  # what is said before the first beat is not heard
        if member.opened:
            self._owner.came(member.stream, member.opened)
        askable = bool(member.repair)
        if askable:
            self._asking.meet(member.stream, member.repair)
        for copy in self._copies.values():
            copy.replica.joined(member.stream, askable)
        for one in beat.docs:
            if one.doc in self._copies or self._owner.wants(one.doc):
                self._hear_about(one.doc, one, member, now)
            else:
                self.counts["elsewhere"] += 1
        self.told.set()

    def _hear_about(self, doc: str, message: Updates | DocumentHeartbeat, member: Member, now: float) -> None:
        copy = self._copies.get(doc)
        if copy is None:
            self.counts["elsewhere"] += 1
            return
        copy.heard(message, member.stream, now)
        self.poke(doc)

    def _hear_aware(self, message: Aware) -> None:
        if message.doc not in self._copies:
            self.counts["elsewhere"] += 1
            return
        if message.sender == self.me:
            return  # our own words, by way of a relay
        try:
            news = self._owner.heard_aware(message)
        except (BadMessage, TooLarge) as error:
            self._owner.refused(str(message.sender), "awareness", str(error))
            return
        if news and self._relay:
            self.publish(encode(message))

    # ------------------------------------------------------------------ what follows

    async def _work(self) -> None:
        wake = trio.current_time()
        while True:
            with trio.move_on_at(wake):
                await self.told.wait()
            await trio.lowlevel.checkpoint()  # whoever else has something to say says it in this turn
            told, self.told = self.told, trio.Event()
            told.set()  # it may be a time that has come: who waits for something looks again
            wake = self._step()

    def _step(self) -> float:
        now = trio.current_time()
        for member in self.members.silent(now):
            log.info("%s has not been heard for a while", member)
            self._forget(member)
        dirty, self._dirty = self._dirty, set()
        for name, copy in list(self._copies.items()):
            if name in dirty or self._wakes.get(name, now) <= now:
                self._do(copy, copy.step(now), now)
        if self._pace.due <= now:
            self._beat(now)
        return min((self._pace.due, *self._wakes.values()))

    def _do(self, copy: LocalCopy, step: Step, now: float) -> None:
        self._wakes[copy.name] = step.wake
        for message in step.say:
            self.publish(encode(message))
        for question, request in step.ask:
            self._background.start(self._question, copy, question, request)
        if step.edited:  # who only heard of it tells so with the next beat: sixteen who do at once are a storm
            self._pace.company(len(self.members.present()), self.members.editing(now))
            self._pace.changed(now, self._rng.uniform(0.5, 1.0))
        self._owner.changed(copy, content=step.changed)

    def _beat(self, now: float) -> None:
        """Tell what is here: documents that are being edited first, the others in turn."""
        names = sorted(self._copies, key=lambda name: self._copies[name].replica.is_quiet(now))[:DOCUMENTS]
        docs: list[DocumentHeartbeat] = []
        size = 0
        for name in names:
            docs.append(self._copies[name].replica.doc_beat(now))
            self._copies[name] = self._copies.pop(name)  # next time, others come first
            size += 40 + len(name) + 32 * len(docs[-1].heads)
            if size > BUS_LIMIT // 4:
                break
        clients = tuple((one.doc, self._clients[one.doc]) for one in docs)
        repair = tuple(places.told(url) for url in self.rep.addresses)
        self.publish(encode(Heartbeat(self.me, tuple(docs), self._name, repair, self._relay, clients)))
        self._pace.company(len(self.members.present()), self.members.editing(now))
        self._pace.sent(now, self._rng.uniform(0.7, 1.0))

    async def _question(self, copy: LocalCopy, question: Ask, request: SyncRequest) -> None:
        await self._owner.room()  # an answer may be large
        self.counts["asked"] += 1
        body = None
        try:
            reply = await self.ask(question.peer, request, ASKED)
            if isinstance(question, AskAll) and isinstance(reply, Diff):
                body = await self._asking.body(question.peer, reply, ASKED)
        except NotFound:
            copy.lacking(question, trio.current_time())
        except NngkitError as error:
            self.counts["failed"] += 1
            if isinstance(error, BadMessage | TooLarge | AccessDenied):
                self._owner.refused(str(question.peer), "answer", str(error))
            else:
                log.debug("%s does not answer: %s", question.peer, error)
            copy.failed(question, trio.current_time())
        else:
            copy.replied(question, reply, trio.current_time(), body=body)
        self.poke(copy.name)

    # ------------------------------------------------------------------ what others ask (repair.RepairHost)

    def welcome(self) -> Welcome:
        """Where to join."""
        bus = tuple(places.told(url) for url in self.bus.addresses)
        return Welcome(self.me, bus, tuple(sorted(self._copies))[:MANY_DOCUMENTS], REQUEST_LIMIT, self._name)

    def copy_for(self, doc: str) -> LocalCopy | None:
        """The document, opened if its owner says so."""
        if doc not in self._copies and not self._owner.wants(doc):
            return None
        return self._copies.get(doc)

    def busy(self, copy: LocalCopy) -> None:
        """Something happened to it."""
        self.poke(copy.name)

    async def room(self) -> None:
        """Wait until the disk takes more."""
        await self._owner.room()

    async def has(self, copy: LocalCopy, versions: Versions, durable: bool, wait: float) -> bool:
        """Wait for it."""
        return await self._owner.has(copy, versions, durable, wait)

    # ------------------------------------------------------------------ joining

    async def _join(self, address: str) -> None:
        """Ask there where the BUS is, until it says so."""
        while True:
            try:
                with Req(dial=address, resend=None, tls=self._tls, linger=0.0, name="document join") as req:
                    reply = await ask(req, Hello(self.me, self._token, self._name, tuple(self._copies)), ASKED)
                if not isinstance(reply, Welcome):
                    raise BadMessage("reply", "no welcome", address)
                for url in reply.bus:
                    if (bus := places.reached(url, address)) is not None:
                        self.dial(bus)
                return
            except AccessDenied as denied:
                self.denied = denied
                for name in self._copies:
                    self.poke(name)
                self.poke()
                return
            except ConfigError as error:  # an address that is none
                self._owner.refused(address, "welcome", str(error))
                return
            except NngkitError as error:
                log.debug("cannot join at %s: %s", address, error)
            await trio.sleep(AGAIN)


def sender(message: BusMessage) -> EditStream:
    """Whose it is."""
    return message.stream if isinstance(message, Updates) else message.sender
