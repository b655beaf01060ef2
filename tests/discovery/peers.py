"""Helpers of the discovery tests: raw peers, other processes, and waiting.

A `RawPeer` is a connection of a SURVEYOR or RESPONDENT with hand-made frames, honest or hostile. `program` starts the
programs of the folder beside this file as processes.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import trio

from nngkit.discovery import Event, Provider, Resolver, ServiceDiscovery, State
from nngkit.discovery.messages import SurveyQuery, SurveyReply, parse_survey_query
from nngkit.errors import ServiceNotFound
from nngkit.testing import aeventually
from tests.preloaded import Popen

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs")
WAIT = 15.0  # seconds for any one event, on a busy machine
SURVEYOR, RESPONDENT, REQ = 98, 99, 48


def record(name: str = "answer", number: int = 1, **fields: object) -> Provider:
    """Return a provider record."""
    return Provider(name, f"tcp://10.0.0.{number}:9000", f"id{number}", 1, **fields)  # type: ignore[arg-type]


def says(*records: Provider, sender: str = "raw", relay: bool = False) -> bytes:
    """Return the CBOR reply of a process with `records`."""
    return SurveyReply(sender, records, relay=relay).encode()


class RawPeer:
    """A tcp connection with NNG's framing: 8 bytes of length, then protocol header and body."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._bytes = b""

    @classmethod
    async def connect(cls, address: str, protocol: int = RESPONDENT) -> Self:
        """Dial, and send the hello of `protocol`."""
        host, port = address.removeprefix("tcp://").rsplit(":", 1)
        peer = cls(await trio.open_tcp_stream(host, int(port)))
        await peer._stream.send_all(b"\0SP\0" + struct.pack(">HH", protocol, 0))
        await peer._take(8)
        return peer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.aclose()

    async def send_bytes(self, data: bytes) -> None:
        """Send raw bytes."""
        await self._stream.send_all(data)

    async def send(self, header: bytes, body: bytes) -> None:
        """Send a message."""
        await self._stream.send_all(struct.pack(">Q", len(header) + len(body)) + header + body)

    async def recv(self) -> tuple[bytes, bytes]:
        """Return the next message: its header (one word), its body."""
        (size,) = struct.unpack(">Q", await self._take(8))
        whole = await self._take(size)
        return whole[:4], whole[4:]

    async def query(self) -> tuple[bytes, SurveyQuery | None]:
        """Return the next survey: the header for its reply, and the query; None for the text query."""
        with trio.fail_after(WAIT):
            header, body = await self.recv()
        return header, parse_survey_query(body)

    async def cbor_query(self) -> tuple[bytes, SurveyQuery]:
        """Return the next CBOR survey."""
        while True:
            header, query = await self.query()
            if query is not None:
                return header, query

    async def answer_all(self, body: bytes) -> None:
        """Answer each CBOR query, for ever."""
        while True:
            header, query = await self.query_for_ever()
            if query is not None:
                await self.send(header, body)

    async def query_for_ever(self) -> tuple[bytes, SurveyQuery | None]:
        """Return the next survey, without a timeout."""
        header, body = await self.recv()
        return header, parse_survey_query(body)

    async def ended(self) -> bool:
        """Wait for the other side to close; return False if it does not."""
        with trio.move_on_after(WAIT):
            while True:
                try:
                    if not await self._stream.receive_some():
                        return True
                except trio.BrokenResourceError:
                    return True
        return False

    async def _take(self, size: int) -> bytes:
        while len(self._bytes) < size:
            if not (more := await self._stream.receive_some()):
                raise ConnectionError("the other side has closed the connection")
            self._bytes += more
        taken, self._bytes = self._bytes[:size], self._bytes[size:]
        return taken


def found(discovery: ServiceDiscovery, name: str = "answer") -> Callable[[], bool]:
    """Return a condition: True once `name` can be resolved."""

    def there() -> bool:
        try:
            return bool(discovery.resolve(name))
        except ServiceNotFound:
            return False

    return there


def states(discovery: ServiceDiscovery) -> dict[str, State]:
    """Return the state of each provider, by address."""
    return {row.provider.address: row.state for row in discovery.view()}


class Watcher:
    """Collects the events of a discovery or a resolver, for tests that wait for one."""

    def __init__(self, discovery: ServiceDiscovery | Resolver) -> None:
        self.seen: list[Event] = []
        self._discovery = discovery

    async def run(self) -> None:
        """Collect events; start it in a nursery."""
        async for event in self._discovery.events():
            self.seen.append(event)

    async def wait(self, state: State, name: str = "answer", timeout: float = WAIT) -> Event:
        """Return the first event in which `name` enters `state`."""
        await aeventually(lambda: any(event.new is state and event.name == name for event in self.seen), timeout)
        return next(event for event in self.seen if event.new is state and event.name == name)


@contextmanager
def program(name: str, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run one of the programs beside this file until the block ends; it prints a line when it is ready."""
    process = Popen(
        [sys.executable, str(PROGRAMS / f"{name}.py"), *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
