"""The extra `documents`: two peers, an edit, a store that is opened again, and one that is recovered after damage."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import trio

from nngkit.documents import DocumentPeer


async def edited() -> None:
    async with (
        DocumentPeer(listen="tcp://127.0.0.1:0", store="docs.sqlite") as peer,
        DocumentPeer(dial=[peer.address]) as other,
    ):
        peer.open("minutes").text("body").insert(0, "hello")
        await peer.open("minutes").durable()
        await other.open("minutes").joined(timeout=20)
        assert str(other.open("minutes").text("body")) == "hello"


async def reopened(store: str) -> str:
    async with DocumentPeer(listen="tcp://127.0.0.1:0", store=store) as peer:
        return str(peer.open("minutes").text("body"))


trio.run(edited)
assert trio.run(reopened, "docs.sqlite") == "hello"
argv = [sys.executable, "-m", "nngkit", "doc", "recover", "docs.sqlite", "new.sqlite"]
subprocess.run(argv, check=True, timeout=30)
assert trio.run(reopened, "new.sqlite") == "hello"
assert Path("docs.sqlite").exists()
