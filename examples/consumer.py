"""A durable consumer: orders in a journal, handled by two workers of one name, one of which fails.

::

    python3 examples/consumer.py

prints::

    worker 1 took order 1 and failed
    worker 2 handled order 2
    worker 2 handled order 3
    worker 2 handled order 1, at its delivery 2
    all settled, none left

An order that is not acknowledged within `ack_wait` is delivered again, to any worker. Acknowledgements are on disk at
the server. From a shell the server is `nngkit consume --serve --journal journal --listen tcp://127.0.0.1:7100`.
"""

import tempfile

import trio

from nngkit.fanout import Consumer, ConsumerServer
from nngkit.journal import Recorder


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            Recorder(f"{folder}/journal") as recorder,
            ConsumerServer(f"{folder}/journal", listen="tcp://127.0.0.1:0") as server,
        ):
            await recorder.store([b"order 1", b"order 2", b"order 3"], topic="orders", protocol="example")
            async with Consumer("billing", server.address, ack_wait=0.5, records=1) as failing:
                taken = await failing.receive()
                print(f"worker 1 took {taken.value.decode()} and failed")
            async with Consumer("billing", server.address) as worker:
                for _ in range(3):
                    order = await worker.receive()
                    again = f", at its delivery {order.deliveries}" if order.deliveries > 1 else ""
                    print(f"worker 2 handled {order.value.decode()}{again}")
                    await order.ack()
            (info,) = server.consumers("billing")
            print("all settled, none left" if info.floor == info.end else f"{info.pending} are pending")


trio.run(main)
