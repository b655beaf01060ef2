"""RepairClient other peers over REQ, and answering them over REP: what has to arrive. Trio.

`RepairClient` keeps one REQ socket for each peer that can be asked, and fetches what comes in chunks. `RepairServer` serves one
REP socket: it knows the token, the limits, and which refusals to say; the answers are those of the peer's copies.
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
from nngkit.errors import AccessDenied, BadMessage, Broken, NngkitError, NotFound, TimedOut, TooLarge
from nngkit.protocols import TLS, Rep, Req
from nngkit.protocols import Request as Question

__all__ = ["RepairClient", "RepairServer"]

log = logging.getLogger("nngkit.documents")

PULLS: Final = 4  # requests for chunks under way at once: 8 MiB in flight, which fills a fast network's round trip
OPEN: Final = 1024  # questions that wait for something at once; more are told that we are busy


class RepairClient:
    """Questions to other peers. Closed with `close`. `count_bytes` is told the bytes of each, and of its answer."""

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
        """Where `peer` can be asked. Nobody is connected to before there is something to ask."""
        if self._places.get(peer) != places:
            self.remove_peer(peer)
            self._places[peer] = places

    def remove_peer(self, peer: EditStream) -> None:
        """`peer` has gone: what was asked of it fails."""
        self._places.pop(peer, None)
        if (socket := self._sockets.pop(peer, None)) is not None:
            socket.close(0.0)

    def close(self) -> None:
        """End it all."""
        for peer in list(self._places):
            self.remove_peer(peer)

    async def ask(self, peer: EditStream, request: SyncRequest, timeout: float) -> SyncReply:
        """The reply of `peer`. Raises TimedOut, Broken, BadMessage, AccessDenied (it does not want us), NotFound
        (it has no such document).
        """
        socket = self._sockets.get(peer)
        if socket is None:
            if peer not in self._places:
                raise Broken(f"{peer} cannot be asked: it has gone")
            # resend=None: when to ask again, and whom, is decided by the replica
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
        """The update of a Diff, in chunks where it says so; `timeout` for each of them."""
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
        # hashing 100 MB takes a tenth of a second
        return await trio.to_thread.run_sync(assembly.whole)


async def ask(
    req: Req,
    request: SyncRequest,
    timeout: float,
    expects: EditStream | None = None,
    count_bytes: Callable[[int], None] | None = None,
) -> SyncReply:
    """One question and its answer. `expects`: who has to answer. Raises as `RepairClient.ask`."""
    question = encode(request)
    if count_bytes is not None:
        count_bytes(len(question))
    data = await req.arequest(question, timeout)
    if count_bytes is not None:
        count_bytes(len(data))
    reply = decode_reply(data)
    if expects is not None and reply.sender != expects:
        raise Broken(f"{expects} is not there any more: {reply.sender} answered")
    if isinstance(reply, Refused):
        if reply.code == "token":
            raise AccessDenied(f"{reply.sender}: {reply.why}")
        if reply.code == "behind":
            raise Broken(f"{reply.sender}: {reply.why}")
        if reply.code == "busy":
            raise TimedOut(f"{reply.sender}: {reply.why}")
        if reply.code == "unknown-document":
            raise NotFound(f"{reply.sender}: {reply.why}")
        raise BadMessage("request", f"refused ({reply.code}): {reply.why}", str(reply.sender))
    return reply


class RepairHost(Protocol):
    """What RepairServer needs of the peer."""

    me: EditStream

    def welcome(self) -> Welcome:
        """Where to join."""

    def find_copy(self, doc: str) -> LocalCopy | None:
        """The document, opened if that may be; None if there is none of that name here."""

    def notify(self, copy: LocalCopy) -> None:
        """Something happened to it."""

    async def room(self) -> None:
        """Wait until the disk takes more."""

    async def wait_for_versions(self, copy: LocalCopy, versions: Versions, durable: bool, wait: float) -> bool:
        """Wait for it."""


class RepairServer:
    """Serves a REP. `refused` is called with (who, what, why) for what is not answered in the asker's sense."""

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
        """Until the socket is closed."""
        async with trio.open_nursery() as nursery:
            async for question in self._rep:
                if self._open >= OPEN:
                    nursery.start_soon(self._say, question, Refused(self._host.me, "busy", f"{OPEN} questions wait"))
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
        except NngkitError as error:  # it has gone, or we are closing
            log.debug("not answered: %s", error)

    async def _reply(self, question: Question) -> SyncReply:
        where = "somebody" if question.pipe is None else question.pipe.address
        me = self._host.me
        try:
            request = decode_request(question.body, peer=where)
        except (BadMessage, TooLarge) as error:
            code = "too-large" if isinstance(error, TooLarge) else "version" if "newer than" in str(error) else "bad"
            self._refused(where, "request", str(error))
            return Refused(me, code, str(error)[:200])
        if isinstance(request, Hello) and request.store not in (None, me.origin):
            # before the token: that belongs to the other store, and would only be wrong
            self._refused(where, "request", "it means another store")
            return Refused(me, "store", "another store is served here now")
        if self._token is not None and not secrets.compare_digest((request.token or "").encode(), self._token.encode()):
            self._refused(where, "request", "the token is wrong or missing")
            return Refused(me, "token", "the token is wrong or missing")
        self.answered[type(request).__name__] += 1
        if isinstance(request, Hello):
            return self._host.welcome()
        try:
            if isinstance(request, Pull):
                chunks = self.transfers.chunks(request.transfer, request.indexes, trio.current_time())
                return Chunks(me, request.transfer, chunks)
            copy = self._host.find_copy(request.doc)
            if copy is None:
                return Refused(me, "unknown-document", f"{request.doc} is not here")
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
                self._host.notify(copy)  # it told us what it has
                body: bytes | Manifest = self.transfers.offer(update, name=secrets.token_bytes(16), now=now)
                return Diff(self._host.me, copy.name, body, versions)
            case Give():
                await self._host.room()
                given = copy.given(request, trio.current_time())
                self._host.notify(copy)
                return given
            case Have():
                yes = await self._host.wait_for_versions(copy, request.versions, request.durable, request.wait)
                return Has(self._host.me, copy.name, yes)
