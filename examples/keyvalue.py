"""An in-memory key-value database: a REP server with JSON in and out, and a client of a few lines.

::

    python3 examples/keyvalue.py                                    the dialogue below
    python3 examples/keyvalue.py --serve tcp://127.0.0.1:7000       a server, until Ctrl-C

prints::

    -> {"do": "set", "key": "answer", "value": 42}
    <- {"ok": true}
    -> {"do": "get", "key": "answer"}
    <- {"ok": true, "value": 42}
    -> {"do": "set", "key": "colours", "value": ["red", "green"]}
    <- {"ok": true}
    -> {"do": "keys"}
    <- {"ok": true, "keys": ["answer", "colours"]}
    -> {"do": "delete", "key": "answer"}
    <- {"ok": true}
    -> {"do": "get", "key": "answer"}
    <- {"ok": false, "error": "no such key: answer"}
    -> {"do": "set", "key": 1}
    <- {"ok": false, "error": "key is not a string"}
    -> {"do": "dance"}
    <- {"ok": false, "error": "cannot do: dance"}
    -> this is not JSON
    <- {"ok": false, "error": "not a JSON object"}

Whatever comes in, an answer goes out: a client that sends nonsense is told so, and the server serves on. A request may
arrive twice (a client asks again when a connection breaks), so ``delete`` of a key that is gone is not an error.
With the server running, any nanomsg or NNG client will do::

    nngcat --req0 --dial tcp://127.0.0.1:7000 --data '{"do": "keys"}' --ascii
"""

import argparse
import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nngkit.protocols import Rep, Req

MOST_KEYS = 100_000  # memory is not endless, and anybody may ask


class Refused(Exception):
    """What the client is told instead of an answer."""


class Database:
    """The requests it understands are its methods that begin with ``do_``."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def answer(self, body: bytes) -> bytes:
        try:
            reply = {"ok": True, **self.carry_out(body)}
        except Refused as refusal:
            reply = {"ok": False, "error": str(refusal)}
        return json.dumps(reply).encode()

    def carry_out(self, body: bytes) -> dict[str, Any]:
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            raise Refused("not a JSON object")
        action = getattr(self, f"do_{request.get('do')}", None)
        if action is None:
            raise Refused(f"cannot do: {request.get('do')}")
        found: dict[str, Any] = action(request)
        return found

    def do_set(self, request: dict[str, Any]) -> dict[str, Any]:
        key = key_of(request)
        if "value" not in request:
            raise Refused("no value")
        if key not in self.values and len(self.values) >= MOST_KEYS:
            raise Refused(f"full: {MOST_KEYS} keys")
        self.values[key] = request["value"]
        return {}

    def do_get(self, request: dict[str, Any]) -> dict[str, Any]:
        key = key_of(request)
        if key not in self.values:
            raise Refused(f"no such key: {key}")
        return {"value": self.values[key]}

    def do_delete(self, request: dict[str, Any]) -> dict[str, Any]:
        self.values.pop(key_of(request), None)
        return {}

    def do_keys(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"keys": sorted(self.values)}


def key_of(request: dict[str, Any]) -> str:
    key = request.get("key")
    if not isinstance(key, str):
        raise Refused("key is not a string")
    return key


def serve(server: Rep) -> None:
    database = Database()
    for request in server:
        request.reply(database.answer(request.body))


def dialogue() -> None:
    questions = [
        {"do": "set", "key": "answer", "value": 42},
        {"do": "get", "key": "answer"},
        {"do": "set", "key": "colours", "value": ["red", "green"]},
        {"do": "keys"},
        {"do": "delete", "key": "answer"},
        {"do": "get", "key": "answer"},
        {"do": "set", "key": 1},
        {"do": "dance"},
    ]
    with (
        ThreadPoolExecutor() as threads,
        Rep(listen="tcp://127.0.0.1:0") as server,
        Req(dial=server.address) as client,
    ):
        threads.submit(serve, server)  # ends when the socket is closed
        for question in [*map(json.dumps, questions), "this is not JSON"]:
            print("->", question)
            print("<-", client.request(question.encode(), timeout=5).decode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An in-memory key-value database on a REP socket.")
    parser.add_argument("--serve", metavar="URL", help="serve there until Ctrl-C")
    url = parser.parse_args().serve
    if url is None:
        dialogue()
    else:
        with Rep(listen=url) as server, contextlib.suppress(KeyboardInterrupt):
            print(f"serving on {server.address}", flush=True)
            serve(server)
