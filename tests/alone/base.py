"""Without any extra: sockets, discovery and calls under trio, in threads and under asyncio; the command."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence

import trio

import nngkit.aio
import nngkit.blocking
from nngkit import Client, Server
from nngkit.discovery import Daemon, DaemonSettings
from nngkit.protocols import Pull, Push

ANY = "tcp://127.0.0.1:0"


def command(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "nngkit", *arguments]
    return subprocess.run(argv, input=given, capture_output=True, text=True, timeout=30)


async def answer(question: bytes) -> bytes:
    return question.upper()


async def calls() -> None:
    async with (
        Daemon(DaemonSettings(listen=(ANY,), query=(ANY,))) as daemon,
        Server("answer", answer, discovery=daemon.addresses),
        Client("answer", daemons=daemon.query_addresses) as client,
    ):
        assert await client.request(b"trio", timeout=20) == b"TRIO"
        with nngkit.blocking.Client("answer", daemons=daemon.query_addresses) as threaded:
            assert await trio.to_thread.run_sync(threaded.request, b"threads") == b"THREADS"
        await trio.to_thread.run_sync(asyncio.run, under_asyncio(daemon.query_addresses))


async def under_asyncio(daemons: Sequence[str]) -> None:
    async with nngkit.aio.Client("answer", daemons=daemons) as client:
        assert await client.request(b"asyncio", timeout=20) == b"ASYNCIO"


with Pull(listen=ANY) as pull:
    assert command("cat", "--push", "--connect", pull.address, "--data", "hello").returncode == 0
    assert pull.recv(timeout=20) == b"hello"
    with Push(dial=pull.address) as push:
        push.send(b"x", timeout=20)
        assert pull.recv(timeout=20) == b"x"
trio.run(calls)
for arguments, extra in (
    (("journal", "ls", "j"), "journal"),
    (("doc", "cat", "minutes", "--join", ANY), "documents"),
):
    done = command(*arguments)
    assert (done.returncode, f"pip install 'nngkit[{extra}]'" in done.stderr) == (2, True), done.stderr
assert command("--help").returncode == 0
