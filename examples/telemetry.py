"""Metrics: a service and its caller, as Prometheus reads them.

::

    pip install 'nngkit[telemetry]'
    python3 examples/telemetry.py

prints::

    nngkit_calls_server_requests_total{name="answer"} 3.0
    nngkit_calls_server_errors_total{kind="bad question",name="answer"} 1.0
    nngkit_calls_client_requests_total{name="answer"} 3.0
    nngkit_calls_client_failed_total{name="answer"} 1.0

A daemon of the command serves the same at `/metrics`: `nngkit discoverd --http 9090`. docs/telemetry.md
"""

from contextlib import suppress

import trio

from nngkit import Client, Server
from nngkit.errors import RemoteError
from nngkit.telemetry import Metrics

SHOWN = ("server_requests_total", "server_errors_total", "client_requests_total", "client_failed_total")


async def answer(question: int) -> int:
    if question < 0:
        raise RemoteError("a negative question", kind="bad question")
    return 42


async def main() -> None:
    metrics = Metrics()
    async with (
        Server("answer", answer, listen="tcp://127.0.0.1:0", codec="cbor") as server,
        Client("answer", addresses=server.address, codec="cbor") as client,
    ):
        metrics.watch(server)
        metrics.watch(client)
        await client.wait_for_providers(1, timeout=10)
        for question in (1, 2, -1):
            with suppress(RemoteError):
                await client.request(question, timeout=10)
        lines = metrics.text().decode().splitlines()
    for name in SHOWN:
        print(*[line for line in lines if line.startswith(f"nngkit_calls_{name}")], sep="\n")


if __name__ == "__main__":
    trio.run(main)
