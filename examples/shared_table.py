"""A shared table: two peers edit rows and cells during a network partition, which then heals.

::

    python3 examples/shared_table.py

prints::

    ada alone:    apples 3 0.50 | pears 2 0.80
    grace alone:  apples 4 0.40 | pears 2 0.80 | plums 7 1.20
    ada read:     price of row 0 is 0.4, from grace
    ada now:      apples 3 0.40 | plums 7 1.20
    grace now:    apples 3 0.40 | plums 7 1.20

A row is a map in the array `rows`, so concurrent edits of two cells of a row are both kept: the amount is Ada's, the
price Grace's. Of two concurrent edits of one cell, the same one wins at both peers. A deleted row is gone. The page of
`nngkit doc serve` shows such a document as a table.
"""

import trio

from nngkit.documents import Document, DocumentPeer, Map, MapChange, NetworkFaults

PATIENCE = 15  # seconds


def shown(table: Document) -> str:
    return " | ".join(f"{row['what']} {row['amount']} {row['price']:.2f}" for row in table.array("rows"))


async def until_alike(one: Document, other: Document) -> None:
    with trio.fail_after(PATIENCE):
        while one.digest() != other.digest():  # noqa: ASYNC110 - there is no event for equality
            await trio.sleep(0.01)


async def main() -> None:
    faults = NetworkFaults(), NetworkFaults()  # partitions on demand
    async with (
        DocumentPeer(listen="tcp://127.0.0.1:0", name="ada", faults=faults[0]) as ada,
        DocumentPeer(dial=ada.address, name="grace", faults=faults[1]) as grace,
    ):
        table, copy = ada.open("shopping"), grace.open("shopping")
        with table.transaction():
            table.array("columns").extend(["what", "amount", "price"])
            table.array("rows").append(Map({"what": "apples", "amount": 4, "price": 0.5}))
            table.array("rows").append(Map({"what": "pears", "amount": 2, "price": 0.8}))
        await until_alike(table, copy)

        faults[0].cut, faults[1].cut = {grace.me.origin}, {ada.me.origin}
        table.array("rows")[0]["amount"] = 3
        print(f"ada alone:    {shown(table)}")
        del table.array("rows")[1]
        copy.array("rows")[0]["price"] = 0.4
        copy.array("rows").append(Map({"what": "plums", "amount": 7, "price": 1.2}))
        print(f"grace alone:  {shown(copy)}")

        changes = table.changes()
        faults[0].cut, faults[1].cut = set(), set()
        names = {str(other.stream): other.name for other in ada.peers}
        with trio.fail_after(PATIENCE):
            async for change in changes:
                cells = [part for part in change.parts if isinstance(part, MapChange)]
                for cell in cells:
                    for key, (_, now) in cell.keys.items():
                        print(f"ada read:     {key} of row {cell.path[-1]} is {now}, from {names[str(change.peer)]}")
                if cells:
                    break
        await until_alike(table, copy)
        print(f"ada now:      {shown(table)}")
        print(f"grace now:    {shown(copy)}")


trio.run(main)
