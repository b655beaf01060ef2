"""A shared note: three processes edit one text concurrently, and converge.

::

    python3 examples/shared_note.py

prints::

    the note of home, ada and grace:
        ada: I bring the cake 🎂
        grace: und ich das Geschirr
        home: who brings what?
    all three hold the same: yes

The first process listens and has a store; the two others dial it, write, and wait until their edits are on its disk.
Each line stays intact, wherever the others insert meanwhile.

In a terminal and a browser: run one peer, and join it from any number of terminals::

    nngkit doc serve notes                                     # prints a link for browsers (page: python3 dev.py web)
    nngkit doc edit note --join 'ws://127.0.0.1:4712/repair#token=...'        # as printed on its second line
    nngkit doc cat note --follow --join 'ws://127.0.0.1:4712/repair#token=...'
"""

import sys
import tempfile
from pathlib import Path

import trio

from nngkit.documents import Document, DocumentPeer

LINES = {"home": "who brings what?", "ada": "I bring the cake 🎂", "grace": "und ich das Geschirr"}
PATIENCE = 15  # seconds


async def until_all_wrote(note: Document) -> None:
    changes = note.changes()
    with trio.fail_after(PATIENCE):
        while str(note.text("body")).count("\n") < len(LINES):
            await anext(changes)


async def write(name: str, address: str) -> None:
    """Run the second or third process."""
    async with DocumentPeer(dial=address, name=name) as peer:
        note = peer.open("note")
        await note.joined(PATIENCE)
        note.text("body").append(f"{name}: {LINES[name]}\n")
        await until_all_wrote(note)
        await note.synced(1, PATIENCE)  # on the disk of home
        print(note.digest().hex())


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with DocumentPeer(listen="tcp://127.0.0.1:0", store=Path(folder, "note.sqlite"), name="home") as peer:
            note = peer.open("note")
            note.text("body").insert(0, f"home: {LINES['home']}\n")
            digests: list[str] = []

            async def process(name: str) -> None:
                command = [sys.executable, __file__, name, peer.address]
                done = await trio.run_process(command, capture_stdout=True)
                digests.append(done.stdout.decode().strip())

            async with trio.open_nursery() as nursery:
                for name in ("ada", "grace"):
                    nursery.start_soon(process, name)
            print("the note of home, ada and grace:")
            for line in sorted(str(note.text("body")).splitlines()):
                print(f"    {line}")
            same = {*digests, note.digest().hex()}
            print(f"all three hold the same: {'yes' if len(same) == 1 else 'no'}")


if len(sys.argv) == 3:
    trio.run(write, *sys.argv[1:])
else:
    trio.run(main)
