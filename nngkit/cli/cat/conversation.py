"""Run a Plan over the protocol sockets: open, connect, send, receive, print, close.

==========================  =======================================================================
push, pub                   send; then wait until everything is written
pull, sub                   receive until the timeout, the count, or an interrupt
req, surveyor               send, receive the reply or replies, again after the interval
rep, respondent             receive; reply, if there is a reply to give
pair, bus                   send if there is something to send; receive
==========================  =======================================================================

Received messages are printed, also after an interrupt. A receive timeout is a normal end; a timeout while sending, or
while waiting for requests to reply to, raises `Stopped`, as in nngcat and nanocat.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from typing import Any, BinaryIO, Final

from nngkit import protocols
from nngkit.cli.cat.command_line.option_table import PROTOCOLS
from nngkit.cli.cat.command_line.plan import Plan, Received, Stopped
from nngkit.cli.cat.refusal import refusal
from nngkit.errors import Closed, ConfigError, NngkitError, TimedOut, Unreachable
from nngkit.trust import OPEN

FOR_EVER: Final = 1e8  # seconds; None has another meaning there
LAST_MESSAGES: Final = 65536  # printed after an interrupt at most, so that a fast sender cannot delay the end
BATCH: Final = 256  # messages printed and flushed at once
STANDSTILL: Final = 1.0  # seconds without a message written, after which a publisher gives up
FIRST_LOOK: Final = 0.1  # seconds before a failed dial is diagnosed: a connection takes 1 to 10 ms


class Conversation:
    """One run of a Plan. `received` and `sent` are message counts, `stats` the socket's final counters."""

    def __init__(self, plan: Plan, out: BinaryIO) -> None:
        self.plan = plan
        self.out = out
        self.received = 0
        self.sent = 0
        self.ever_connected = False
        self.stats = protocols.Stats()
        self._failed: NngkitError | None = None
        self._turn = threading.Lock()  # held while a batch is sent
        self._over = False
        self._linger: protocols.Timeout = protocols.DEFAULT  # seconds that closing may take
        options: dict[str, Any] = {
            "recv_max_size": plan.recv_max_size,
            "ipc_mode": plan.ipc_mode,
            "name": plan.name,
            "tls": plan.tls,
            "trust": OPEN if plan.open else None,
            "send_timeout": plan.send_timeout,
        }
        if plan.protocol == "sub":
            options["topics"] = plan.topics + plan.patterns
        if plan.protocol in ("push", "pair0", "pair1") and plan.stream is None:
            # Without a queue, sent means taken by a peer, as with nngcat and nanocat. A stream is queued, which is
            # faster, and written at the end.
            options["send_buffer"] = 0
        self.socket = getattr(protocols, PROTOCOLS[plan.protocol])(**options)

    def run(self) -> None:
        """Run the plan. Raises Stopped, KeyboardInterrupt, and OSError if the output cannot be written."""
        try:
            self._connect()
            try:
                self._wait_for_peers()
                self._talk()
            except KeyboardInterrupt:
                self._print_the_rest()
                raise
        finally:
            if self.plan.protocol == "bus":
                self._stop_stream()  # later messages would not be counted
            self.socket.drain(self._linger)
            there = self.socket.stats
            self.socket.close(0.0)
            # closing counts the remaining messages as dropped; peers are as they were before it
            self.stats = dataclasses.replace(self.socket.stats, pipes=there.pipes, left=there.left)
            self.ever_connected = there.joined > 0

    # ------------------------------------------------------------------ connecting

    def _connect(self) -> None:
        for what, url in self.plan.addresses:
            try:
                if what == "listen":
                    address = self.socket.listen(url)
                else:
                    address = url
                    self._dial(url)
            except (ConfigError, Unreachable) as error:
                raise Stopped(what, error, url) from error
            if self.plan.on_address is not None:
                self.plan.on_address(what, url, address)

    def _dial(self, url: str) -> None:
        if not self.plan.dial_waits:
            self.socket.dial(url)
            return
        connected = threading.Event()

        def look(event: Any) -> None:
            if event.kind == "joined" and event.pipe.dialed:
                connected.set()

        end = self.socket.on_peer(look)
        self.socket.dial(url)
        patience = FIRST_LOOK
        while not connected.wait(patience):
            # the dialer retries without giving a reason; a plain connection gets one
            if (why := refusal(url)) is not None:
                raise Unreachable(url, why)
            patience = 5 * FIRST_LOOK
        end()

    def _wait_for_peers(self) -> None:
        if self.plan.wait_peers:
            try:
                self.socket.wait_for_peers(self.plan.wait_peers, self.plan.wait_timeout)
            except TimedOut as late:
                raise Stopped("wait", late) from late

    # ------------------------------------------------------------------ talking

    def _talk(self) -> None:
        plan = self.plan
        match plan.protocol:
            case "push" | "pub":
                self._pause()
                self._send_all(self._messages())
                self._written()
            case "pull" | "sub":
                self._receive(plan.count)
            case "req" | "surveyor":
                self._pause()
                for message in self._paced(each for batch in self._messages() for each in batch):
                    self._ask(message)
                    if self._enough:
                        return
            case "rep" | "respondent":
                self._answer()
            case _:
                self._both_ways()

    def _messages(self) -> Iterator[list[bytes]]:
        """Yield the messages to send, in batches as they arrive, at most `count`."""
        plan = self.plan
        if plan.stream is None:
            times = plan.count or (len(plan.data) if plan.interval is None else None)
            for message in islice(cycle(plan.data), times):
                yield [message]
            return
        left = plan.count
        for batch in plan.stream():
            if not plan.count:
                yield batch
            elif left:
                yield batch[:left]
                left -= len(batch[:left])
            if plan.count and not left:
                return

    def _paced(self, messages: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the messages at the interval, which includes the time spent on each."""
        interval, due = self.plan.interval, 0.0
        for message in messages:
            if interval is not None:
                time.sleep(max(0.0, due - time.monotonic()))
                due = time.monotonic() + interval
            yield message

    def _pause(self) -> None:
        if self.plan.delay:
            time.sleep(self.plan.delay)

    def _send_all(self, batches: Iterator[list[bytes]]) -> None:
        if self.plan.interval is None:
            for batch in batches:
                self._send(batch)
        else:
            for message in self._paced(each for batch in batches for each in batch):
                self._send([message])

    def _stop_stream(self) -> None:
        """Stop sending the stream. A bus never waits for room to send, so neither does this for long."""
        with self._turn:
            self._over = True

    def _send(self, batch: list[bytes]) -> None:
        try:
            with self._turn:
                if not self._over:
                    self.sent += self.socket.send_many(batch)
        except TimedOut as late:
            self.sent += late.sent
            raise Stopped("send", late) from late

    def _written(self) -> None:
        """Wait until everything sent is written; for pub, until nothing is written any more."""
        if self.plan.protocol == "pub":
            before = -1
            while not self.socket.drain(STANDSTILL):
                if (written := self.socket.stats.written) == before:
                    self._linger = 0.0
                    return
                before = written
            return
        seconds = FOR_EVER if self.plan.send_timeout is None else self.plan.send_timeout
        if not self.socket.drain(seconds):
            raise Stopped("send", TimedOut(f"not everything was written in {seconds:g} s", seconds))

    @property
    def _enough(self) -> bool:
        return bool(self.plan.expect) and self.received >= self.plan.expect

    def _receive(self, count: int = 0, until: float | None = None) -> None:
        """Receive and print until the timeout (of each message), `count`, the plan's `expect`, or the time `until`."""
        last = self.received + count
        while not self._enough:
            most = min(
                BATCH if not count else last - self.received,
                BATCH if not self.plan.expect else self.plan.expect - self.received,
            )
            if most <= 0:
                return
            timeout = self.plan.recv_timeout
            if until is not None:
                left = max(0.0, until - time.monotonic())
                timeout = left if timeout is None else min(left, timeout)
            try:
                self._show(self._take(min(most, BATCH), timeout))
            except TimedOut:
                return

    def _take(self, most: int, timeout: float | None) -> list[Received]:
        socket = self.socket
        if self.plan.protocol in ("rep", "respondent"):
            question = socket.recv(timeout)
            return [Received(question.body, time.time(), question.pipe)]
        if self.plan.shows_peers:
            message = socket.recv_msg(timeout)
            return [Received(message.body, time.time(), message.pipe)]
        bodies = socket.recv_many(most, timeout)
        now = time.time()
        return [Received(body, now, None) for body in bodies]

    def _show(self, batch: list[Received]) -> None:
        show = self.plan.show
        self.received += len(batch)
        self.out.write(b"".join([show(each) for each in batch]))
        self.out.flush()

    def _print_the_rest(self) -> None:
        """Print the messages already received at an interrupt."""
        if self.plan.protocol in ("push", "pub", "req", "surveyor"):
            return
        last = min(self.received + LAST_MESSAGES, self.plan.expect or self.received + LAST_MESSAGES)
        try:
            while self.received < last:
                self._show(self._take(min(BATCH, last - self.received), 0.0))
        except (TimedOut, Closed):
            return

    # ------------------------------------------------------------------ requests and replies

    def _ask(self, message: bytes) -> None:
        plan = self.plan
        limits = [each for each in (plan.recv_timeout, plan.interval) if each is not None]
        if plan.protocol == "surveyor":
            with self.socket.start(message, min([plan.survey_time, *limits])) as survey:
                self.sent += 1
                for reply in survey:
                    self._show([Received(reply.body, time.time(), reply.pipe)])
                    if self._enough:
                        return
            return
        if plan.request_waits:
            try:
                self.socket.wait_for_peers(1, plan.send_timeout)
            except TimedOut as late:
                raise Stopped("send", late) from late
        try:
            self.sent += 1
            reply = self.socket.request(message, min(limits, default=None))
        except TimedOut:
            return
        pipes = self.socket.pipes
        self._show([Received(reply, time.time(), pipes[0] if len(pipes) == 1 else None)])

    def _answer(self) -> None:
        plan = self.plan
        if plan.answer is None:
            self._receive(plan.count)
            return
        left = plan.count
        while not self._enough:
            try:
                question = self.socket.recv(plan.recv_timeout)
            except TimedOut as late:
                raise Stopped("recv", late) from late
            received = Received(question.body, time.time(), question.pipe)
            self._show([received])
            answer = plan.answer(received)
            if answer is not None:
                question.reply(answer)
                self.sent += 1
            left -= 1
            if not left:
                break
        self._written()

    # ------------------------------------------------------------------ both ways

    def _both_ways(self) -> None:
        plan = self.plan
        if plan.stream is not None:
            # messages arrive while the stream is silent; the thread ends with the stream or the process
            threading.Thread(target=self._send_in_background, name="nngkit-cat-stream", daemon=True).start()
            try:
                self._receive()
            except Closed:  # by the thread, which has failed
                assert self._failed is not None
                raise Stopped("send", self._failed) from self._failed
            return
        self._pause()
        if not plan.data:
            self._receive(plan.count)
            return
        if plan.interval is None and not plan.count:
            self._send_all(self._messages())
            self._receive()
            return
        for message in self._paced(each for batch in self._messages() for each in batch):
            self._send([message])
            if plan.interval is None:
                self._receive()
            else:
                self._receive(until=time.monotonic() + plan.interval)
            if self._enough:
                return

    def _send_in_background(self) -> None:
        try:
            self._pause()
            self._send_all(self._messages())
        except Closed:
            pass
        except (Stopped, NngkitError) as error:
            self._failed = error.error if isinstance(error, Stopped) else error
            self.socket.close(0.0)
