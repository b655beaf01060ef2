"""Verdicts of a consumer on received records: acknowledgements, which are gathered, and the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from nngkit.background import WakeUp, demand_trio
from nngkit.errors import Closed, NngkitError
from nngkit.fanout.durable.messages import How, SettleRequest, pack_runs
from nngkit.fanout.durable.partition import Runs

MOST_RUNS: Final = 3000  # of one request: 48 of the 64 KiB that it may have


@dataclass(slots=True, eq=False)
class Ticket:
    """Acknowledgements that are confirmed together."""

    runs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    done: trio.Event = field(default_factory=trio.Event)
    error: Exception | None = None

    async def confirmed(self) -> None:
        """Wait until they are on disk at the server. Raises the error that prevented it."""
        await self.done.wait()
        if self.error is not None:
            raise self.error


class Acknowledgements:
    """Acknowledgements of a consumer's session, which one task sends; each request takes all gathered meanwhile.

    `settle`: sends a request until the server has taken it. `confirmed`: gets the number of records of
    each confirmation. `ended`: makes the error once closed.
    """

    def __init__(
        self,
        name: str,
        session: str,
        settle: Callable[[SettleRequest], Awaitable[object]],
        confirmed: Callable[[int], None],
        ended: Callable[[], Exception],
    ) -> None:
        self._name = name
        self._session = session
        self._settle = settle
        self._confirmed = confirmed
        self._ended = ended
        self._closed = False
        self._ticket: Ticket | None = None
        self._sending: Ticket | None = None
        self._gathered = WakeUp()

    def ack_soon(self, partition: int, runs: Runs) -> Ticket:
        """Add to the next request."""
        demand_trio("Delivery.ack: use Consumer.ack")
        if self._closed:
            raise self._ended()
        if self._ticket is None:
            self._ticket = Ticket()
        self._ticket.runs.setdefault(partition, []).extend(runs)
        self._gathered.wake()
        return self._ticket

    async def ack(self, partition: int, runs: Runs) -> None:
        """Acknowledge, and wait for the confirmation."""
        await self.ack_soon(partition, runs).confirmed()

    async def flush(self) -> None:
        """Wait until everything acknowledged so far is confirmed."""
        for ticket in (self._sending, self._ticket):
            if ticket is not None:
                await ticket.confirmed()

    async def settle(self, how: How, partition: int, runs: Runs, delay: float = 0.0) -> None:
        """Send a verdict on records; return when the server has taken it."""
        for first in range(0, len(runs), MOST_RUNS):
            part = pack_runs(runs[first : first + MOST_RUNS])
            await self._settle(SettleRequest(self._name, self._session, how, partition, part, delay))

    async def send_all(self) -> None:
        """Send, without end, what has gathered while the last acknowledgements were confirmed."""
        while True:
            while self._ticket is None:
                await self._gathered.wait()
            ticket, self._ticket = self._ticket, None
            self._sending = ticket
            try:
                for partition, runs in ticket.runs.items():
                    await self.settle("ack", partition, merged(runs))
                    self._confirmed(sum(count for _, count in runs))
            except NngkitError as error:
                ticket.error = error
            except trio.Cancelled:
                ticket.error = Closed(f"consumer {self._name}: closed before the acknowledgement was confirmed")
                raise
            finally:
                self._sending = None
                ticket.done.set()

    def close(self) -> None:
        """Refuse further acknowledgements, and end the waits for those not sent."""
        self._closed = True
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            ticket.error = self._ended()
            ticket.done.set()


def merged(runs: Runs) -> Runs:
    """Return runs in order, with adjacent ones joined."""
    found: Runs = []
    for first, count in sorted(runs):
        if found and found[-1][0] + found[-1][1] == first:
            found[-1] = (found[-1][0], found[-1][1] + count)
        else:
            found.append((first, count))
    return found
