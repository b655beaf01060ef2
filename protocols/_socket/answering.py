"""Replying side of REQ/REP and SURVEY: many questions are open at once, and each reply goes back to its requester.

May not know: the difference between requests and surveys.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar, Unpack

from nngkit.errors import BadMessage, NngkitError
from nngkit.protocols._core.connection import JOINED, Connection
from nngkit.protocols._core.peer_queues import PeerQueues
from nngkit.protocols._core.pipe import Pipe
from nngkit.protocols._core.state import State
from nngkit.protocols._nng.library import Payload
from nngkit.protocols._shm.sharing import Message, Sharing, view_of
from nngkit.protocols._socket.lending import Loan
from nngkit.protocols._socket.options import CallOptions
from nngkit.protocols._socket.receiving import BURST, Receiver
from nngkit.protocols._socket.socket import Socket
from nngkit.protocols._waiting.waiters import ThreadWaiter, Waiter, sleep, task_waiter
from nngkit.protocols.sp import HEADROOM, MIB, split_question

TURN_QUESTIONS: Final = 16  # questions of one peer in a row, if there are several: a reply takes longer than a message
PATIENCE: Final = 0.25  # seconds without progress after which replies to a peer are dropped instead of waiting


class Answers:
    """Replies of one socket on their way to the requesters; it does not keep the socket alive."""

    def __init__(self, state: State[Connection], outbox: PeerQueues, sharing: Sharing) -> None:
        self._state = state
        self.sharing = sharing
        self._outbox = outbox
        self.count = 0  # replies of tasks since one has yielded to other tasks

    def answer(self, connection: Connection, answer: bytes, *, soon: bool = False) -> bool:
        """Queue or drop one reply; return False if it may wait for room."""
        state, outbox = self._state, self._outbox
        try:
            with state.lock:
                beside = soon and connection in outbox.due_peers
                sent = beside and outbox.add_at_turn_end(connection, answer)
                sent = sent or outbox.send_now(connection, answer, soon=soon)
                if sent and connection.fault is not None:
                    state.lose(connection)
            if sent:
                if connection.fault is not None:
                    state.notify()
                return True
        except BaseException:
            state.resume()
            raise
        try:
            with state.lock:
                state.check_open()
                if connection.stage != JOINED:
                    outbox.dropped += 1
                elif outbox.offer(connection, answer):
                    connection.stalled = False
                    outbox.fanned += 1
                    if soon:
                        outbox.write_at_turn_end(connection)
                    else:
                        outbox.write_to(connection)
                elif connection.stalled:
                    outbox.dropped += 1
                    connection.dropped += 1
                else:
                    return False
        except NngkitError:
            raise
        except BaseException:
            state.resume()
            raise
        finally:
            state.notify()
        return True

    def answer_all(self, answers: Sequence[tuple[Connection, bytes]]) -> list[int]:
        """Queue or drop replies and write them together; return the indexes of those that may wait for room."""
        state, outbox, waiting = self._state, self._outbox, []
        theirs: dict[Connection, list[int]] = {}
        for index, (connection, _) in enumerate(answers):
            theirs.setdefault(connection, []).append(index)
        try:
            with state.lock:
                state.check_open()
                for connection, indexes in theirs.items():
                    fitting = outbox.offer_many(connection, [answers[index][1] for index in indexes])
                    outbox.fanned += fitting
                    lost = 0
                    if connection.stage != JOINED or connection.stalled:
                        lost = len(indexes) - fitting
                    else:
                        waiting += indexes[fitting:]
                    outbox.dropped += lost
                    connection.dropped += lost
                    if fitting:
                        connection.stalled = False
                        connection.write_on(now=True)
        except NngkitError:
            raise
        except BaseException:
            state.resume()
            raise
        finally:
            state.notify()
        return waiting

    def drop(self, connection: Connection) -> bool:
        """Count a reply that found no room; return False."""
        with self._state.lock:
            self._outbox.dropped += 1
            connection.dropped += 1
        return False

    def answering(self, connection: Connection, answer: bytes, waiter: Waiter) -> Iterator[float]:
        """Queue a reply once there is room, or drop it; yield each time to wait until."""
        deadline, written = time.monotonic() + PATIENCE, connection.progress_written()
        self._outbox.waiters.add(waiter)
        try:
            while not self.answer(connection, answer):
                if time.monotonic() < deadline:
                    yield deadline
                elif connection.progress_written() == written:
                    connection.stalled = True
                else:  # the peer reads, but other replies took the room
                    deadline, written = time.monotonic() + PATIENCE, connection.progress_written()
        finally:
            self._outbox.waiters.discard(waiter)


class Question:
    """A question received by a replying socket: ``body``, and the ``pipe`` it came from."""

    __slots__ = ("_answered", "_answers", "_body", "_connection", "_header")

    def __init__(self, answers: Answers, body: Message, header: bytes, connection: Connection) -> None:
        self._body = body
        self._header = header
        self._answers = answers
        self._connection = connection
        self._answered = False

    @property
    def body(self) -> bytes:
        """The bytes of the question; on shm they are copied at the first use."""
        if type(body := self._body) is not bytes:
            body = self._body = bytes(body)
        return body

    @property
    def view(self) -> memoryview:
        """The body as a read-only view, on shm of the memory that the peer has written. Experimental."""
        return view_of(self._body)

    @property
    def pipe(self) -> Pipe | None:
        """The connection of the question, which may have ended."""
        return self._connection.pipe

    def reply(self, data: Payload) -> None:
        """Send the reply. Blocks while the queue of earlier replies to this peer is full.

        It waits as long as the peer reads. After 0.25 s without progress the reply is dropped and counted in
        ``stats.dropped``, and so are the next ones without room, at once. It is dropped too if the peer has left.
        Raises Closed.
        """
        answer = self._header + data if type(data) is bytes and self._connection.link is None else self._message(data)
        self._answering()
        if self._answers.answer(self._connection, answer):
            return
        waiter = ThreadWaiter()
        for until in self._answers.answering(self._connection, answer, waiter):
            waiter.wait(until)

    async def areply(self, data: Payload) -> None:
        """Like ``reply``, for a task. If cancelled, the reply was sent whole or not at all."""
        answer = self._header + data if type(data) is bytes and self._connection.link is None else self._message(data)
        self._answering()
        answers = self._answers
        answers.count += 1
        if answers.count >= BURST:
            answers.count = 0
            await sleep(0)  # a checkpoint, before the reply is queued
        if answers.answer(self._connection, answer, soon=True):
            return
        waiter = task_waiter()
        for until in self._answers.answering(self._connection, answer, waiter):
            await waiter.wait(until)

    def reply_nowait(self, data: Payload) -> bool:
        """Like ``areply``, but without room the reply is dropped and counted at once; return False then.

        For a task that answers many questions in one turn of its loop.
        """
        return self.reply_if_room(data) or self._answers.drop(self._connection)

    def reply_if_room(self, data: Payload) -> bool:
        """Like ``reply_nowait``, but without room the reply is not dropped; ``areply`` can wait then."""
        answer = self._header + data if type(data) is bytes and self._connection.link is None else self._message(data)
        self._answering()
        if self._answers.answer(self._connection, answer, soon=True):
            return True
        self._answered = False
        return False

    def loan(self, size: int) -> Loan:
        """Lend a writable buffer of ``size`` bytes, which is the reply when the block ends. See ``Push.loan``.

        It never waits for memory: without, it is copied. Experimental.
        """
        sharing = self._answers.sharing
        return Loan(sharing if self._connection.link else None, size, 0.0, self.reply, self.areply)

    def _message(self, data: Payload) -> bytes:
        """Return the message that carries a reply, in shared memory if it belongs there."""
        sharing = self._answers.sharing
        size = 0 if self._connection.link is None else sharing.wants(data)
        slot = sharing.find(size) if size else None
        return sharing.message(self._header, data, size, [] if slot is None else [slot])

    def _answering(self) -> None:
        """Raise if the protocol forbids another reply."""

    def __repr__(self) -> str:
        peer = self.pipe.address if self.pipe else "a peer that has left"
        return f"<{type(self).__name__} {len(self.body)} bytes from {peer}>"


Asked = TypeVar("Asked", bound=Question)


class Answerer(Receiver[Asked], Socket, Generic[Asked]):
    """Base of Rep and Respondent."""

    _question: ClassVar[type[Question]] = Question
    _drains: ClassVar[bool] = True
    _header_room: ClassVar[int] = HEADROOM
    _default_send_window: ClassVar[int] = 4 * MIB
    _least_send_buffer: ClassVar[int] = 1

    _answers: Answers
    _outbox: PeerQueues

    def __init__(self, **options: Unpack[CallOptions]) -> None:
        super().__init__(**options)

    def reply_many(self, replies: Sequence[tuple[Asked, Payload]]) -> list[int]:
        """Send replies, those to one peer with one write; return the indexes of those without room.

        For a task that answers many questions in one turn of its loop: ``areply`` can wait for room. Raises Closed.
        """
        answers: list[tuple[Connection, bytes]] = []
        waiting: Sequence[int] = range(len(replies))
        begun = 0
        try:
            for question, data in replies:
                question._answering()
                begun += 1
                connection = question._connection
                plain = type(data) is bytes and connection.link is None
                answers += ((connection, question._header + data if plain else question._message(data)),)
            waiting = self._answers.answer_all(answers)
        finally:
            for index in waiting:
                if index < begun:
                    replies[index][0]._answered = False
        return [*waiting]

    def _plain(self, out: list[Any]) -> list[Any]:
        return out  # questions copy their bodies at the first use

    def _set_up(self) -> None:
        inbox, largest, question = self._inbox, self._largest, self._question
        answers = self._answers = Answers(self._state, self._outbox, self._sharing)
        self._sharing.lazy = True  # questions copy their bodies at the first use
        self._sharing.active = False  # replies are shared with peers on shm, beside others

        def unpack(connection: Connection, messages: Sequence[bytes]) -> Sequence[Any]:
            questions: list[Question] = []
            for message in messages:
                header, body, size = message[:4], message[4:], len(message) - 4
                if size < 0 or header < b"\x80":  # it passed devices: there are more words
                    try:
                        split = split_question(message)
                    except BadMessage as wrong:
                        connection.fault = wrong
                        break
                    if split is None:
                        continue  # it passed too many devices
                    header, body = split
                    size = len(body)
                if size > largest:
                    inbox.too_large += 1
                    continue
                questions += (question(answers, body, header, connection),)
            return questions

        inbox.unpack = unpack
        inbox.turn_messages = TURN_QUESTIONS
        outbox = self._outbox
        inbox.unread_limit = max(1, outbox.cap // 2), outbox.window // 2  # the rest is for questions that were read
