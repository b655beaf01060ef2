"""Under asyncio, cancelling an arecv whose message has just arrived has no effect.

pynng 0.9.0 (NNG 1.11.0). pynng shields its future and reports only NNG's result.
Expected: CancelledError, and the next arecv returns the message.
Observed: the cancelled task returns the message and continues.
"""

import asyncio
import time

import pynng
from _harness import done, url_of


async def main():
    with pynng.Pair0(listen="tcp://127.0.0.1:0") as one, pynng.Pair0(dial=url_of(one)) as other:
        task = asyncio.ensure_future(one.arecv())
        await asyncio.sleep(0.1)
        other.send(b"x")
        time.sleep(0.3)  # noqa: ASYNC251  the message arrives, and the loop does not run
        task.cancel()
        try:
            return await task
        except asyncio.CancelledError as error:
            return error


result = asyncio.run(main())
done(f"a cancelled arecv returned {result!r}", result == b"x")
