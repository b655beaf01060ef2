"""Requests to other peers over REQ, and replies to theirs over REP. Trio.

`RepairClient` keeps one REQ socket per peer and assembles transfers. `RepairServer` serves one REP socket: it checks
tokens and limits and refuses requests; the document's LocalCopy supplies the replies.
"""

from __future__ import annotations

import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Final, Protocol

import trio
from msgspec.structs import replace

from nngkit.documents.sync import messages, proofs
from nngkit.documents.sync.local_copy import LocalCopy
from nngkit.documents.sync.members import Members
from nngkit.documents.sync.transfers import Assembly, Transfers
from nngkit.documents.sync.wire import decode_reply, decode_request, encode
from nngkit.documents.versions import EditStream, Versions
from nngkit.envelope import shown
from nngkit.errors import AccessDenied, BadMessage, Broken, EditRefused, NngkitError, NotFound, TimedOut, TooLarge
from nngkit.protocols import TLS, Pipe, Rep, Req
from nngkit.protocols import Request as Question
from nngkit.trust import Choice
from nngkit.trust.guests import Guest
from nngkit.trust.names import ANYONE

log = logging.getLogger("nngkit.documents")

PULLS: Final = 4  # concurrent requests for chunks: 8 MiB in flight, which fills the round trip of a fast network
PROOFS: Final = 8  # connections of one socket on which the token is proven in turn: as many as there may be addresses
OPEN: Final = 1024  # requests being answered at once; further ones are refused as busy
_REFUSALS: Final = {
    "token": AccessDenied,
    "binding": AccessDenied,
    "right": AccessDenied,
    "behind": Broken,
    "busy": TimedOut,
    "unknown-document": NotFound,
}


@dataclass(eq=False, repr=False)
class RepairClient:
    """Requests to other peers; end it with `close`. `count_bytes` is called with the size of each request and reply.

    `owned` raises AccessDenied unless a peer's stream belongs to that name; None: no trust.
    """

    me: EditStream
    _: KW_ONLY
    limit: int
    tls: TLS | None
    trust: Choice | None
    token: str | None
    count_bytes: Callable[[int], None]
    owned: Callable[[EditStream, str | None], None] | None = None

    def __post_init__(self) -> None:
        self._places: dict[EditStream, tuple[str, ...]] = {}
        self._sockets: dict[EditStream, Req] = {}
        self._proving: defaultdict[EditStream, trio.Lock] = defaultdict(trio.Lock)

    def add_peer(self, peer: EditStream, places: tuple[str, ...]) -> None:
        """Set the REP addresses of `peer`. The first request connects."""
        if self._places.get(peer) != places:
            self.remove_peer(peer)
            self._places[peer] = places

    def remove_peer(self, peer: EditStream) -> None:
        """Disconnect from a peer that left; its pending requests fail."""
        self._places.pop(peer, None)
        self._proving.pop(peer, None)
        if (socket := self._sockets.pop(peer, None)) is not None:
            socket.close(0.0)

    def close(self) -> None:
        """Disconnect from all peers."""
        for peer in list(self._places):
            self.remove_peer(peer)

    async def ask(self, peer: EditStream, request: messages.SyncRequest, timeout: float) -> messages.SyncReply:
        """Send a request to `peer` and return its reply.

        Raises TimedOut, Broken, BadMessage, AccessDenied (the token is wrong), NotFound (it does not have the
        document), EditRefused.
        """
        socket = self._sockets.get(peer)
        if socket is None:
            if peer not in self._places:
                raise Broken(f"{peer} cannot be asked: it has left")
            # resend=None: the replica decides about retries
            socket = self._sockets[peer] = Req(
                dial=self._places[peer],
                resend=None,
                recv_max_size=messages.REPLY_LIMIT,
                tls=self.tls,
                trust=self.trust,
                peers=() if self.owned is None else partial(self.owned, peer),
                linger=0.0,
                name="document repair",
            )
        return await ask(
            socket,
            request,
            timeout,
            expects=peer,
            count_bytes=self.count_bytes,
            token=self.token,
            proving=self._proving[peer],
        )

    async def body(self, peer: EditStream, diff: messages.Diff, timeout: float) -> bytes:
        """Return the update of a Diff, assembled from chunks if needed; `timeout` is for each request."""
        if isinstance(diff.body, bytes):
            return diff.body
        manifest = diff.body
        assembly = Assembly(manifest, limit=self.limit, peer=str(peer))
        limiter = trio.CapacityLimiter(PULLS)
        failure: list[NngkitError] = []

        async with trio.open_nursery() as nursery:

            async def pull(indexes: tuple[int, ...]) -> None:
                async with limiter:
                    try:
                        reply = await self.ask(peer, messages.Pull(self.me, None, manifest.transfer, indexes), timeout)
                        if not isinstance(reply, messages.Chunks) or not reply.chunks:
                            raise BadMessage("reply", "no chunks of the transfer", str(peer))
                        assembly.take(reply)
                    except NngkitError as error:
                        failure.append(error)
                        nursery.cancel_scope.cancel()

            for indexes in assembly.wanted():
                nursery.start_soon(pull, indexes)
        if failure:
            raise failure[0]
        # in a thread: hashing 100 MB takes 0.1 s
        return await trio.to_thread.run_sync(assembly.whole)


