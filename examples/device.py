"""A device: askers and answerers who know one address, and not each other.

::

    python3 examples/device.py

prints::

    4 questions, 4 answers, by 2 answerers
    the device saw 4 requests from the front and 4 replies from the back

A queue stands between REQ and REP. Both sides dial it, so neither has to listen, and answerers come and go without an
asker's notice. From a shell, the same is `nngkit device queue --front-listen URL --back-listen URL`.
"""

import trio

from nngkit.devices import Device, Passed
from nngkit.protocols import Rep, Req

QUESTIONS = ("one", "two", "three", "four")


async def answerer(name: str, device: str) -> None:
    async with Rep(dial=device) as rep:
        async for request in rep:
            await request.areply(name.encode() + b": " + request.body.upper())


async def main() -> None:
    seen: list[Passed] = []
    # resend=None: the askers send again what is not answered, and twice would be once too often
    async with Rep(listen="tcp://127.0.0.1:0") as front, Req(listen="tcp://127.0.0.1:0", resend=None) as back:
        device = Device(front, back, tap=seen.append)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(device.run)
            nursery.start_soon(answerer, "left", back.address)
            nursery.start_soon(answerer, "right", back.address)
            await back.await_for_peers(2, timeout=5)  # else the first to come answers all

            async with Req(dial=front.address) as req:
                answers = [await req.arequest(question.encode(), timeout=5) for question in QUESTIONS]
            names = {answer.partition(b":")[0] for answer in answers}
            print(f"{len(QUESTIONS)} questions, {len(answers)} answers, by {len(names)} answerers")
            sides = [passed.side for passed in seen]
            front_count, back_count = sides.count("front"), sides.count("back")
            print(f"the device saw {front_count} requests from the front and {back_count} replies from the back")
            nursery.cancel_scope.cancel()


trio.run(main)
