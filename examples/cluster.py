"""A cluster as in Tyler Treat's Zinc: a host and two clients, a message and a document each.

::

    python3 examples/cluster.py

prints::

    clients of host: ada, grace
    grace and host heard ada: hello from ada
    ada and host heard grace: hello from grace
    the document at ada: {'ada': 'tea', 'grace': 'coffee'}
    the document at grace: {'ada': 'tea', 'grace': 'coffee'}
    the document at host: {'ada': 'tea', 'grace': 'coffee'}

Zinc's words: an *endpoint* hosts, or is a *client* of one that does. *Listeners* hear *messages*. A *document* has a
full state; *fragments* change it, at all endpoints in one order. An *authenticator* decides on clients, here by token.
"""

from contextlib import AsyncExitStack

import trio

from nngkit.cluster import Host, Member

CLIENTS = {"ada": "tea", "grace": "coffee"}


class Orders:
    """A document: it takes fragments, and gives and takes its full state."""

    def __init__(self) -> None:
        self.drinks: dict[str, str] = {}

    def update(self, fragment: bytes) -> None:
        name, drink = fragment.decode().split()
        self.drinks[name] = drink

    def full_state(self) -> bytes:
        return "\n".join(map(" ".join, self.drinks.items())).encode()

    def load(self, state: bytes) -> None:
        self.drinks = dict(line.split() for line in state.decode().splitlines())


async def main() -> None:
    send_heard, heard = trio.open_memory_channel[str](10)
    send_added, added = trio.open_memory_channel[str](10)
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(Host("office", listen="tcp://127.0.0.1:0", id="host", token="s3cret"))
        host.on_client_added(send_added.send_nowait)
        clients = [Member("office", dial=host.address, id=name, token="s3cret") for name in CLIENTS]
        endpoints = [host, *[await stack.enter_async_context(client) for client in clients]]
        for endpoint in endpoints:

            @endpoint.on("greeting")
            async def listener(message, name=endpoint.id):
                await send_heard.send(f"{name} heard {message.origin}: {message.body.decode()}")

            await endpoint.joined(timeout=5)
        orders = {endpoint.id: endpoint.share("orders", Orders()) for endpoint in endpoints}
        print("clients of host:", ", ".join(sorted([await added.receive() for _ in clients])))

        for client in clients:
            await client.send("greeting", f"hello from {client.id}".encode())
            one, other = sorted([await heard.receive(), await heard.receive()])
            print(f"{one.split()[0]} and {other}")
        for client in clients:
            await orders[client.id].change(f"{client.id} {CLIENTS[client.id]}".encode())
        for name, document in sorted(orders.items()):
            while len(document.content.drinks) < len(CLIENTS):
                await document.wait_for_change()
            print(f"the document at {name}: {document.content.drinks}")


trio.run(main)