async def ask(
    req: Req,
    request: messages.SyncRequest,
    timeout: float,
    expects: EditStream | None = None,
    count_bytes: Callable[[int], None] | None = None,
    token: str | None = None,
    proving: trio.Lock | None = None,
) -> messages.SyncReply:
    """Send one request and return the reply. `expects`: the peer that must reply. Raises as `RepairClient.ask`.

    If that peer needs the `token`, it is proven first on each connection; `proving` has one of several requests do so.
    """

    async def exchange(request: messages.SyncRequest) -> messages.SyncReply:
        question = encode(request)
        if count_bytes is not None:
            count_bytes(len(question))
        data = await req.arequest(question, timeout)
        if count_bytes is not None:
            count_bytes(len(data))
        reply = decode_reply(data)
        if expects is not None and reply.sender != expects:
            raise Broken(f"{expects} has left: {reply.sender} replied")
        return reply

    reply = await exchange(request)
    for _ in range(PROOFS):
        if not isinstance(reply, messages.Prove):
            break
        if token is None:
            raise AccessDenied(f"{reply.sender}: the token is wrong or missing, or the address is for pages of guests")
        waited = proving is not None and proving.locked()
        async with proving or nullcontext():
            reply = await exchange(request) if waited else await _prove(exchange, request, reply, token)
    if isinstance(reply, messages.Refused):
        why = shown(reply.why)
        if reply.code == "refused":
            raise EditRefused(str(reply.sender), why)
        if reply.code in _REFUSALS:
            raise _REFUSALS[reply.code](f"{reply.sender}: {why}")
        raise BadMessage("request", f"refused ({shown(reply.code)}): {why}", str(reply.sender))
    return reply


def is_guest(pipe: Pipe) -> bool:
    """Return True if a peer has to prove a name: it is a page, or came by an address where no pass is asked for."""
    return pipe.origin is not None or pipe.who == ANYONE


def _of(pipe: Pipe | None) -> tuple[int, bool]:
    """Return the number of a connection, and True if it is a guest's."""
    return (-1, False) if pipe is None else (pipe.id, is_guest(pipe))


