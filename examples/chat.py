"""A chat over a cluster: each line of standard input goes to all others, also when the host of the cluster has left.

::

    python3 examples/chat.py

prints::

    ada: is this on?
    bob: it is
    ada leaves, and was the host
    cleo: did we lose anything?
    bob: not a word
    bob and cleo saw the same: yes

Without arguments it is a chat of three processes, whose lines the example types. In three terminals::

    python3 examples/chat.py ada tcp://127.0.0.1:7001
    python3 examples/chat.py bob tcp://127.0.0.1:7002
    python3 examples/chat.py cleo tcp://127.0.0.1:7003

The three are the voters of the cluster: two of them elect another host if one has gone. More may join, as
``python3 examples/chat.py dan``. On other machines, set CHAT_VOTERS to the addresses of the three.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator

import trio

from nngkit.cluster import ClusterMessage, Host, Member

NAMES = ("ada", "bob", "cleo")
PORTS = (7001, 7002, 7003)
ADDRESSES = os.environ.get("CHAT_VOTERS", " ".join(f"tcp://127.0.0.1:{port}" for port in PORTS)).split()
VOTERS = dict(zip(NAMES, ADDRESSES, strict=True))
LEAVING = 2  # seconds for a goodbye
PATIENCE = 25  # seconds for the example: its processes start in one on an idle machine


async def lines(descriptor: int) -> AsyncIterator[str]:
    """Yield lines of text as they are typed."""
    async with trio.lowlevel.FdStream(os.dup(descriptor)) as stream:
        rest = b""
        async for chunk in stream:
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace").strip()


async def chat(name: str, listen: str | None) -> None:
    """Run one member of the chat until the end of its input."""
    if listen is not None:
        preference = -NAMES.index(name)  # the first one hosts, if it is there
        node: Host | Member = Host("chat", listen=listen, id=name, voters=VOTERS, preference=preference)
    else:
        node = Member("chat", dial=VOTERS.values(), id=name)

    @node.on("line")
    async def show(message: ClusterMessage) -> None:
        print(f"{message.origin}: {message.body.decode()}", flush=True)

    async with node:
        await node.joined()  # two of three are enough
        print(f"* {name} is in the chat", file=sys.stderr, flush=True)
        async for line in lines(sys.stdin.fileno()):
            if line:
                await node.send("line", line.encode())
        with trio.move_on_after(LEAVING):
            await node.drain()  # a host hands over to another one


# ---- the chat of three processes -------------------------------------------------------------------------------------


class Seat:
    """A process of the chat, and the lines that it prints."""

    def __init__(self, name: str, listen: str, voters: str) -> None:
        self.name = name
        self.seen: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, __file__, name, listen],
            env={**os.environ, "CHAT_VOTERS": voters},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._input = self.process.stdin
        self.output, self.notes = lines(self.process.stdout.fileno()), lines(self.process.stderr.fileno())

    def type(self, line: str) -> None:
        self._input.write(f"{line}\n".encode())
        self._input.flush()

    async def leave(self) -> None:
        self._input.close()
        while self.process.poll() is None:  # noqa: ASYNC110 - a moment, and worth no thread
            await trio.sleep(0.01)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self._input, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


async def say(speaker: Seat, line: str, listeners: list[Seat]) -> None:
    """Type a line; print it as the others see it."""
    speaker.type(line)
    for listener in listeners:
        listener.seen.append(await anext(listener.output))
    print(listeners[-1].seen[-1])


async def main() -> None:
    folder = tempfile.TemporaryDirectory()  # of their addresses, which no other program takes
    addresses = [f"ipc://{folder.name}/{name}" for name in NAMES]
    seats = [Seat(name, address, " ".join(addresses)) for name, address in zip(NAMES, addresses, strict=True)]
    ada, bob, cleo = seats
    try:
        with trio.fail_after(PATIENCE):
            for seat in seats:
                await anext(seat.notes)  # it is in the chat
            await say(ada, "is this on?", [bob, cleo])
            await say(bob, "it is", [ada, cleo])
            print("ada leaves, and was the host")
            await ada.leave()
            await say(cleo, "did we lose anything?", [bob])
            await say(bob, "not a word", [cleo])
        whole = [sorted([*seat.seen, *said]) for seat, said in ((bob, SAID["bob"]), (cleo, SAID["cleo"]))]
        print("bob and cleo saw the same:", "yes" if whole[0] == whole[1] else "no")
    finally:
        for seat in seats:
            seat.kill()
        folder.cleanup()


SAID = {"bob": ["bob: it is", "bob: not a word"], "cleo": ["cleo: did we lose anything?"]}

if len(sys.argv) > 1:
    trio.run(chat, sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
else:
    trio.run(main)
