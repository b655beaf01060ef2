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
    """One end of a pair. `here`, `there`: the addresses of the two hosts; `port`: the first of ten of the pair.

    It also serves the functions of `_fault_rooms`, whose channels are one here.
    """

    pair: int
    here: str
    there: str
    port: int
    scheme: str
    run: int
    data: Path
    certificates: dict[str, str]
    notes: Notes
    listens: bool
    pad: bytes = b""

    @property
    def ports(self) -> list[str]:
        """Addresses of the host that listens."""
        host, path = self.here if self.listens else self.there, "/bench" if self.scheme.startswith("ws") else ""
        return [f"{self.scheme}://{host}:{self.port + each}{path}" for each in range(10)]

    @property
    def role(self) -> str:
        """Its place in a line of a mesh."""
        return "middle" if self.listens else "left"

    def body(self, number: int) -> bytes:
        """Note that a message is sent now; return it."""
        self.notes.write(SENT, self.pair, self.run, number)
        return _BODY.pack(self.run, number)

    def note(self, kind: bytes, number: int = 0, *, channel: int = 0) -> None:
        self.notes.write(kind, self.pair, self.run, number)

    def seen(self, kind: bytes, body: bytes, channel: int = 0) -> None:
        """Note a message that has come."""
        self.notes.write(kind, self.pair, *_BODY.unpack(body[: _BODY.size]))

    async def paced(self, send: Callable[[bytes], Awaitable[object]], channel: int = 0, *, keeps: bool = False) -> None:
        """Send numbered messages for ever."""
        number = 0
        while True:
            number += 1
            await send(self.body(number))
            await trio.sleep(PACE)

    def at(self) -> dict[str, Any]:
        """Return the options of a socket."""
        options: dict[str, Any] = {"listen" if self.listens else "dial": self.ports[0]}
        if self.scheme in ("tls+tcp", "wss"):
            names = ("cert", "key") if self.listens else ("ca",)
            keys = {name: self.certificates[name] for name in names}
            options["tls"] = TLS(**keys, server_name=None if self.listens else "localhost")
        return options


async def push(end: End) -> None:
    with Push(**end.at()) as socket:
        end.note(UP)
        await end.paced(socket.asend)


async def pull(end: End) -> None:
    with Pull(**end.at()) as socket:
        end.note(UP)
        async for message in socket:
            end.seen(READ, message)


async def publish(end: End) -> None:
    with Pub(sequence=True, **end.at()) as socket:
        end.note(UP)
        await end.paced(socket.asend)


async def subscribe(end: End) -> None:
    with Sub(topics=b"", sequence=True, **end.at()) as socket:
        end.note(UP)
        told = 0
        async for message in socket:
            end.seen(READ, message)
            lost = socket.stats.lost
            if lost > told:
                end.note(REPORTED, lost - told)
            told = lost


async def both_ways(end: End, socket: Any) -> None:
    """Send, and read what the other end sends."""
    with socket:
        end.note(UP)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end.paced, socket.asend)
            async for message in socket:
                end.seen(READ, message)


async def pair(end: End) -> None:
    await both_ways(end, Pair1(**end.at()))


async def bus(end: End) -> None:
    await both_ways(end, Bus(**end.at()))


async def request(end: End) -> None:
    with Req(**end.at()) as socket:
        end.note(UP)

        async def ask(body: bytes) -> None:
            end.seen(READ, await socket.arequest(body))

        await end.paced(ask)


async def reply(end: End) -> None:
    with Rep(**end.at()) as socket:
        end.note(UP)
        async for question in socket:
            await question.areply(question.body)


async def survey(end: End) -> None:
    with Surveyor(**end.at()) as socket:
        end.note(UP)

        async def ask(body: bytes) -> None:
            replies = (await socket.asurvey(body, 0.5, early=True)).replies
            for each in replies:
                end.seen(READ, each.body)
            if not replies:
                end.note(REPORTED, 1)

        await end.paced(ask)


async def respond(end: End) -> None:
    with Respondent(**end.at()) as socket:
        end.note(UP)
        async for question in socket:
            await question.areply(question.body)