async def _prove(
    exchange: Callable[[messages.SyncRequest], Awaitable[messages.SyncReply]],
    request: messages.SyncRequest,
    asked: messages.Prove,
    token: str,
) -> messages.SyncReply:
    """Prove the token, have the other peer prove it, and return the reply to the request then."""
    own = secrets.token_bytes(proofs.NONCE)
    tag = proofs.mac(token, proofs.ASKING, asked.nonce, own, request.sender)
    about = request.about if isinstance(request, messages.Hello) else messages.Introduction()
    answer = await exchange(messages.Proof(request.sender, asked.nonce, own, tag, about))
    if not isinstance(answer, messages.Welcome):
        return answer
    wanted = proofs.mac(token, proofs.ASKED, asked.nonce, own, request.sender)
    if not secrets.compare_digest(answer.about.mac or b"", wanted):
        raise AccessDenied(f"{answer.sender} does not prove the token")
    return answer if isinstance(request, messages.Hello) else await exchange(request)


class ExchangeHost(Protocol):
    """Interface of the peer that holds the documents."""

    def accepts(self, doc: str) -> bool:
        """Return True after opening an unknown document that a peer announced; False to ignore it."""

    def why_closed(self, doc: str) -> str:
        """Return why a document is not open, for peers that ask for it."""

    def document_changed(self, copy: LocalCopy, *, content: bool) -> None:
        """Report that something happened to a document; `content`: its content changed."""

    def receive_awareness(self, message: messages.Aware) -> bool:
        """Take an awareness message. Returns True if it should be relayed. Raises BadMessage."""

    def peer_opened(self, peer: EditStream, docs: set[str]) -> None:
        """Report that a peer has just opened `docs`, and knows no awareness state of them yet."""

    def peer_left(self, peer: EditStream) -> None:
        """Report that a peer has left."""

    def edit_refused(self, copy: LocalCopy, peer: EditStream, why: str) -> None:
        """Report that `peer` refuses a local edit."""

    def record_refusal(self, peer: str, what: str, why: str, *, level: int = logging.WARNING) -> None:
        """Report rejected input, logged at `level`."""

    async def wait_for_versions(self, copy: LocalCopy, versions: Versions, durable: bool, wait: float) -> bool:
        """Wait up to `wait` seconds until the document has `versions`, with `durable` on disk."""

    async def room(self) -> None:
        """Wait until storage takes more."""


