"""`nngkit sub --lag`, `--last`, `--snail N`: receive from a Publisher, whose messages are numbered.

Missing messages are reported on standard error where they are missing. It reads the network while the output is slow:
what waits for the output is the backlog that `--snail` limits. Loads trio, which the other ways of cat do not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import BinaryIO

import trio

from nngkit.cli.cat.command_line.plan import Numbered, Plan, Received
from nngkit.cli.cat.running import interruptible, say_exactly
from nngkit.cli.exit_codes import exit_code
from nngkit.cli.streams.line_writer import write_to
from nngkit.errors import NngkitError, SlowSubscriber
from nngkit.fanout import Gap, HighWater, Published, Restarted, Subscriber

LOOK = 0.05  # seconds


class _Following:
    """One run. `received` counts printed messages; `connected` is True once a publisher was."""

    def __init__(self, plan: Plan, numbered: Numbered, say: Callable[[str], None], out: BinaryIO) -> None:
        self._plan = plan
        self._numbered = numbered
        self._say = say
        self._out = out
        self.received = 0
        self.connected = False
        self.stats = ""

    async def run(self) -> None:
        """Receive until the timeout, the count, or an interrupt. Raises SlowSubscriber, ConfigError."""
        plan, snail = self._plan, self._numbered.snail
        subscriber = Subscriber(
            [url for what, url in plan.addresses if what == "dial"],
            plan.topics + plan.patterns,
            policy="raise" if snail else "report",
            high_water=HighWater(messages=snail, warn=None) if snail else HighWater(warn=None),
            last=self._numbered.last,
            recv_max_size=plan.recv_max_size,
            tls=plan.tls,
        )
        try:
            async with subscriber:
                try:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._watch, subscriber)
                        await self._receive(subscriber)
                        nursery.cancel_scope.cancel()
                finally:
                    stats = subscriber.stats
                    self.connected = bool(stats.received or subscriber.connected)
                    counts = {"printed": self.received, "received": stats.received, "missed": stats.missed}
                    counts |= {"late": stats.late, "dropped": stats.dropped, "snapshots": stats.snapshots}
                    self.stats = ", ".join(f"{name} {count}" for name, count in counts.items())
        except BaseExceptionGroup as group:  # what `except*` raises is itself a group under Python 3.11.2
            slow: BaseException | None = group.subgroup(SlowSubscriber)
            if slow is None:
                raise
            while isinstance(slow, BaseExceptionGroup):  # both tasks may have it
                slow = slow.exceptions[0]
            raise slow from None

    async def _receive(self, subscriber: Subscriber) -> None:
        while left := self._left():
            timeout = float("inf") if self._plan.recv_timeout is None else self._plan.recv_timeout
            with trio.move_on_after(timeout) as scope:
                await self._show(await subscriber.receive_many(left))
            if scope.cancelled_caught:
                return

    async def _watch(self, subscriber: Subscriber) -> None:
        """Raise SlowSubscriber once it has left, even while the output takes nothing."""
        while not subscriber.left:  # noqa: ASYNC110 - an interval is enough, and needs no event
            await trio.sleep(LOOK)
        await subscriber.receive()

    def _left(self) -> int:
        """Return the number of messages that may still be printed, at most 256."""
        wanted = self._plan.count or self._plan.expect
        return min(256, wanted - self.received) if wanted else 256

    async def _show(self, events: Sequence[object]) -> None:
        now, show = time.time(), self._plan.show
        written: list[bytes] = []
        for event in events:
            if isinstance(event, Published):
                written.append(show(Received(event.data, now, None)))
                self.received += 1
            elif isinstance(event, (Gap, Restarted)) and self._numbered.lag:
                await self._write(written)  # so that the report stands where the messages are missing
                self._say(_report(event))
        await self._write(written)

    async def _write(self, written: list[bytes]) -> None:
        if written:
            data = b"".join(written)
            written.clear()
            # not by a buffered file, whose lock an abandoned thread would hold at the end of the process
            await trio.to_thread.run_sync(write_to, self._out.fileno(), data, abandon_on_cancel=True)


def _report(event: Gap | Restarted) -> str:
    publisher = event.publisher.hex()
    if isinstance(event, Restarted):
        return f"the publisher {publisher} has restarted"
    why = "they did not arrive" if event.reason == "lost" else "they were not printed in time"
    return f"{event.count} messages of {event.first} to {event.last} of {publisher} are missing: {why}"


def run(plan: Plan, numbered: Numbered, say: Callable[[str], None], out: BinaryIO, *, stats: bool) -> int:
    """Run the plan; return the exit code."""
    following = _Following(plan, numbered, say, out)
    with interruptible() as interruption:
        try:
            trio.run(following.run)
            code = _code(plan, following, say)
        except SlowSubscriber as error:
            say(f"disconnected: {error}")
            code = 1
        except NngkitError as error:
            say(str(error))
            code = exit_code(error)
        except KeyboardInterrupt:
            code = interruption.code
    if stats:
        say_exactly(f"{following.stats}\n")
    return code


def _code(plan: Plan, following: _Following, say: Callable[[str], None]) -> int:
    wanted = plan.expect or (1 if plan.recv_timeout is not None else 0)
    if following.received >= wanted:
        return 0
    if not following.connected:
        say(f"{' '.join(url for _, url in plan.addresses)}: no publisher connected")
        return 3
    say(f"{following.received} of {wanted} messages received")
    return 1 if following.received else 4
