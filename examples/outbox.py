"""A durable outbox: orders that are put while the receiver is away, and arrive in order, once.

::

    python3 examples/outbox.py

prints::

    stored while the receiver is away: 3
    received: order 1, order 2, order 3
    acknowledged: 3

The outbox keeps its records on disk, so they also survive a kill of this process. A receiver recognizes by their
numbers what it has already.
"""

import tempfile

import trio

from nngkit.fanout import Outbox, OutboxReceiver
from nngkit.protocols import Rep, Req


async def receive(rep: Rep, received: list[bytes]) -> None:
    receiver = OutboxReceiver()
    async for request in rep:
        received += receiver.accept(request.body)
        await request.areply(b"")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/orders"
        async with Req(dial=address, reconnect=0.05) as req, Outbox(f"{folder}/outbox", req) as outbox:
            for number in (1, 2, 3):
                await outbox.put(b"order %d" % number)
            print(f"stored while the receiver is away: {outbox.stats.stored}")
            received: list[bytes] = []
            async with Rep(listen=address) as rep, trio.open_nursery() as nursery:
                nursery.start_soon(receive, rep, received)
                await outbox.flush()
                print(f"received: {', '.join(map(bytes.decode, received))}")
                nursery.cancel_scope.cancel()
            print(f"acknowledged: {outbox.stats.acknowledged}")


trio.run(main)
