"""Typed methods: a handler's annotations are its contract, and an interface makes checked calls of it.

    python3 examples/typed_calls.py

prints::

    the invoice of 3 lines is 42.5
    due: 2026-01-15 2026-02-15
    RemoteError: bad request: total: field lines[0].price: expected float, got str
    total takes a body with: customer, lines

No interface language and no generated code: dataclasses, msgspec Structs and builtins, which both programs import.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol

import trio

from nngkit import Client, RemoteError, Server


@dataclass
class Line:
    text: str
    price: float


@dataclass
class Invoice:
    customer: str
    lines: list[Line]


class Billing(Protocol):
    async def total(self, body: Invoice) -> float: ...
    def due(self, months: int) -> AsyncIterator[date]: ...


def billing() -> Server:
    """Return a provider of `billing`."""
    server = Server("billing", discovery=(), codec="json")

    @server.method
    async def total(body: Invoice) -> float:
        return sum(line.price for line in body.lines)

    @server.method
    async def due(months: int) -> AsyncIterator[date]:
        for month in range(months):
            yield date(2026, month + 1, 15)

    return server


async def main() -> None:
    invoice = Invoice("ada", [Line("paper", 2.5), Line("ink", 30.0), Line("pens", 10.0)])
    async with billing() as server, Client("billing", addresses=server.address, codec="json") as client:
        calls = client.typed(Billing)
        print(f"the invoice of {len(invoice.lines)} lines is {await calls.total(invoice)}")
        print("due:", *[day async for day in calls.due(2)])
        wrong: dict[str, Any] = {"customer": "ada", "lines": [{"text": "paper", "price": "2.5"}]}
        try:
            await client.request(wrong, method="total")  # of a program that knows no types
        except RemoteError as error:
            print(f"RemoteError: {error.kind}: {error.message}")
        schema = (await client.info())["schemas"]["total"]["body"]
        print("total takes a body with:", ", ".join(schema["$defs"]["Invoice"]["properties"]))


if __name__ == "__main__":
    trio.run(main)
