"""Durable streams: a recorded topic is read over HTTP, and an HTTP client has a stream of its own.

::

    python3 examples/durable_streams.py

prints::

    GET /topics/weather: 3 4
    GET /topics/weather?offset=...&live=long-poll: 5
    PUT /streams/chat: 201
    POST /streams/chat: 204
    GET /streams/chat: [{"by":"ada"},{"by":"bob"}]
    POST /streams/chat with Stream-Closed: 204, true
    POST /streams/chat: 409 closed

The gateway would be a process, `nngkit gateway --journal journal --streams streams`, beside `nngkit record`. Any client
of the Durable Streams Protocol will do, as any HTTP client.
"""

import json
import tempfile
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import trio

from nngkit.journal import Recorder
from nngkit.web.gateway import Gateway
from nngkit.web.server import serve

JSON = {"Content-Type": "application/json"}


def ask(method: str, url: str, body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(url, body, {**JSON, **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status, dict(reply.headers), reply.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def bodies(data: bytes) -> str:
    return " ".join(message["body"] for message in json.loads(data))


async def show(recorder: Recorder, url: str) -> None:
    asked = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
    _, headers, data = await asked(ask, "GET", f"{url}topics/weather")
    print("GET /topics/weather:", bodies(data))

    async def poll() -> None:
        where = f"{url}topics/weather?offset={headers['Stream-Next-Offset']}&live=long-poll"
        _, _, data = await asked(ask, "GET", where)
        print("GET /topics/weather?offset=...&live=long-poll:", bodies(data))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll)
        recorder.put(b"5", topic="weather", protocol="example")

    chat = f"{url}streams/chat"
    print("PUT /streams/chat:", (await asked(ask, "PUT", chat))[0])
    print("POST /streams/chat:", (await asked(ask, "POST", chat, b'[{"by":"ada"},{"by":"bob"}]'))[0])
    print("GET /streams/chat:", (await asked(ask, "GET", chat))[2].decode())
    status, headers, _ = await asked(partial(ask, "POST", chat, **{"Stream-Closed": "true"}))
    print(f"POST /streams/chat with Stream-Closed: {status}, {headers['Stream-Closed']}")
    status, _, data = await asked(ask, "POST", chat, b"{}")
    print(f"POST /streams/chat: {status} {json.loads(data)['code']}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal, streams = Path(folder, "journal"), Path(folder, "streams")
        async with Recorder(journal) as recorder:
            for value in (b"3", b"4"):
                recorder.put(value, topic="weather", protocol="example")
            await recorder.flush()
            gateway = Gateway(daemons="tcp://127.0.0.1:1", journal=journal, streams=streams)
            async with gateway, trio.open_nursery() as nursery:
                server = await nursery.start(partial(serve, gateway, limits=gateway.limits()))
                await show(recorder, server.url)
                nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
