"""Document benchmarks with pycrdt-websocket: a server under uvicorn, and clients over `websockets`.

Each is a process, as in ``_documents.py``, controlled through ``_control.py``: the first serves, the second writes, the
others read. All settings are defaults.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import Any, Final

import uvicorn
from _control import Commands, Controller
from _documents import NAME, delivered
from pycrdt import Doc, Provider, Text
from pycrdt.websocket import ASGIServer, WebsocketServer
from websockets.asyncio.client import ClientConnection, connect

SERVER: Final = 0


class Socket:
    """Adapts a `websockets` connection to the interface of Provider; pycrdt-websocket has an adapter for httpx only."""

    def __init__(self, websocket: ClientConnection) -> None:
        self._websocket = websocket

    @property
    def path(self) -> str:
        return NAME

    def __aiter__(self) -> Socket:
        return self

    async def __anext__(self) -> bytes:
        return await self.recv()

    async def send(self, message: bytes) -> None:
        await self._websocket.send(message)

    async def recv(self) -> bytes:
        message = await self._websocket.recv()
        assert isinstance(message, bytes)
        return message


class Client:
    """Client; its methods are its commands, as with _documents.Member."""

    def __init__(self, doc: Doc[Any]) -> None:
        self.text = doc.get("body", type=Text)
        self.seen: list[tuple[int, float]] = []
        self.changed = asyncio.Event()
        self._length = 0
        self._wanted = float("inf")
        self._noting = False
        self.text.observe(self._observed)

    def _observed(self, event: Any) -> None:
        length = len(self.text)
        if self._noting:
            self.seen.append((length, time.monotonic()))
        if length >= self._wanted:
            self.changed.set()

    async def type(self, seconds: float, rate: float) -> dict[str, Any]:
        typed: list[float] = []
        began = time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            typed.append(now)
            self.text += "x"
            if rate:
                await asyncio.sleep(max(0.0, began + len(typed) / rate - time.monotonic()))
            else:
                await asyncio.sleep(0)
        return {"typed": typed}

    async def watch(self) -> dict[str, Any]:
        self.seen = []
        self._noting = True
        return {}

    async def wait(self, seconds: float) -> dict[str, Any]:
        await asyncio.sleep(seconds)
        return {}

    async def filled(self, length: int) -> dict[str, Any]:
        self._wanted = length
        self.changed.clear()
        if len(self.text) < length:
            await self.changed.wait()
        self._wanted = float("inf")
        return {"reached": time.monotonic()}

    async def look(self) -> dict[str, Any]:
        return {"now": time.monotonic(), "cpu": time.process_time()}

    async def summary(self) -> dict[str, Any]:
        digest = hashlib.sha256(str(self.text).encode()).hexdigest()
        return {**await self.look(), "digest": digest, "seen": self.seen}


async def _obey(commands: Commands, client: Client) -> None:
    commands.reply({})
    while (order := await asyncio.to_thread(commands.next)) is not None:
        commands.reply(await getattr(client, order.pop("do"))(**order))


async def _serve(commands: Commands) -> None:
    async with WebsocketServer() as websockets:
        server = uvicorn.Server(uvicorn.Config(ASGIServer(websockets), port=0, log_level="critical"))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        commands.reply({"port": server.servers[0].sockets[0].getsockname()[1]})
        await asyncio.to_thread(commands.next)
        await _obey(commands, Client(Doc()))
        serving.cancel()


async def take_part(task: dict[str, Any]) -> None:
    """Serve, or connect, and execute commands until the end."""
    commands = Commands(task)
    commands.reply({})
    order = await asyncio.to_thread(commands.next)
    if order["role"] == SERVER:
        await _serve(commands)
        return
    commands.reply({})
    port = (await asyncio.to_thread(commands.next))["port"]
    doc: Doc[Any] = Doc()
    async with connect(f"ws://127.0.0.1:{port}/{NAME}") as websocket, Provider(doc, Socket(websocket)) as provider:
        await provider.synced.wait()
        await _obey(commands, Client(doc))


def deliver(task: dict[str, Any]) -> None:
    """One peer writes; measure delivery to the others."""
    controller = Controller(task["others"])
    port = controller.to_each([{"role": role} for role in range(task["others"])])[SERVER]["port"]
    for index in range(task["others"]):  # its room fails ("already running") if two clients enter at once
        controller.to_one(index, {"port": port})
    delivered(controller, task, viewers=range(2, task["others"]), writer=1)
