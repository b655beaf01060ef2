"""A server and a consumer as processes that tests kill.

    python -m tests.fanout.killable server JOURNAL URL STATE LOG
    python -m tests.fanout.killable consumer URL LOG ACK_WAIT

Both print `up 0` to LOG once they are connected. The consumer also prints `got OFFSET` for each record as it arrives,
and `ack OFFSET` once its acknowledgement is confirmed. It forgets every 7th record, so that it is delivered again.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

import trio

from nngkit.fanout import Consumer, ConsumerServer


def notes(log: str) -> Callable[[str, Sequence[int]], None]:
    """Return a function that appends a line with the time for each offset."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(word: str, offsets: Sequence[int]) -> None:
        os.write(file, "".join(f"{word} {offset} {time.monotonic()}\n" for offset in offsets).encode())

    return note


async def serve(journal: str, url: str, state: str, log: str) -> None:
    async with ConsumerServer(journal, listen=url, state=state):
        notes(log)("up", [0])
        await trio.sleep_forever()


async def consume(url: str, log: str, ack_wait: str) -> None:
    note = notes(log)
    async with Consumer("killed", url, ack_wait=float(ack_wait), records=20, timeout=None) as consumer:
        note("up", [0])
        async for batch in consumer.batches():
            note("got", list(batch.offsets))
            done = [each for each in batch if each.offset % 7 or each.deliveries > 1]
            async with trio.open_nursery() as nursery:
                for each in done:
                    nursery.start_soon(each.ack)
            note("ack", [each.offset for each in done])


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    trio.run(partial(serve, *arguments) if role == "server" else partial(consume, *arguments))
