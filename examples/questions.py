"""Questions: services answer by code of their own, and the caller learns which did, and which price is the lowest.

::

    python3 examples/questions.py

prints the bids, the providers that declined, and the answer that came first::

    12.5 by ship
    30.0 by train
    1 declined
    first: 1 answer
"""

import trio

from nngkit import Service, ServiceDiscovery
from nngkit.discovery import Bid, Question, bids, first

CARRIERS = {  # price of 1 kg to each place
    "by ship": {"Oslo": 12.5, "Bergen": 14.0},
    "by train": {"Oslo": 30.0},
    "by bike": {"Utrecht": 5.0},
}


async def main() -> None:
    async with ServiceDiscovery(listen="tcp://127.0.0.1:0", interval=2.0) as discovery, trio.open_nursery() as nursery:
        for number, (way, prices) in enumerate(CARRIERS.items()):
            nursery.start_soon(carrier, way, prices, f"tcp://127.0.0.1:{9000 + number}", discovery.address)
        await discovery.wait_for_peers(len(CARRIERS))
        result = await discovery.ask(b"Oslo", "carrier", until=bids(3, timeout=5))
        for answer in result.answers:
            print(answer.bid, answer.body.decode())
        print(len(result.declined), "declined")
        result = await discovery.ask(b"Oslo", "carrier", until=first(1, timeout=5))
        print(f"first: {len(result.answers)} answer")
        nursery.cancel_scope.cancel()


async def carrier(way: str, prices: dict[str, float], address: str, daemon: str) -> None:
    def bid(question: Question) -> Bid | None:
        price = prices.get(question.body.decode())
        return None if price is None else Bid(price, way.encode())

    async with Service("carrier", address, discovery=daemon, on_question=bid):
        await trio.sleep_forever()


trio.run(main)
