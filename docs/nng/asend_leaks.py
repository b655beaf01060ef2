"""asend leaks its message when it times out or is cancelled.

pynng 0.9.0 (NNG 1.11.0). NNG leaves the message with the caller when a send fails; pynng does not free it.
Expected: the memory of the process stays the same.
Observed: it grows by the size of every message that was not sent.
"""

import asyncio
import contextlib
import gc
import resource

import pynng
from _harness import done

MIB = 1 << 20


def resident():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() // MIB


async def time_out(push, count):
    for _ in range(count):
        with contextlib.suppress(pynng.Timeout):
            await push.asend(bytes([7]) * MIB)


async def cancel(push, count):
    for _ in range(count):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(push.asend(bytes([7]) * MIB), 0.002)


grown = []
for give_up, options in ((time_out, {"send_timeout": 2}), (cancel, {})):
    with pynng.Push0(**options) as push:
        asyncio.run(give_up(push, 5))  # allocations that happen once
        before = resident()
        asyncio.run(give_up(push, 60))
        grown.append(resident() - before)
found = f"{grown[0]} MiB more after timeouts, {grown[1]} after cancellations"
done(f"60 messages of 1 MiB not sent: {found}", min(grown) > 40)
