"""Ends of the sockets' pairs for `outages.py`: an async function for each side, which runs until it is killed."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio
from _outage_records import READ, REPORTED, SENT, UP, Notes

from nngkit.protocols import TLS, Bus, Pair1, Pub, Pull, Push, Rep, Req, Respondent, Sub, Surveyor

PACE: Final = 0.05  # seconds between two messages
_BODY: Final = struct.Struct("=qq")


@dataclass(frozen=True)
class End:
    """One end of a pair. `here`, `there`: the addresses of the two hosts; `port`: the first of ten of the pair."""

    pair: int
    here: str
    there: str
    port: int
    scheme: str
    run: int
    folder: Path
    certificates: dict[str, str]
    notes: Notes

    def url(self, *, listens: bool, port: int = 0) -> str:
        """Return an address of this host to listen at, or of the other one to dial."""
        return f"{self.scheme}://{self.here if listens else self.there}:{self.port + port}{self._path}"

    @property
    def _path(self) -> str:
        return "/bench" if self.scheme.startswith("ws") else ""

    def body(self, number: int) -> bytes:
        """Note that a message is sent now; return it."""
        self.notes.write(SENT, self.pair, self.run, number)
        return _BODY.pack(self.run, number)

    def read(self, body: bytes) -> None:
        """Note a message that has been read."""
        self.notes.write(READ, self.pair, *_BODY.unpack(body[: _BODY.size]))

    def reported(self, count: int) -> None:
        """Note that the reader was told of lost messages."""
        if count:
            self.notes.write(REPORTED, self.pair, self.run, count)

    def up(self) -> None:
        """Note that this end listens or dials."""
        self.notes.write(UP, self.pair, self.run, 0)

    def at(self, *, listens: bool) -> dict[str, Any]:
        """Return the options of a socket."""
        options: dict[str, Any] = {"listen" if listens else "dial": self.url(listens=listens)}
        if self.scheme in ("tls+tcp", "wss"):
            names = ("cert", "key") if listens else ("ca",)
            keys = {name: self.certificates[name] for name in names}
            options["tls"] = TLS(**keys, server_name=None if listens else "localhost")
        return options


async def paced(end: End, send: Callable[[bytes], Awaitable[object]]) -> None:
    """Send numbered messages for ever."""
    number = 0
    while True:
        number += 1
        await send(end.body(number))
        await trio.sleep(PACE)


async def push(end: End, *, listens: bool) -> None:
    with Push(**end.at(listens=listens)) as socket:
        end.up()
        await paced(end, socket.asend)


async def pull(end: End, *, listens: bool) -> None:
    with Pull(**end.at(listens=listens)) as socket:
        end.up()
        async for message in socket:
            end.read(message)


async def publish(end: End, *, listens: bool) -> None:
    with Pub(sequence=True, **end.at(listens=listens)) as socket:
        end.up()
        await paced(end, socket.asend)


async def subscribe(end: End, *, listens: bool) -> None:
    with Sub(topics=b"", sequence=True, **end.at(listens=listens)) as socket:
        end.up()
        told = 0
        async for message in socket:
            end.read(message)
            lost = socket.stats.lost
            end.reported(lost - told)
            told = lost


async def both_ways(end: End, socket: Any) -> None:
    """Send, and read what the other end sends."""
    with socket:
        end.up()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(paced, end, socket.asend)
            async for message in socket:
                end.read(message)


async def pair(end: End, *, listens: bool) -> None:
    await both_ways(end, Pair1(**end.at(listens=listens)))


async def bus(end: End, *, listens: bool) -> None:
    await both_ways(end, Bus(**end.at(listens=listens)))


async def request(end: End, *, listens: bool) -> None:
    with Req(**end.at(listens=listens)) as socket:
        end.up()

        async def ask(body: bytes) -> None:
            end.read(await socket.arequest(body))

        await paced(end, ask)


async def reply(end: End, *, listens: bool) -> None:
    with Rep(**end.at(listens=listens)) as socket:
        end.up()
        async for question in socket:
            await question.areply(question.body)


async def survey(end: End, *, listens: bool) -> None:
    with Surveyor(**end.at(listens=listens)) as socket:
        end.up()

        async def ask(body: bytes) -> None:
            replies = (await socket.asurvey(body, 0.5, early=True)).replies
            for each in replies:
                end.read(each.body)
            end.reported(not replies)

        await paced(end, ask)


async def respond(end: End, *, listens: bool) -> None:
    with Respondent(**end.at(listens=listens)) as socket:
        end.up()
        async for question in socket:
            await question.areply(question.body)
