"""A shared table: two peers change different cells of one row while they cannot reach each other; both changes stay.

::

    python3 examples/shared_table.py

prints::

    before:  apples 3 | pears 5
    ada sees:  apples 4 | pears 5
    bob sees:  apples 3 | pears 6 | plums 1
    both see:  apples 4 | pears 6 | plums 1

Rows are a list of maps: who changes one cell of a map changes no other. `Weather` cuts the two off from each other, as
a pulled cable would.
"""

import trio

from nngkit.documents import Document, DocumentPeer, Map, Weather


def table(doc: Document) -> str:
    return " | ".join(f"{row['fruit']} {row['count']}" for row in doc.array("rows"))


async def alike(one: Document, other: Document) -> None:
    with trio.fail_after(10):
        while one.digest() != other.digest():  # noqa: ASYNC110
            await trio.sleep(0.01)


async def main() -> None:
    weathers = [Weather(), Weather()]
    async with (
        DocumentPeer(listen="tcp://127.0.0.1:0", weather=weathers[0]) as a,
        DocumentPeer(dial=a.address, weather=weathers[1]) as b,
    ):
        ada, bob = a.open("fruit"), b.open("fruit")
        with ada.transaction():  # one update for both rows
            for fruit, count in (("apples", 3), ("pears", 5)):
                ada.array("rows").append(Map({"fruit": fruit, "count": count}))
        await bob.joined(10)
        await alike(ada, bob)
        print("before: ", table(bob))

        weathers[0].cut, weathers[1].cut = {b.me.origin}, {a.me.origin}
        ada.array("rows")[0]["count"] = 4
        bob.array("rows")[1]["count"] = 6
        bob.array("rows").append(Map({"fruit": "plums", "count": 1}))
        print("ada sees: ", table(ada))
        print("bob sees: ", table(bob))

        weathers[0].cut = weathers[1].cut = set()
        await alike(ada, bob)
        print("both see: ", table(ada))


trio.run(main)
