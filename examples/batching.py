"""Batches: a sensor's readings, one call for each, far fewer messages on the network.

::

    python3 examples/batching.py

prints::

    pushed 100000 readings, one at a time
    pulled 100000 readings, in order
    they travelled in less than 1000 messages

``batch=True`` stands at both ends. The calls are the same as without it; a reading waits a millisecond at most for
others to go with, and ``aflush`` sends the last of them at once.
"""

import struct

import trio

from nngkit.protocols import Pull, Push

COUNT = 100_000
READING = struct.Struct(">Id")  # number, degrees


async def sensor(push: Push, task_status: trio.TaskStatus[trio.Event]) -> None:
    done = trio.Event()
    task_status.started(done)
    for number in range(COUNT):
        await push.asend(READING.pack(number, 20.0 + number % 10))
    await push.aflush()
    print(f"pushed {COUNT} readings, one at a time")
    done.set()


async def main() -> None:
    async with (
        Push(listen="tcp://127.0.0.1:0", batch=True) as push,
        Pull(dial=push.address, batch=True, recv_timeout=5) as pull,
        trio.open_nursery() as nursery,
    ):
        done = await nursery.start(sensor, push)
        for expected in range(COUNT):
            number, _ = READING.unpack(await pull.arecv())
            assert number == expected
        await done.wait()
        print(f"pulled {COUNT} readings, in order")
        print(f"they travelled in {'less' if pull.stats.read < 1000 else 'more'} than 1000 messages")


trio.run(main)
