"""A device: requesters and repliers that know one address, but not each other.

::

    python3 examples/device.py

prints::

    4 requests, 4 replies, from 2 repliers
    the device saw 4 requests from the front and 4 replies from the back

A queue forwards between REQ and REP. Both sides dial it, so neither has to listen, and repliers come and go unnoticed
by the requesters. From a shell, the same is `nngkit device queue --front-listen URL --back-listen URL`.
"""

import trio

from nngkit.devices import Device, TappedMessage
from nngkit.protocols import Rep, Req

REQUESTS = ("one", "two", "three", "four")


async def replier(name: str, device: str) -> None:
    async with Rep(dial=device) as rep:
        async for request in rep:
            await request.areply(name.encode() + b": " + request.body.upper())


async def main() -> None:
    seen: list[TappedMessage] = []
    # resend=None: the requesters resend unanswered requests themselves
    async with Rep(listen="tcp://127.0.0.1:0") as front, Req(listen="tcp://127.0.0.1:0", resend=None) as back:
        device = Device(front, back, tap=seen.append)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(device.run)
            nursery.start_soon(replier, "left", back.address)
            nursery.start_soon(replier, "right", back.address)
            await back.await_for_peers(2, timeout=5)  # else the first to connect answers all

            async with Req(dial=front.address) as req:
                replies = [await req.arequest(request.encode(), timeout=5) for request in REQUESTS]
            names = {reply.partition(b":")[0] for reply in replies}
            print(f"{len(REQUESTS)} requests, {len(replies)} replies, from {len(names)} repliers")
            sides = [message.side for message in seen]
            front_count, back_count = sides.count("front"), sides.count("back")
            print(f"the device saw {front_count} requests from the front and {back_count} replies from the back")
            nursery.cancel_scope.cancel()


trio.run(main)
