"""Headers and middleware: who calls travels beside the body, from client to server, and with published messages.

    python3 examples/headers.py

prints::

    ada called hello with 'world': 1 attempt, 14 bytes
    hello, world, from server 1
    RemoteError: unauthenticated: no user
    weather.oslo is 3, by ada

A middleware is an async function around each call: the client's sets a header and notes the outcome, the server's
refuses calls without it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace

import trio

from nngkit import Client, Publisher, RemoteError, Server, Subscriber
from nngkit.calls import Calling, ClientCall, Proceed, Reply

user: ContextVar[str] = ContextVar("user", default="")


async def as_user(call: ClientCall, proceed: Proceed) -> Reply:
    """Send the user's name with each call, and tell what became of it."""
    if user.get():
        call.headers["user"] = user.get()
    reply = await proceed(call)
    print(
        f"{user.get()} called {call.method} with {call.body!r}: {len(call.attempts)} attempt, {len(reply.body)} bytes"
    )
    return reply


async def with_user(call: Calling, proceed: Proceed) -> Reply:
    """Refuse calls without a user."""
    if "user" not in call.headers:
        raise RemoteError("no user", kind="unauthenticated")
    reply = await proceed(call)
    return replace(reply, headers={"server": "1"})


async def main() -> None:
    server = Server("greeter", discovery=(), codec="json", middleware=[with_user])

    @server.method
    async def hello(name: str) -> str:
        return f"hello, {name}, "

    async with server, Client("greeter", addresses=server.address, codec="json", middleware=[as_user]) as greeter:
        user.set("ada")
        reply = await greeter.call("world", method="hello")
        print(f"{reply.body}from server {reply.headers['server']}")
        user.set("")
        try:
            await greeter.request("world", method="hello")
        except RemoteError as error:
            print(f"RemoteError: {error.kind}: {error.message}")

    async with Publisher("tcp://127.0.0.1:0") as publisher, Subscriber(publisher.address) as subscriber:
        await publisher.wait_for_peers(1)
        publisher.publish("weather.oslo", b"3", headers={"user": "ada"})
        message = await anext(subscriber.messages())
        print(f"{message.topic.decode()} is {message.body.decode()}, by {(message.headers or {})['user']}")


if __name__ == "__main__":
    trio.run(main)
