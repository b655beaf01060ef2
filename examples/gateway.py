"""The gateway: an HTTP client calls a service, reads a stream, and publishes to a program that subscribes.

::

    python3 examples/gateway.py

prints::

    POST /call/calc/double {"n": 21}: 200 42
    POST /call/calc/count 3: 0 1 2
    POST /call/calc/root -1: 422 negative
    POST /call/unknown: 404 not-found
    POST /pub?topic=weather.ny: 202
    a subscriber got weather.ny 4
    GET /sub?topic=weather.&last=1: weather.ny 4

The gateway would be a process, `nngkit gateway --publish tcp://127.0.0.1:7001`; here it runs beside the service and its
discovery daemon. Any HTTP client will do.
"""

import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from functools import partial

import trio

from nngkit import RemoteError, Server
from nngkit.discovery import Daemon, DaemonSettings
from nngkit.fanout import Subscriber
from nngkit.web.gateway import Gateway
from nngkit.web.server import serve

# ---- the service -----------------------------------------------------------------------------------------------------


async def double(body: dict[str, int]) -> int:
    return 2 * body["n"]


async def count(most: int) -> AsyncIterator[int]:
    for number in range(most):
        yield number


async def root(number: int) -> float:
    if number < 0:
        raise RemoteError("of a negative number", kind="negative")
    return float(number**0.5)


# ---- an HTTP client --------------------------------------------------------------------------------------------------


def post(url: str, body: bytes, **headers: str) -> tuple[int, str]:
    sent = {"Content-Type": "application/json", **headers}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, sent), timeout=10) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["code"]


def first_event(url: str) -> dict[str, str]:
    with urllib.request.urlopen(url, timeout=10) as reply:
        for line in reply:
            if line.startswith(b"data: "):
                event: dict[str, str] = json.loads(line.removeprefix(b"data: "))
                return event
    raise EOFError


async def show(gateway: Gateway, url: str) -> None:
    ask = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
    while "calc" not in (await ask(lambda: urllib.request.urlopen(f"{url}services", timeout=10).read())).decode():  # noqa: ASYNC110
        await trio.sleep(0.01)
    status, reply = await ask(post, f"{url}call/calc/double", b'{"n": 21}')
    print(f'POST /call/calc/double {{"n": 21}}: {status} {reply}')
    streamed = partial(post, Accept="application/x-ndjson")
    _, reply = await ask(streamed, f"{url}call/calc/count", b"3")
    print(f"POST /call/calc/count 3: {' '.join(reply.split())}")
    status, reply = await ask(post, f"{url}call/calc/root", b"-1")
    print(f"POST /call/calc/root -1: {status} {reply}")
    status, reply = await ask(post, f"{url}call/unknown", b"")
    print(f"POST /call/unknown: {status} {reply}")
    assert gateway.address is not None
    async with Subscriber(gateway.address, topics="weather.") as subscriber:
        await subscriber.wait_for_peers()
        status, _ = await ask(post, f"{url}pub?topic=weather.ny", b"4")
        print(f"POST /pub?topic=weather.ny: {status}")
        async for message in subscriber.messages():
            print(f"a subscriber got {message.topic.decode()} {message.body.decode()}")
            break
    event = await ask(first_event, f"{url}sub?topic=weather.&last=1")
    print(f"GET /sub?topic=weather.&last=1: {event['topic']} {event['body']}")


async def main() -> None:
    async with Daemon(DaemonSettings(listen=("tcp://127.0.0.1:0",))) as daemon:
        calc = Server("calc", discovery=daemon.addresses, codec="cbor")
        for method in (double, count, root):
            calc.method(method)
        gateway = Gateway(daemons=daemon.query_addresses, publish="tcp://127.0.0.1:0")
        async with calc, gateway, trio.open_nursery() as nursery:
            server = await nursery.start(partial(serve, gateway, limits=gateway.limits()))
            await show(gateway, server.url)
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
