"""A device: clients and servers that know one address each, and not each other.

::

    python3 examples/device.py

prints::

    4 questions, 4 answers, by 2 servers
    the device saw 4 requests from the front and 4 replies from the back

A queue device relays between REQ and REP. Both sides dial it, so neither has to listen, and servers come and go
unnoticed by clients. From a shell, the same is `nngkit device queue --front-listen URL --back-listen URL`.
"""

import trio

from nngkit.devices import Device, Passed
from nngkit.protocols import Rep, Req

QUESTIONS = ("one", "two", "three", "four")


async def serve(name: str, device: str) -> None:
    async with Rep(dial=device) as rep:
        async for request in rep:
            await request.areply(name.encode() + b": " + request.body.upper())


async def main() -> None:
    seen: list[Passed] = []
    # resend=None: the clients already repeat unanswered requests
    async with Rep(listen="tcp://127.0.0.1:0") as front, Req(listen="tcp://127.0.0.1:0", resend=None) as back:
        device = Device(front, back, tap=seen.append)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(device.run)
            nursery.start_soon(serve, "left", back.address)
            nursery.start_soon(serve, "right", back.address)
            await back.await_for_peers(2, timeout=5)  # else the first server answers all

            async with Req(dial=front.address) as req:
                answers = [await req.arequest(question.encode(), timeout=5) for question in QUESTIONS]
            names = {answer.partition(b":")[0] for answer in answers}
            print(f"{len(QUESTIONS)} questions, {len(answers)} answers, by {len(names)} servers")
            sides = [passed.side for passed in seen]
            front_count, back_count = sides.count("front"), sides.count("back")
            print(f"the device saw {front_count} requests from the front and {back_count} replies from the back")
            nursery.cancel_scope.cancel()


trio.run(main)
