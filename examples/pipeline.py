"""PUSH/PULL: upstream hands out work, three workers do it, downstream collects what they made.

::

    python3 examples/pipeline.py

prints::

    upstream pushed 12 numbers
    downstream pulled 12 squares, together 650
    3 of 3 workers had a share

Each number goes to exactly one worker, the next one in turn that has room; a worker with a full queue is passed over,
and when all are full upstream waits. The workers here are tasks of one program. As programs of their own, on other
machines, they would be these same lines: a worker needs two addresses and nothing else, and it may come and go.
"""

import trio

from nngkit.protocols import Pull, Push

NUMBERS = range(1, 13)
WORKERS = 3


async def worker(name: str, upstream: str, downstream: str) -> None:
    # recv_buffer=1: what one worker has read ahead, another one cannot do
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
        await upstream.await_for_peers(WORKERS, timeout=5)  # else the first to come gets all there is

        pushed = await upstream.asend_many([b"%d" % number for number in NUMBERS])
        print(f"upstream pushed {pushed} numbers")

        results = [(await downstream.arecv()).split() for _ in NUMBERS]
        print(f"downstream pulled {len(results)} squares, together {sum(int(square) for _, square in results)}")
        print(f"{len({name for name, _ in results})} of {WORKERS} workers had a share")
        nursery.cancel_scope.cancel()


trio.run(main)
