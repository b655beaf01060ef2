"""PUSH/PULL: upstream distributes work to three workers, downstream collects their results.

::

    python3 examples/pipeline.py

prints::

    upstream pushed 12 numbers
    downstream pulled 12 squares, together 650
    3 of 3 workers had a share

Each number goes to exactly one worker, the next in turn that has room; a worker with a full queue is skipped, and when
all queues are full upstream waits. Here the workers are tasks of one program. As programs on other machines they would
be the same: a worker needs only two addresses, and may come and go.
"""

import trio

from nngkit.protocols import Pull, Push

NUMBERS = range(1, 13)
WORKERS = 3


async def worker(name: str, upstream: str, downstream: str) -> None:
    # recv_buffer=1: a message read ahead by one worker is not available to another
    async with Pull(dial=upstream, recv_buffer=1) as work, Push(dial=downstream) as results:
        async for number in work:
            await trio.sleep(0.005)  # hard work
            await results.asend(b"%s %d" % (name.encode(), int(number) ** 2))


async def main() -> None:
    async with (
        Push(listen="tcp://127.0.0.1:0") as upstream,
        Pull(listen="tcp://127.0.0.1:0", recv_timeout=5) as downstream,
        trio.open_nursery() as nursery,
    ):
        for number in range(WORKERS):
            nursery.start_soon(worker, f"worker-{number}", upstream.address, downstream.address)
        await upstream.await_for_peers(WORKERS, timeout=5)  # else the first worker gets all numbers

        pushed = await upstream.asend_many([b"%d" % number for number in NUMBERS])
        print(f"upstream pushed {pushed} numbers")

        results = [(await downstream.arecv()).split() for _ in NUMBERS]
        print(f"downstream pulled {len(results)} squares, together {sum(int(square) for _, square in results)}")
        print(f"{len({name for name, _ in results})} of {WORKERS} workers had a share")
        nursery.cancel_scope.cancel()


trio.run(main)
