"""Requests to other peers over REQ, and replies to theirs over REP. Trio.

`RepairClient` keeps one REQ socket per peer and assembles transfers. `RepairServer` serves one REP socket: it checks
tokens and limits and refuses requests; the document's LocalCopy supplies the replies.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Final, Protocol

import trio

from nngkit.documents.sync.local_copy import LocalCopy
from nngkit.documents.sync.messages import (
    REPLY_LIMIT,
    VERSION_WHAT,
    Chunks,
    Diff,
    Give,
    Has,
    Have,
    Hello,
    Manifest,
    Nack,
    Pull,
    Refused,
    SyncReply,
    SyncRequest,
    Want,
    Welcome,
)
from nngkit.documents.sync.transfers import Assembly, Transfers
from nngkit.documents.sync.wire import decode_reply, decode_request, encode
from nngkit.documents.versions import EditStream, Versions
from nngkit.envelope import shown
from nngkit.errors import AccessDenied, BadMessage, Broken, EditRefused, NngkitError, NotFound, TimedOut, TooLarge
from nngkit.protocols import TLS, Rep, Req
from nngkit.protocols import Request as Question

log = logging.getLogger("nngkit.documents")

PULLS: Final = 4  # concurrent requests for chunks: 8 MiB in flight, which fills the round trip of a fast network
OPEN: Final = 1024  # requests being answered at once; further ones are refused as busy


class RepairClient:
    """Requests to other peers; end it with `close`. `count_bytes` is called with the size of each request and reply."""

    def __init__(
        self, me: EditStream, *, limit: int, tls: TLS | None, token: str | None, count_bytes: Callable[[int], None]
    ) -> None:
        self._me = me
        self._limit = limit
        self._tls = tls
        self._token = token
        self._count_bytes = count_bytes
        self._places: dict[EditStream, tuple[str, ...]] = {}
        self._sockets: dict[EditStream, Req] = {}

    def add_peer(self, peer: EditStream, places: tuple[str, ...]) -> None:
        """Set the REP addresses of `peer`. The first request connects."""
        if self._places.get(peer) != places:
            self.remove_peer(peer)
            self._places[peer] = places

    def remove_peer(self, peer: EditStream) -> None:
        """Disconnect from a peer that left; its pending requests fail."""
        self._places.pop(peer, None)
        if (socket := self._sockets.pop(peer, None)) is not None:
            socket.close(0.0)

    def close(self) -> None:
        """Disconnect from all peers."""
        for peer in list(self._places):
            self.remove_peer(peer)

    async def ask(self, peer: EditStream, request: SyncRequest, timeout: float) -> SyncReply:
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
                recv_max_size=REPLY_LIMIT,
                tls=self._tls,
                linger=0.0,
                name="document repair",
            )
        return await ask(socket, request, timeout, expects=peer, count_bytes=self._count_bytes)

    async def body(self, peer: EditStream, diff: Diff, timeout: float) -> bytes:
        """Return the update of a Diff, assembled from chunks if needed; `timeout` is for each request."""
        if isinstance(diff.body, bytes):
            return diff.body
        manifest = diff.body
        assembly = Assembly(manifest, limit=self._limit, peer=str(peer))
        limiter = trio.CapacityLimiter(PULLS)
        failure: list[NngkitError] = []

        async with trio.open_nursery() as nursery:

            async def pull(indexes: tuple[int, ...]) -> None:
                async with limiter:
                    try:
                        reply = await self.ask(peer, Pull(self._me, self._token, manifest.transfer, indexes), timeout)
                        if not isinstance(reply, Chunks) or not reply.chunks:
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
    request: SyncRequest,
    timeout: float,
    expects: EditStream | None = None,
    count_bytes: Callable[[int], None] | None = None,
) -> SyncReply:
    """Send one request and return the reply. `expects`: the peer that must reply. Raises as `RepairClient.ask`."""
    question = encode(request)
    if count_bytes is not None:
        count_bytes(len(question))
    data = await req.arequest(question, timeout)
    if count_bytes is not None:
        count_bytes(len(data))
    reply = decode_reply(data)
    if expects is not None and reply.sender != expects:
        raise Broken(f"{expects} has left: {reply.sender} replied")
    if isinstance(reply, Refused):
        why = shown(reply.why)
        told = f"{reply.sender}: {why}"
        match reply.code:
            case "token":
                raise AccessDenied(told)
            case "behind":
                raise Broken(told)
            case "busy":
                raise TimedOut(told)
            case "refused":
                raise EditRefused(str(reply.sender), why)
            case "unknown-document":
                raise NotFound(told)
        raise BadMessage("request", f"refused ({shown(reply.code)}): {why}", str(reply.sender))
    return reply


class RepairHost(Protocol):
    """Interface of the peer, for RepairServer."""

    me: EditStream

    def has_cut(self, peer: EditStream) -> bool:
        """Return True if the peer was cut off."""

    def welcome(self) -> Welcome:
        """Return our addresses and documents."""

    def find_copy(self, doc: str) -> LocalCopy | None:
        """Return a document, opened if the peer accepts it; else None."""

    def why_closed(self, doc: str) -> str:
        """Return why a document is not open."""

    def notify(self, copy: LocalCopy) -> None:
        """Schedule a step of a document."""

    async def room(self) -> None:
        """Wait until storage takes more."""

    async def wait_for_versions(self, copy: LocalCopy, versions: Versions, durable: bool, wait: float) -> bool:
        """Wait up to `wait` seconds until the document has `versions`, with `durable` on disk."""


class RepairServer:
    """Server of a REP socket. `refused` is called with (peer, what, why) for rejected requests."""

    def __init__(
        self, rep: Rep, host: RepairHost, *, token: str | None, refused: Callable[[str, str, str], None]
    ) -> None:
        self._rep = rep
        self._host = host
        self._token = token
        self._refused = refused
        self._open = 0
        self.transfers = Transfers()
        self.answered = dict.fromkeys(("Hello", "Nack", "Want", "Pull", "Give", "Have"), 0)

    async def serve(self) -> None:
        """Serve until the socket is closed."""
        async with trio.open_nursery() as nursery:
            async for question in self._rep:
                if self._open >= OPEN:
                    nursery.start_soon(
                        self._say, question, Refused(self._host.me, "busy", f"{OPEN} requests are pending")
                    )
                else:
                    self._open += 1
                    nursery.start_soon(self._answer, question)

    async def _answer(self, question: Question) -> None:
        try:
            await self._say(question, await self._reply(question))
        finally:
            self._open -= 1

    async def _say(self, question: Question, reply: SyncReply) -> None:
        try:
            await question.areply(encode(reply))
        except NngkitError as error:  # the peer has left, or we are closing
            log.debug("reply not sent: %s", error)

    async def _reply(self, question: Question) -> SyncReply:
        where = "unknown peer" if question.pipe is None else question.pipe.address
        me = self._host.me
        try:
            request = decode_request(question.body, peer=where)
        except (BadMessage, TooLarge) as error:
            if isinstance(error, BadMessage):
                code = "version" if error.what == VERSION_WHAT else "bad"
            else:
                code = "too-large"
            self._refused(where, "request", str(error))
            return Refused(me, code, str(error)[:200])
        if isinstance(request, Hello) and request.about.store not in (None, me.origin):
            # checked before the token, which belongs to the other store and would be wrong
            self._refused(where, "request", "it is for another store")
            return Refused(me, "store", "another store is served here now")
        if self._token is not None and not secrets.compare_digest((request.token or "").encode(), self._token.encode()):
            self._refused(where, "request", "the token is wrong or missing")
            return Refused(me, "token", "the token is wrong or missing")
        if self._host.has_cut(request.sender):
            return Refused(me, "bad", "this peer was cut off: its update damaged the document")
        self.answered[type(request).__name__] += 1
        if isinstance(request, Hello):
            return self._host.welcome()
        try:
            if isinstance(request, Pull):
                chunks = self.transfers.chunks(request.transfer, request.indexes, trio.current_time())
                return Chunks(me, request.transfer, chunks)
            copy = self._host.find_copy(request.doc)
            if copy is None:
                return Refused(me, "unknown-document", self._host.why_closed(request.doc))
            return await self._about(copy, request)
        except (BadMessage, TooLarge, ValueError) as error:
            self._refused(where, "request", str(error))
            return Refused(me, "too-large" if isinstance(error, TooLarge) else "bad", str(error)[:200])

    async def _about(self, copy: LocalCopy, request: Nack | Want | Give | Have) -> SyncReply:
        now = trio.current_time()
        match request:
            case Nack():
                return copy.resend(request)
            case Want():
                update, versions = copy.difference(request)
                self._host.notify(copy)  # the request reports the versions of the peer
                body: bytes | Manifest = self.transfers.offer(update, name=secrets.token_bytes(16), now=now)
                return Diff(self._host.me, copy.name, body, versions)
            case Give():
                await self._host.room()
                given = copy.given(request, trio.current_time())
                self._host.notify(copy)
                return given
            case Have():
                yes = await self._host.wait_for_versions(copy, request.versions, request.durable, request.wait)
                refused = None if yes else copy.refusal(request.versions)
                if refused is not None:
                    return Refused(self._host.me, "refused", refused.why)
                return Has(self._host.me, copy.name, yes)