@dataclass(eq=False, repr=False)
class RepairServer:
    """Server of a REP socket. `find_copy` returns a document, opened if the host accepts it; `step` has one stepped.

    `welcome` returns BUS addresses and documents, for a peer of that name that joins. `refusal` returns code and
    reason of what a peer of that name may not, `guest` the name that a page proves, or raises AccessDenied; None: no
    trust.
    """

    rep: Rep
    host: ExchangeHost
    members: Members
    _: KW_ONLY
    gate: proofs.Gate | None
    welcome: Callable[[str | None, Pipe | None], messages.Welcome]
    find_copy: Callable[[str, str | None], LocalCopy | None]
    step: Callable[[str], None]
    refusal: Callable[[messages.SyncRequest, str | None], tuple[str, str] | None] | None = None
    guest: Callable[[messages.Proof, Pipe, float], Guest] | None = None

    def __post_init__(self) -> None:
        self._open = 0
        self.transfers = Transfers()
        self.answered = dict.fromkeys(("Hello", "Nack", "Want", "Pull", "Give", "Have", "Proof"), 0)

    async def serve(self) -> None:
        """Serve until the socket is closed."""
        async with trio.open_nursery() as nursery:
            async for question in self.rep:
                if self._open >= OPEN:
                    nursery.start_soon(
                        self._say, question, messages.Refused(self.members.me, "busy", f"{OPEN} requests are pending")
                    )
                else:
                    self._open += 1
                    nursery.start_soon(self._answer, question)

    async def _answer(self, question: Question) -> None:
        try:
            await self._say(question, await self._reply(question))
        finally:
            self._open -= 1

    async def _say(self, question: Question, reply: messages.SyncReply) -> None:
        try:
            await question.areply(encode(reply))
        except NngkitError as error:  # the peer has left, or we are closing
            log.debug("reply not sent: %s", error)

    async def _reply(self, question: Question) -> messages.SyncReply:
        where, who = ("unknown peer", None) if question.pipe is None else (question.pipe.address, question.pipe.who)
        if self.gate is not None and question.pipe is not None and question.pipe.id in self.gate.names:
            who = self.gate.names[question.pipe.id].name
        me = self.members.me
        try:
            request = decode_request(question.body, peer=where)
        except (BadMessage, TooLarge) as error:
            if isinstance(error, BadMessage):
                code = "version" if error.what == messages.VERSION_WHAT else "bad"
            else:
                code = "too-large"
            self.host.record_refusal(where, "request", str(error))
            return messages.Refused(me, code, str(error)[:200])
        if isinstance(request, messages.Hello | messages.Proof) and request.about.store not in (None, me.origin):
            # checked before the token, which belongs to the other store and would be wrong
            self.host.record_refusal(where, "request", "it is for another store")
            return messages.Refused(me, "store", "another store is served here now")
        tag: bytes | None = None
        if isinstance(request, messages.Proof):
            if self.guest is not None and question.pipe is not None:
                try:
                    who = self.guest(request, question.pipe, trio.current_time()).name
                except AccessDenied as why:
                    code = str(why).partition(":")[0]
                    self.host.record_refusal(where, code, str(why))
                    return messages.Refused(me, code, str(why))
            elif self.gate is not None:
                tag = self.gate.check(request, trio.current_time())
            if tag is None and self.guest is None:
                self.host.record_refusal(where, "request", "the token is wrong or missing")
                return messages.Refused(me, "token", "the token is wrong or missing")
        elif self.gate is not None and not self.gate.lets(*_of(question.pipe)):
            nonce = secrets.token_bytes(proofs.NONCE)
            pipe = -1 if question.pipe is None else question.pipe.id
            return messages.Prove(me, self.gate.challenge(pipe, nonce, trio.current_time()))
        if self.refusal is not None and (denied := self.refusal(request, who)) is not None:
            self.host.record_refusal(who or where, denied[1].partition(":")[0], denied[1], level=logging.DEBUG)
            return messages.Refused(me, *denied)
        if self.members.has_cut(request.sender):
            return messages.Refused(me, "bad", "this peer was cut off: its update damaged the document")
        self.answered[type(request).__name__] += 1
        if isinstance(request, messages.Hello | messages.Proof):
            welcome = self.welcome(who, question.pipe)
            return welcome if tag is None else replace(welcome, about=replace(welcome.about, mac=tag))
        try:
            if isinstance(request, messages.Pull):
                chunks = self.transfers.chunks(request.transfer, request.indexes, trio.current_time())
                return messages.Chunks(me, request.transfer, chunks)
            copy = self.find_copy(request.doc, who)
            if copy is None:
                return messages.Refused(me, "unknown-document", self.host.why_closed(request.doc))
            return await self._about(copy, request)
        except (BadMessage, TooLarge, ValueError) as error:
            self.host.record_refusal(where, "request", str(error))
            return messages.Refused(me, "too-large" if isinstance(error, TooLarge) else "bad", str(error)[:200])

    async def _about(
        self, copy: LocalCopy, request: messages.Nack | messages.Want | messages.Give | messages.Have
    ) -> messages.SyncReply:
        now = trio.current_time()
        match request:
            case messages.Nack():
                return copy.resend(request)
            case messages.Want():
                update, versions = copy.difference(request)
                self.step(copy.name)  # the request reports the versions of the peer
                body: bytes | messages.Manifest = self.transfers.offer(update, name=secrets.token_bytes(16), now=now)
                return messages.Diff(self.members.me, copy.name, body, versions)
            case messages.Give():
                await self.host.room()
                given = copy.given(request, trio.current_time())
                self.step(copy.name)
                return given
            case messages.Have():
                yes = await self.host.wait_for_versions(copy, request.versions, request.durable, request.wait)
                refused = None if yes else copy.refusal(request.versions)
                if refused is not None:
                    return messages.Refused(self.members.me, "refused", refused.why)
                return messages.Has(self.members.me, copy.name, yes)
